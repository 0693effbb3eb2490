"""A replay that hides nothing: plain Python, one step after another, for any draft function.

For tests only. `draft(context)` gets everything up to the newest token, as an engine has it when it drafts, and returns
the tokens it would verify; the first draft is made behind the first output token, which comes from prefill.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters.base import ANSWER, THINKING

Draft = Callable[[list[int]], Sequence[int]]


@dataclass(frozen=True)
class Step:
    """One step: `at` is the index in the output of the first token it emits."""

    at: int
    drafted: int
    accepted: int
    emitted: int


@dataclass(frozen=True)
class Request:
    """One recorded request."""

    prompt: list[int]
    output: list[int]
    thinking: int = -1
    category: str = ""


def steps_of(prompt: Sequence[int], output: Sequence[int], draft: Draft) -> list[Step]:
    """Return every step of a request."""
    context, found, at = [*prompt, *output[:1]], [], 1
    while at < len(output):
        step = one_step(output, at, list(draft(list(context))))
        found.append(step)
        context += output[at : at + step.emitted]
        at += step.emitted
    return found


def one_step(output: Sequence[int], at: int, drafted: Sequence[int]) -> Step:
    """Verify a draft against the recording. It emits what agrees and one more token, as far as one is recorded."""
    accepted = 0
    for wanted, got in zip(output[at:], drafted, strict=False):
        if wanted != got:
            break
        accepted += 1
    return Step(at, len(drafted), accepted, min(accepted + 1, len(output) - at))


def lockstep(
    requests: Sequence[Request], draft: Callable[[int, list[int]], Sequence[int]], concurrency: int
) -> Iterator[tuple[int, Step]]:
    """Yield steps in the order of a server that decodes so many requests at a time, one step each in turn.

    A request that ends gives its place to the next one. `draft` is told which request it is.
    """
    waiting = [n for n, one in enumerate(requests) if len(one.output) > 1]
    running = [[n, 1] for n in waiting[:concurrency]]
    waiting = waiting[concurrency:]
    while running:
        for place in running:
            number, at = place
            one = requests[number]
            step = one_step(one.output, at, list(draft(number, [*one.prompt, *one.output[:at]])))
            yield number, step
            place[1] = at + step.emitted
        for index, (number, at) in enumerate(running):
            if at >= len(requests[number].output) and waiting:
                running[index] = [waiting.pop(0), 1]
        running = [place for place in running if place[1] < len(requests[place[0]].output)]


def phase(step: Step, thinking: int) -> int:
    """Return the phase of a step by the first token it emits."""
    return THINKING if step.at < thinking else ANSWER


def counts(
    requests: Sequence[Request],
    drafts: Sequence[Draft],
    k: int,
    groups: NDArray[np.int32] | None = None,
    group_count: int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return `Counts.joint` and `Counts.steps` of some requests, one draft function a setting, k the largest k."""
    joint = np.zeros((len(drafts), group_count, k + 1, k + 1), dtype=np.int64)
    steps = np.zeros((len(drafts), len(requests)), dtype=np.int32)
    where = np.zeros((len(requests), 2), dtype=np.int32) if groups is None else groups
    for s, draft in enumerate(drafts):
        for r, one in enumerate(requests):
            for step in steps_of(one.prompt, one.output, draft):
                joint[s, where[r, phase(step, one.thinking)], step.drafted, step.accepted] += 1
                steps[s, r] += 1
    return joint, steps
