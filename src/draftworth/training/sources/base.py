"""What a source of conversations promises, and what one is: messages, or token ids that a server recorded."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from draftworth.traces.columns import BadRow
from draftworth.training.recipe import SourceConfig

USER, ASSISTANT, SYSTEM, TOOL = "user", "assistant", "system", "tool"
_SPEAKERS = {
    **dict.fromkeys(("human", "user", "prompter"), USER),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "assistant", "model"), ASSISTANT),
    "system": SYSTEM,
    "developer": "developer",
    **dict.fromkeys(("tool", "function", "observation", "tool_response"), TOOL),
}
_KEPT = ("reasoning_content", "thinking", "name", "tool_call_id")
NO_CONVERSATION = "no conversation in it"


@dataclass(frozen=True, slots=True)
class Ids:
    """One request as token ids.

    Attributes:
        prompt: int32, what the server saw.
        output: int32, what it generated.
        thinking: how many of the output, from its beginning, are reasoning; -1 where that is not known.
        exact: whether the ids came from the server and not from re-tokenised text.
    """

    prompt: NDArray[np.int32]
    output: NDArray[np.int32]
    thinking: int = -1
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of a source.

    Attributes:
        id: unique in the recipe: the source's name, a slash and the source's own id.
        source: the source's name.
        category: what kind of work it is.
        messages: as chat templates take them; empty where there are only ids.
        tools: what the assistant could call; None for none.
        ids: requests that were recorded or generated, in order; empty where there are only messages.
        where: its place, for findings: `chat.jsonl:3`.
    """

    id: str
    source: str
    category: str
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Any, ...] | None = None
    ids: tuple[Ids, ...] = ()
    where: str = ""

    @property
    def answered(self) -> bool:
        """Whether the assistant says anything in it."""
        return bool(self.ids) or any(one["role"] == ASSISTANT for one in self.messages)

    @property
    def asked(self) -> tuple[Mapping[str, Any], ...]:
        """The messages in front of the first answer."""
        first = next((at for at, one in enumerate(self.messages) if one["role"] == ASSISTANT), len(self.messages))
        return self.messages[:first]


Found = tuple[str, Conversation | BadRow]
"""Where it is, and the conversation or why it is none."""


class Source(Protocol):
    """How one kind of file or folder holds conversations.

    Attributes:
        name: what a person writes as `format`.
    """

    name: str

    def fits(self, path: Path) -> bool:
        """Return whether a file or folder is of this format, by its beginning."""

    def files(self, source: SourceConfig) -> Sequence[Path]:
        """Return the files that are read, for their digests.

        Raises:
            UsageError: there is none, or it is not clear which.
        """

    def read(self, source: SourceConfig, name: str, target: Path) -> Iterator[Found]:
        """Yield every conversation, and every row that is none with the reason.

        Args:
            source: what the recipe says of it.
            name: what it is called.
            target: the target's folder, whose tokenizer makes ids of what has none.

        Raises:
            UsageError: a file cannot be read; one line that names it.
        """


def message_of(entry: Any) -> dict[str, Any]:
    """Return a message as chat templates take it: `role`, `content` as text, reasoning, tool calls.

    Args:
        entry: with `role` and `content`, or ShareGPT's `from` and `value`.

    Raises:
        BadRow: no object, an unknown speaker, or a content that is no text.
    """
    if not isinstance(entry, Mapping):
        raise BadRow("a message is no object")
    speaker = entry.get("role", entry.get("from"))
    role = _SPEAKERS.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise BadRow("an unknown speaker")
    calls = entry.get("tool_calls")
    made: dict[str, Any] = {
        "role": role,
        "content": _text(entry.get("content", entry.get("value")), called=bool(calls)),
    }
    for name in _KEPT:
        if isinstance(entry.get(name), str) and entry[name]:
            made[name] = entry[name]
    if "reasoning_content" not in made and isinstance(entry.get("reasoning"), str) and entry["reasoning"]:
        made["reasoning_content"] = entry["reasoning"]
    if calls:
        if not isinstance(calls, list) or not all(isinstance(one, Mapping) for one in calls):
            raise BadRow("tool calls that are no list of objects")
        made["tool_calls"] = [_call(one) for one in calls]
    try:
        json.dumps(made, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise BadRow("the text has half of a surrogate pair") from None
    return made


def _text(content: Any, *, called: bool) -> str:
    if content is None and called:
        return ""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        if len(texts) != len(content) or not all(isinstance(text, str) for text in texts):
            raise BadRow("a message has a part that is no text (an image, a sound)")
        return "\n".join(str(text) for text in texts)
    if not isinstance(content, str):
        raise BadRow("a text is missing")
    return content


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool call with its arguments decoded, as templates expect them; a table's empty cells left out."""
    made = {key: value for key, value in call.items() if value is not None}
    function = made.get("function")
    if isinstance(function, Mapping):
        function = {key: value for key, value in function.items() if value is not None}
        if isinstance(function.get("arguments"), str):
            with contextlib.suppress(ValueError):
                function["arguments"] = json.loads(function["arguments"])
        made["function"] = function
    return made
