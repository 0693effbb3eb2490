"""Trials between servers that run already: requests interleaved, nothing started, nothing stopped."""
