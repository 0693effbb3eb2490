"""Whether replay counts what vLLM counted: drafted and accepted tokens of every n-gram arm of the kept CPU trials.

    python -m benchmarks.replay_counts             # benchmarks/results/replay_counts.json and docs/replay.md's table

The engine's counts are those that each answer told (`spec_stats`). Three comparisons:

- the arm's own answers replayed: whether the algorithm is the engine's, request by request;
- the baseline's answers replayed, where both arms wrote the same text: what the replay of a trace promises there;
- the baseline's answers replayed, all of them: what is told before a reload, also where near ties went the other way.

Two things that a recording cannot hold are told apart. Cut tokens: the engine accepted them in a request's last step,
and max_tokens, a stop or the end token then cut them off. Padded admissions: vLLM 0.32.0's scheduler
(vllm/v1/core/sched/scheduler.py) pads a request that is admitted with exactly one token to compute, the rest being
found in the prefix cache, to 1 + k tokens, and counts a drafting step of k drafted and none accepted; blocks have 128
tokens here.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftworth.drafters import drafter
from draftworth.drafters.base import Limits, Setting
from draftworth.predict.trialrows import Measured, Row, batch_of, measured

DATA = Path(__file__).parent / "data" / "prediction"
RESULT = Path(__file__).parent / "results" / "replay_counts.json"
PAGE = Path(__file__).parents[1] / "docs" / "replay.md"
BEGIN, END = "<!-- counts -->\n", "<!-- end -->"
BLOCK = 128
"""Tokens of a block of vLLM's KV cache on CPUs."""
NO_DRAFT = "null-draft"
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm of one trial.

    Attributes:
        run: the trial's folder above.
        at_a_time: requests that ran at a time.
        arm: its name.
        requests: answers that both arms gave and whose counts are told.
        padded: of them, those with a padded admission.
        cut: tokens that the engine accepted and that were cut off.
        own_differ: requests whose drafting steps, drafted or accepted tokens differ when the arm's own answer is
            replayed, padding and cut tokens apart.
        same: requests whose answers are the same in both arms.
        same_differ: of them, those that differ when the baseline's answer is replayed, both apart.
        engine_drafted: drafted tokens as the engine counted them, padding apart.
        engine_accepted: accepted tokens as the engine counted them, those cut off too.
        drafted: drafted tokens of the baseline's answers replayed.
        accepted: accepted tokens of the same.
    """

    run: str
    at_a_time: int
    arm: str
    requests: int
    padded: int
    cut: int
    own_differ: int
    same: int
    same_differ: int
    engine_drafted: int
    engine_accepted: int
    drafted: int
    accepted: int

    @property
    def drafted_off(self) -> float:
        """Replay / engine - 1."""
        return self.drafted / self.engine_drafted - 1

    @property
    def accepted_off(self) -> float:
        """Replay / engine - 1, cut tokens apart."""
        return self.accepted / (self.engine_accepted - self.cut) - 1

    @property
    def accepted_off_with_cut(self) -> float:
        """Replay / engine - 1, cut tokens counted by the engine alone."""
        return self.accepted / self.engine_accepted - 1


def cells() -> list[Cell]:
    """Return every n-gram arm of the kept CPU trials."""
    found = []
    for record in sorted(DATA.glob("cpu-*/*/trial.json")):
        trial = measured(record.parent)
        for arm in trial.record.arms:
            config = (arm.declared or {}).get("speculative_config") or {}
            if config.get("method") == "ngram" and arm.name != NO_DRAFT:
                k, low, high = (
                    config[name] for name in ("num_speculative_tokens", "prompt_lookup_min", "prompt_lookup_max")
                )
                found.append(_cell(record.parent, trial, arm.name, Setting(k, low, high)))
    return found


def _cell(folder: Path, trial: Measured, arm: str, setting: Setting) -> Cell:
    base = {(row.prompt, row.repeat): row for row in trial.sent[trial.baseline] if row.prompt_ids is not None}
    mine = [row for row in trial.sent[arm] if row.prompt_ids is not None and row.stats]
    mine = [row for row in mine if (row.prompt, row.repeat) in base]
    theirs = [base[row.prompt, row.repeat] for row in mine]
    engine = np.array([_told(row) for row in mine], dtype=np.int64)
    (own, ends), (before, _) = _replayed(mine, setting), _replayed(theirs, setting)
    # Only what has the padding's very shape is taken for it: one block-aligned prompt, one step, k drafted.
    aligned = np.array([len(row.prompt_ids or ()) % BLOCK == 1 for row in mine])
    padded = aligned & (engine[:, :2] - own[:, :2] == [1, setting.k]).all(axis=1)
    engine[padded, :2] -= [1, setting.k]
    over = engine[:, 2] - own[:, 2]
    cut = np.where((over > 0) & (over <= setting.k) & ends, over, 0)
    exact = (own[:, :2] == engine[:, :2]).all(axis=1) & (over == cut)
    same = np.array([list(one.ids) == list(other.ids) for one, other in zip(mine, theirs, strict=True)])
    as_base = (before[:, :2] == engine[:, :2]).all(axis=1) & (before[:, 2] == engine[:, 2] - cut)
    return Cell(
        run=folder.parent.name,
        at_a_time=int(folder.name.rpartition("-")[2]),
        arm=arm,
        requests=len(mine),
        padded=int(padded.sum()),
        cut=int(cut.sum()),
        own_differ=int((~exact).sum()),
        same=int(same.sum()),
        same_differ=int((same & ~as_base).sum()),
        engine_drafted=int(engine[:, 1].sum()),
        engine_accepted=int(engine[:, 2].sum()),
        drafted=int(before[:, 1].sum()),
        accepted=int(before[:, 2].sum()),
    )


def _told(row: Row) -> tuple[int, int, int]:
    """Return an answer's drafting steps, drafted and accepted tokens, as the engine counted them."""
    stats = json.loads(row.stats or "{}")
    return stats["num_spec_steps"], stats["num_draft_tokens"], stats["num_accepted_draft_tokens"]


