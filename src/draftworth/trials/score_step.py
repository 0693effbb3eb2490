"""The step of a trial's execution that scores outputs on the baseline's server, for the output check."""

import time
from typing import TYPE_CHECKING

from draftworth.errors import MeasureError
from draftworth.trials.judge import checked_arms
from draftworth.trials.scoring import check_scores, score_all, score_limit
from draftworth.trials.serving import blame, died, original

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftworth.bench.base import RequestRow
    from draftworth.trials.execute import Execution
    from draftworth.trials.steps import Step


def score(run: "Execution", step: "Step") -> None:
    """Score the outputs of every arm that is checked. What cannot be scored is a finding; the speed was measured.

    Raises:
        ServerDiedError: the server died of it.
    """
    if run.server is None:
        run.server = original(run)
    server = run.server
    began = time.monotonic()
    scores = run.outcome.scores
    try:
        with run.journal.step(step.id):
            check_scores(run.engine)
            running = run.service.refresh(server.running)
            limit = score_limit(
                server.follower.reader.facts().config.get("device_config"),
                [process.pid for process in running.seen],
                run.model_path,
                run.target_of(server),
            )
            scores.by_arm = score_all(
                run.target_of(server),
                _outputs(run),
                limit=limit,
                most=run.config.verdict.output_check_prompts,
                timeout_s=max(1.0, min(run.downtime.deadline - time.monotonic(), 1e6)),
                on_count=run.count,
            )
    except MeasureError as error:
        if died(run, server):
            blame(run, error)
        scores.refused = str(error)
    finally:
        scores.seconds = time.monotonic() - began
        run.outcome.waited_s += scores.seconds


def _outputs(run: "Execution") -> "dict[str, Sequence[RequestRow]]":
    """Return the outputs of each arm that is checked; the baseline's are those of its first block.

    Those of settings that an earlier trial of a search left unchecked are among them.
    """
    outputs: dict[str, Sequence[RequestRow]] = {}
    checked = checked_arms(run.arms)
    for block in run.outcome.blocks:
        if block.arm in checked and block.arm not in run.outcome.given_up:
            outputs.setdefault(block.arm, block.check_rows)
    return {**run.outcome.unchecked, **outputs}
