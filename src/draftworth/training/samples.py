"""Samples: token ids with a loss mask; requests that continue each other become one; what is too long is cut."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.training.sources.base import Ids


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids and which of them the target wrote.

    Attributes:
        ids: int32.
        mask: uint8 of equal length, 1 on tokens of answers (and of reasoning, where that is learned).
        exact: whether the ids came from a server.
    """

    ids: NDArray[np.int32]
    mask: NDArray[np.uint8]
    exact: bool

    @property
    def learned(self) -> int:
        """How many tokens the loss is taken on."""
        return int(self.mask.sum())


def chained(requests: Sequence[Ids], left_out: Sequence[int]) -> list[tuple[int, Sample]]:
    """Return recorded requests as few samples: one that another's tokens continue is learned inside of that one.

    Exact: a hidden state depends on nothing behind its token, so an answer is learned in the same context either way.

    Args:
        requests: in any order.
        left_out: for each, how many tokens at its output's beginning are not learned (reasoning, scaffolds).

    Returns:
        The samples, each with the request whose tokens it has; together they hold every learned token once.
    """
    wholes = [np.concatenate([one.prompt, one.output]).astype(np.int32) for one in requests]
    # In the order of their bytes, big-endian, whatever continues a request stands right behind it.
    texts = [whole.astype(">u4").tobytes() for whole in wholes]
    order = sorted(range(len(requests)), key=lambda at: texts[at])
    homes = list(range(len(requests)))
    for before, after in zip(reversed(order[:-1]), reversed(order[1:]), strict=True):
        if texts[after].startswith(texts[before]):
            homes[before] = homes[after]
    masks = {at: np.zeros(len(wholes[at]), np.uint8) for at in set(homes)}
    exact = dict.fromkeys(masks, True)
    for at, home in enumerate(homes):
        masks[home][len(requests[at].prompt) + left_out[at] : len(wholes[at])] = 1
        exact[home] = exact[home] and requests[at].exact
    return [(at, Sample(wholes[at], masks[at], exact[at])) for at in sorted(masks)]


def cut(sample: Sample, most: int) -> Sample | None:
    """Return a sample of at most so many tokens, cut at its end; None where no learned token would be left."""
    if len(sample.ids) <= most:
        return sample
    mask = sample.mask[:most]
    return Sample(sample.ids[:most], mask, sample.exact) if mask.any() else None
