"""Ids of a request's prompt and of an answer's text, for servers that tell none: approximate, and marked so."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftworth.traces.tokenizing import Tokenizer


class RequestTokenizer:
    """A model's tokenizer for OpenAI requests."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend

    def prompt(self, request: Mapping[str, Any], at: int) -> Sequence[int]:
        """Return the ids of a request's prompt.

        Args:
            request: the body, with `messages` or `prompt`.
            at: which of several prompts.

        Raises:
            ValueError: it has none that is text.
            BadRow: the template or the tokenizer refuses it.
        """
        messages = request.get("messages")
        if isinstance(messages, list) and all(isinstance(one, dict) for one in messages):
            tools = request.get("tools")
            return _listed(self._backend.chat(messages, tools if isinstance(tools, list) else None))
        prompt = request.get("prompt")
        if isinstance(prompt, list) and at < len(prompt):
            prompt = prompt[at]
        if not isinstance(prompt, str):
            raise ValueError("the request's prompt is no text")  # noqa: TRY004 - of data, not of a call
        return _listed(self._backend.prompt(prompt))

    def text(self, text: str) -> Sequence[int]:
        """Return the ids of an answer's text."""
        return _listed(self._backend.output(text))


def _listed(ids: NDArray[np.int32]) -> list[int]:
    found: list[int] = ids.tolist()
    return found


def tokenizer(path: Path) -> tuple[RequestTokenizer, str]:
    """Return a tokenizer and what names it.

    Raises:
        UsageError: there is none, or the package that reads it is not installed.
    """
    backend = Tokenizer(path)
    return RequestTokenizer(backend), backend.hash
