"""Where the milliseconds between two arms went, each part measured apart from their difference."""
