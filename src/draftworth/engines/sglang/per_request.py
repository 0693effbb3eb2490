"""Reads the speculative figures SGLang puts into each answer, and asks for them.

Where they stand: `meta_info` of `/generate` (on the chunk that ends a request), and from 0.5.19 on
`sglext.spec_tokens_details` of the OpenAI API where the request asked for it (`return_spec_tokens_details`; a stream
sends it in a chunk without choices in front of the usage chunk). Older releases ignore the request's field.

Field names by release (`_calculate_spec_decoding_metrics` of `managers/tokenizer_manager.py`):
- 0.4.6 to 0.5.3: only `spec_verify_ct`.
- 0.5.4, 0.5.5: also `spec_accept_rate` (accepted / (steps x num_steps)) and `spec_accept_length`; both 0 with NGRAM
  (PR #13754).
- 0.5.6 to 0.5.10: also `spec_accept_token_num`, `spec_draft_token_num`; 0.5.9 on `spec_accept_histogram`.
- 0.5.11: `spec_accepted_drafts`, `spec_proposed_drafts`, kept as second names until 0.5.19.
- 0.5.12 on: `spec_num_correct_drafts`, `spec_num_proposed_drafts`, `spec_correct_drafts_histogram`.

`spec_verify_ct` grows at each verification of the request. `spec_accept_length` is completion tokens / verify calls,
so the completion's tokens can be had from it. Accepted tokens that a stop then cut off are counted as accepted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from draftworth.engines.base import AcceptanceCounts
from draftworth.engines.sglang import releases
from draftworth.errors import MeasureError

REQUEST_FIELDS: dict[str, Any] = {"return_spec_tokens_details": True}

_CALLS, _LENGTH = "spec_verify_ct", "spec_accept_length"
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_COMPLETION = "completion_tokens"
_SEVERAL = "several"
_LONGEST = 1e6
_SLACK = 1e-6

_MEANING = {
    "drafting_steps": "verify calls; NGRAM's with nothing but filler are among them",
    "drafted": "verify calls x (N - 1), the configured slots; drafts may be shorter",
}
_OLDER = "this release tells only verify calls of a request (0.5.6 and later tell accepted and proposed tokens)"
_NO_LENGTH = "the answers do not tell their number of tokens"
_NO_HISTOGRAM = "this release tells no histogram (0.5.9 and later do)"
_UNVERIFIED = "tokens left the request without a verification (retracted and begun again, or a mixed chunk)"
_SHIFTED = (
    "the answers' tokens show one accepted token a step more than they tell: an NGRAM build from before PR #24965"
)


class _Answer(NamedTuple):
    calls: int
    accepted: int | None
    drafted: int | None
    histogram: tuple[int, ...] | None
    emitted: int | None


def request_stats(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the figures of speculation an answer, or a stream's chunk, carries; None for none.

    An answer of several choices gives `{"several": [figures, …]}`, as `request_counts` takes it.
    """
    extension, info = chunk.get("sglext"), chunk.get("meta_info")
    if isinstance(extension, Mapping):
        details = extension.get("spec_tokens_details")
        if isinstance(details, list):
            inner = [one for one in details if isinstance(one, Mapping)]
            return {_SEVERAL: inner} if inner and len(inner) == len(details) else None
        return details if isinstance(details, Mapping) and details else None
    if not isinstance(info, Mapping) or _CALLS not in info or info.get("finish_reason", "not told") is None:
        return None
    kept = {str(key): value for key, value in info.items() if str(key).startswith("spec_")}
    return {**kept, _COMPLETION: info[_COMPLETION]} if _COMPLETION in info else kept


