"""What a step's time is spent on, out of profiles: kernels by class, idle and host time."""
