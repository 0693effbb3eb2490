"""From rows to pairs: one value a prompt and arm, for the prompts measured in every start of both arms."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from draftworth.bench.base import RequestRow

Block = Sequence[RequestRow]
"""The rows of one start of an arm."""
Values = Mapping[str, float]
"""Prompt id to one value, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Prompts measured in every block of both arms.

    Attributes:
        ids: the prompts, in order of id.
        baseline: one value a prompt in milliseconds, the mean over the baseline's blocks.
        variant: the same of the variant.
        baseline_log_means: log of the mean over these prompts, one a block; empty for a part of the prompts.
        variant_log_means: the same of the variant.
    """

    ids: tuple[str, ...]
    baseline: tuple[float, ...]
    variant: tuple[float, ...]
    baseline_log_means: tuple[float, ...] = ()
    variant_log_means: tuple[float, ...] = ()

    def only(self, wanted: set[str]) -> "Paired":
        """Return the part of the prompts that is wanted."""
        kept = [i for i, prompt in enumerate(self.ids) if prompt in wanted]
        return Paired(
            tuple(self.ids[i] for i in kept),
            tuple(self.baseline[i] for i in kept),
            tuple(self.variant[i] for i in kept),
        )


def prompt_tpots(rows: Iterable[RequestRow]) -> dict[str, float]:
    """Return TPOT by prompt, in milliseconds a token: sum of decode times / sum of tokens after the first chunk.

    Good rows with a TPOT count, whatever their token source; a prompt without any, or whose sums give no time above
    zero, is missing.
    """
    times: dict[str, float] = {}
    tokens: dict[str, int] = {}
    for row in rows:
        if not row.ok or row.tpot_ms is None:
            continue
        if row.decode_ms is None or row.tokens is None or row.first_chunk_tokens is None:
            continue
        times[row.prompt_id] = times.get(row.prompt_id, 0.0) + row.decode_ms
        tokens[row.prompt_id] = tokens.get(row.prompt_id, 0) + row.tokens - row.first_chunk_tokens
    return _positive({prompt: time / tokens[prompt] for prompt, time in times.items() if tokens[prompt] > 0})


def prompt_ttfts(rows: Iterable[RequestRow]) -> dict[str, float]:
    """Return TTFT by prompt, in milliseconds: the mean over its good rows that have one."""
    return _positive(means((row.prompt_id, row.ttft_ms) for row in rows if row.ok))


def category_of(rows: Iterable[RequestRow]) -> dict[str, str]:
    """Return the category of each prompt; the first row of a prompt tells."""
    categories: dict[str, str] = {}
    for row in rows:
        categories.setdefault(row.prompt_id, row.category)
    return categories


def pair(
    baseline_blocks: Sequence[Block], variant_blocks: Sequence[Block], values: Callable[[Block], Values]
) -> Paired:
    """Pair the prompts that have a value in every block of both arms; nothing is paired where an arm has no block."""
    base = [values(block) for block in baseline_blocks]
    other = [values(block) for block in variant_blocks]
    if not base or not other:
        return Paired((), (), ())
    ids = tuple(sorted(set.intersection(*(set(block) for block in (*base, *other)))))
    if not ids:
        return Paired((), (), ())
    return Paired(
        ids,
        tuple(sum(block[i] for block in base) / len(base) for i in ids),
        tuple(sum(block[i] for block in other) / len(other) for i in ids),
        tuple(math.log(sum(block[i] for i in ids) / len(ids)) for block in base),
        tuple(math.log(sum(block[i] for i in ids) / len(ids)) for block in other),
    )


def means(values: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Return the mean by prompt of what is there; a prompt with nothing is missing."""
    grouped: dict[str, list[float]] = {}
    for prompt, value in values:
        if value is not None:
            grouped.setdefault(prompt, []).append(value)
    return {prompt: sum(group) / len(group) for prompt, group in grouped.items()}


def _positive(values: Values) -> dict[str, float]:
    return {prompt: value for prompt, value in values.items() if math.isfinite(value) and value > 0}
