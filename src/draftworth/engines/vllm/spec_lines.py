"""Reads what vLLM's log tells of speculation, line by line.

- `Speculative metrics:` of V0 (`engine/metrics.py`, read in 0.8.5 and 0.9.2; gone in 0.10.1.1): totals since the start.
- `SpecDecoding metrics: Draft acceptance rate …` of V1 (`v1/spec_decode/metrics.py`): a window. In 0.8.5 the length is
  accepted / drafts; in 0.9.2 and 0.10.1.1, in the same words, 1 + accepted / drafts.
- `SpecDecoding metrics: Mean acceptance length …` (0.10.2, 0.11.2, 0.14.1, 0.20.2, 0.24.0 to 0.33.0): a window, length
  as in 0.9.2, with tokens a second.
- `DiffusionDecoding metrics:` of diffusion models (0.24.0 to 0.33.0): a window of other things.

From 0.14.1 on (not in 0.11.2; `v1/core/sched/scheduler.py`, `make_spec_decoding_stats`) drafted tokens that a grammar
refused are taken out of the drafted ones while their step is counted, so there can be more steps than drafted tokens.
Nothing in a log says whether a request's answer had a grammar: unless the log shows a release up to 0.11.2, or is in
the older layout, that is allowed for.

A window is what happened since the last such line; idle servers print none. Each data-parallel engine prints its own
lines, without its number; 0.11 and later can add them up first. V1's two meanings of the length are told apart by the
rates by position, whose sum is accepted / drafts. A line without positions was cut off.
"""

import math
import re
from typing import NamedTuple

from draftworth.engines import versions
from draftworth.engines.base import AcceptanceCounts, Told, Window
from draftworth.engines.shown import shortened
from draftworth.engines.vllm import log_lines
from draftworth.engines.vllm.rounded import Printed, Solved, solve
from draftworth.findings import Code, Finding, find

_NUMBER = r"-?(?:\d{1,15}(?:\.\d{1,6})?|nan|inf)"
_NUMBERS = rf"{_NUMBER}(?:, {_NUMBER})*"
_COUNT = r"\d{1,12}"
_V1, _V0, _DIFFUSION = "SpecDecoding metrics:", "Speculative metrics:", "DiffusionDecoding metrics:"
_SIGNS = (_V1, _V0, _DIFFUSION)
_OLDER = re.compile(
    rf"{_V1} Draft acceptance rate: (?P<rate>{_NUMBER})%, Mean acceptance length: (?P<length>{_NUMBER}), "
    rf"Accepted: (?P<accepted>{_COUNT}) tokens, Drafted: (?P<drafted>{_COUNT}) tokens, "
    rf"Per-position acceptance rate: (?P<positions>{_NUMBERS})\s*"
)
_NEWER = re.compile(
    rf"{_V1} Mean acceptance length: (?P<length>{_NUMBER}), Accepted throughput: (?P<accepted_throughput>{_NUMBER}) "
    rf"tokens/s, Drafted throughput: (?P<drafted_throughput>{_NUMBER}) tokens/s, "
    rf"Accepted: (?P<accepted>{_COUNT}) tokens, Drafted: (?P<drafted>{_COUNT}) tokens, "
    rf"Per-position acceptance rate: (?P<positions>{_NUMBERS}), "
    rf"Avg Draft acceptance rate: (?P<rate>{_NUMBER})%\s*"
)
_V0_LINE = re.compile(
    rf"{_V0} Draft acceptance rate: (?P<rate>{_NUMBER}), System efficiency: (?P<efficiency>{_NUMBER}), "
    rf"Number of speculative tokens: (?P<k>\d{{1,4}}), Number of accepted tokens: (?P<accepted>{_COUNT}), "
    rf"Number of draft tokens: (?P<drafted>{_COUNT}), Number of emitted tokens: (?P<emitted>{_COUNT})\.\s*"
)
_DIFFUSION_LINE = re.compile(
    rf"{_DIFFUSION} Committed token throughput: (?P<throughput>{_NUMBER}) tokens/s, "
    rf"Mean denoising steps per canvas: (?P<steps_a_canvas>{_NUMBER}), "
    rf"Mean tokens committed per denoising step: (?P<tokens_a_step>{_NUMBER}), "
    rf"Committed: (?P<committed>{_COUNT}) tokens, Denoising steps: (?P<steps>{_COUNT}), "
    rf"Canvas positions evaluated: (?P<positions>{_COUNT})\s*"
)
_DIFFUSION_FIGURES = {
    "throughput": ("Committed token throughput", "committed tokens / seconds since the last such line"),
    "steps_a_canvas": ("Mean denoising steps per canvas", "canvas positions evaluated / committed tokens"),
    "tokens_a_step": ("Mean tokens committed per denoising step", "committed tokens / denoising steps"),
    "committed": ("Committed", "tokens whose place on the canvas is final"),
    "steps": ("Denoising steps", "denoising steps, each of one canvas"),
    "positions": ("Canvas positions evaluated", "canvas positions, every one anew in each denoising step"),
}
_VERSIONS = (
    re.compile(r"(?:.*█\s+|vLLM (?:API )?server )version v?(?P<version>\d[^\s,]{0,60})"),
    re.compile(r"Initializing an? (?:V\d )?LLM engine \(v(?P<version>[^)]{1,60})\)"),
)
_ARGUMENTS = re.compile(r"(?:non-default )?args: (?:Namespace\(|\{)")
_NONE_REFUSED = (0, 11, 2)
"""The last release that was read whose drafted tokens are all counted, refused by a grammar or not."""
_MOST_POSITIONS = 512
_HALFWAY = 0.5

