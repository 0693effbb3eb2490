"""Reads the speculative figures vLLM puts into each answer, and asks for them.

The object is `metrics.speculative_decoding` of a response or of a stream's last chunk (vLLM 0.29.0 and later with
`--per-request-spec-decode-metrics summary|detailed`; `v1/metrics/stats.py`, RequestSpecDecodeMetrics.to_dict, the same
in 0.29.0, 0.32.0 and 0.33.0). It is missing for `n > 1` and, seen with 0.32.0, for answers that a stop string ended.
`detailed` adds what every step drafted and accepted, in order; an answer without drafting steps has neither.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from draftworth.engines.base import AcceptanceCounts
from draftworth.errors import MeasureError

_FIRST_RELEASE = (0, 29, 0)
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?P<rest>.*)")
_BEFORE_RELEASE = re.compile(r"[.-]?(?:a|b|rc|dev)")
_NUMBERS = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
_MOST = 10**15  # no answer has so many tokens; Python refuses to print far longer numbers
_UNRELEASED = "speculative_decoding_stats"


class _Answer(NamedTuple):
    """One answer's figures.

    Attributes:
        steps: drafting steps.
        drafted: tokens.
        accepted: tokens.
        histogram: steps by how many tokens they accepted.
        steps_drafted: what each step drafted; None where the answer does not list its steps.
    """

    steps: int
    drafted: int
    accepted: int
    histogram: list[int]
    steps_drafted: list[int] | None


def measuring_args(version: str | None) -> tuple[str, ...]:
    """Return the arguments that make a speculating server tell per-request figures; none where it may not know them."""
    match = _VERSION.match(version or "")
    if not match:
        return ()
    number = (int(match[1]), int(match[2]), int(match[3] or 0))
    early = number == _FIRST_RELEASE and _BEFORE_RELEASE.match(match["rest"])
    return () if number < _FIRST_RELEASE or early else ("--per-request-spec-decode-metrics", "summary")


def request_counts(stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
    """Sum the speculative figures of answers, or return None where no answer carried any.

    Args:
        stats: each answer's `speculative_decoding` object, None where it had none.
        version: vLLM's version, for the name of the source.

    Raises:
        MeasureError: an object has another form, or its figures contradict each other.
    """
    told = [_read(index, item) for index, item in enumerate(stats) if item]
    if not told:
        return None
    histogram = [0] * max(len(answer.histogram) for answer in told)
    for answer in told:
        for accepted, steps in enumerate(answer.histogram):
            histogram[accepted] += steps
    positions = len(histogram) - 1
    lists = [answer.steps_drafted for answer in told]
    each = [drafted for one in lists for drafted in one or ()]
    detailed = all(one is not None for one in lists)
    name = f"vLLM {version}" if version else "vLLM"
    return AcceptanceCounts(
        drafting_steps=sum(answer.steps for answer in told),
        drafted=sum(answer.drafted for answer in told),
        accepted=sum(answer.accepted for answer in told),
        # Position i was accepted in every step that accepted more than i tokens.
        accepted_per_position=tuple(sum(histogram[i + 1 :]) for i in range(positions)),
        drafted_per_position=tuple(sum(one > i for one in each) for i in range(positions)) if detailed else None,
        source=f"speculative_decoding of {len(told)} of {len(stats)} answers of {name}",
        not_given={
            "steps": "an answer's figures count only the steps that drafted",
            "emitted": "an answer's figures count only drafted tokens",
        },
    )


def request_stats(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the figures of speculation of a response or a stream's last chunk, or None where it carries none.

    What builds from before the release sent is returned too, for `request_counts` to refuse.
    """
    metrics = chunk.get("metrics")
    found = metrics.get("speculative_decoding") if isinstance(metrics, Mapping) else None
    if isinstance(found, Mapping):
        return found
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    early = first.get(_UNRELEASED) if isinstance(first, Mapping) else None
    return {_UNRELEASED: early} if isinstance(early, Mapping) else None


def _read(index: int, item: Mapping[str, Any]) -> _Answer:
    histogram = item.get("acceptance_histogram")
    numbers = [item.get(name) for name in _NUMBERS]
    if not isinstance(histogram, list) or not histogram or not all(_is_count(n) for n in (*histogram, *numbers)):
        found = ", ".join(sorted(map(str, item))) or "nothing"
        raise MeasureError(
            f"answer {index}: its speculative figures are not of the form vLLM 0.29 and later sends (found {found}); "
            "was this a build from before the release?"
        )
    steps, drafted, accepted = (int(n) for n in numbers if n is not None)
    if sum(histogram) != steps or sum(j * n for j, n in enumerate(histogram)) != accepted or accepted > drafted:
        raise MeasureError(
            f"answer {index}: its speculative figures contradict each other "
            f"(histogram {histogram}, {steps} steps, {accepted} accepted of {drafted} drafted)"
        )
    return _Answer(steps, drafted, accepted, histogram, _steps_drafted(index, item, histogram, drafted))


def _steps_drafted(index: int, item: Mapping[str, Any], histogram: list[int], drafted: int) -> list[int] | None:
    """Return what each step drafted, where the answer lists its steps. Raises MeasureError where they contradict it."""
    accepts, drafts = item.get("per_step_accepted"), item.get("per_step_drafted")
    if accepts is None and drafts is None:
        return None if sum(histogram) else []
    if (
        not isinstance(accepts, list)
        or not isinstance(drafts, list)
        or len(accepts) != len(drafts)
        or not all(_is_count(n) for n in (*accepts, *drafts))
    ):
        raise MeasureError(f"answer {index}: its lists of steps are not of the form vLLM 0.29 and later sends")
    most = len(histogram) - 1
    agree = (
        all(one <= of <= most for one, of in zip(accepts, drafts, strict=True))
        and sum(drafts) == drafted
        and [accepts.count(j) for j in range(len(histogram))] == histogram
    )
    if not agree:
        raise MeasureError(f"answer {index}: its list of {len(accepts)} steps contradicts its speculative figures")
    return [int(n) for n in drafts]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST
