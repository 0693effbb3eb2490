"""Chat data in JSON lines, a JSON list or Parquet: one conversation, or one prompt with or without an answer, a row.

Layouts are those that public collections and engines' clients write: `messages` (OpenAI), `conversations` (ShareGPT),
`turns` (questions only), `prompt`/`response`, `instruction`/`input`/`output` (Alpaca), `question`/`answer`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import records, sample
from draftworth.training.recipe import SourceConfig
from draftworth.training.sources.base import ASSISTANT, NO_CONVERSATION, SYSTEM, USER, Conversation, Found, message_of

LISTS = ("messages", "conversations", "conversation")
PROMPTS = ("prompt", "question", "instruction", "query")
ANSWERS = ("response", "output", "completion", "answer")
_NAMES = ("id", "conversation_id", "prompt_id", "uuid", "question_id", "custom_id")
_SYSTEMS = ("system", "system_prompt")


class Chat:
    """One conversation a row; see the module's text."""

    name = "chat"

    def fits(self, path: Path) -> bool:
        """Return whether the first row has a conversation or a prompt as text."""
        if path.is_dir():
            return False
        first = sample(path).first
        prompt = first.get("prompt")
        asked = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], Mapping)
        listed = any(key in first for key in (*LISTS, "turns"))
        return asked or listed or any(isinstance(first.get(key), str) for key in PROMPTS)

    def files(self, source: SourceConfig) -> Sequence[Path]:
        """Return the file."""
        if source.path.is_dir():
            raise UsageError(f"{source.path}: a folder; name a file, or write format = 'dataset'")
        return (source.path,)

    def read(self, source: SourceConfig, name: str, target: Path) -> Iterator[Found]:  # noqa: ARG002 - no ids are made
        """Yield every conversation; see `Source.read`."""
        for number, (where, row) in enumerate(records(source.path), start=1):
            yield where, row if isinstance(row, BadRow) else of_row(row, source, name, number, where)


def of_row(row: Mapping[str, Any], source: SourceConfig, name: str, number: int, where: str) -> Conversation | BadRow:
    """Return the conversation of a row, or why it is none.

    Args:
        row: the decoded object.
        source: what the recipe says.
        name: the source's name.
        number: the row, from 1, for rows without an id.
        where: its place.
    """
    try:
        messages = _messages(row)
    except BadRow as reason:
        return reason
    own = next((row[key] for key in _NAMES if isinstance(row.get(key), str | int) and row[key] != ""), number)
    told = row.get(source.category_key)
    tools = _decoded(row.get("tools"))
    return Conversation(
        id=f"{name}/{own}",
        source=name,
        category=told if isinstance(told, str) and told else source.category or name,
        messages=tuple(messages),
        tools=tuple(tools) if isinstance(tools, list) and tools else None,
        where=where,
    )


def _messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = next((_decoded(row[key]) for key in LISTS if row.get(key)), None)
    if listed is None and isinstance(row.get("prompt"), list):
        answer = _decoded(row.get("completion", row.get("chosen")))
        listed = [*row["prompt"], *(answer if isinstance(answer, list) else [])]
    if isinstance(listed, list):
        made = [message_of(entry) for entry in listed]
    elif isinstance(row.get("turns"), list) and row["turns"]:
        made = [message_of({"role": USER, "content": entry}) for entry in row["turns"]]
    else:
        made = _pair(row)
    system = next((row[key] for key in _SYSTEMS if isinstance(row.get(key), str) and row[key]), None)
    if system is not None and made and made[0]["role"] != SYSTEM:
        made.insert(0, message_of({"role": SYSTEM, "content": system}))
    if not any(one["role"] == USER for one in made):
        raise BadRow("no message of the user")
    first = next(one["role"] for one in made if one["role"] in {USER, ASSISTANT})
    if first == ASSISTANT:
        # Public collections hold conversations that were cut at their beginning.
        raise BadRow("it starts with the assistant")
    return made


def _pair(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    prompt = next((row[key] for key in PROMPTS if isinstance(row.get(key), str) and row[key]), None)
    if prompt is None:
        raise BadRow(NO_CONVERSATION)
    if "instruction" in row and isinstance(row.get("input"), str) and row["input"]:
        prompt = f"{prompt}\n\n{row['input']}"
    answer = next((row[key] for key in ANSWERS if isinstance(row.get(key), str) and row[key]), None)
    made = [message_of({"role": USER, "content": prompt})]
    if answer is not None:
        made.append(message_of({"role": ASSISTANT, "content": answer, "reasoning": row.get("reasoning")}))
    return made


def _decoded(value: Any) -> Any:
    """Return a list; one that is written as JSON text is decoded, as tables of some collections have them."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
    return value
