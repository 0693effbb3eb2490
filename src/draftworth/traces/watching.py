"""What a recording makes of requests that fail: whether the server is gone, and which errors are the same."""

import re

from draftworth.bench.base import RequestRow, Target
from draftworth.bench.failures import CLOSED
from draftworth.errors import MeasureError

REFUSED = 8
"""Requests in a row that could not connect, after which the server is gone."""
_NOT_CONNECTED = ("connection refused by ", "cannot connect to ")
_VARIES = re.compile(r"(?<!HTTP )\b(?:\d[\d,.]*\d|\d|[0-9a-f][0-9a-f-]{7,})\b")
"""What differs between errors of one kind: numbers, and ids in hexadecimal digits."""
_SENTENCE = 20


class Watch:
    """Sees that the server is still there."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._refused = 0
        self._last = ""

    def see(self, row: RequestRow) -> None:
        """Take in how a request ended.

        Raises:
            MeasureError: it was the last of so many that could not connect.
        """
        error = "" if row.ok else row.error or ""
        refused = error.startswith(_NOT_CONNECTED)
        self._refused = self._refused + 1 if refused else 0
        self._last = error if refused or error == CLOSED else ""
        if self._refused >= REFUSED:
            raise MeasureError(f"the server is gone: {error}, {self._refused} times in a row")

    def end(self) -> None:
        """See whether a server that broke off the last request is there.

        Raises:
            MeasureError: it is not.
        """
        from draftworth.bench.probes import served_models_sync  # noqa: PLC0415 - lazy

        if not self._last:
            return
        try:
            served_models_sync(self._target.base_url, access=self._target.access)
        except MeasureError:
            raise MeasureError(f"the server is gone: {self._last}") from None


class Reasons:
    """Takes errors for the same that differ in numbers only, as in how many tokens a prompt has too many."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, reason: str) -> str:
        """Return the first reason of this kind."""
        return self._known.setdefault(_VARIES.sub("#", reason), reason)


def whole(text: str) -> str:
    """Return an error that was cut off up to its last whole sentence."""
    if not text.endswith("…"):
        return text
    kept, stop, _ = text.rpartition(". ")
    return f"{kept}. …" if stop and len(kept) >= _SENTENCE else text
