"""The first screen: the verdict in a sentence, its cause, the next step, and the key figures."""

from html import escape

from draftworth.decisions.needs import keeps_back
from draftworth.explain.base import Account
from draftworth.explain.words import otherwise
from draftworth.findings import Code
from draftworth.reports.markdown import looks, on_endpoints
from draftworth.reports.page import Tile, tiles
from draftworth.reports.trial.acceptance import even_of
from draftworth.reports.trial.accounts import load_of, told_account, told_of
from draftworth.reports.trial.base import Subject
from draftworth.reports.trial.next import next_step
from draftworth.reports.trial.timeline import not_restored
from draftworth.reports.trial.waterfall import between_signed, explained_share, rest_of, signed
from draftworth.reports.words import METRICS, ended, judged, moment, number, percent, plural, sentence
from draftworth.trials.record import ArmComparison, TrialRecord
from draftworth.verdicts.base import Verdict
from draftworth.verdicts.rules import HIGHER_IS_BETTER
from draftworth.verdicts.weaken import WEAKENS

_SHADES = {
    Verdict.FASTER: "good",
    Verdict.SLOWER: "bad",
    Verdict.NO_DIFFERENCE: "flat",
    Verdict.INCONCLUSIVE: "open",
    Verdict.ERROR: "bad",
}
_THINGS = {
    "tpot": "time per token",
    "ttft": "time to the first token",
    "throughput": "tokens a second",
    "goodput": "good requests",
}
_TAKES_BACK = {
    **WEAKENS,
    Code.OUTPUT_DIVERGED: "its output is another one than the baseline's",
    Code.OUTPUT_SUSPECT: "its output is suspect",
    Code.OUTPUT_UNCHECKED: "its output was not checked",
}
"""What takes a verdict back, as a clause."""
_TAIL = 6


def head_html(subject: Subject) -> str:
    """Return the first screen."""
    record = subject.record
    cause = cause_of(subject)
    more = [looks(record)]
    about = [f"Trial {record.id}", moment(record.created), *_engines(record)]
    tail = "\n".join(record.error_tail[-_TAIL:])
    lines = f'<p class="about">The server\'s last lines:</p><pre>{escape(tail)}</pre>' if tail else ""
    return (
        f'<header class="{_SHADES[subject.verdict]}">{not_restored(record)}'
        f'<p class="about">{escape(" · ".join(about))}</p>'
        f"<h1>{escape(headline(subject))}</h1>"
        f'<p class="lede">{escape(ended(subject.reason) if record.error else sentence(subject.reason))}</p>'
        f"{''.join(f'<p>{escape(one)}</p>' for one in more if one)}"
        f'<dl class="answer"><div><dt>Why</dt><dd>{escape(cause)}</dd></div>'
        f"<div><dt>Next</dt><dd>{next_step(subject)}</dd></div></dl>{lines}"
        f"{tiles(_tiles(subject))}{_missing(subject)}</header>"
    )


def _engines(record: TrialRecord) -> list[str]:
    return list(dict.fromkeys(f"{arm.engine} {arm.version or ''}".strip() for arm in record.arms))


def headline(subject: Subject) -> str:
    """Return the verdict in a sentence."""
    arm = subject.best or "the variant"
    found = subject.comparison(arm)
    verdict = subject.verdict
    if verdict is Verdict.ERROR or found is None:
        return "The trial could not be measured" if verdict is Verdict.ERROR else f"Verdict: {verdict}"
    gained = f"{_gain(found)}{_over(subject, found.arm)}"
    if verdict is Verdict.FASTER:
        return f"{arm} is faster: {gained}"
    count = len(subject.candidates)
    several = count > 1
    none = f"None of {count} variants is faster; the best, {arm}," if several else arm
    if verdict is Verdict.SLOWER:
        return f"{none} is slower: {gained}"
    if verdict is Verdict.NO_DIFFERENCE:
        return f"{none} makes no difference to {_THINGS[found.metric]}"
    why = why_open(subject, found)
    shown = f"none of {count} variants is shown to be faster" if several else ""
    words = f"{shown} (the best, {arm}: {gained}, {why})" if several else f"{arm} measured {gained}, {why}"
    return f"Inconclusive: {words}"


def why_open(subject: Subject, found: ArmComparison) -> str:
    """Return why a verdict is open, as a clause: chance only where the interval holds 1, else what takes it back."""
    ratio = judged(found)
    if ratio is None or ratio.low is None or ratio.high is None:
        return "of too few prompts for an interval"
    if ratio.low <= 1 <= ratio.high:
        return "which may be chance"
    named = [_TAKES_BACK[one.code] for one in keeps_back(subject.record, found.arm) if one.code in _TAKES_BACK]
    return f"but {' and '.join(dict.fromkeys(named))}" if named else "which the trial does not take for decided"


def _gain(found: ArmComparison) -> str:
    ratio = judged(found)
    if ratio is None:
        return "no ratio"
    share = 100 * abs(ratio.estimate - 1)
    more = ratio.estimate > 1
    words = f"{share:.0f} %" if round(share) else f"{share:.1f} %"
    less = "fewer" if found.metric in HIGHER_IS_BETTER else "less"
    return f"{words} {'more' if more else less} {_THINGS[found.metric]}"


