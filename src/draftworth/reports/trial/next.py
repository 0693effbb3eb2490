"""What to do now, in a sentence: from the record and its account alone."""

import shlex
from collections.abc import Sequence
from html import escape

from draftworth.explain.base import Change
from draftworth.reports.markdown import on_endpoints
from draftworth.reports.trial.acceptance import gain_of
from draftworth.reports.trial.base import Subject
from draftworth.reports.words import ended, sentence
from draftworth.trials.record import TrialRecord
from draftworth.verdicts.base import Verdict

_OTHERWISE_MEASURED = (
    "synthetic_acceptance",
    "speculation_off",
    "baseline_speculates",
    "prefix_cache_warmer",
    "foreign_requests",
    "client_saturated",
    "output_suspect",
    "output_unchecked",
)
"""What takes a verdict back to inconclusive: more prompts would not help."""


def next_step(subject: Subject) -> str:
    """Return what to do now, as HTML."""
    record = subject.record
    if not record.restored:
        command = record.restore_commands[0] if record.restore_commands else f"draftworth trial restore {record.id}"
        return f'Restore the service first: <code class="flags">{escape(command)}</code>'
    if record.verdict is Verdict.ERROR:
        advice = next((one.advice for one in record.findings if one.severity == "breach"), "")
        return escape(sentence(advice)) if advice else "Remove the cause named above and run the trial again."
    if subject.verdict is Verdict.FASTER and subject.best and not subject.diagnostic(subject.best):
        return _adopt(record, subject.best)
    changes = _changes(subject)
    paying = next((one for one in changes if one.speed_up is not None and one.kind == "setting"), None)
    if paying is not None and paying.speed_up is not None and paying.speed_up.low > 1:
        return f"Try another setting. {_change(paying)}"
    if subject.verdict is Verdict.INCONCLUSIVE:
        return _more_evidence(subject)
    return _instead(subject, changes, paying)


def _adopt(record: TrialRecord, name: str) -> str:
    arm = escape(name)
    if on_endpoints(record):
        return f"Start the service as {arm} was started, and watch it under real traffic."
    service = record.config.get("service")
    if isinstance(service, dict) and service.get("type") == "systemd":
        return f"Adopt it: <code>draftworth trial adopt {escape(record.id)}</code>"
    return f'Start the service with the command of {arm}, which is under <a href="#arms">Arms</a>.'


def _instead(subject: Subject, changes: Sequence[Change], paying: Change | None) -> str:
    """Return what to do where the trial says no."""
    if paying is not None:
        return f"Another setting may pay. {_change(paying)}"
    # Of the arm that the page is about: what another one lacks changes nothing that is said of it.
    own = [change for one in subject.accounts(subject.best or "") for change in one.changes]
    measure = next((one for one in own if one.kind == "measure"), None)
    if measure is not None:
        return f"Keep speculation off, and measure what is not known yet. {_change(measure)}"
    told = next((one for one in changes if one.kind == "setting"), None)
    if told is not None:
        return f"Leave speculation off. {_change(told)}"
    advice = "<code>draftworth predict</code> says which other settings deserve a reload."
    return f"Leave speculation off as it was tried. {advice}"


def _changes(subject: Subject) -> list[Change]:
    """Return what would change the verdict, of the best arm first, what is predicted to gain most before the rest."""
    names = [name for name in (subject.best, *subject.variants) if name and not subject.diagnostic(name)]
    found = [change for name in dict.fromkeys(names) for one in subject.accounts(name) for change in one.changes]
    return sorted(found, key=lambda one: -one.speed_up.value if one.speed_up is not None else 0.0)


def _change(change: Change) -> str:
    gain = gain_of(change)
    flags = f'<code class="flags">{escape(shlex.join(change.arguments))}</code>' if change.arguments else ""
    return f"{escape(ended(change.text))}{escape(f' {gain}.' if gain else '')}{flags}"


def _more_evidence(subject: Subject) -> str:
    codes = {str(one.code): one for one in subject.record.findings if one.arm in {None, subject.best}}
    asked = subject.record.config.get("verdict")
    if isinstance(asked, dict) and asked.get("output_check") is False:
        codes.pop("output_unchecked", None)  # switched off, it changes no verdict
    for code in _OTHERWISE_MEASURED:
        if code in codes:
            return escape(sentence(codes[code].advice))
    if "few_starts" in codes:
        return "Measure more starts of each arm (<code>verdict.starts = 3</code>): restarts alone make it this wide."
    return "Measure more prompts (<code>workload.prompts_per_category</code>) or starts (<code>verdict.starts</code>)."
