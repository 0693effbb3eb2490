"""Records of others as traces: the formats there are, which one a file has, and reading it as a trace."""

from collections.abc import Generator, Iterator
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path

from draftworth.errors import UsageError
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, TraceBatch
from draftworth.traces.columns import BadRow, NothingUsableError, OneOf, Row, gathered
from draftworth.traces.imports.base import NEEDS_TOKENIZER, Importer, Sample, sample, to_row
from draftworth.traces.imports.openai import OpenAI
from draftworth.traces.imports.openai_batch import OpenAIBatch
from draftworth.traces.imports.otel import OTel
from draftworth.traces.imports.plain import OUTPUT_IDS, OUTPUT_TEXT, Plain
from draftworth.traces.imports.sglang_log import NOTHING as NOTHING_OF_SGLANG
from draftworth.traces.imports.sglang_log import SglangLog
from draftworth.traces.imports.sharegpt import NO_ANSWERS, ShareGPT
from draftworth.traces.imports.vcr import Vcr
from draftworth.traces.imports.vllm_log import NOTHING as NOTHING_OF_VLLM
from draftworth.traces.imports.vllm_log import VllmLog
from draftworth.traces.tokenizing import Tokenizer

__all__ = ["FORMATS", "ImportedTrace", "PromptsOnlyError", "UnreadableError", "importers", "recognised"]

_NOTHING = {VllmLog.name: NOTHING_OF_VLLM, SglangLog.name: NOTHING_OF_SGLANG}
_PROMPTS = frozenset({"turns", "prompt", "prompts", "messages", "question", "instruction", "conversations"})
_ANSWERS = frozenset(
    {*OUTPUT_IDS, *OUTPUT_TEXT, "output_token_ids", "choices", "answers", "responses", "outputs", "token_ids"}
)
PROMPTS_ONLY = (
    "these are prompts without answers: `draftworth trace record URL {path}` sends them and records the answers"
)


class PromptsOnlyError(UsageError):
    """A file of prompts, as workloads are: there is nothing to import."""


class UnreadableError(UsageError):
    """A file that begins as JSON does, and of which no record can be read."""


def importers(*, requests: Path | None = None, outputs_only: bool = False) -> tuple[Importer, ...]:
    """Return every importer, in the order in which they are tried: the most particular first.

    Args:
        requests: the input of a batch.
        outputs_only: take requests whose prompts a format does not record.
    """
    return (
        Vcr(outputs_only=outputs_only),
        OTel(),
        OpenAIBatch(requests),
        OpenAI(),
        ShareGPT(),
        Plain(),
        SglangLog(),
        VllmLog(),
    )


FORMATS = tuple(one.name for one in importers())
"""The names of the formats."""


def recognised(path: Path, choices: tuple[Importer, ...], name: str | None = None) -> Importer:
    """Return the importer of a file.

    Raises:
        UsageError: there is no such format, or the file is of none; lists them.
        PromptsOnlyError: the file holds prompts.
        UnreadableError: it is JSON, and no record can be read; names the first and says why.
    """
    if name is not None:
        found = next((one for one in choices if one.name == name), None)
        if found is None:
            near = get_close_matches(name, FORMATS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"unknown format {name!r}: {hint}There are {', '.join(FORMATS)}")
        return found
    begins = sample(path)
    found = next((one for one in choices if one.fits(begins)), None)
    if found is None:
        if _is_prompts(begins):
            raise PromptsOnlyError(f"{path}: {PROMPTS_ONLY.format(path=path)}")
        if begins.fault is not None:
            raise UnreadableError(f"{begins.fault}; no request could be read")
        keys = ", ".join(list(begins.first)[:8])
        seen = f"; its keys are {keys}" if keys else ""
        raise UsageError(f"{path}: the format is not recognised{seen}; name it with --format: {', '.join(FORMATS)}")
    return found


def _is_prompts(begins: Sample) -> bool:
    keys = begins.first.keys()
    return bool(keys & _PROMPTS) and not keys & _ANSWERS


class ImportedTrace:
    """A file of another format, read as a trace; see `traces.base.Trace`.

    Args:
        path: the file.
        importer: knows its format.
        tokenizer: makes ids of text; None leaves out what is text only.
        model: the chosen model; None where there is one.
        vocabulary: ids at or above this make a row unusable.
    """

    def __init__(
        self,
        path: Path,
        importer: Importer,
        tokenizer: Tokenizer | None = None,
        *,
        model: str | None = None,
        vocabulary: int | None = None,
    ) -> None:
        self.path = path
        self.bad = BadRows()
        self.requests: int | None = None
        self._importer = importer
        self._tokenizer = tokenizer
        self._model = model
        self._vocabulary = vocabulary

    def batches(self, *, tokens: int = TOKENS_A_BATCH) -> Iterator[TraceBatch]:
        """Yield the requests; see `Trace.batches`.

        Raises:
            UsageError: also where everything is text and there is no tokenizer.
        """
        self.bad = BadRows()
        one = OneOf(str(self.path), self._model)
        with closing(self._rows()) as rows:
            try:
                yield from gathered(rows, one, self.bad, tokens=tokens)
            except NothingUsableError as error:
                if set(self.bad.counts) == {NEEDS_TOKENIZER}:
                    raise UsageError(
                        f"{self.path} holds text and no token ids: give the model's tokenizer, --tokenizer FOLDER"
                    ) from error
                raise self._nothing(error) from error

    def _nothing(self, error: NothingUsableError) -> UsageError:
        """Return what is said of a file without one usable request."""
        begins, name = sample(self.path), self._importer.name
        other = next((one.name for one in importers() if one.fits(begins)), None)
        if (other is None or set(self.bad.counts) == {NO_ANSWERS}) and _is_prompts(begins):
            return PromptsOnlyError(f"{self.path}: {PROMPTS_ONLY.format(path=self.path)}")
        if other not in {name, None}:
            return UsageError(f"{error}, read as {name}; it looks like {other}: leave --format out")
        if other is None and begins.fault is None:
            return UsageError(f"{error}, read as {name}; it does not look like {self._importer.title}")
        if not self.bad.total and name in _NOTHING:
            return UsageError(f"{self.path}: {_NOTHING[name]}")
        return error

    def _rows(self) -> Generator[tuple[int, str, Row], None, None]:
        for number, (where, found) in enumerate(self._importer.read(self.path)):
            try:
                if isinstance(found, BadRow):
                    raise found
                yield number, where, to_row(found, number + 1, self._tokenizer, self._vocabulary)
            except BadRow as reason:
                self.bad.add(str(reason), where)