_ONLY_DRAFTING = "the line tells only of steps that drafted"
_SEVERAL_FIT = "told only as rounded rates, and several rows of counts fit them"
_REFUSED = "a grammar refused every drafted token, and the line does not tell in how many steps"
_V0_POSITIONS = "the V0 engine does not count by position"
_V0_STEPS = "the V0 engine's line tells only of steps that drafted"


class _Totals(NamedTuple):
    """What a V0 engine had counted, by our definitions."""

    k: int
    drafting_steps: int
    drafted: int
    accepted: int


class VLLMWindowReader:
    """Reads one log. It keeps the version the log has shown, and the totals of the last line of a V0 engine."""

    told_only: str | None = None

    def __init__(self) -> None:
        self._version: str | None = None
        self._totals: _Totals | None = None

    def take(self, line: str) -> Window | Finding | None:
        """Take one line as it stands in the file. Never raises."""
        if not any(sign in line for sign in (*_SIGNS, "ersion", "LLM engine (v", "args: ", '"MESSAGE"')):
            return None
        parsed = log_lines.parse(line)
        message = parsed.message
        start = next((at for sign in _SIGNS if (at := message.find(sign)) >= 0), None)
        if start is None:
            self._note_version(message)
            return None
        told = message[start:]
        for pattern, read in (
            (_NEWER, self._window),
            (_OLDER, self._window),
            (_V0_LINE, self._since_start),
            (_DIFFUSION_LINE, _diffusion),
        ):
            if match := pattern.fullmatch(told):
                found = read(match, older=pattern is _OLDER)
                return found.model_copy(update={"at": parsed.at}) if isinstance(found, Window) else found
        # A prompt or an answer in a log may speak of such lines.
        return find(Code.LINES_UNREADABLE, f"cannot be read: {_shown(told)}") if start == 0 else None

    def _note_version(self, message: str) -> None:
        """Note the lines that begin a start: its totals begin anew."""
        if _ARGUMENTS.match(message):
            self._totals = None
        for pattern in _VERSIONS:
            if match := pattern.match(message):
                self._version, self._totals = match["version"], None

    def _source(self, what: str) -> str:
        return f"log of vLLM {self._version}, {what}" if self._version else f"log of vLLM, {what}"

    def _window(self, match: re.Match[str], *, older: bool) -> Window | Finding:
        accepted, drafted, line = int(match["accepted"]), int(match["drafted"]), match.string
        rates = tuple(match["positions"].split(", "))
        wrong = _wrong(match, rates, accepted, drafted)
        if wrong:
            return find(Code.COUNTS_CONTRADICT, f"{wrong}: {_shown(line)}")
        if len(rates) > _MOST_POSITIONS:
            return find(Code.LINES_UNREADABLE, f"{len(rates)} positions: {_shown(line)}")
        bonus = _bonus(match["length"], rates) if older else 1
        counts = self._window_counts(match, rates, bonus, refused=not older and self._may_refuse())
        if counts is None:
            return find(Code.COUNTS_CONTRADICT, f"no number of drafting steps gives these figures: {_shown(line)}")
        return Window(counts=counts, told=_told(match, rates, bonus), line=line)

    def _may_refuse(self) -> bool:
        """Whether drafts that a grammar refused may be missing in the drafted tokens."""
        number = versions.number(self._version)
        return number is None or number > _NONE_REFUSED

    def _window_counts(
        self, match: re.Match[str], rates: tuple[str, ...], bonus: int, *, refused: bool
    ) -> AcceptanceCounts | None:
        """Return the counts of a line; None where its figures cannot be of any."""
        accepted, drafted, length = int(match["accepted"]), int(match["drafted"]), match["length"]
        not_given = {"steps": _ONLY_DRAFTING, "emitted": _ONLY_DRAFTING}
        solved: Solved | None
        if not _finite(length):
            solved = Solved(0, 0, (0,) * len(rates))  # 0.8.5 divides by no drafts at all
        elif drafted == 0:
            solved = None
            not_given["drafting_steps"] = _REFUSED
        else:
            solved = solve(Printed(accepted, drafted, length, bonus, rates), refused=refused)
            if solved is None:
                return None
        exact = solved is not None and solved.low == solved.high
        by_position = solved.per_position if solved else None
        if accepted == 0:
            by_position = (0,) * len(rates)
        if by_position is None:
            not_given.setdefault("accepted_per_position", _SEVERAL_FIT)
        return AcceptanceCounts(
            drafting_steps=solved.low if solved and exact else None,
            drafted=drafted,
            accepted=accepted,
            accepted_per_position=by_position,
            source=self._source("SpecDecoding metrics"),
            not_given=not_given,
            between={"drafting_steps": (solved.low, solved.high)} if solved and not exact else {},
        )

    def _since_start(self, match: re.Match[str], *, older: bool) -> Window | Finding:  # noqa: ARG002 - one signature for every layout
        k, agreed, drafted, emitted = (int(match[name]) for name in ("k", "accepted", "drafted", "emitted"))
        steps = drafted // max(k, 1)
        # Each drafting step verifies k tokens and emits those accepted in a row and one more.
        accepted = emitted - steps
        rate = match["rate"]
        if (
            k == 0
            or drafted % k
            or not 0 <= accepted <= agreed <= drafted
            or (drafted and not math.isclose(float(rate), agreed / drafted, abs_tol=1e-3))
        ):
            return find(Code.COUNTS_CONTRADICT, f"figures contradict each other: {_shown(match.string)}")
        now, last = _Totals(k, steps, drafted, accepted), self._totals
        self._totals = now
        if last is None or not _goes_on(last, now):
            last = _Totals(k, 0, 0, 0)
        counts = AcceptanceCounts(
            drafting_steps=now.drafting_steps - last.drafting_steps,
            drafted=now.drafted - last.drafted,
            accepted=now.accepted - last.accepted,
            source=self._source("Speculative metrics, differences of its totals (the first since the start)"),
            not_given={"steps": _V0_STEPS, "emitted": _V0_STEPS, "accepted_per_position": _V0_POSITIONS},
        )
        figures = (
            ("Draft acceptance rate", rate, "drafts the target agreed with, also behind a refused one / drafted"),
            ("System efficiency", match["efficiency"], "emitted / (drafted / k x (k + 1)), of drafting steps"),
            ("Number of accepted tokens", str(agreed), "drafts the target agreed with, also behind a refused one"),
        )
        return Window(counts=counts, told=_figures(figures, "since the start"), line=match.string)


