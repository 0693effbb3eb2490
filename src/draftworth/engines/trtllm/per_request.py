"""Reads the figures of speculation that `trtllm-serve` puts into each choice of an answer.

`avg_decoded_tokens_per_iter` (1.0 and later; `serve/openai_protocol.py`, `postprocess_handlers.py`) is the request's
tokens divided by its decoding iterations as a 32-bit float, the prefill's token and iteration among both
(`LlmRequest::getAvgDecodedTokensPerIter`). With the answer's number of tokens the iterations come back from it.

`speculative_decoding` is PR #19311 (open in September 2026): exact counts on the choice, with
`per_request_spec_decode_stats: true` in the options file and the PyTorch backend; it is absent where nothing was
drafted.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from draftworth.engines.base import AcceptanceCounts
from draftworth.errors import MeasureError

_TOTALS = ("num_spec_steps", "total_draft_tokens", "total_accepted_draft_tokens")
_ROUNDED = 6  # decimals; a figure with more was not rounded by anybody on the way
_FLOAT32 = 2.0**-23  # relative; a 32-bit float's spacing
_SLACK = 1e-9  # of a division that comes out whole
_NO_BLOCK = "no answer carries counts of drafts (PR #19311 and per_request_spec_decode_stats bring them)"
_NO_TOKENS = "not every answer tells its number of tokens beside its average"
_NO_AVERAGE = "not every answer tells avg_decoded_tokens_per_iter"
_SEVERAL = "an answer with several choices tells its tokens only together"
_STOPPED = "a stop string was cut from an answer, so its tokens are not those that were counted"


def request_stats(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the figures of a response, or of one chunk of a stream; None where it carries none.

    `completion_tokens` is among them where the same chunk carries usage; the last chunks of a stream carry the two
    apart, and the caller knows the tokens.
    """
    choices = chunk.get("choices")
    told = [
        {
            key: choice[key]
            for key in ("avg_decoded_tokens_per_iter", "speculative_decoding", "finish_reason", "stop_reason")
            if choice.get(key) is not None
        }
        for choice in (choices if isinstance(choices, list) else [])
        if isinstance(choice, dict)
        and any(choice.get(key) is not None for key in ("avg_decoded_tokens_per_iter", "speculative_decoding"))
    ]
    if not told:
        return None
    usage = chunk.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return {"choices": told, **({"completion_tokens": tokens} if _is_count(tokens) else {})}


