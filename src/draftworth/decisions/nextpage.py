"""The next-steps page: the options left, in the order to take them, what each needs, may gain and costs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from draftworth.decisions.base import Gain, Option
from draftworth.decisions.body import evidence_line, gate_lines
from draftworth.decisions.check import Checked, OptionCheck
from draftworth.decisions.consequences import change_line
from draftworth.decisions.known import Known, with_arm
from draftworth.decisions.states import LEFT, State
from draftworth.models import Frozen
from draftworth.reports.trial.accounts import account_of, beats
from draftworth.trials.config import BASELINE


class Step(Frozen):
    """One option that is left."""

    option: str
    title: str
    state: State
    gate: tuple[str, ...] = ()
    """In words, and which one it replaced."""
    holds: bool | None = None
    gate_reason: str = ""
    """Each condition with its answer."""
    needs: tuple[str, ...] = ()
    gain: Gain | None = None
    """Expected speed-up; None: not known."""
    minutes: Gain | None = None
    """Minutes of reloads of one trial; None: not known."""
    evidence: tuple[str, ...] = ()
    note: str = ""


class Next(Frozen):
    """The page."""

    schema_version: int = 1
    title: str = ""
    steps: tuple[Step, ...]
    reopen: tuple[str, ...] = ()
    """Decided options that newer evidence speaks against."""
    settings: tuple[str, ...] = ()
    """Settings of decided arms that their trials' accounts say are worth trying."""
    done: tuple[str, ...] = ()
    """Decided options."""
    left_out: tuple[str, ...] = ()
    """Evidence that leads nowhere, and files that could not be read."""
    history: tuple[str, ...] = ()
    """What is wrong with the records."""


def next_steps(known: Known, checked: Checked) -> Next:
    """Return the options left, those whose gate holds first, then by what they may gain for what they cost."""
    by_name = {one.option: one for one in checked.options}
    left = [one for one in known.tree.options if by_name[one.name].state in LEFT]
    steps = [_step(one, by_name[one.name], known) for one in left]
    gates = {one.option: _gate_rank(one) for one in steps}
    parents = {one.name: one.parent for one in known.tree.options}
    order = {one.option: at for at, one in enumerate(steps)}
    steps.sort(key=lambda one: (_waits(one.option, gates, parents), *_rank(one), order[one.option]))
    decided = [one for one in checked.options if one.state not in LEFT]
    settings = _settings(known, [one.option for one in decided])
    return Next(
        title=checked.title,
        steps=tuple(steps),
        reopen=tuple(f"{one.option}: {reason}" for one in decided for reason in one.reopen),
        settings=tuple(settings),
        done=tuple(f"{one.option}: {one.title}: {one.state}" + _marked(one) for one in decided),
        left_out=tuple(dict.fromkeys([*checked.left_out, *known.left_out])),
        history=checked.history,
    )


def _marked(one: OptionCheck) -> str:
    """Return a decided option's record, and that it should be reopened."""
    words = [one.record, *(["should be reopened, see above"] if one.reopen else [])]
    return f" ({', '.join(word for word in words if word)})" if any(words) else ""


def _gate_rank(step: Step) -> int:
    return 0 if not step.gate or step.holds else 1 if step.holds is None else 2


def _waits(name: str, gates: Mapping[str, int], parents: Mapping[str, str | None]) -> int:
    """Return the worst gate among an option and what it is a part of: a part waits for the whole."""
    worst = 0
    at: str | None = name
    while at is not None:
        worst, at = max(worst, gates.get(at, 0)), parents[at]
    return worst


def _rank(step: Step) -> tuple[int, float, float]:
    # What is not known stands between what is expected to gain and what is expected to lose.
    gain = -step.gain.value if step.gain else -1.0
    return LEFT.index(step.state), gain, step.minutes.value if step.minutes else float("inf")


def _step(option: Option, checked: OptionCheck, known: Known) -> Step:
    last = known.newest(option.name)
    needs = [*option.needs, *(last.decision.needs if last else ())]
    if checked.state == "reopened" and last is not None:
        why = last.decision.reasons or ("it was reopened by hand",)
        needs.append(f"a new trial of {known.arm_of(option)}, decided on with --option {option.name}: {'; '.join(why)}")
    if checked.holds is not None and checked.holds.holds is not True:
        needs += [f"its gate: {one.reason} ({one.word})" for one in checked.holds.parts if one.holds is not True]
    return Step(
        option=option.name,
        title=option.title,
        state=checked.state,
        gate=tuple(gate_lines(option.gate)) if option.gate else (),
        holds=checked.holds.holds if checked.holds else None,
        gate_reason=checked.holds.reason if checked.holds else "",
        needs=tuple(dict.fromkeys([*needs, *checked.remarks])),
        gain=_gain(option, known),
        minutes=_minutes(option, known),
        evidence=tuple(evidence_line(one) for one in known.evidence(option)),
        note=option.note,
    )


