"""Draftworth: is the draft worth it? Speculative decoding, measured and decided on your own service."""

__version__ = "0.1.0"
