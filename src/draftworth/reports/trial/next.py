"""What to do now, in a sentence: from the record and its account alone."""

import re
import shlex
from dataclasses import dataclass
from html import escape, unescape

from draftworth.decisions.more import more_evidence
from draftworth.decisions.needs import keeps_back
from draftworth.explain.base import Change
from draftworth.reports.markdown import on_endpoints
from draftworth.reports.trial.acceptance import gain_of
from draftworth.reports.trial.accounts import already, beats, measured
from draftworth.reports.trial.base import Subject
from draftworth.reports.words import ended, judged, sentence
from draftworth.trials.record import TrialRecord
from draftworth.verdicts.base import Verdict


def next_text(subject: Subject) -> str:
    """Return what to do now as Markdown: `next_step` with its commands as code."""
    text = re.sub(r"<code[^>]*>", " `", next_step(subject))
    text = re.sub(r"<[^>]+>", "", text.replace("</code>", "` "))
    return re.sub(r" +([.,;:]|$)", r"\1", re.sub(r" +", " ", unescape(text))).strip()


def next_step(subject: Subject) -> str:
    """Return what to do now, as HTML."""
    record = subject.record
    if not record.restored:
        command = record.restore_commands[0] if record.restore_commands else f"draftworth trial restore {record.id}"
        return f'Restore the service first: <code class="flags">{escape(command)}</code>'
    if record.verdict is Verdict.ERROR:
        advice = next((one.advice for one in record.findings if one.severity == "breach"), "")
        return escape(sentence(advice)) if advice else "Remove the cause named above and run the trial again."
    # What takes a verdict back is mended before anything is built on its figures.
    return _to_mend(subject) or _by_verdict(subject)


def _by_verdict(subject: Subject) -> str:
    """Return what follows from a verdict that nothing takes back."""
    if subject.verdict is Verdict.FASTER and subject.best and not subject.diagnostic(subject.best):
        return _adopt(subject.record, subject.best)
    paying = _paying(subject)
    if paying is not None and paying.sure:
        return f"Try another setting. {paying.words}"
    if subject.verdict is Verdict.INCONCLUSIVE:
        return _more_evidence(subject)
    return _instead(subject, paying)


def _to_mend(subject: Subject) -> str:
    """Return the advice of what takes the verdict back; nothing where nothing does."""
    found = subject.comparison(subject.best or "")
    if found is None or subject.verdict not in {Verdict.FASTER, Verdict.INCONCLUSIVE}:
        return ""
    findings = keeps_back(subject.record, found.arm)
    told = list(dict.fromkeys(escape(sentence(one.advice)) for one in findings))
    if not told:
        return ""
    ratio = judged(found)
    open_ = ratio is None or ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high
    return " ".join([*told[:2], *([_more_evidence(subject)] if open_ else [])])


def _adopt(record: TrialRecord, name: str) -> str:
    arm = escape(name)
    if on_endpoints(record):
        return f"Start the service as {arm} was started, and watch it under real traffic."
    service = record.config.get("service")
    if isinstance(service, dict) and service.get("type") == "systemd":
        return f"Adopt it: <code>draftworth trial adopt {escape(record.id)}</code>"
    return f'Start the service with the command of {arm}, which is under <a href="#arms">Arms</a>.'


def _instead(subject: Subject, paying: "_Paying | None") -> str:
    """Return what to do where the trial says no."""
    if paying is not None:
        return f"Another setting may pay. {paying.words}"
    # Of the arm that the page is about: what another one lacks changes nothing that is said of it.
    own = [change for one in subject.accounts(subject.best or "") for change in one.changes]
    measure = next((one for one in own if one.kind == "measure"), None)
    if measure is not None:
        return f"Keep speculation off, and measure what is not known yet. {_change(measure)}"
    every = [change for name in _named(subject) for one in subject.accounts(name) for change in one.changes]
    told = next((one for one in every if one.kind == "setting" and one.speed_up is None), None)
    if told is not None:
        return f"Leave speculation off. {_change(told)}"
    advice = "<code>draftworth predict</code> says which other settings deserve a reload."
    return f"Leave speculation off as it was tried. {advice}"


@dataclass(frozen=True, slots=True)
class _Paying:
    """A setting that is predicted to pay more than what was measured: in words, and whether its whole interval does."""

    words: str
    sure: bool


def _named(subject: Subject) -> list[str]:
    """Return the arms that a verdict can be about, the page's own first."""
    names = dict.fromkeys(name for name in (subject.best, *subject.variants) if name)
    return [name for name in names if not subject.diagnostic(name)]


def _paying(subject: Subject) -> _Paying | None:
    """Return the setting that is predicted best, above what every arm was measured at there; None for none.

    A setting that was itself measured is none: its own figure counts.
    """
    accounts = [one for name in _named(subject) for one in subject.accounts(name)]
    configs = [subject.speculation(arm.name)[0] for arm in subject.record.arms]
    found: list[tuple[float, Change, float, str]] = []
    for account in accounts:
        here = [one for one in accounts if (one.point, one.concurrency) == (account.point, account.concurrency)]
        best = max(here, key=measured)
        found += [
            (change.speed_up.value, change, measured(best), best.arm)
            for change in account.changes
            if change.kind == "setting"
            and change.speed_up is not None
            and beats(change, *here)
            and not already(change, configs)
        ]
    if not found:
        return None
    _, change, had, arm = max(found, key=lambda one: one[0])
    more = f"That is more than the {had:.2f} times as fast that {arm} was measured at."
    low = change.speed_up.low if change.speed_up is not None else 0.0
    return _Paying(_change(change, more), low > max(1.0, had))


def _change(change: Change, more: str = "") -> str:
    gain = gain_of(change)
    flags = f'<code class="flags">{escape(shlex.join(change.arguments))}</code>' if change.arguments else ""
    return (
        f"{escape(ended(change.text))}{escape(f' {gain}.' if gain else '')}{escape(f' {more}' if more else '')}{flags}"
    )


def _more_evidence(subject: Subject) -> str:
    found = subject.comparison(subject.best or "")
    more = more_evidence(subject.record, found) if found is not None else None
    if more is not None:
        return sentence(escape(f"{more.advice}; {more.cause}"))
    return "Measure more prompts (<code>workload.prompts_per_category</code>) or starts (<code>verdict.starts</code>)."