def request_counts(stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
    """Sum the figures of answers, or return None where no answer carried any.

    Args:
        stats: what `request_stats` gave for each answer, `completion_tokens` among it where known.
        version: the release, for the name of the source.

    Raises:
        MeasureError: an object has another form, or its figures contradict each other.
    """
    told = [(index, item) for index, item in enumerate(stats) if item]
    if not told:
        return None
    choices = [(index, choice) for index, item in told for choice in _choices(index, item)]
    values, reasons = _drafts([block for index, choice in choices if (block := _block(index, choice)) is not None])
    steps, emitted, why = _steps(told)
    between: dict[str, tuple[int, int | None]] = {}
    if why is not None:
        reasons |= {"steps": why, "emitted": why}
    elif steps[0] == steps[1]:
        values |= {"steps": steps[0], "emitted": emitted}
    else:
        values["emitted"] = emitted
        between["steps"] = steps
        reasons["steps"] = f"told only rounded: {steps[0]:,} to {steps[1]:,}"
    name = f"TensorRT-LLM {version}" if version else "TensorRT-LLM"
    return AcceptanceCounts(
        **values, source=f"choices of {len(told)} of {len(stats)} answers of {name}", not_given=reasons, between=between
    )


_Block = tuple[tuple[int, int, int], list[int]]


def _drafts(blocks: Sequence[_Block]) -> tuple[dict[str, Any], dict[str, str]]:
    fields = ("drafting_steps", "drafted", "accepted", "accepted_per_position")
    if not blocks:
        return {}, dict.fromkeys(fields, _NO_BLOCK)
    histogram = [0] * max(len(bins) for _, bins in blocks)
    for _, bins in blocks:
        for accepted, steps in enumerate(bins):
            histogram[accepted] += steps
    steps, drafted, accepted = (sum(numbers[i] for numbers, _ in blocks) for i in range(3))
    survival = tuple(sum(histogram[i + 1 :]) for i in range(len(histogram) - 1))
    return dict(zip(fields, (steps, drafted, accepted, survival), strict=True)), {}


def _choices(index: int, item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    choices = item.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise MeasureError(f"answer {index}: its figures are not of the form that request_stats gives")
    return choices


def _block(index: int, choice: Mapping[str, Any]) -> _Block | None:
    block = choice.get("speculative_decoding")
    if block is None:
        return None
    histogram = block.get("acceptance_histogram") if isinstance(block, dict) else None
    numbers = [block.get(name) for name in _TOTALS] if isinstance(block, dict) else []
    if not isinstance(histogram, list) or not histogram or not all(_is_count(n) for n in (*histogram, *numbers)):
        raise MeasureError(f"answer {index}: speculative_decoding is not of the form of TensorRT-LLM's PR #19311")
    steps, drafted, accepted = (int(n) for n in numbers if n is not None)
    if sum(histogram) != steps or sum(j * n for j, n in enumerate(histogram)) != accepted or accepted > drafted:
        raise MeasureError(
            f"answer {index}: its speculative figures contradict each other "
            f"(histogram {histogram}, {steps} steps, {accepted} accepted of {drafted} drafted)"
        )
    return (steps, drafted, accepted), histogram


def _steps(told: Sequence[tuple[int, Mapping[str, Any]]]) -> tuple[tuple[int, int], int, str | None]:
    """Return the fewest and the most decode steps, the tokens they gave, and why neither is told."""
    low = high = emitted = 0
    for index, item in told:
        choices = _choices(index, item)
        average, tokens = choices[0].get("avg_decoded_tokens_per_iter"), item.get("completion_tokens")
        if len(choices) > 1:
            return (0, 0), 0, _SEVERAL
        if average is None:
            return (0, 0), 0, _NO_AVERAGE
        if not _is_count(tokens) or not tokens:
            return (0, 0), 0, _NO_TOKENS
        if isinstance(choices[0].get("stop_reason"), str):
            return (0, 0), 0, _STOPPED
        fewest, most = _iterations(index, average, int(tokens), choices[0].get("finish_reason"))
        low, high, emitted = low + fewest - 1, high + most - 1, emitted + int(tokens) - 1
    return (low, high), emitted, None


def _iterations(index: int, average: object, tokens: int, finish_reason: object) -> tuple[int, int]:
    """Return the fewest and the most iterations that give this average for so many tokens.

    An end token that the engine counted and the answer does not show is allowed for, except where the answer was cut
    at its length. Raises MeasureError where no number of iterations fits.
    """
    if not isinstance(average, int | float) or isinstance(average, bool) or not math.isfinite(average) or average < 1:
        raise MeasureError(f"answer {index}: avg_decoded_tokens_per_iter is {str(average)[:20]}")
    fitting = _fitting(average, average * _FLOAT32, tokens, finish_reason)
    decimals = len(repr(float(average)).partition(".")[2])
    if not fitting and decimals <= _ROUNDED:  # somebody on the way rounded it
        fitting = _fitting(average, 0.5 * 10.0**-decimals, tokens, finish_reason)
    if not fitting:
        raise MeasureError(
            f"answer {index}: no number of iterations gives {average} tokens an iteration of {tokens} tokens"
        )
    return min(fitting), max(fitting)


def _fitting(average: float, half: float, tokens: int, finish_reason: object) -> list[int]:
    """Return the ends of every range of iterations whose average lies no further than `half` from the one told."""
    fitting: list[int] = []
    for counted in (tokens,) if finish_reason == "length" else (tokens, tokens + 1):
        fewest = max(1, math.ceil(counted / (average + half) - _SLACK))
        most = min(counted, math.floor(counted / max(average - half, 1.0) + _SLACK))
        fitting += [fewest, most] if fewest <= most else []
    return fitting


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
