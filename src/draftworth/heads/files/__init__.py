"""Reading checkpoints of many GB in seconds and constant memory: headers, slices, small files."""
