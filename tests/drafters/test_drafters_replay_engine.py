"""Replay against the counters of a real vLLM 0.32.0 (V1 n-gram) that wrote the very tokens that are replayed."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.drafters.naive import Request, steps_of
from tests.drafters.toy import InMemory, Toy, earliest

from draftworth.drafters import drafter
from draftworth.drafters.base import Drafter, Limits, Setting
from draftworth.drafters.replay import replay

TRIAL = Path(__file__).parents[2] / "benchmarks" / "data" / "demo_trial"
SETTING = Setting(5, 2, 4)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    table = pq.read_table(TRIAL / "requests.parquet")
    return [row for row in table.to_pylist() if row["arm"] == "ngram-5"]


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    """Return the arm's counts, from the server's page of metrics."""
    arms = json.loads((TRIAL / "trial.json").read_text())["arms"]
    [arm] = [arm for arm in arms if arm["name"] == "ngram-5"]
    config = arm["declared"]["speculative_config"]
    assert config == {
        "method": "ngram",
        "num_speculative_tokens": SETTING.k,
        "prompt_lookup_min": SETTING.min,
        "prompt_lookup_max": SETTING.max,
    }
    found: dict[str, Any] = arm["acceptance"]
    return found


@pytest.mark.parametrize("which", ["toy", "vllm-ngram-v1"])
def test_steps_drafting_steps_and_drafted_tokens_are_the_engines(
    which: str, rows: list[dict[str, Any]], counted: dict[str, Any]
) -> None:
    chosen: Drafter = Toy() if which == "toy" else drafter(which)
    requests = [Request(row["prompt_token_ids"], row["token_ids"]) for row in rows]
    [one] = replay(InMemory(requests), chosen, [SETTING], Limits()).settings
    for name in ("steps", "drafting_steps", "drafted", "emitted"):
        assert getattr(one.total, name) == counted[name], name
    # The engine also counts what max_tokens then cut.
    assert one.total.accepted == 318
    assert counted["accepted"] == 330
    assert one.total.accepted_per_position == (105, 69, 57, 46, 41)
    assert counted["accepted_per_position"] == [105, 70, 60, 50, 45]


def test_only_a_last_step_that_the_recording_cuts_accepts_less_than_the_engine_told(
    rows: list[dict[str, Any]],
) -> None:
    cut = 0
    for row in rows:
        told = json.loads(row["spec_stats"])
        steps = steps_of(row["prompt_token_ids"], row["token_ids"], partial(earliest, setting=SETTING))
        drafting = [step for step in steps if step.drafted]
        assert len(drafting) == told["num_spec_steps"]
        assert sum(step.drafted for step in drafting) == told["num_draft_tokens"]
        less = told["num_accepted_draft_tokens"] - sum(step.accepted for step in drafting)
        last = steps[-1]
        assert 0 <= less <= last.drafted - last.accepted
        if less:
            assert last.accepted == last.emitted
            cut += 1
    assert cut == 4
