"""Which requests are sent: what a layout promises, what is chosen, and what a workload tells about itself.

A layout knows how one kind of file writes one request. It sees one row at a time, holds nothing between rows, and
either returns a prompt, says that the row is to be skipped and why (`SkipRow`), or refuses the file (`UsageError`).
Reading (`rows.py`) and choosing (`select.py`) are the same for all layouts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from draftworth.bench.base import Prompt


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a file.

    Attributes:
        number: the line, the entry of a JSON list, or the row of a table, from 1.
        where: the file and the number, as errors begin: `p.jsonl:3`, `p.json: entry 3`, `p.parquet: row 3`.
        data: the decoded object.
    """

    number: int
    where: str
    data: Mapping[str, Any]


class SkipRow(Exception):  # noqa: N818 - no error of anybody: public collections hold rows that are no conversation
    """A row that is left out and counted; its text is the reason, the same for every row it happens to."""


class Layout(Protocol):
    """How one kind of file writes a request.

    Attributes:
        name: what a person writes as `format`.
        title: what it is, for a list of choices.
        skips_repeated_ids: whether a second row of the same id is skipped and counted instead of refused.
    """

    name: str
    title: str
    skips_repeated_ids: bool

    def fits(self, keys: frozenset[str]) -> bool:
        """Return whether a file whose first row has these keys is of this layout."""
        ...

    def prompt(self, row: Row) -> Prompt:
        """Return the row's prompt.

        Raises:
            UsageError: the row is wrong; names the file, the row and the field.
            SkipRow: the row is to be left out and counted.
        """
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of a source's prompts are taken, and in which order.

    Attributes:
        categories: only these, None for all. Their order does not matter.
        prompts_per_category: at most this many of each category, None for all.
        limit: at most this many prompts, None for all.
        seed: None takes the order of the file, one of each category in turn where it names categories. A number
            shuffles: the same prompts in the same order on every machine, a smaller `limit` being the beginning of a
            larger one; the mixture of categories stays as it is in the file.
        first_turn_only: leave out the later turns of conversations.
    """

    categories: Sequence[str] | None = None
    prompts_per_category: int | None = None
    limit: int | None = None
    seed: int | None = None
    first_turn_only: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """Rows that were left out for one reason.

    Attributes:
        reason: why.
        count: how many, of the rows that were read.
        first: where the first of them is.
    """

    reason: str
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class Workload:
    """The requests of a trial, and what was left out to get them.

    Attributes:
        prompts: in the order in which they are sent.
        layout: the name of the layout they were read as.
        source: the file, or `builtin`.
        skipped: rows that cannot be sent, by reason.
        categories: usable prompts that were read, by category, chosen or not, in order of appearance.
        turns_left_out: later turns of the chosen prompts that `first_turn_only` removed.
        read_all: whether the source was read to its end. Where it was not, the counts are of the part that was read.
    """

    prompts: tuple[Prompt, ...]
    layout: str
    source: str
    skipped: tuple[Skipped, ...] = ()
    categories: Mapping[str, int] = field(default_factory=dict)
    turns_left_out: int = 0
    read_all: bool = True

    @property
    def left_out(self) -> int:
        """How many usable prompts were read and not chosen."""
        return sum(self.categories.values()) - len(self.prompts)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know about the choice, one line each."""
        lines = [f"{entry.count} of the rows skipped: {entry.reason} (first: {entry.first})" for entry in self.skipped]
        if not self.read_all:
            lines.append(f"{self.source} was read only as far as needed")
        if self.left_out:
            lines.append(f"{self.left_out} further prompts were read and not chosen")
        if self.turns_left_out:
            lines.append(f"{self.turns_left_out} later turns were left out")
        return tuple(lines)
