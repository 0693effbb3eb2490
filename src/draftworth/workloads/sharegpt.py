"""Recorded conversations in the layout of ShareGPT."""

from draftworth.bench.base import Prompt, Turn
from draftworth.errors import UsageError
from draftworth.workloads import fields
from draftworth.workloads.base import Row, SkipRow

_SPEAKERS = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "assistant"), "assistant"),
    "system": "system",
}


class ShareGPT:
    """One conversation a row: `conversations` or `conversation`, each entry `from`/`value` or `role`/`content`.

    The first turn of the human is the first request. Later ones are sent with the answers that were recorded, so every
    arm gets the same requests. Optional: `id` (default `conversation-<number>`), `category` (default `conversation`).
    Such collections hold rows that are no conversation; those are skipped and counted.
    """

    name = "sharegpt"
    title = "conversations as ShareGPT has them"
    skips_repeated_ids = True

    def fits(self, keys: frozenset[str]) -> bool:
        """Return whether there is a conversation."""
        return not keys.isdisjoint({"conversations", "conversation"})

    def prompt(self, row: Row) -> Prompt:
        """Return the row's prompt; see `Layout.prompt`."""
        fields.check_spelling(row, ("id", "category"))
        entries = row.data.get("conversations", row.data.get("conversation"))
        if not isinstance(entries, list) or not entries:
            raise SkipRow("no conversation in it")
        spoken = [_spoken(entry) for entry in entries]
        start = 1 if spoken[0][0] == "system" else 0
        if start == len(spoken):
            raise SkipRow("no turn of the human")
        if spoken[start][0] != "user":
            raise SkipRow("it starts with the assistant")
        for i, (role, _) in enumerate(spoken[start:]):
            if role != ("user", "assistant")[i % 2]:
                raise SkipRow("the speakers do not take turns")
        contents = [content for _, content in spoken[start:]]
        return Prompt(
            id=fields.identity(row, ("id",), f"conversation-{row.number}"),
            category=fields.category(row, "conversation"),
            messages=(
                *({"role": "system", "content": content} for _, content in spoken[:start]),
                fields.user(contents[0]),
            ),
            turns=tuple(Turn(contents[i], contents[i - 1]) for i in range(2, len(contents), 2)),
        )


def _spoken(entry: object) -> tuple[str, str]:
    if not isinstance(entry, dict):
        raise SkipRow("an entry is no object")
    speaker = entry.get("from", entry.get("role"))
    role = _SPEAKERS.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise SkipRow("an unknown speaker")
    try:
        return role, fields.text(entry.get("value", entry.get("content")), "the text")
    except UsageError as error:
        raise SkipRow("a text is missing or empty") from error
