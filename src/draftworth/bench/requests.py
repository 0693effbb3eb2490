"""From what a person said about the requests to the requests of each point, and what is remarkable about them."""

from collections.abc import Sequence

from draftworth.bench.base import Prompt, Target
from draftworth.bench.config import WorkloadConfig
from draftworth.bench.points import Point, points
from draftworth.errors import UsageError
from draftworth.findings import Code, Finding, find
from draftworth.workloads import Selection, Workload, load

BUILTIN = "builtin"


def load_workload(work: WorkloadConfig) -> Workload:
    """Return a workload's prompts.

    Raises:
        UsageError: the file is wrong, a category is not in it, or a replay has no recorded times.
    """
    selection = Selection(
        categories=work.categories,
        prompts_per_category=work.prompts_per_category,
        limit=work.limit,
        seed=work.order_seed,
        first_turn_only=work.first_turn_only,
    )
    found = load(
        work.source,
        selection,
        layout=work.format,
        recorded_lengths=work.recorded_lengths,
        max_tokens=max(work.max_tokens),
    )
    if work.replay_speed is not None and any(prompt.arrival_s is None for prompt in found.prompts):
        raise UsageError(
            f"{found.source}: not every request has a recorded time (arrival_s, arrived_unix or timestamp), so it "
            "cannot be replayed; ask for a concurrency or a rate instead"
        )
    if work.context_tokens and any(prompt.token_ids is not None for prompt in found.prompts):
        raise UsageError(f"{found.source}: recorded token ids cannot be filled up; leave context_tokens out")
    return found


def sweep_of(work: WorkloadConfig) -> tuple[Point, ...]:
    """Return the points of a workload."""
    return points(
        concurrency=work.concurrency,
        rate=work.rate,
        replay_speed=work.replay_speed,
        max_tokens=work.max_tokens,
        context_tokens=work.context_tokens,
        seed=work.seed,
    )


def requests_in(prompts: Sequence[Prompt]) -> int:
    """Return how many requests one pass over prompts sends, later turns of conversations too."""
    return sum(1 + len(prompt.turns) for prompt in prompts)


class Requests:
    """Gives the prompts of a point: the same ones in every block of every arm.

    Prompts that are filled up to a length are made when a server is there to count tokens, and kept.

    Attributes:
        repeated: whether passages had to be used more than once.
    """

    def __init__(self, work: WorkloadConfig, prompts: Sequence[Prompt]) -> None:
        self._work = work
        self._prompts = prompts
        self._filled: dict[int, Sequence[Prompt]] = {}
        self.repeated = False

    def at(self, point: Point, target: Target) -> Sequence[Prompt]:
        """Return a point's prompts."""
        length = point.context_tokens
        if length is None:
            return self._prompts
        if length not in self._filled:
            from draftworth.bench.tokenize import counter  # noqa: PLC0415 - lazy: aiohttp
            from draftworth.workloads.context import with_context  # noqa: PLC0415 - lazy

            filled = with_context(self._prompts, length, counter(target), seed=self._work.seed)
            self.repeated = self.repeated or bool(filled.repeated_within)
            self._filled[length] = filled.prompts
        return self._filled[length]


def repeated_passages() -> Finding:
    """Return the remark that prompts were filled up with too little text."""
    return find(Code.PROMPTS_REPEAT, "there was too little text to fill the prompts up; passages were used repeatedly")


def workload_findings(work: WorkloadConfig, prompts: Sequence[Prompt]) -> list[Finding]:
    """Return what about the requests makes a measurement say little about real traffic."""
    from draftworth.workloads.shape import shape  # noqa: PLC0415 - lazy

    findings = []
    if work.source != BUILTIN:
        seen = shape(prompts)
        if seen.looks_random:
            findings.append(find(Code.PROMPTS_RANDOM, seen.evidence))
        if seen.repeats:
            findings.append(find(Code.PROMPTS_REPEAT, seen.evidence))
    if work.ignore_eos:
        findings.append(find(Code.IGNORE_EOS, "workload.ignore_eos is on"))
    return findings
