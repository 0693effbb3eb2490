"""Heads and draft models of a trial's arms, looked at before anything is stopped: their files alone are read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.heads.base import HeadReport
    from draftworth.trials.config import ArmConfig, TrialConfig

_OTHER_VOCABULARY = frozenset({"vocabulary", "tokenizer", "tokenizer-merges", "added-tokens", "special-tokens"})
"""What vLLM's `use_heterogeneous_vocab` maps between the two."""
_MTP = "mtp"


def check_heads(
    config: "TrialConfig", engine: "Engine", command: Sequence[str], target: Path | None, version: str | None
) -> list[str]:
    """Check the drafts of all variants whose files are on this machine.

    Args:
        config: the trial's file.
        engine: what serves it.
        command: the service's own.
        target: the served model's folder; None where it is not known, and then nothing can be checked.
        version: the engine's, None where it is not known.

    Returns:
        Notes: what is in doubt, what could not be checked, and which drafts were not looked at.

    Raises:
        RefusedError: a draft cannot be served, and its arm does not say `check = false`; or it is not there.
    """
    from draftworth.trials.prepare import check_model  # noqa: PLC0415 - in a circle otherwise

    def there(model: str, arm: "ArmConfig") -> Path | None:
        return check_model(model, config, where=f"arms: {arm.name}: speculative_config.model")

    served = _Served(engine.name, target, version, _longest(command))
    return [note for arm in config.variants for note in _of_arm(arm, served, there)]


@dataclass(frozen=True, slots=True)
class _Served:
    engine: str
    target: Path | None
    version: str | None
    longest: int | None


def _of_arm(arm: "ArmConfig", served: _Served, there: "Callable[[str, ArmConfig], Path | None]") -> Iterator[str]:
    from draftworth.heads.base import Method  # noqa: PLC0415 - lazy
    from draftworth.heads.check import check_head  # noqa: PLC0415 - lazy

    spec = arm.speculative_config or {}
    named, method = spec.get("model"), spec.get("method")
    folder: Path | None = None
    if isinstance(named, str):
        folder = there(named, arm)
    elif method == _MTP:
        folder = served.target
    known = method is None or method in {str(one) for one in Method}
    if served.engine != "vllm" or not known or not arm.check:
        return
    if folder is not None and spec.get("revision"):
        yield f"{arm.name}: its draft was not checked: of a revision, which is not looked for here"
        return
    if folder is None:
        if isinstance(named, str):
            yield (
                f"{arm.name}: its draft was not checked: {named} is not here as the server would load it; fetch it "
                "first, or the engine does while it starts"
            )
        return
    if served.target is None:
        yield f"{arm.name}: its draft was not checked: the served model is no folder here; `draftworth head check` can"
        return
    try:
        report = check_head(folder, served.target, method=method, version=served.version, max_model_len=served.longest)
    except UsageError as error:
        yield f"{arm.name}: its draft was not checked: {error}"
        return
    yield from _judged(arm, report, other_vocabulary=bool(spec.get("use_heterogeneous_vocab")))


def _judged(arm: "ArmConfig", report: "HeadReport", *, other_vocabulary: bool) -> Iterator[str]:
    from draftworth.heads.base import Status  # noqa: PLC0415 - lazy

    passed_over = _OTHER_VOCABULARY if other_vocabulary else frozenset[str]()
    failed = [one for one in report.having(Status.FAILED) if one.name not in passed_over]
    if failed:
        found = "; ".join(f"{one.name}: found {one.found}, expected {one.expected}; fix: {one.fix}" for one in failed)
        raise RefusedError(
            f"arms: {arm.name}: its draft cannot be served for this model: {found} (`draftworth head check "
            f"{report.checkpoint} --target {report.target}` tells all; check = false in the arm starts it anyway)"
        )
    for one in report.having(Status.WARNED):
        yield f"{arm.name}: draft: {one.name}: found {one.found}, expected {one.expected}; {one.fix}"
    if unchecked := report.having(Status.NOT_CHECKED):
        yield f"{arm.name}: draft: not checked: {', '.join(one.name for one in unchecked)}"


def _longest(command: Sequence[str]) -> int | None:
    """Return the command's `--max-model-len` where it is a plain number."""
    for at, word in enumerate(command):
        flag, equals, value = word.partition("=")
        if flag in {"--max-model-len", "--max_model_len"}:
            told = value if equals else next(iter(command[at + 1 : at + 2]), "")
            return int(told) if told.isdecimal() else None
    return None