def _replayed(rows: Sequence[Row], setting: Setting) -> tuple[Counts, NDArray[np.bool_]]:
    """Return each answer's drafting steps, drafted and accepted tokens [R, 3], and whether its last draft was cut.

    It was, or ended with the answer, where the step has no token behind its draft: steps and accepted tokens are then
    as many as the tokens they emit, else one less for each step.
    """
    batch = batch_of(rows)
    groups = np.arange(len(rows), dtype=np.int32).repeat(2).reshape(-1, 2)
    joint = drafter("vllm-ngram-v1").session([setting], Limits()).feed(batch, groups, len(rows)).joint[0]
    sizes = np.arange(setting.k + 1)
    accepted = joint.sum(axis=1) @ sizes
    counts = np.stack([joint[:, 1:].sum(axis=(1, 2)), joint.sum(axis=2) @ sizes, accepted], axis=1)
    return counts, joint.sum(axis=(1, 2)) + accepted > batch.output_lengths - 1


def table(found: Sequence[Cell]) -> str:
    """Return the page's table and what it says, as Markdown."""
    rows = [
        (
            "| run | at a time | arm | requests | same text | of it, exact | padded | cut "
            "| drafted, all | accepted, all | with cut tokens |"
        ),
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows += [
        f"| {one.run} | {one.at_a_time} | {one.arm} | {one.requests} | {one.same} | {one.same - one.same_differ} "
        f"| {one.padded} | {one.cut} | {_percent(one.drafted_off)} | {_percent(one.accepted_off)} "
        f"| {_percent(one.accepted_off_with_cut)} |"
        for one in found
    ]
    return "\n".join([*rows, "", *_said(found), ""])


def _said(found: Sequence[Cell]) -> list[str]:
    requests, same = sum(one.requests for one in found), sum(one.same for one in found)
    own, differ = sum(one.own_differ for one in found), sum(one.same_differ for one in found)
    within = [abs(one.drafted_off) <= 0.01 and abs(one.accepted_off) <= 0.01 for one in found]  # noqa: PLR2004 - the goal
    whole = [sum(getattr(one, name) for one in found) for name in ("drafted", "engine_drafted", "accepted")]
    accepted = sum(one.engine_accepted - one.cut for one in found)
    off = whole[0] / whole[1] - 1, whole[2] / accepted - 1
    worst = max(abs(one.drafted_off) for one in found), max(abs(one.accepted_off) for one in found)
    return [
        (
            f"- *Exact where the texts are the same*: {same - differ:,} of {same:,} requests"
            f"{', met.' if not differ else ', **missed**.'} The arms' own answers replayed: {requests - own:,} of "
            f"{requests:,}."
        ),
        (
            f"- *Within 1 % over all*: {sum(within)} of {len(found)} arms"
            f"{', met' if all(within) else ', **missed** in the others'}; at worst {100 * worst[0]:.1f} % of drafted "
            f"and {100 * worst[1]:.1f} % of accepted tokens. All arms together: {_percent(off[0])} and "
            f"{_percent(off[1])}."
        ),
    ]


def _percent(value: float) -> str:
    return f"{100 * value:+.1f} %"


def main() -> int:
    """Compare, keep the counts and write the table."""
    found = cells()
    RESULT.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", "utf-8")
    old = PAGE.read_text("utf-8")
    head, mark, rest = old.partition(BEGIN)
    if not mark:
        raise SystemExit(f"{PAGE}: no line {BEGIN.strip()}")
    PAGE.write_text(f"{head}{BEGIN}{table(found)}{END}{rest.partition(END)[2]}", "utf-8")
    sys.stdout.write(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