def cause_of(subject: Subject) -> str:
    """Return why the verdict is what it is, in a sentence or two; where that is not known, what would tell."""
    record = subject.record
    account = best_account(subject)
    unfinished = "" if subject.ended else f"The trial did not end: {ended(record.error or record.reason)} "
    if account is not None:
        of = f"Of what it measured of {account.arm}: " if unfinished else _other_metric(subject)
        several = _of_several(subject, account)
        return f"{unfinished}{of}{' '.join([ended(account.main_cause), *several])}"
    how = f"draftworth explain {record.id} accounts for the milliseconds."
    if unfinished:
        # Without requests of two arms there is nothing that could be accounted for.
        nothing = "No variant was measured beside the baseline, so nothing can be explained."
        return f"{unfinished}{f'It measured some of {subject.best}: {how}' if subject.best else nothing}"
    return f"Not known yet. {_drafting(subject)}{_why_no_account(subject) or how}"


def _of_several(subject: Subject, account: Account) -> list[str]:
    """Return that the headline is over all loads and an account of one, and where the arm does the opposite."""
    accounts = subject.accounts(account.arm)
    if len(accounts) < 2:  # noqa: PLR2004 - one load needs no words
        return []
    return [f"That is at {load_of(account)}; the verdict is over all loads.", *otherwise(account, accounts)]


def _other_metric(subject: Subject) -> str:
    """Return that an account is of time per token where the verdict is about something else."""
    found = subject.comparison(subject.best or "")
    if found is None or found.metric in {"tpot", "throughput"}:
        return ""
    return f"Of TPOT, while the verdict is about {METRICS[found.metric]}: "


def _why_no_account(subject: Subject) -> str:
    """Return why the arm that the verdict is about has no account; nothing where nothing was explained."""
    if subject.explained is None:
        return ""
    told = told_of(subject.explained, subject.best or "")
    return " ".join(ended(one) for one in told) or f"There is no account of {subject.best}."


def best_account(subject: Subject) -> Account | None:
    """Return the account that the verdict is about; None where there is none, whatever other arms have.

    Of several loads it is one at which the arm did what the verdict says, that where it differs most.
    """
    return told_account(subject, subject.best) if subject.best else None


def _drafting(subject: Subject) -> str:
    arm = subject.arm(subject.best or "")
    counts = arm.acceptance if arm else None
    if counts is None or not counts.speculated:
        return ""
    return (
        f"It drafted in {percent(counts.coverage)} of steps and had {percent(counts.acceptance_rate)} of the drafted "
        "tokens accepted. "
    )


def _tiles(subject: Subject) -> list[Tile]:
    record, found = subject.record, subject.comparison(subject.best or "")
    shown: list[Tile] = []
    if found is not None:
        if found.baseline_tpot_ms is not None and found.variant_tpot_ms is not None:
            figure = f"{number(found.baseline_tpot_ms)} → {number(found.variant_tpot_ms)}"
            shown.append(Tile("TPOT", figure, "ms", f"baseline → {found.arm}{_over(subject, found.arm)}"))
        ratio = judged(found)
        if ratio is not None:
            about = "too few prompts for an interval"
            if ratio.low is not None and ratio.high is not None:
                about = f"{100 * ratio.confidence:.4g} % interval {ratio.low:.3f} to {ratio.high:.3f}"
            about += _over(subject, found.arm)
            shown.append(Tile(f"{METRICS[found.metric]} ratio", f"{ratio.estimate:.3f}", "", about))
    shown += _acceptance_tile(subject)
    account = best_account(subject)
    if account is not None and account.of_difference is not None:
        where = f", {load_of(account)}" if len(subject.accounts(account.arm)) > 1 else ""
        rest = rest_of(account)
        left = f"; not known: {signed(rest.ms.value)} ms ({between_signed(rest)})" if rest is not None else ""
        shown.append(Tile("Explained", explained_share(account), "", f"of the difference{where}{left}"))
    state = "not touched" if on_endpoints(record) else "restored"
    about = "the servers ran already" if on_endpoints(record) else "as before the trial, verified"
    if not record.restored:
        state, about = "NOT RESTORED", "see above"
    shown.append(Tile("Service", state, "", about))
    return shown


def _over(subject: Subject, arm: str) -> str:
    """Return that a figure of the verdict is over all loads, where there are several."""
    found = subject.arm(arm)
    labels = {one.label for one in found.points if one.category is None} if found else set()
    return f", over all {len(labels)} loads" if len(labels) > 1 else ""


def _acceptance_tile(subject: Subject) -> list[Tile]:
    name = subject.best
    arm, account = subject.arm(name or ""), best_account(subject)
    measured = account.break_even.measured_length if account else None
    if measured is None and arm is not None and arm.acceptance is not None:
        measured = arm.acceptance.length_per_drafting_step
    if measured is None:
        return []
    needed = account.break_even.length if account else None
    about = "per drafting step"
    if account and needed:
        about += f"; break-even {even_of(account.break_even)}, at most {account.break_even.longest:g}"
    elif arm is not None and arm.acceptance is not None:
        about += f"; {percent(arm.acceptance.acceptance_rate)} of drafted tokens accepted"
    return [Tile("Acceptance length", number(measured), "tokens", about)]


def _missing(subject: Subject) -> str:
    if not subject.missing:
        return ""
    count = plural(len(subject.missing), "thing is", "things are")
    return f'<p class="note">{count} not known here: <a href="#missing">which, and why</a>.</p>'
