"""Prompts that must stay unseen, such as benchmarks: whatever shares 13 words in a row with one of them is left out.

Thirteen words are what GPT-3's authors took for the overlap of training data and benchmarks (arXiv 2005.14165, appendix
C). A text of fewer words is met only as a whole. Words are runs of letters and digits in lower case.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import records, sample
from draftworth.traces.jsonl import lines

WORDS = 13
_LEAST = 4
"""Texts of fewer words than this ("yes", "thank you") say nothing of where they are from."""
_WORD = re.compile(r"\w+")


class Unseen:
    """The texts that must stay unseen.

    Attributes:
        texts: how many there are.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts = 0
        self._grams: set[int] = set()
        self._short: set[int] = set()
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Take in a text; one of fewer than four words is none."""
        words = _words(text)
        if len(words) < _LEAST:
            return
        self.texts += 1
        if len(words) < WORDS:
            self._short.add(hash(tuple(words)))
        else:
            self._grams.update(_grams(words))

    def meets(self, text: str) -> bool:
        """Tell whether a text shares 13 words in a row with one of them, or is one of the shorter ones."""
        words = _words(text)
        if len(words) < WORDS:
            return hash(tuple(words)) in self._short
        return any(gram in self._grams for gram in _grams(words))


def read_unseen(files: Sequence[Path]) -> Unseen:
    """Return the texts of files: every text of a row of JSON lines or Parquet, every line of anything else.

    Raises:
        UsageError: a file cannot be read or holds no text.
    """
    found = Unseen()
    for file in files:
        before = found.texts
        for text in _texts(file):
            found.add(text)
        if found.texts == before:
            raise UsageError(f"{file}: no text of four words or more to exclude")
    return found


def _texts(file: Path) -> Iterator[str]:
    if file.is_dir():
        raise UsageError(f"{file}: a folder; `exclude` takes files")
    begin = sample(file)
    if not begin.first and begin.fault is None:
        yield from (line.decode("utf-8", "replace") for _, line in lines(file))
        return
    for where, row in records(file):
        if isinstance(row, BadRow):
            raise UsageError(f"{where}: {row}; what cannot be read cannot be excluded")
        yield from _inside(row)


def _inside(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _inside(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _inside(one)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _grams(words: Sequence[str]) -> Iterator[int]:
    return (hash(tuple(words[at : at + WORDS])) for at in range(len(words) - WORDS + 1))