def _goes_on(last: _Totals, now: _Totals) -> bool:
    """Whether totals can be later ones of the same start."""
    grown = last.k == now.k and all(new >= old for new, old in zip(now, last, strict=True))
    return grown and now.accepted - last.accepted <= now.drafted - last.drafted


def _wrong(match: re.Match[str], rates: tuple[str, ...], accepted: int, drafted: int) -> str | None:
    """Return what figures of a V1 line contradict, or None."""
    printed = [float(match["rate"]) / 100, *map(float, rates)]
    if any(value < 0 or value > 1 for value in printed):
        return "a rate is below zero or above one"
    if accepted > drafted:
        return f"{accepted} tokens were accepted of {drafted} drafted"
    if drafted and not math.isclose(printed[0], accepted / drafted, abs_tol=1e-3):
        return f"{accepted} of {drafted} is no rate of {match['rate']} %"
    if not all(map(_finite, (match["length"], *rates))) and (drafted or _finite(match["length"])):
        return "a figure is no number though there were drafts"
    return None


def _bonus(length: str, rates: tuple[str, ...]) -> int:
    """Return 1 where a length counts the bonus token, 0 where it does not."""
    surplus = float(length) - sum(map(float, rates))
    return int(surplus > _HALFWAY)  # rounding takes less than 0.3 from up to 512 rates


def _told(match: re.Match[str], rates: tuple[str, ...], bonus: int) -> tuple[Told, ...]:
    groups = match.groupdict()
    length = f"{'1 + ' * bonus}accepted / drafting steps"
    rate = "Avg Draft acceptance rate" if "accepted_throughput" in groups else "Draft acceptance rate"
    seconds = "tokens / seconds since the last such line"
    return _figures(
        (
            ("Mean acceptance length", groups["length"], length),
            (rate, groups["rate"], "100 x accepted / drafted"),
            ("Accepted throughput", groups.get("accepted_throughput", "nan"), f"accepted {seconds}"),
            ("Drafted throughput", groups.get("drafted_throughput", "nan"), f"drafted {seconds}"),
            *(
                (f"Per-position acceptance rate, position {i}", text, f"accepted at position {i} / drafting steps")
                for i, text in enumerate(rates)
            ),
        ),
        "window",
    )


def _diffusion(match: re.Match[str], *, older: bool) -> Window:  # noqa: ARG001 - one signature for every layout
    figures = tuple((name, match[group], formula) for group, (name, formula) in _DIFFUSION_FIGURES.items())
    return Window(told=_figures(figures, "window"), line=match.string)


def _figures(figures: tuple[tuple[str, str, str], ...], scope: str) -> tuple[Told, ...]:
    return tuple(
        Told(name=name, value=float(value), formula=formula, scope=scope)
        for name, value, formula in figures
        if _finite(value)
    )


def _finite(text: str) -> bool:
    return math.isfinite(float(text))


def _shown(text: str) -> str:
    text = " ".join("".join(c if c.isprintable() else "?" for c in text).split())
    return shortened(text)
