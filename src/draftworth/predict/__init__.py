"""Replay joined with costs: the speed-up of every setting, with its interval, before any reload."""
