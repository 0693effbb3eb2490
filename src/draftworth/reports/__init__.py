"""A trial's record for people: Markdown."""
