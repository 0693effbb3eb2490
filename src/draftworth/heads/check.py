"""Whether a head or draft model can be served with a target, told from files alone, before anything is loaded."""

from pathlib import Path

from draftworth.errors import UsageError
from draftworth.heads.base import CheckResult, HeadReport, Method, Status
from draftworth.heads.checks import CHECKS
from draftworth.heads.draft import Draft
from draftworth.heads.files.tensors import UnreadableError
from draftworth.heads.folder import Model, open_model
from draftworth.heads.method import layout_of, method_of
from draftworth.heads.subject import CannotCheckError, Check, Fine, Severity, Subject
from draftworth.heads.supported import ENGINES, dotted, release_of

_AS_FAILED = {Severity.FAIL: Status.FAILED, Severity.WARN: Status.WARNED}


def check_head(
    checkpoint: Path,
    target: Path,
    *,
    method: str | None,
    engine: str = "vllm",
    version: str | None = None,
    max_model_len: int | None = None,
) -> HeadReport:
    """Return what every check found. Reads headers, small files and slices; loads no model and asks no network.

    Args:
        checkpoint: the folder of the head or draft model; for MTP the target's own.
        target: the folder of the model it drafts for.
        method: how it drafts, in vLLM's words; none: told from its files.
        engine: what serves it.
        version: the engine's release; none: the one whose lists are known.
        max_model_len: the server's `--max-model-len`, where it is known.

    Raises:
        UsageError: a folder or its config.json is not there, or method, engine or version are not known here.
    """
    if engine not in ENGINES:
        raise UsageError(f"engine {engine!r} is not known here: one of {', '.join(ENGINES)}")
    if max_model_len is not None and max_model_len < 1:
        raise UsageError(f"max_model_len must be at least 1, not {max_model_len}")
    asked = _method(method)
    release = release_of(version)
    draft_model, target_model = open_model(checkpoint, "the checkpoint"), open_model(target, "the target")
    draft, told, reason = _draft(draft_model, target_model, asked)
    subject = Subject(draft, target_model, asked, told, release, max_model_len)
    found = [_result(check, subject) for check in CHECKS if draft.method in check.methods]
    return HeadReport(
        checkpoint=str(draft_model.path),
        target=str(target_model.path),
        engine=engine,
        version=dotted(release),
        method=draft.method,
        method_reason=reason,
        layout=draft.layout,
        architecture=draft.architecture,
        target_architecture=target_model.architecture,
        checks=tuple(one for one in found if one is not None),
    )


def _method(name: str | None) -> Method | None:
    if name is None:
        return None
    try:
        return Method(name)
    except ValueError:
        raise UsageError(f"method {name!r} is not checked: one of {', '.join(Method)}") from None


def _draft(model: Model, target: Model, asked: Method | None) -> tuple[Draft, Method | None, str]:
    """Return the draft, the method its files tell of, and what tells of the method it is checked as."""
    try:
        told, layout, why = method_of(model, target)
    except UsageError:
        if asked is None:
            raise
        return Draft(model, asked, layout_of(model)), None, "it was asked for"
    if asked is None or asked is told:
        return Draft(model, told, layout), told, why
    return Draft(model, asked, layout), told, "it was asked for"


def _result(check: Check, subject: Subject) -> CheckResult | None:
    """Run one check; none where it does not concern this head."""
    try:
        outcome = check.look(subject)
    except (CannotCheckError, UnreadableError) as reason:
        return _made(check, Status.NOT_CHECKED, str(reason))
    except OSError as error:
        return _made(check, Status.NOT_CHECKED, f"{error.filename}: {error.strerror}")
    except UsageError as error:
        # A field of config.json that has no sense: the engine stumbles over it too.
        return _made(check, Status.FAILED, str(error), "a value of the right kind", "correct config.json")
    if outcome is None:
        return None
    if isinstance(outcome, Fine):
        return _made(check, Status.PASSED, outcome.found, outcome.expected)
    fix = check.fix if outcome.fix is None else outcome.fix
    return _made(check, _AS_FAILED[check.severity], outcome.found, outcome.expected, fix)


def _made(check: Check, status: Status, found: str, expected: str = "", fix: str = "") -> CheckResult:
    return CheckResult(name=check.name, status=status, found=found, expected=expected, fix=fix, source=check.source)