def _gain(option: Option, known: Known) -> Gain | None:
    """Return the best predicted speed-up, else what the account of its arm's newest trial predicts, else the tree's."""
    for path, prediction in reversed(known.predictions(option)):
        if prediction.settings:
            best = max(prediction.settings, key=lambda one: one.speed_up.value)
            found = best.speed_up
            return Gain(value=found.value, low=found.low, high=found.high, source=f"{path}, k = {best.k}")
    return _accounted(option, known) or option.gain


def _accounted(option: Option, known: Known) -> Gain | None:
    """Return the best setting that the account of an option's newest trial predicts, of those better than it was."""
    arm = known.arm_of(option)
    for trial in reversed(with_arm(known.trials_of(option), arm)):
        explained, why = account_of(known.root / "trials" / trial.id)
        if why:
            known.left_out.append(why)
        found = [
            (one.speed_up, one.text)
            for account in (explained.accounts if explained else ())
            if account.arm == arm
            for one in account.changes
            if one.kind == "setting" and one.speed_up and beats(one, account)
        ]
        if found:
            best, text = max(found, key=lambda one: one[0].value)
            source = f"the account of trial {trial.id}: {text.rstrip('.')}"
            return Gain(value=best.value, low=best.low, high=best.high, source=source)
        if explained and any(account.arm == arm for account in explained.accounts):
            return None  # a newer account that predicts nothing is not passed over for an older one
    return None


def _minutes(option: Option, known: Known) -> Gain | None:
    """Return the minutes of one trial's reloads: the variant's start and the baseline's, there and back.

    The last trial of the option's own arm tells them; else the last of any variant; else twice a start's time of the
    newest costs file; else what the tree says.
    """
    trials = known.trials_of(option)
    own = with_arm(trials, known.arm_of(option))
    for trial in reversed(own or trials):
        variants = [one for one in trial.arms if one.name != BASELINE and (not own or one.name == known.arm_of(option))]
        there = max((one.seconds for arm in variants for one in arm.starts if one.seconds is not None), default=None)
        back = max(
            (
                one.seconds
                for arm in trial.arms
                if arm.name == BASELINE
                for one in arm.starts
                if one.seconds is not None
            ),
            default=None,
        )
        if there is not None:
            whose = "" if own else ", another arm's"
            return Gain(value=(there + (back or there)) / 60, source=f"starts of trial {trial.id}{whose}")
    if option.reload_minutes is not None:
        return option.reload_minutes
    timed = [(path, one.reload_s) for path, one in known.costs_of(option) if one.reload_s is not None]
    return Gain(value=2 * timed[-1][1] / 60, source=f"{timed[-1][0]}, twice the baseline's start") if timed else None


def _settings(known: Known, decided: Sequence[str]) -> list[str]:
    lines = []
    for name in decided:
        last = known.newest(name)
        if last is None or not last.decision.trial:
            continue
        explained, why = account_of(known.root / "trials" / last.decision.trial)
        if why:
            known.left_out.append(why)
        accounts = [one for one in explained.accounts if one.arm == last.decision.arm] if explained else []
        lines += [
            f"{name}: {change_line(one)}"
            for account in accounts
            for one in account.changes
            if one.kind == "setting" and one.speed_up and beats(one, account)
        ]
    return lines


def page(found: Next) -> str:
    """Return the page as Markdown."""
    parts = [f"# Next steps{f': {found.title}' if found.title else ''}"]
    if found.reopen:
        parts.append("## Should be reopened\n\n" + _list(found.reopen))
    if not found.steps:
        parts.append("No option is left: every one is adopted or ruled out.")
    parts += [_section(at, one) for at, one in enumerate(found.steps, 1)]
    if found.settings:
        parts.append("## Settings of decided arms worth a trial\n\n" + _list(found.settings))
    if found.done:
        parts.append("## Decided\n\n" + _list(found.done))
    wrong = [*(f"Record: {one}" for one in found.history), *(f"Left out: {one}" for one in found.left_out)]
    if wrong:
        parts.append("## Not in order\n\n" + _list(wrong))
    return "\n\n".join(parts) + "\n"


def write_page(found: Next, path: Path) -> None:
    """Write the page.

    Raises:
        OSError: it cannot be written.
    """
    path.write_text(page(found), encoding="utf-8")


def _section(number: int, step: Step) -> str:
    lines = [f"State: {step.state}."]
    if step.gate:
        word = "not known" if step.holds is None else "yes" if step.holds else "no"
        lines += [f"Gate: {step.gate[0]} Holds: {word}: {step.gate_reason}.", *step.gate[1:]]
    else:
        lines.append("Gate: none.")
    lines.append(f"Expected speed-up: {_figure(step.gain, '')}.")
    lines.append(f"Reloads of one trial: {_figure(step.minutes, ' min')}.")
    lines += [f"Needs: {one}" for one in step.needs]
    lines += [f"Evidence: {one}" for one in step.evidence]
    if step.note:
        lines.append(step.note)
    return f"## {number}. {step.option}: {step.title}\n\n" + _list(lines)


def _figure(found: Gain | None, unit: str) -> str:
    if found is None:
        return "not known"
    ends = f" ({found.low:.3g} to {found.high:.3g})" if found.low is not None and found.high is not None else ""
    return f"{found.value:.3g}{ends}{unit}, {found.source}"


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)
