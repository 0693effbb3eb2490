"""Reads version numbers of the form most engines use."""

import re

Release = tuple[int, int, int]

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def number(version: str | None) -> Release | None:
    """Return a version's first three numbers, `0.5.12.post1` as (0, 5, 12); None where it is not one."""
    match = _VERSION.match(version or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None
