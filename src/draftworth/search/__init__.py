"""Which setting of a grid to start next, and when to stop: decided from predictions and what was measured so far."""
