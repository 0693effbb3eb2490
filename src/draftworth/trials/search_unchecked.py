"""Settings that an earlier trial of a search measured and did not live to check: their outputs are checked in this one.

A search that was interrupted ended before the output check, and without it nothing is called faster. The answers are
in that trial's `requests.parquet`, and the baseline that scores them serves again: nothing is started for it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from draftworth.bench.base import RequestRow
from draftworth.bench.rows import NAME
from draftworth.errors import UsageError
from draftworth.trials.config import BASELINE
from draftworth.trials.home import find_trial
from draftworth.trials.search_resume import recorded
from draftworth.verdicts.decision import decide, override
from draftworth.verdicts.output_check import judge
from draftworth.verdicts.weaken import FROM_ANY_ARM, weaken

if TYPE_CHECKING:
    from draftworth.trials.base import Outcome
    from draftworth.trials.config import CommonConfig
    from draftworth.trials.record import ArmComparison

Earlier = Mapping[str, tuple[str, "ArmComparison"]]
"""A setting that was measured before to that trial's id and its comparison there."""
_MEASURED = "Measured speed: "
_COLUMNS = ("arm", "block", "prompt_id", "category", "repeat", "started_unix", "start", "point", "turn", "ok")
_TOKENS = ("prompt_token_ids", "token_ids")


def unchecked(earlier: Earlier, config: "CommonConfig") -> dict[str, list[RequestRow]]:
    """Return the answers of settings whose outputs were not checked, as far as they are kept.

    At a temperature above 0 the greedy answers that a check needs are not kept: those settings stay unchecked.

    Args:
        earlier: what earlier trials of this search measured.
        config: this trial's file.
    """
    if config.workload.temperature > 0 or not config.verdict.output_check:
        return {}
    found = {}
    for name, (trial, comparison) in earlier.items():
        check = comparison.output_check
        if check is not None and check.status == "unchecked":
            found[name] = _answers(trial, name)
    return {name: rows for name, rows in found.items() if rows}


def _answers(trial: str, arm: str) -> list[RequestRow]:
    import pyarrow as pa  # noqa: PLC0415 - lazy
    import pyarrow.parquet as pq  # noqa: PLC0415 - lazy

    try:
        path = find_trial(trial) / NAME
        table = pq.read_table(path, columns=[*_COLUMNS, *_TOKENS], filters=[("arm", "=", arm), ("start", "=", 1)])
    except (UsageError, OSError, pa.ArrowException):
        return []
    return [RequestRow(**{**row, **{name: row[name] or () for name in _TOKENS}}) for row in table.to_pylist()]


def check_again(
    earlier: Earlier, answers: Mapping[str, Sequence[RequestRow]], outcome: "Outcome", config: "CommonConfig"
) -> dict[str, tuple[str, "ArmComparison"]]:
    """Return what earlier trials measured, with the checks of outputs that were scored in this trial.

    Args:
        earlier: what they measured.
        answers: those that were to be scored.
        outcome: with the scores of this trial, and its baseline's answers.
        config: this trial's file.
    """
    scores = outcome.scores.by_arm
    found = dict(earlier)
    rows = [row for block in outcome.blocks if block.arm == BASELINE and block.start == 1 for row in block.check_rows]
    for name in answers:
        if scores.get(name):
            trial, before = earlier[name]
            check = judge(scores.get(BASELINE, []), scores[name], rows, answers[name])
            verdict, _ = decide(before.ratio, config.verdict.margin, config.verdict.metric)
            reason = before.reason.rpartition(_MEASURED)[2]
            plain = before.model_copy(update={"verdict": verdict, "reason": reason, "output_check": check})
            record = recorded(trial)
            known = () if record is None else record.findings
            mine = [one for one in known if one.code in FROM_ANY_ARM or one.arm in {None, BASELINE, name}]
            found[name] = trial, weaken(override(plain, check), mine)
    return found
