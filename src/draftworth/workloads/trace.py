"""Recorded traffic: the token ids of prompts and of their answers."""

from collections.abc import Sequence
from datetime import UTC, datetime

from draftworth.bench.base import Prompt
from draftworth.errors import UsageError
from draftworth.workloads import fields
from draftworth.workloads.base import Row

_OPTIONAL = ("request_id", "category", "output_token_ids", "arrival_s", "arrived_unix", "timestamp")
_LARGEST_ID = 1 << 31
# The year 5138 in seconds, 1973 in milliseconds.
_TOO_LATE = 1e11


class Trace:
    """One recorded request a row: `prompt_token_ids`, and optionally `request_id` and `category`.

    Also read: the time it came at, as the first there is of `arrival_s` (seconds from any fixed moment),
    `arrived_unix` (seconds since 1970) and `timestamp` (the same, or a date and time as ISO 8601 writes it, UTC where
    it names no zone).

    Args:
        recorded_lengths: bound each answer to the length of the recorded one, `output_token_ids`.
        max_tokens: the sampling's own bound in tokens, which a recorded length never exceeds; None for none.
    """

    name = "trace"
    title = "recorded traffic: prompt_token_ids"
    skips_repeated_ids = False

    def __init__(self, *, recorded_lengths: bool = False, max_tokens: int | None = None) -> None:
        self._recorded_lengths = recorded_lengths
        self._max_tokens = max_tokens

    def fits(self, keys: frozenset[str]) -> bool:
        """Return whether there are token ids of a prompt."""
        return "prompt_token_ids" in keys

    def prompt(self, row: Row) -> Prompt:
        """Return the row's prompt; see `Layout.prompt`."""
        fields.check_spelling(row, _OPTIONAL)
        ids = _token_ids(row, "prompt_token_ids")
        if not ids:
            raise UsageError(f'{row.where}: "prompt_token_ids" is empty')
        length = None
        if self._recorded_lengths:
            # An answer that was cut off before its first token still takes one to ask for.
            length = max(1, len(_token_ids(row, "output_token_ids")))
            if self._max_tokens is not None:
                length = min(length, self._max_tokens)
        return Prompt(
            id=fields.identity(row, ("request_id",), f"request-{row.number}"),
            category=fields.category(row, "recorded"),
            token_ids=tuple(ids),
            max_tokens=length,
            arrival_s=_arrival(row),
        )


def _token_ids(row: Row, key: str) -> Sequence[int]:
    what = f'{row.where}: "{key}"'
    value = row.data.get(key)
    if not isinstance(value, list):
        raise UsageError(f"{what} must be a list of token ids, not {fields.kind(value)}")
    # `type` and not `isinstance`: JSON's true is no token.
    if not all(type(token) is int and 0 <= token < _LARGEST_ID for token in value):
        wrong = next(i for i, t in enumerate(value, start=1) if type(t) is not int or not 0 <= t < _LARGEST_ID)
        raise UsageError(f"{what}: entry {wrong} is no token id: {fields.short(value[wrong - 1])}")
    return value


def _arrival(row: Row) -> float | None:
    for key in ("arrival_s", "arrived_unix", "timestamp"):
        value = row.data.get(key)
        if value is None:
            continue
        what = f'{row.where}: "{key}"'
        if key == "timestamp" and isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError as error:
                raise UsageError(
                    f"{what} must be seconds or a date and time like 2026-05-01T12:00:00Z, not {fields.short(value)}"
                ) from error
        if isinstance(value, datetime):
            try:
                return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
            except (OverflowError, ValueError) as error:
                raise UsageError(f"{what} is out of range: {fields.short(value)}") from error
        seconds = fields.number(value, what)
        if abs(seconds) >= _TOO_LATE:
            raise UsageError(f"{what} must be in seconds; {fields.short(value)} looks like milliseconds or smaller")
        return seconds
    return None
