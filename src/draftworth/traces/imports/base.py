"""What an importer promises: how one kind of record writes requests and answers, a record at a time.

An importer knows where a format keeps a prompt and an output, as ids or as text. Turning text into ids, checking ids,
and putting rows together is the same for all formats.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from draftworth.errors import UsageError
from draftworth.traces.columns import BadRow, Row, ids_of
from draftworth.traces.jsonl import NOT_JSON, fault_of, head, lines
from draftworth.traces.tokenizing import Tokenizer

NEEDS_TOKENIZER = "text only, and no tokenizer was given"
NO_REQUEST = "no prompt"
NO_ANSWER = "no answer"
NO_OBJECT = "no JSON object"
_SAMPLE = 1 << 16
_TRIED = 1000
"""Records at a file's beginning of which one has to be readable for the file to be recognised."""
_TABLE = b"PAR1"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as a format has it; of prompt and output, ids go before text.

    Attributes:
        request_id: the format's own; None numbers it.
        prompt_ids: as the server saw them.
        prompt_text: sent as one text.
        messages: sent as a chat.
        tools: sent with the messages.
        output_ids: all of them, as the server made them.
        output_text: the whole answer; of a reasoning model without its reasoning.
        reasoning: what came before the answer.
        thinking: how many output ids are reasoning; None where that is not known.
        category: what kind of work it is.
        temperature: as sent.
        model: as served.
        whole: False where ids are known to lack some.
    """

    request_id: str | None = None
    prompt_ids: Sequence[int] | None = None
    prompt_text: str | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    tools: Sequence[Any] | None = None
    output_ids: Sequence[int] | None = None
    output_text: str | None = None
    reasoning: str = ""
    thinking: int | None = None
    category: str = ""
    temperature: float | None = None
    model: str | None = None
    whole: bool = True


Found = tuple[str, Recorded | BadRow]
"""Where it is (`log.jsonl:3`), and the request or why it is none."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of a file, by which its format is recognised.

    Attributes:
        text: its first 64 KiB, unpacked; empty for a table.
        first: its first record that can be read, where it is JSON or a table, else empty.
        fault: where it is JSON and no record could be read: where the first is, and why.
    """

    text: str = ""
    first: Mapping[str, Any] = field(default_factory=dict)
    fault: str | None = None


class Importer(Protocol):
    """How one kind of file records requests.

    Attributes:
        name: what a person writes as `--format`.
        title: what it is, for a list of choices.
    """

    name: str
    title: str

    def fits(self, sample: Sample) -> bool:
        """Return whether a file that begins like this is of this format."""
        ...

    def read(self, path: Path) -> Iterator[Found]:
        """Yield every request, in the order of the file, in bounded memory.

        Raises:
            UsageError: the file cannot be read.
        """
        ...


def to_row(found: Recorded, number: int, tokenizer: Tokenizer | None, vocabulary: int | None) -> Row:
    """Make a trace's row of a request.

    Raises:
        BadRow: it lacks something, or needs a tokenizer that is not there.
    """
    exact = found.whole and found.prompt_ids is not None and found.output_ids is not None
    prompt, made = _prompt(found, tokenizer)
    thinking = -1 if found.thinking is None else found.thinking
    if found.output_ids is not None:
        output = ids_of(found.output_ids, vocabulary)
    elif found.output_text or found.reasoning:
        made = tokenizer = _need(tokenizer)
        before = tokenizer.output(found.reasoning)
        output = np.concatenate((before, tokenizer.output(found.output_text or "")))
        thinking = len(before) if found.reasoning else thinking
        # A count of the server's is of its own tokens.
        thinking = min(thinking, len(output))
    else:
        raise BadRow(NO_ANSWER)
    return Row(
        request_id=found.request_id or f"request-{number}",
        prompt=ids_of(prompt, vocabulary),
        output=output,
        thinking=thinking,
        category=found.category,
        temperature=float("nan") if found.temperature is None else found.temperature,
        model=found.model,
        tokenizer_hash=made.hash if made else None,
        exact=exact,
    )


def _prompt(found: Recorded, tokenizer: Tokenizer | None) -> tuple[Any, Tokenizer | None]:
    if found.prompt_ids is not None:
        return found.prompt_ids, None
    if found.messages:
        made = _need(tokenizer)
        return made.chat(found.messages, found.tools), made
    if found.prompt_text:
        made = _need(tokenizer)
        return made.prompt(found.prompt_text), made
    raise BadRow(NO_REQUEST)


def _need(tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise BadRow(NEEDS_TOKENIZER)
    return tokenizer


def sample(path: Path) -> Sample:
    """Return the beginning of a file.

    Raises:
        UsageError: it cannot be read.
    """
    if is_table(path):
        row = next((one for _, one in records(path)), {})
        return Sample(first=row if isinstance(row, dict) else {})
    text = head(path, _SAMPLE).decode("utf-8", "replace").removeprefix("\ufeff")
    begins = text.lstrip()[:1]
    if begins not in {"{", "["}:
        return Sample(text)
    fault: str | None = None
    try:
        for where, one in islice(records(path), _TRIED):
            if not isinstance(one, BadRow):
                return Sample(text, one)
            # What begins with a bracket may be a log's line, and no JSON at all.
            if begins == "{" or str(one) not in {NOT_JSON, NO_OBJECT}:
                fault = fault or f"{where}: {one}"
    except UsageError as error:
        fault = str(error) if _is_document(path) else None
    return Sample(text, fault=fault)


def is_table(path: Path) -> bool:
    """Whether a file is Parquet.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(_TABLE)) == _TABLE
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def records(path: Path) -> Generator[tuple[str, Mapping[str, Any] | BadRow], None, None]:
    """Yield the objects of JSON lines, of one JSON list or of a table, each with where it is.

    A line that cannot be read is yielded as `BadRow` and does not end the reading.

    Raises:
        UsageError: the file cannot be read, or a JSON list breaks off.
    """
    if is_table(path) or _is_document(path):
        from draftworth.workloads.rows import rows  # noqa: PLC0415 - reads lists of any size

        for row in rows(path):
            yield row.where, row.data
        return
    for number, line in lines(path):
        where = f"{path}:{number}"
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            yield where, BadRow(fault_of(line))
            continue
        yield where, found if isinstance(found, dict) else BadRow(NO_OBJECT)


def _is_document(path: Path) -> bool:
    """Whether a file is one JSON list, or, where it is called .json, one object over many lines."""
    start = head(path, _SAMPLE).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"["):
        return start[1:].lstrip()[:1] in {b"{", b"]"}
    line, end, _ = start.partition(b"\n")
    if not (line.startswith(b"{") and end and ".json" in path.suffixes):
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return fault_of(line) == NOT_JSON
    return False


def text_of(content: object) -> str | None:
    """Return the text of a message's content: a text, or the text parts of a list; None where there is none."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return "".join(texts) if texts else None
    return None


def number_of(value: object) -> float | None:
    """Return a number, None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def object_of(value: object) -> Mapping[str, Any]:
    """Return an object, an empty one for anything else; one that is written as text is decoded."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def is_id_list(value: object) -> bool:
    """Whether a value is a list that begins like token ids; each is checked later."""
    return isinstance(value, list) and bool(value) and type(value[0]) is int
