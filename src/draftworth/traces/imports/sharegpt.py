"""Conversations in the layout of ShareGPT: every answer is a request, with what was said before as its prompt."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import Found, Recorded, Sample, records

_SPEAKERS = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "assistant", "model"), "assistant"),
    "system": "system",
    "tool": "tool",
}
NO_ANSWERS = "no answer of the assistant"
NO_CONVERSATION = "no conversation in it"


class ShareGPT:
    """One conversation a row: `conversations` or `conversation`, each entry `from`/`value` or `role`/`content`.

    Also `messages` alone, with an answer of the assistant in them: a chat data set.
    """

    name = "sharegpt"
    title = "conversations as ShareGPT has them"

    def fits(self, sample: Sample) -> bool:
        """Return whether there is a conversation."""
        keys = sample.first.keys()
        return bool(keys & {"conversations", "conversation"}) or ("messages" in keys and keys <= _ALONE)

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every answer; see `Importer.read`."""
        for number, (where, record) in enumerate(records(path), start=1):
            if isinstance(record, BadRow):
                yield where, record
                continue
            try:
                for one in _answers(record, number):
                    yield where, one
            except BadRow as reason:
                yield where, reason


_ALONE = frozenset({"messages", "id", "category", "source", "prompt_id", "split"})


def _answers(record: Mapping[str, Any], number: int) -> Iterator[Recorded]:
    entries = next((record[key] for key in ("conversations", "conversation", "messages") if record.get(key)), None)
    if not isinstance(entries, list):
        raise BadRow(NO_CONVERSATION)
    spoken = [_spoken(entry) for entry in entries]
    name = record.get("id")
    name = str(name) if isinstance(name, str | int) else f"conversation-{number}"
    answers = [at for at, one in enumerate(spoken) if one["role"] == "assistant"]
    if not answers:
        raise BadRow(NO_ANSWERS)
    if not any(one["role"] == "user" for one in spoken[: answers[0]]):
        # Public collections hold conversations that were cut at their beginning.
        raise BadRow("it starts with the assistant")
    for turn, at in enumerate(answers, start=1):
        yield Recorded(
            request_id=name if len(answers) == 1 else f"{name}#{turn}",
            messages=spoken[:at],
            output_text=spoken[at]["content"],
            category=record["category"] if isinstance(record.get("category"), str) else "",
            model=record["model"] if isinstance(record.get("model"), str) else None,
        )


def _spoken(entry: object) -> dict[str, str]:
    if not isinstance(entry, dict):
        raise BadRow("an entry is no object")
    speaker = entry.get("from", entry.get("role"))
    role = _SPEAKERS.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise BadRow("an unknown speaker")
    content = entry.get("value", entry.get("content"))
    if not isinstance(content, str):
        raise BadRow("a text is missing")
    return {"role": role, "content": content}
