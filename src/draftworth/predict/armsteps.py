"""An arm's own steps per token at one point, weighed as its prediction is: each prompt alike, as TPOT is.

A mean over prompts and steps over tokens of all of them are two figures: where long answers draft more than short ones
they are far apart. The first needs what each answer told of its own speculation; an engine's counters give the second
alone, and that is held against the same of the replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from draftworth.predict.requests import Requests
from draftworth.predict.trialrows import Load, told

Weighed = Literal["prompts", "steps"]


@dataclass(frozen=True, slots=True)
class ArmSteps:
    """What an arm measured at one point.

    Attributes:
        per_token: steps per token.
        by: `prompts`: the mean over prompts; `steps`: all steps over all tokens.
        step_ms: a step, in milliseconds: TPOT of the same weights, less what prefills of others add, over `per_token`.
    """

    per_token: float
    by: Weighed
    step_ms: float


def arm_steps(load: Load, prompts: Sequence[str], prefill: float = 0.0) -> ArmSteps | None:
    """Return an arm's own steps; None where nothing tells them.

    Args:
        load: the arm at its point.
        prompts: those that are judged.
        prefill: what the prefills of other requests add to each token, in milliseconds.
    """
    each = _by_prompt(load, prompts)
    if each is not None:
        mean = float(np.mean(each))
        return ArmSteps(mean, "prompts", (float(np.mean(load.tpot(prompts))) - prefill) / mean)
    counts = load.counts
    if counts is None or not counts.steps or not counts.emitted:
        return None
    pooled = counts.steps / counts.emitted
    sums = [load.place.sums.prompts[name] for name in prompts]
    tpot = sum(ms for ms, _ in sums) / sum(tokens for _, tokens in sums)
    return ArmSteps(pooled, "steps", (tpot - prefill) / pooled)


def pooled(requests: Requests) -> float:
    """Return all steps over all tokens of a replay."""
    return float(requests.hist.sum() / requests.tokens.sum())


def _by_prompt(load: Load, prompts: Sequence[str]) -> list[float] | None:
    """Return each prompt's steps per token, its repeats together; None where an answer does not tell its steps."""
    sums: dict[str, tuple[float, float]] = dict.fromkeys(prompts, (0.0, 0.0))
    for row in load.rows:
        if row.timed and row.prompt in sums:
            counts = told(load.arm, [row])
            if counts is None or not counts.steps or not counts.emitted:
                return None
            steps, tokens = sums[row.prompt]
            sums[row.prompt] = steps + counts.steps, tokens + counts.emitted
    return [steps / tokens for steps, tokens in sums.values() if tokens] if all(t for _, t in sums.values()) else None
