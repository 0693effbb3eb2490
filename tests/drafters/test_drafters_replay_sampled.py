"""At a temperature above 0 replaying samples gives what an engine would count, on average.

The model is a Markov chain, the engine does rejection sampling as published (Leviathan, Kalman and Matias 2023,
"Fast Inference from Transformers via Speculative Decoding", algorithm 1) with a draft of probability one.
"""

import random
import statistics
from functools import partial

from tests.drafters.naive import one_step, steps_of
from tests.drafters.toy import earliest

from draftworth.drafters.base import Setting

CHAIN = {0: (0.7, 0.2, 0.1), 1: (0.1, 0.1, 0.8), 2: (0.3, 0.6, 0.1)}
PROMPT, LENGTH, SETTING = [0, 1, 2, 0, 0, 1], 25, Setting(4, 1, 3)


def sampled(last: int, rng: random.Random, *, without: int | None = None) -> int:
    """Sample the next token; without one of them, from what is left."""
    weights = [0.0 if token == without else share for token, share in enumerate(CHAIN[last])]
    return rng.choices(range(3), weights)[0]


def of_the_engine(rng: random.Random) -> tuple[int, int, int]:
    """Return steps, drafted and accepted tokens of one request, accepted within its length."""
    context = [*PROMPT, sampled(PROMPT[-1], rng)]
    end = len(PROMPT) + LENGTH
    steps = drafted = accepted = 0
    while len(context) < end:
        draft = earliest(context, SETTING)
        steps, drafted, before = steps + 1, drafted + len(draft), len(context)
        for token in draft:
            if rng.random() >= CHAIN[context[-1]][token]:
                context.append(sampled(context[-1], rng, without=token))
                break
            context.append(token)
            accepted += len(context) <= end
        else:
            context.append(sampled(context[-1], rng))
        assert len(context) > before
        del context[end:]
    return steps, drafted, accepted


def of_replay(rng: random.Random) -> tuple[int, int, int]:
    """Return the same of a replayed sample of the model."""
    output = [sampled(PROMPT[-1], rng)]
    while len(output) < LENGTH:
        output.append(sampled(output[-1], rng))
    steps = steps_of(PROMPT, output, partial(earliest, setting=SETTING))
    return len(steps), sum(step.drafted for step in steps), sum(step.accepted for step in steps)


def test_steps_drafted_and_accepted_tokens_agree_on_average() -> None:
    rng, runs = random.Random(6), 2500
    engine, ours = ([run(rng) for _ in range(runs)] for run in (of_the_engine, of_replay))
    for at, name in enumerate(("steps", "drafted", "accepted")):
        one, other = [row[at] for row in engine], [row[at] for row in ours]
        error = ((statistics.variance(one) + statistics.variance(other)) / runs) ** 0.5
        assert error < 0.02 * statistics.mean(one), f"{name}: too few runs to tell"
        assert abs(statistics.mean(one) - statistics.mean(other)) < 4 * error, name


def test_a_step_emits_no_more_than_is_recorded() -> None:
    step = one_step([1, 2, 3], 1, [2, 3, 4])
    assert (step.drafted, step.accepted, step.emitted) == (3, 2, 2)
