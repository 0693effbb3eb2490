"""A person's own requests: `prompt`, `messages` or `turns`."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from draftworth.bench.base import Prompt, Turn
from draftworth.errors import UsageError
from draftworth.workloads import fields
from draftworth.workloads.base import Row

_CONTENT = ("prompt", "messages", "turns")
_OPTIONAL = ("id", "question_id", "category", "max_tokens", "arrival_s")

_BESIDE = ("input", "instruction", "context", "system", "system_prompt")
"""What other data sets keep beside a prompt and is part of the request; public benchmarks have dropped it silently."""


class Plain:
    """One request a row.

    Exactly one of `prompt` (text), `messages` (OpenAI chat messages with text contents; the whole list is the history
    of one request, so it ends with the user or a tool) or `turns` (texts: a conversation, every answer the server's
    own). Optional: `id` or `question_id` (text or whole number; default `prompt-<number>`), `category` (default
    `custom`), `max_tokens`, and `arrival_s` (seconds, from any fixed moment). Other keys are ignored unless they are
    nearly one of these.
    """

    name = "plain"
    title = "your own: prompt, messages or turns"
    skips_repeated_ids = False

    def fits(self, keys: frozenset[str]) -> bool:
        """Return whether there is something to send."""
        return not keys.isdisjoint(_CONTENT)

    def prompt(self, row: Row) -> Prompt:
        """Return the row's prompt; see `Layout.prompt`."""
        present = [key for key in _CONTENT if key in row.data]
        if len(present) != 1:
            have = "none" if not present else " and ".join(f'"{key}"' for key in present)
            near = next((hit for key in row.data for hit in get_close_matches(key.lower(), _CONTENT, 1, 0.8)), None)
            hint = f': did you mean "{near}"?' if near and not present else ""
            raise UsageError(f'{row.where}: give exactly one of "prompt", "messages" and "turns"; it has {have}{hint}')
        fields.check_spelling(row, _OPTIONAL)
        beside = next((key for key in _BESIDE if row.data.get(key)), None)
        if beside:
            raise UsageError(
                f'{row.where}: "{beside}" beside "{present[0]}" is not sent, and without it the prompt is another; '
                'put both into "prompt", or write "messages"'
            )
        messages, turns = self._content(present[0], row)
        arrival = row.data.get("arrival_s")
        return Prompt(
            id=fields.identity(row, ("id", "question_id"), f"prompt-{row.number}"),
            category=fields.category(row, "custom"),
            messages=messages,
            turns=turns,
            max_tokens=fields.max_tokens(row),
            arrival_s=None if arrival is None else fields.number(arrival, f'{row.where}: "arrival_s"'),
        )

    @staticmethod
    def _content(key: str, row: Row) -> tuple[tuple[Mapping[str, Any], ...], tuple[Turn, ...]]:
        if key == "prompt":
            return (fields.user(fields.text(row.data[key], f'{row.where}: "prompt"')),), ()
        if key == "turns":
            return fields.turns(fields.texts(row, key))
        messages = fields.messages(row)
        last = messages[-1]["role"]
        if last not in {"user", "tool"}:
            raise UsageError(
                f"{row.where}: the last of the messages is of the {last}, so there is nothing to answer; "
                "end with the user or a tool"
            )
        return messages, ()
