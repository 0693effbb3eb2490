"""Reads the speculative figures vLLM puts into each answer, and asks for them.

The object is `metrics.speculative_decoding` of a response or of a stream's last chunk (vLLM 0.29.0 and later with
`--per-request-spec-decode-metrics summary|detailed`; `v1/metrics/stats.py`, RequestSpecDecodeMetrics.to_dict). It is
missing for `n > 1` and, seen with 0.32.0, for answers that a stop string ended.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.base import AcceptanceCounts
from draftworth.errors import MeasureError

_FIRST_RELEASE = (0, 29, 0)
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?P<rest>.*)")
_BEFORE_RELEASE = re.compile(r"[.-]?(?:a|b|rc|dev)")
_NUMBERS = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")


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
    histogram = [0] * max(len(bins) for _, bins in told)
    for _, bins in told:
        for accepted, steps in enumerate(bins):
            histogram[accepted] += steps
    steps, drafted, accepted = (sum(numbers[i] for numbers, _ in told) for i in range(3))
    name = f"vLLM {version}" if version else "vLLM"
    return AcceptanceCounts(
        drafting_steps=steps,
        drafted=drafted,
        accepted=accepted,
        # Position i was accepted in every step that accepted more than i tokens.
        accepted_per_position=tuple(sum(histogram[i + 1 :]) for i in range(len(histogram) - 1)),
        source=f"speculative_decoding of {len(told)} of {len(stats)} answers of {name}",
        not_given={
            "steps": "an answer's figures count only the steps that drafted",
            "emitted": "an answer's figures count only drafted tokens",
        },
    )


def _read(index: int, item: Mapping[str, Any]) -> tuple[tuple[int, int, int], list[int]]:
    """Return (drafting steps, drafted, accepted) and the histogram of accepted tokens a step."""
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
    return (steps, drafted, accepted), histogram


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
