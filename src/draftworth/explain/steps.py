"""How many steps an arm took and what they drafted, request by request where that is known.

The best source there is: what each answer told of itself; a replay of the arm's own answers, where it counts what the
server counted; the server's totals, each request alike. An arm's time is in none of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from draftworth.costs.arms import draft_shares
from draftworth.engines.base import synthetic_in
from draftworth.errors import UsageError
from draftworth.predict.armreplay import from_counts, replayed
from draftworth.predict.requests import Requests
from draftworth.predict.speculation import replayable
from draftworth.predict.trialrows import Load, Measured

CLOSE = 0.01
"""A replay of an arm's own answers stands where its steps per token are the server's within this share."""


@dataclass(frozen=True, slots=True)
class ArmSteps:
    """The steps of an arm at one load.

    Attributes:
        requests: steps of each prompt by drafted tokens.
        source: what told them, for a person.
        k: most tokens it drafts a step.
        prompts: the prompt of each row of `requests`; empty where they are of all prompts together.
        log_se: standard error of log(steps per token) where `prompts` do not tell it.
    """

    requests: Requests
    source: str
    k: int
    prompts: tuple[str, ...] = ()
    log_se: float = 0.0


def steps_of(trial: Measured, load: Load, prompts: list[str]) -> ArmSteps:
    """Return the steps of an arm.

    Args:
        trial: its trial.
        load: the arm at its point.
        prompts: which to look at, where they can be told apart.

    Raises:
        UsageError: its counts are not known, or its configuration does not say how many tokens it drafts.
    """
    config = load.place.speculation
    k = config.get("num_speculative_tokens")
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        counts = load.counts
        if counts is None or not counts.drafted or not counts.drafting_steps:
            raise UsageError("its speculative configuration does not say how many tokens it drafts")
        k = -(-counts.drafted // counts.drafting_steps)
    own = _told(load, set(prompts), k) or _replayed(trial, load, prompts, config)
    if own is not None:
        return own
    counts = load.counts
    if counts is not None and counts.steps and counts.emitted and not counts.drafted:
        hist = np.zeros((1, k + 1))
        hist[0, 0] = counts.steps
        return ArmSteps(
            Requests(hist, np.array([float(counts.emitted)])), "the server's counts, which drafted nothing", k
        )
    requests, log_se = from_counts(counts, k)
    return ArmSteps(requests, "the server's counts", k, log_se=log_se)


def _told(load: Load, prompts: set[str], k: int) -> ArmSteps | None:
    """Return what answers told of themselves (vLLM's per-request summary); None where one of them told nothing."""
    hist: list[np.ndarray[Any, Any]] = []
    tokens: list[float] = []
    names: list[str] = []
    for row in load.rows:
        if not row.timed or row.prompt not in prompts:
            continue
        emitted = (row.tokens or 1) - 1
        found = _summary(row.stats)
        if found is None or emitted < 1:
            return None
        drafting, drafted, accepted = found
        steps = max(emitted - accepted, drafting, 1)
        shares = draft_shares(steps, drafting, drafted, k) if drafting else np.eye(1, k + 1)[0]
        hist.append(shares[: k + 1] * steps)
        tokens.append(float(emitted))
        names.append(row.prompt)
    if not hist:
        return None
    requests = Requests(np.array(hist), np.array(tokens))
    return ArmSteps(requests, "what each answer told of its steps", k, tuple(names))


def _summary(stats: str | None) -> tuple[int, int, int] | None:
    """Return drafting steps, drafted and accepted tokens of an answer; None where it does not tell."""
    try:
        found = json.loads(stats or "null")
    except ValueError:
        return None
    if not isinstance(found, Mapping):
        return None
    values = [found.get(name) for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")]
    if not all(isinstance(one, int) and one >= 0 for one in values):
        return None
    steps, drafted, accepted = (int(one or 0) for one in values)
    return (steps, drafted, accepted) if drafted >= steps else None


def _replayed(trial: Measured, load: Load, prompts: list[str], config: Mapping[str, Any]) -> ArmSteps | None:
    """Return a replay of the arm's own answers; None where it cannot be made or does not count what the server did."""
    counts = load.counts
    if counts is None or not counts.steps or not counts.emitted or not counts.drafted:
        return None
    if synthetic_in(config, load.arm.declared.get("env") or {}) or load.arm.engine != "vllm":
        return None
    try:
        found = replayable({**config, "method": load.place.method}, load.arm.runner)
        own = replace(trial, sent={**trial.sent, trial.baseline: trial.sent.get(load.arm.name, ())})
        requests = replayed(own, load, found, prompts)
    except UsageError:
        return None
    steps, tokens = float(requests.hist.sum()), float(requests.tokens.sum())
    drafting = float(requests.hist[:, 1:].sum()) / steps
    told, covered = counts.steps / counts.emitted, (counts.drafting_steps or 0) / counts.steps
    if abs(steps / tokens / told - 1) > CLOSE or abs(drafting - covered) > CLOSE:
        return None
    why = "a replay of the arm's own answers, which counts what the server counted"
    if len(requests.tokens) == len(prompts):
        return ArmSteps(requests, why, found.setting.k, tuple(prompts))
    # Which prompts had no second token is not told: the spread is that of those that had.
    each = requests.hist.sum(axis=1) / requests.tokens
    log_se = float(each.std(ddof=1) / np.sqrt(len(each)) / each.mean()) if len(each) > 1 else 0.0
    return ArmSteps(requests, why, found.setting.k, log_se=log_se)
