"""Heads and draft models: whether a checkpoint can be served with a target, told from files alone."""
