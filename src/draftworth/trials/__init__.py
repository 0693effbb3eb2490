"""Trials: observe, plan, execute with a journal, restore."""
