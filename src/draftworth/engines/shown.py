"""Cuts text that goes into a message."""

LONGEST = 160
"""Characters of a command or of a value in a message."""


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text, or its beginning and an ellipsis where it is longer than that."""
    return text if len(text) <= longest else text[:longest] + "…"