def request_counts(stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
    """Sum the speculative figures of answers, or return None where no answer carried any.

    Args:
        stats: what `request_stats` gave for each answer, None where it had nothing.
        version: SGLang's version, for the name of the source.

    Raises:
        MeasureError: figures have another form, or contradict each other.
    """
    carried = sum(bool(item) for item in stats)
    told = [_read(index, one) for index, item in enumerate(stats) if item for one in _each(index, item)]
    if not told:
        return None
    calls = sum(one.calls for one in told)
    emitted, accepted, drafted = (_sum(told, name) for name in ("emitted", "accepted", "drafted"))
    not_given: dict[str, str] = {}
    if accepted is None or drafted is None:
        not_given |= {name: _OLDER for name, value in (("accepted", accepted), ("drafted", drafted)) if value is None}
    if emitted is None:
        not_given["emitted"] = _NO_LENGTH
    steps: int | None = calls
    if emitted is not None and accepted is not None and any(_gap(one) > 0 for one in told):
        if all(_is_shifted(one) for one in told if one.calls):
            accepted = None
            not_given["accepted"] = _SHIFTED
        else:
            steps = emitted = None
            not_given |= {"steps": _UNVERIFIED, "emitted": _UNVERIFIED}
    positions = _positions(told) if accepted is not None else None
    if positions is None:
        not_given["accepted_per_position"] = not_given.get("accepted", _NO_HISTOGRAM)
    values: dict[str, Any] = {
        "steps": steps,
        "drafting_steps": calls,
        "drafted": drafted,
        "accepted": accepted,
        "emitted": emitted,
    }
    return AcceptanceCounts(
        **values,
        accepted_per_position=positions,
        source=f"speculative figures of {carried} of {len(stats)} answers of {releases.name(version)}",
        not_given=not_given,
        meaning={name: how for name, how in _MEANING.items() if values[name] is not None},
    )


def _each(index: int, item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if _SEVERAL not in item:
        return (item,)
    inner = item[_SEVERAL]
    if not isinstance(inner, list) or not all(isinstance(one, Mapping) for one in inner):
        raise MeasureError(f"answer {index}: its speculative figures are no list of objects")
    return inner


def _sum(told: Sequence[_Answer], name: str) -> int | None:
    values = [getattr(one, name) for one in told]
    return None if any(value is None for value in values) else sum(values)


def _gap(one: _Answer) -> int:
    """Return how many emitted tokens neither a verify call nor an accepted draft explains."""
    return 0 if one.emitted is None or one.accepted is None else one.emitted - one.calls - one.accepted


def _is_shifted(one: _Answer) -> bool:
    """Tell whether one more accepted token a step would explain the answer's tokens, but for a last step cut off."""
    if not one.calls or not one.drafted:
        return False
    return 0 <= one.calls - _gap(one) <= one.drafted // one.calls


def _positions(told: Sequence[_Answer]) -> tuple[int, ...] | None:
    histograms = [one.histogram for one in told if one.calls]
    if not histograms or any(one is None for one in histograms):
        return None
    width = max(len(one) for one in histograms if one is not None)
    total = [0] * width
    for one in histograms:
        for accepted, steps in enumerate(one or ()):
            total[accepted] += steps
    # Position i was accepted in every step that accepted more than i tokens.
    return tuple(sum(total[i + 1 :]) for i in range(width - 1))


def _read(index: int, item: Mapping[str, Any]) -> _Answer:
    calls = _count(index, item, (_CALLS,))
    if calls is None:
        found = ", ".join(sorted(map(str, item))) or "nothing"
        raise MeasureError(f"answer {index}: its speculative figures hold no {_CALLS} (found {found})")
    accepted, drafted = _count(index, item, _ACCEPTED), _count(index, item, _DRAFTED)
    if not calls:  # it ended with its first token; 0.5.6 leaves the other names out then
        accepted, drafted = accepted or 0, drafted or 0
    histogram = _histogram(index, item)
    told_accepted = accepted is not None and (
        histogram is None or sum(i * n for i, n in enumerate(histogram)) == accepted
    )
    if accepted is not None and (
        not told_accepted
        or (histogram is not None and sum(histogram) != calls)
        or (drafted is not None and accepted > drafted)
    ):
        raise MeasureError(
            f"answer {index}: its speculative figures contradict each other "
            f"({accepted} accepted of {drafted} drafted in {calls} verify calls, histogram {list(histogram or ())})"
        )
    return _Answer(calls, accepted, drafted, histogram, _emitted(index, item, calls))


def _emitted(index: int, item: Mapping[str, Any], calls: int) -> int | None:
    """Return the tokens that left decode steps: the completion's but the first, which prefill gives."""
    completion = _count(index, item, (_COMPLETION,))
    length = item.get(_LENGTH)
    if length in (None, 0) or not calls:
        return None if completion is None else max(0, completion - 1)
    if not isinstance(length, (int, float)) or isinstance(length, bool) or not 0 <= length <= _LONGEST:
        raise MeasureError(f"answer {index}: its {_LENGTH} is {length!r}, which is no length")
    tokens = round(length * calls)
    if abs(length * calls - tokens) > _SLACK * max(1, tokens) or completion not in (None, tokens):
        shown = "" if completion is None else f" of {completion} tokens"
        raise MeasureError(
            f"answer {index}: a {_LENGTH} of {length!r} over {calls} verify calls{shown} is not possible"
        )
    return max(0, tokens - 1)


def _count(index: int, item: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """Return the first of several names of one count; all that are there have to agree."""
    values = {name: item[name] for name in names if item.get(name) is not None}
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise MeasureError(f"answer {index}: its {name} is {value!r}, which is no count")
    if len(set(values.values())) > 1:
        raise MeasureError(f"answer {index}: its figures contradict each other ({values})")
    return next(iter(values.values()), None)


def _histogram(index: int, item: Mapping[str, Any]) -> tuple[int, ...] | None:
    for name in _HISTOGRAM:
        bins = item.get(name)
        if bins:  # an answer without a verification carries an empty list
            if not isinstance(bins, list) or not all(
                isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in bins
            ):
                raise MeasureError(f"answer {index}: its {name} is {bins!r}, which is no histogram")
            return tuple(bins)
    return None
