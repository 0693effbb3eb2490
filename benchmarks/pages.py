"""Puts what a script has made between its two marks in a page of docs/."""

from collections.abc import Sequence
from pathlib import Path


def write_between(page: Path, marks: tuple[str, str], lines: Sequence[str]) -> None:
    """Replace what stands between two marks of a page."""
    begin, end = marks
    before, rest = page.read_text(encoding="utf-8").split(begin, 1)
    page.write_text(f"{before}{begin}\n{chr(10).join(lines)}\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
