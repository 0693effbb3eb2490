"""The options there are, what was decided about each on which figures, and what would reopen it."""
