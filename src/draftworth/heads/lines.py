"""A report of a head as lines for a terminal."""

from draftworth.heads.architectures import READ, lists_of
from draftworth.heads.base import CheckResult, HeadReport, Status
from draftworth.heads.supported import dotted, release_of
from draftworth.reports.words import plural


def lines(report: HeadReport) -> list[str]:
    """Return a report for a person: the answer, what failed, what is in doubt, what was not checked, what passed."""
    failed, warned = report.having(Status.FAILED), report.having(Status.WARNED)
    unchecked, passed = report.having(Status.NOT_CHECKED), report.having(Status.PASSED)
    loaded = f", loaded as {report.architecture}" if report.architecture else ""
    read = lists_of(release_of(report.version)) is not None
    unread = "" if read else f", which was not read here: {', '.join(map(dotted, READ))} were"
    return [
        f"{report.checkpoint}: {report.method} ({report.method_reason}){loaded}",
        f"for {report.target}: {report.target_architecture or 'architecture not told'}, vLLM {report.version}{unread}",
        "",
        _answer(failed, warned, unchecked),
        *_part("Failed:", failed, wrong=True),
        *_part("In doubt:", warned, wrong=True),
        *_part("Not checked:", unchecked),
        *_part("Passed:", passed),
    ]


def _answer(
    failed: tuple[CheckResult, ...], warned: tuple[CheckResult, ...], unchecked: tuple[CheckResult, ...]
) -> str:
    doubts = [
        *([f"{len(warned)} in doubt"] if warned else []),
        *([f"{len(unchecked)} not checked"] if unchecked else []),
    ]
    rest = f" ({', '.join(doubts)})" if doubts else ""
    if failed:
        names = ", ".join(one.name for one in failed)
        return f"It cannot be served as it is: {plural(len(failed), 'check')} failed: {names}{rest}."
    return f"It fits, as far as files tell: no check failed{rest}."


def _part(title: str, results: tuple[CheckResult, ...], *, wrong: bool = False) -> list[str]:
    if not results:
        return []
    return ["", title, *(f"  {_wrong(one) if wrong else f'{one.name}: {one.found}'}" for one in results)]


def _wrong(one: CheckResult) -> str:
    return f"{one.name}: found {one.found}; expected {one.expected}; fix: {one.fix} [{one.source}]"
