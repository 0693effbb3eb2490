"""Token ids of prompts and answers in files that are small enough to be carried: 16 bits an id. numpy alone."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """Lists of token ids, one behind the other.

    Attributes:
        ids: uint16, all of them.
        ends: int64, behind the last token of each list.
    """

    ids: NDArray[np.uint16]
    ends: Ints

    @classmethod
    def of(cls, lists: Sequence[Sequence[int]]) -> "Ragged":
        """Pack lists.

        Raises:
            ValueError: an id needs more than 16 bits.
        """
        flat = np.fromiter((one for some in lists for one in some), np.int64)
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < 1 << 16:
            raise ValueError(f"token ids from {flat.min()} to {flat.max()} do not fit 16 bits")
        return cls(flat.astype(np.uint16), np.cumsum([len(one) for one in lists], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        for first, end in pairwise([0, *self.ends.tolist()]):
            yield self.ids[first:end].astype(np.int32)

    @property
    def lengths(self) -> Ints:
        """Tokens of each list."""
        return np.diff(self.ends, prepend=0)


@dataclass(frozen=True)
class Prompts:
    """The prompts that are answered.

    Attributes:
        ids: of each, as the target's chat template writes it, the beginning of an answer included.
        source: number of each one's source.
        held: whether it is held out.
        row: its row in the file of prompts, which names it.
        sources: the sources' names.
        counts: what was read and what was left out.
    """

    ids: Ragged
    source: Ints
    held: NDArray[np.bool_]
    row: Ints
    sources: tuple[str, ...]
    counts: dict[str, int]

    def save(self, path: Path) -> None:
        """Write all of it into one file."""
        told = json.dumps({"sources": self.sources, "counts": self.counts})
        _save(path, self.ids, source=self.source, held=self.held, row=self.row, told=np.frombuffer(told.encode(), "u1"))

    @classmethod
    def load(cls, path: Path) -> "Prompts":
        """Read what `save` wrote."""
        with np.load(path) as found:
            told = json.loads(found["told"].tobytes())
            ids = Ragged(found["ids"], found["ends"])
            return cls(ids, found["source"], found["held"], found["row"], tuple(told["sources"]), told["counts"])


@dataclass(frozen=True)
class Answers:
    """Answers of the target.

    Attributes:
        ids: what it wrote, the token that ends an answer included.
        prompt: number of each one's prompt.
        greedy: whether it was written at temperature 0.
        ended: whether it ended by itself, and not at the limit of tokens.
    """

    ids: Ragged
    prompt: Ints
    greedy: NDArray[np.bool_]
    ended: NDArray[np.bool_]

    def save(self, path: Path) -> None:
        """Write them into one file, whole or not at all."""
        _save(path, self.ids, prompt=self.prompt, greedy=self.greedy, ended=self.ended)

    @classmethod
    def load(cls, path: Path) -> "Answers":
        """Read what `save` wrote."""
        with np.load(path) as found:
            ids = Ragged(found["ids"], found["ends"])
            return cls(ids, found["prompt"], found["greedy"], found["ended"])

    @classmethod
    def joined(cls, parts: Sequence["Answers"]) -> "Answers":
        """Return several as one."""
        lists = [one.ids for one in parts]
        starts = np.cumsum([0, *(len(one.ids) for one in lists[:-1])])
        ids = Ragged(
            np.concatenate([one.ids for one in lists]),
            np.concatenate([one.ends + start for one, start in zip(lists, starts, strict=True)]),
        )
        prompt, greedy, ended = (
            np.concatenate([getattr(one, name) for one in parts]) for name in ("prompt", "greedy", "ended")
        )
        return cls(ids, prompt, greedy, ended)


def samples(prompts: Prompts, answers: Answers) -> Iterator[tuple[bool, str, str, NDArray[np.int32], int, bool]]:
    """Yield whether it is held out, a name, the source, the whole text's ids, where the answer begins, if at temp 0.

    Held-out prompts have their answer at temperature 0 alone, which a walk needs; the same answer to a prompt counts
    once.
    """
    asked = list(prompts.ids)
    seen: set[tuple[int, bytes]] = set()
    for number, (ids, prompt, greedy) in enumerate(zip(answers.ids, answers.prompt, answers.greedy, strict=True)):
        at = int(prompt)
        key = (at, ids.tobytes())
        if (prompts.held[at] and not greedy) or not len(ids) or key in seen:
            continue
        seen.add(key)
        source = prompts.sources[int(prompts.source[at])]
        name = f"{source}/{int(prompts.row[at])}~{number}"
        yield bool(prompts.held[at]), name, source, np.concatenate([asked[at], ids]), len(asked[at]), bool(greedy)


def order(count: int, seed: int = 0) -> Ints:
    """Return a fixed mixed order, so that whatever a time limit cuts off is a fair part."""
    return np.random.default_rng(seed).permutation(count)


def kind(source: str) -> str:
    """Return the kind of work of a source: what stands in front of a colon (P3 has a source for each template)."""
    return source.partition(":")[0]


def _save(path: Path, ids: Ragged, **columns: Any) -> None:
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        np.savez_compressed(file, ids=ids.ids, ends=ids.ends, **columns)
    beside.replace(path)


def loss_tokens(answers: Iterable[Answers], held: NDArray[np.bool_]) -> int:
    """Return how many tokens of answers there are to learn from."""
    return sum(int(one.ids.lengths[~held[one.prompt]].sum()) for one in answers)
