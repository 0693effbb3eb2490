"""Reads the figures each answer carries: `timings`.

`server_slot_stats::to_json` of `tools/server/server-common.cpp` (11434; `server-task.cpp` before): on every answer and
on a stream's last chunk, where `usage` is too if it was asked for, without asking. `draft_n` and `draft_n_accepted` are
there only where something was drafted (pull request 12603 of March 2025; read in 9093 and later). `predicted_n` is all
generated tokens with the first one. Measured on 11434 with one request at a time: `predicted_n - 1 - draft_n_accepted`
was exactly the number of decode calls behind the prompt's, for every answer that its length ended.

- A stop may cut the last accepted draft: `draft_n_accepted` counts its tokens, `predicted_n` does not (9246 and later).
- With `n` above 1 the timings are those of the first choice only.
- No build tells verified drafts (pull request 27676 was closed); a fork's `draft_n_verif_steps` is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from draftworth.engines.base import AcceptanceCounts
from draftworth.engines.llamacpp import releases
from draftworth.errors import MeasureError

STEPS_MEAN = (
    "generated tokens less the first and less accepted ones: tokens that a stop cut off a draft are too few steps"
)
REPLAYS_MEAN = "on recurrent and hybrid models also the target's own token, where part of a draft was verified again"
CUT_MEANS = "also tokens that were cut off a draft because little of the answer or the context was left"
DISCARDED_MEANS = "also drafts that --draft-min threw away unverified (until pull request 14104 of June 2025)"
_NO_STEPS = "an answer's timings do not count verified drafts (a fork's draft_n_verif_steps would)"
_NO_POSITIONS = "an answer's timings do not tell positions; /metrics does"
_NOTHING = (
    "no answer carries draft_n: nothing was drafted, or this build does not report it; the build's number would tell"
)


class _Answer(NamedTuple):
    tokens: int
    drafted: int | None
    accepted: int
    verified: int | None


def request_stats(chunk: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the timings of a response or a stream's chunk, or None where it carries none."""
    timings = chunk.get("timings")
    return timings if isinstance(timings, Mapping) and "predicted_n" in timings else None


def request_counts(stats: Sequence[Mapping[str, Any] | None], version: str | None) -> AcceptanceCounts | None:
    """Sum the timings of answers, or return None where no answer carried any.

    An answer without `draft_n` drafted nothing where another answer has it, or where the build is known to report it.
    Where neither is so, nothing of drafts is given.

    Args:
        stats: each answer's timings, None where it had none.
        version: llama.cpp's build; decides what is known and names the source.

    Raises:
        MeasureError: timings have another form, or contradict each other.
    """
    answers = [_read(index, item) for index, item in enumerate(stats) if item]
    if not answers:
        return None
    build = releases.build_of(version)
    reports = any(one.drafted is not None for one in answers)
    known = reports or (build is not None and build >= releases.DRAFT_IN_TIMINGS)
    drafting = _drafting_steps(answers) if known else None
    source = f"timings of {len(answers)} of {len(stats)} answers of {releases.title(version)}"
    emitted = sum(max(0, one.tokens - 1) for one in answers)
    if not known:
        lacking = dict.fromkeys(("steps", "drafting_steps", "drafted", "accepted", "accepted_per_position"), _NOTHING)
        return AcceptanceCounts(emitted=emitted, source=source, not_given=lacking)
    not_given = {"accepted_per_position": _NO_POSITIONS}
    if drafting is None:
        not_given["drafting_steps"] = _NO_STEPS
    return AcceptanceCounts(
        steps=sum(_steps(one) for one in answers),
        drafting_steps=drafting,
        drafted=sum(one.drafted or 0 for one in answers),
        accepted=sum(one.accepted for one in answers),
        emitted=emitted,
        source=source,
        not_given=not_given,
        meaning={"steps": STEPS_MEAN, **older_meaning(build)},
    )


def older_meaning(build: int | None) -> dict[str, str]:
    """Return what older builds count otherwise, field to how."""
    meaning = {}
    if build is not None and build < releases.REPLAYS_RIGHT:
        meaning["accepted"] = REPLAYS_MEAN
    if build is not None and build < releases.TESTED_ONLY:
        meaning["drafted"] = DISCARDED_MEANS
    elif build is not None and build <= releases.OLDEST:
        meaning["drafted"] = CUT_MEANS
    return meaning


def _drafting_steps(answers: Sequence[_Answer]) -> int | None:
    """Return verified drafts: zero where nothing was drafted, else only where every answer that drafted tells them."""
    drafting = [one for one in answers if one.drafted]
    if any(one.verified is None for one in drafting):
        return None
    return sum(one.verified or 0 for one in drafting)


def _steps(answer: _Answer) -> int:
    # A draft that a stop cut nearly whole was a step nevertheless.
    return max(answer.tokens - 1 - answer.accepted, answer.verified or min(1, answer.accepted), 0)


def _read(index: int, item: Mapping[str, Any]) -> _Answer:
    tokens, drafted, accepted = item.get("predicted_n"), item.get("draft_n"), item.get("draft_n_accepted")
    verified = item.get("draft_n_verif_steps")
    if not _is_count(tokens) or not all(one is None or _is_count(one) for one in (drafted, accepted, verified)):
        found = ", ".join(sorted(map(str, item))) or "nothing"
        raise MeasureError(f"answer {index}: its timings are not of the form llama.cpp sends (found {found})")
    if (drafted is None) != (accepted is None):
        raise MeasureError(f"answer {index}: its timings have one of draft_n and draft_n_accepted without the other")
    if (accepted or 0) > (drafted or 0) or (verified or 0) > (drafted or 0):
        raise MeasureError(
            f"answer {index}: its timings contradict each other ({accepted} accepted of {drafted} drafted tokens"
            f"{'' if verified is None else f' in {verified} verified drafts'})"
        )
    return _Answer(int(tokens or 0), drafted, int(accepted or 0), verified)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
