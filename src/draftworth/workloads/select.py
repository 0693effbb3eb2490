"""Which prompts of a source are taken, without holding the source.

Held: at most about twice the prompts that are chosen (where `limit` or `prompts_per_category` bounds them), and a
number for each category. What is decided once can be decided early, because every order used here ranks a prompt by
itself and what came before it: a prompt behind the limit never comes back.
"""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from hashlib import blake2b

from draftworth.bench.base import Prompt
from draftworth.errors import UsageError
from draftworth.workloads.base import Selection, SkipRow

_FEWEST_HELD = 64
_MOST_LISTED = 20

_Rank = tuple[float, ...]


def check(selection: Selection) -> None:
    """Refuse a choice that can never be met.

    Raises:
        UsageError: no category at all, or a number below 1.
    """
    if selection.categories is not None and not selection.categories:
        raise UsageError("no category chosen: name at least one, or leave categories out to take all")
    if selection.prompts_per_category is not None and selection.prompts_per_category < 1:
        raise UsageError(f"{selection.prompts_per_category} prompts per category: ask for at least 1")
    if selection.limit is not None and selection.limit < 1:
        raise UsageError(f"a limit of {selection.limit} prompts: ask for at least 1")


class Chooser:
    """Takes the prompts of a source one after the other and keeps those that are chosen.

    Args:
        selection: what is wanted.
        in_turn: whether the source names categories, so that without a seed one of each is taken in turn.
        skips_repeated_ids: whether a repeated id is skipped instead of refused.

    Attributes:
        counts: prompts seen, by category, in order of appearance.
    """

    def __init__(self, selection: Selection, *, in_turn: bool, skips_repeated_ids: bool = False) -> None:
        self.counts: dict[str, int] = {}
        self._selection = selection
        self._in_turn = in_turn
        self._skips_repeated_ids = skips_repeated_ids
        self._wanted = None if selection.categories is None else frozenset(selection.categories)
        self._held: list[tuple[_Rank, Prompt]] = []
        self._where: dict[str, str] = {}
        self._order: dict[str, int] = {}
        self._bounded = selection.limit is not None or selection.prompts_per_category is not None
        self._prune_at = _FEWEST_HELD
        self._timed: bool | None = None

    def add(self, prompt: Prompt, where: str) -> None:
        """Look at the next prompt of the source.

        Args:
            prompt: it.
            where: its place, for errors.

        Raises:
            UsageError: its id is used already, or only some of the prompts have arrival times.
            SkipRow: its id is used already, in a layout where that happens.
        """
        timed = prompt.arrival_s is not None
        if self._timed is None:
            self._timed = timed
        elif timed != self._timed:
            raise UsageError(
                f"{where}: {'an' if timed else 'no'} arrival time, but the prompts before it have "
                f"{'none' if timed else 'one'}; give it for all or for none"
            )
        if prompt.id in self._where:
            if self._skips_repeated_ids:
                raise SkipRow("its id was used before")
            first = self._where[prompt.id]
            raise UsageError(f"{where}: id {prompt.id!r} is already used in {first}; ids pair runs, give each its own")
        seen = self.counts.get(prompt.category, 0)
        self.counts[prompt.category] = seen + 1
        self._order.setdefault(prompt.category, len(self._order))
        if self._wanted is not None and prompt.category not in self._wanted:
            return
        self._held.append((self._rank(prompt, seen), prompt))
        self._where[prompt.id] = where
        if self._bounded and len(self._held) > self._prune_at:
            self._prune()
            self._prune_at = max(_FEWEST_HELD, 2 * len(self._held))

    @property
    def decided(self) -> bool:
        """Whether nothing that may still come can change the choice, so that reading may stop."""
        selection = self._selection
        if not self._bounded or self._timed or selection.seed is not None or not self.counts:
            return False
        cap = selection.prompts_per_category
        if not self._in_turn and cap is None:
            chosen = sum(n for name, n in self.counts.items() if self._wanted is None or name in self._wanted)
            complete = self._wanted is None or all(name in self.counts for name in self._wanted)
            return selection.limit is not None and chosen >= selection.limit and complete
        if self._wanted is None:
            return False
        counts = [self.counts.get(name, 0) for name in self._wanted]
        if not all(counts):
            return False
        return all((cap is not None and n >= cap) or self._behind_limit(n, counts) for n in counts)

    def _behind_limit(self, n: int, counts: Sequence[int]) -> bool:
        """Whether the next prompt of a category that had n comes behind the limit, taking categories in turn."""
        limit, cap = self._selection.limit, self._selection.prompts_per_category
        if limit is None or not self._in_turn:
            return False
        return sum(min(other, n if cap is None else min(n, cap)) for other in counts) >= limit

    def result(self, source: str) -> tuple[tuple[Prompt, ...], int]:
        """Return the chosen prompts in the order they are sent, and how many later turns were left out.

        Raises:
            UsageError: a category that is not in the source.
        """
        for name in self._selection.categories or ():
            if name not in self.counts:
                raise UsageError(f"{source}: no prompt is of category {name!r}; {there_are(name, list(self.counts))}")
        self._prune()
        chosen = [prompt for _, prompt in self._held]
        if self._timed:
            chosen.sort(key=lambda prompt: prompt.arrival_s or 0.0)
            start = (chosen[0].arrival_s or 0.0) if chosen else 0.0
            chosen = [replace(prompt, arrival_s=(prompt.arrival_s or 0.0) - start) for prompt in chosen]
        dropped = 0
        if self._selection.first_turn_only:
            dropped = sum(len(prompt.turns) for prompt in chosen)
            chosen = [replace(prompt, turns=()) if prompt.turns else prompt for prompt in chosen]
        return tuple(chosen), dropped

    def _rank(self, prompt: Prompt, seen: int) -> _Rank:
        if self._selection.seed is not None:
            # A rank that is the prompt's own draws without replacement, and the same on every machine and in every
            # version of Python, which `random.sample` does not promise.
            key = f"{self._selection.seed}\0{prompt.id}".encode()
            return (int.from_bytes(blake2b(key, digest_size=6).digest(), "big"),)
        if prompt.arrival_s is not None:
            return (prompt.arrival_s,)
        return (seen, self._order[prompt.category]) if self._in_turn else ()

    def _prune(self) -> None:
        # Stable: prompts of the same rank stay in the order of the source.
        self._held.sort(key=lambda entry: entry[0])
        taken: dict[str, int] = {}
        cap, kept = self._selection.prompts_per_category, []
        for entry in self._held:
            category = entry[1].category
            taken[category] = taken.get(category, 0) + 1
            if cap is None or taken[category] <= cap:
                kept.append(entry)
        self._held = kept if self._selection.limit is None else kept[: self._selection.limit]
        if len(self._held) < len(self._where):
            self._where = {prompt.id: self._where[prompt.id] for _, prompt in self._held}


def there_are(name: str, known: Sequence[str]) -> str:
    """Return the choices there are, the nearest to a misspelt name first, at most twenty."""
    near = sorted(known, key=lambda other: -SequenceMatcher(None, name.lower(), other.lower()).ratio())
    best = SequenceMatcher(None, name.lower(), near[0].lower()).ratio() if near else 0.0
    hint = f"did you mean {near[0]!r}? " if best >= 0.6 else ""  # noqa: PLR2004 - the cutoff difflib itself recommends
    more = f" and {len(near) - _MOST_LISTED} more" if len(near) > _MOST_LISTED else ""
    return f"{hint}There are: {', '.join(near[:_MOST_LISTED])}{more}"
