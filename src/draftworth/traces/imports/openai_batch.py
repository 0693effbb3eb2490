"""Output files of batches, as OpenAI's Batch API and `vllm run-batch` write them: answers by `custom_id`.

The prompts are in the batch's input file, which a person names; of it, only where each request begins is held.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow
from draftworth.traces.imports.base import Found, Recorded, Sample, object_of, records
from draftworth.traces.imports.openai import FAILED, joined
from draftworth.traces.jsonl import fault_of

NO_INPUT = "no prompt; give the batch's input with --requests FILE"
NOT_ASKED = "its custom_id is not in the batch's input"


class OpenAIBatch:
    """One answer a record: `custom_id`, `response` with `status_code` and `body`, `error`.

    Args:
        requests: the batch's input file; None where the answers carry their prompts' ids.
    """

    name = "openai-batch"
    title = "output of a batch (OpenAI's Batch API, vllm run-batch)"

    def __init__(self, requests: Path | None = None) -> None:
        self._requests = requests

    def fits(self, sample: Sample) -> bool:
        """Return whether the first record is an answer of a batch."""
        response = sample.first.get("response")
        return "custom_id" in sample.first and (response is None or "body" in object_of(response))

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every choice; see `Importer.read`."""
        with ExitStack() as closing:
            asked = closing.enter_context(_Asked(self._requests)) if self._requests is not None else None
            for where, record in records(path):
                if isinstance(record, BadRow):
                    yield where, record
                    continue
                try:
                    for one in _joined(record, asked):
                        yield where, one
                except BadRow as reason:
                    yield where, reason


def _joined(record: Mapping[str, Any], asked: "_Asked | None") -> list[Recorded | BadRow]:
    if record.get("error") or not record.get("response"):
        raise BadRow(FAILED)
    name = str(record.get("custom_id"))
    found = joined(asked.body(name) if asked is not None else {}, object_of(record["response"]), name)
    return [BadRow(NO_INPUT) if asked is None and one.prompt_ids is None else one for one in found]


class _Asked:
    """The input of a batch: where each request begins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, int] = {}
        self._fault = ""
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error

    def __enter__(self) -> Self:
        at = 0
        for number, line in enumerate(self._file, start=1):
            if line.strip():
                found = _decoded(line)
                self._places[str(found.get("custom_id"))] = at
                if not found and not self._fault:
                    self._fault = f" ({self._path}:{number} cannot be read: {fault_of(line)})"
            at += len(line)
        if not self._places.keys() - {"None"}:
            self._file.close()
            raise UsageError(
                f"{self._path} is no input of a batch: JSON lines with custom_id and body, not packed{self._fault}"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def body(self, name: str) -> Mapping[str, Any]:
        if name not in self._places:
            raise BadRow(f"{NOT_ASKED}{self._fault}")
        self._file.seek(self._places[name])
        return object_of(_decoded(self._file.readline()).get("body"))


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
