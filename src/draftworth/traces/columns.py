"""The columns of a trace: how rows become batches, what makes a row unusable, and that a trace is of one model.

Ids are checked here once, for every format: whole numbers from 0, below the vocabulary where one is given.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftworth.errors import UsageError
from draftworth.traces.base import TOKENS_A_BATCH, BadRows, TraceBatch

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
LARGEST_ID = (1 << 31) - 1
"""The largest id that is stored; ids are int32."""
ROWS_A_BATCH = 65_536
"""Most requests of a batch, however short they are: each has Python texts beside its ids."""
NAMES = (
    "request_id",
    "prompt_token_ids",
    "output_token_ids",
    "thinking_tokens",
    "category",
    "temperature",
    "model",
    "tokenizer_hash",
    "exact",
)
"""Every column, in the order in which it is written."""

NO_PROMPT = "no prompt_token_ids"
NO_OUTPUT = "no output_token_ids"
EMPTY_OUTPUT = "the output is empty"
BAD_ID = "a token id is missing or no whole number"
NEGATIVE_ID = "a token id is negative"
LARGE_ID = "a token id is above 2147483647"
OTHER_MODEL = "of another model than the chosen one"
NO_MODEL = "does not say its model, which the choice needs"
THINKING = "thinking_tokens is no number from 0 to the output's length"
_LISTED = 20


def outside(vocabulary: int) -> str:
    """Return the reason of a row with an id that the vocabulary does not have."""
    return f"a token id is outside the vocabulary of {vocabulary}"


class NothingUsableError(UsageError):
    """A trace without one usable request."""


class BadRow(Exception):  # noqa: N818 - no error of anybody: a row that is left out and counted
    """A row that cannot be used; its text is the reason, the same for every row it happens to."""


@dataclass(frozen=True, slots=True)
class Row:
    """One recorded request.

    Attributes:
        request_id: unique in its trace.
        prompt: int32.
        output: int32, at least one.
        thinking: how many of the output are reasoning; -1 where that is not known.
        category: what kind of work it is; empty where it is not known.
        temperature: NaN where it is not known.
        model: None where it is not known.
        tokenizer_hash: None where it is not known.
        exact: whether the ids came from the server.
    """

    request_id: str
    prompt: NDArray[np.int32]
    output: NDArray[np.int32]
    thinking: int = -1
    category: str = ""
    temperature: float = float("nan")
    model: str | None = None
    tokenizer_hash: str | None = None
    exact: bool = True


def schema() -> "pa.Schema":
    """Return the columns of a Parquet trace."""
    import pyarrow as pa  # noqa: PLC0415 - lazy: 100 ms to import

    ids = pa.list_(pa.int32())
    types = (pa.string(), ids, ids, pa.int32(), pa.string(), pa.float64(), pa.string(), pa.string(), pa.bool_())
    return pa.schema(
        list(zip(NAMES, types, strict=True)), metadata={"draftworth": "trace", "schema_version": str(SCHEMA_VERSION)}
    )


def ids_of(values: object, vocabulary: int | None = None) -> NDArray[np.int32]:
    """Return token ids as an array.

    Raises:
        BadRow: one is no id.
    """
    if isinstance(values, np.ndarray):
        array = values
    else:
        try:
            array = np.asarray(values)
        except (ValueError, TypeError, OverflowError):
            raise BadRow(BAD_ID) from None
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        # Above the largest 64-bit number an array is one of objects.
        whole = array.ndim == 1 and array.dtype.kind == "O" and all(type(one) is int for one in array)
        raise BadRow(LARGE_ID if whole else BAD_ID)
    if reason := _fault(array, vocabulary):
        raise BadRow(reason)
    return array.astype(np.int32, copy=False)


def _fault(ids: NDArray[np.generic], vocabulary: int | None) -> str | None:
    least, most = int(ids.min()), int(ids.max())
    if least < 0:
        return NEGATIVE_ID
    if vocabulary is not None and most >= vocabulary:
        return outside(vocabulary)
    return LARGE_ID if most > LARGEST_ID else None


class OneOf:
    """Sees that rows are of one model and one tokenizer.

    A row that names none goes with the others.

    Args:
        where: the trace, as errors begin.
        model: the chosen one; rows of others are left out. None takes the only one there is.
    """

    def __init__(self, where: str, model: str | None) -> None:
        self._where = where
        self._chosen = model
        self.model = model
        self.tokenizer: str | None = None
        self._others: dict[str, None] = {}
        self._passed: dict[str, None] = {}

    @property
    def mixed(self) -> bool:
        """Whether several models were seen and none was chosen."""
        return bool(self._others)

    def see(self, model: str | None, tokenizer: str | None) -> None:
        """Take a row in.

        Raises:
            BadRow: it is of a model that was not chosen.
            UsageError: its tokenizer is another than that of rows before.
        """
        if self._chosen is not None and model != self._chosen:
            if model and len(self._passed) <= _LISTED:
                self._passed.setdefault(model)
            raise BadRow(OTHER_MODEL if model else NO_MODEL)
        if model:
            if self.model is None:
                self.model = model
            elif model != self.model:
                self._others.setdefault(model)
        if self.mixed or not tokenizer:
            return
        if self.tokenizer is None:
            self.tokenizer = tokenizer
        elif tokenizer != self.tokenizer:
            raise UsageError(
                f"{self._where} was made with several tokenizers ({_short(self.tokenizer)} and {_short(tokenizer)}): "
                "their ids cannot be compared; record or import each on its own"
            )

    def refuse(self) -> None:
        """Refuse a trace of several models.

        Raises:
            UsageError: lists them and says how to choose.
        """
        if self.mixed:
            names = [str(self.model), *self._others]
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            raise UsageError(
                f"{self._where} has requests of {len(names)} models: {', '.join(names[:_LISTED])}{more}; "
                "choose one with --model NAME"
            )

    def nothing_left(self, bad: BadRows) -> None:
        """Refuse a trace without a usable request.

        Raises:
            NothingUsableError: says why each row was left out.
        """
        if not bad.total:
            raise NothingUsableError(f"{self._where} has no requests")
        if bad.counts.keys() <= {OTHER_MODEL, NO_MODEL}:
            raise NothingUsableError(f"{self._where} {self._no_such_model()}")
        there = f"; there are requests of {self._models()}" if self._passed else ""
        raise NothingUsableError(f"{self._where} has no usable request: {'; '.join(bad.lines())}{there}")

    def _no_such_model(self) -> str:
        if not self._passed:
            return "does not say of which model its requests are: leave --model out"
        said = f"has no requests of the model {self._chosen!r}"
        return f"{said}; there are those of {self._models()}: choose with --model NAME"

    def _models(self) -> str:
        names = list(self._passed)
        return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def _short(hashed: str) -> str:
    return hashed if len(hashed) <= 19 else f"{hashed[:19]}…"  # noqa: PLR2004 - `sha256:` and twelve digits


def gathered(
    rows: Iterator[tuple[int, str, Row]], one: OneOf, bad: BadRows, *, tokens: int = TOKENS_A_BATCH
) -> Iterator[TraceBatch]:
    """Put rows together to batches.

    Args:
        rows: number in its file, where it is (`t.jsonl:3`), and the row itself.
        one: sees that they belong together.
        bad: takes what is left out.
        tokens: most tokens of a batch that has more than one request.

    Raises:
        UsageError: no row is usable, or they are of several models. In that case the rest is read for its models only.
    """
    held: list[Row] = []
    held_tokens = first = 0
    any_left = False
    for number, where, row in rows:
        try:
            check(row)
            one.see(row.model, row.tokenizer_hash)
        except BadRow as reason:
            bad.add(str(reason), where)
            continue
        if one.mixed:
            continue
        size = len(row.prompt) + len(row.output)
        if held and (held_tokens + size > tokens or len(held) >= ROWS_A_BATCH):
            yield _batch(held, first, one)
            held, held_tokens = [], 0
        if not held:
            first = number
        held.append(row)
        held_tokens += size
        any_left = True
    one.refuse()
    if held:
        yield _batch(held, first, one)
    if not any_left:
        one.nothing_left(bad)


def check(row: Row) -> None:
    """See that a row can be replayed.

    Raises:
        BadRow: it cannot.
    """
    if not len(row.output):
        raise BadRow(EMPTY_OUTPUT)
    if not -1 <= row.thinking <= len(row.output):
        raise BadRow(THINKING)


def _batch(rows: Sequence[Row], first: int, one: OneOf) -> TraceBatch:
    lengths = np.fromiter((len(row.prompt) + len(row.output) for row in rows), np.int64, len(rows))
    return TraceBatch(
        request_ids=[row.request_id for row in rows],
        tokens=np.concatenate([part for row in rows for part in (row.prompt, row.output)]),
        offsets=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        prompt_lengths=np.fromiter((len(row.prompt) for row in rows), np.int32, len(rows)),
        thinking=np.fromiter((row.thinking for row in rows), np.int32, len(rows)),
        categories=[row.category for row in rows],
        temperatures=np.fromiter((row.temperature for row in rows), np.float64, len(rows)),
        exact=np.fromiter((row.exact for row in rows), np.bool_, len(rows)),
        first_row=first,
        model=one.model,
        tokenizer_hash=one.tokenizer,
    )
