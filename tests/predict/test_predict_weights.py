"""Which averages are held against each other, which requests tell the context, and what a check says of a cell."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.helpers import run_cli
from tests.predict.edited_trial import NULL, SUFFIX, SYNTHETIC, Record, costs, edited, rewritten
from tests.predict.simulated_trial import Server, ngram, simulated, spec_stats, texts

from draftworth.costs.file import save_costs
from draftworth.predict.base import CheckedCell
from draftworth.predict.check import check_trials
from draftworth.predict.pools import pool

ARMS = {"baseline": None, "ngram": ngram(7, 2, 4)}


def with_stats(folder: Path, k: int) -> Path:
    """Let each answer of the speculating arm tell its own counts."""
    server = Server(ngram(k, 2, 4))

    def told(row: Record) -> Record:
        if row["arm"] == "baseline":
            return row
        return row | {"spec_stats": spec_stats(server.steps(row["prompt_token_ids"], row["token_ids"]), k)}

    return rewritten(folder, told)


def test_requests_that_have_no_step_tell_nothing_of_the_context(tmp_path: Path) -> None:
    """Chats of 200 + 100 tokens are 250 long half-way, whatever classifications of one token stand between them."""
    random = np.random.default_rng(0)

    def line(prompt: int, output: int) -> str:
        ids = [random.integers(0, 400, size).tolist() for size in (prompt, output)]
        return json.dumps({"prompt_token_ids": ids[0], "output_token_ids": ids[1]})

    trace, file = tmp_path / "mixed.jsonl", tmp_path / "costs.json"
    trace.write_text("\n".join([*(line(2000, 1) for _ in range(60)), *(line(200, 100) for _ in range(8))]))
    save_costs(costs("ngram"), file)
    words = ("predict", trace, "--costs", file, "--k", "3", "--min", "2", "--max", "4", "--concurrency", "1", "--json")
    assert run_cli(*words).json["trace"]["context"] == 250


def test_a_mean_over_prompts_is_held_against_a_mean_over_prompts(tmp_path: Path) -> None:
    """Long answers draft most here, so that steps over tokens of all are another figure altogether."""
    folder = with_stats(simulated(tmp_path / "one", ARMS, 40, mixed=True), 7)
    checked = check_trials([folder], costs("ngram"))
    (cell,) = checked.cells
    counts = json.loads((folder / "trial.json").read_text())["arms"][1]["acceptance"]
    server, every = Server(ngram(7, 2, 4)), texts(40, mixed=True)
    mean = float(np.mean([len(server.steps(*one)) / (len(one[1]) - 1) for one in every]))
    pooled = counts["steps"] / counts["emitted"]
    assert abs(pooled / mean - 1) > 0.05
    assert cell.steps_by == "prompts"
    assert cell.steps_per_token.value == pytest.approx(mean, rel=0.005)
    assert cell.measured_steps_per_token == pytest.approx(mean, rel=0.01)  # cut tokens of a last step count as accepted
    assert cell.measured_step_ms == pytest.approx(cell.step_ms.value, rel=0.02)
    assert not checked.findings


def test_where_only_counters_tell_steps_over_tokens_are_held_against_the_same(tmp_path: Path) -> None:
    checked = check_trials([simulated(tmp_path / "one", ARMS, 40, mixed=True)], costs("ngram"))
    (cell,) = checked.cells
    assert cell.steps_by == "steps"
    assert cell.pooled_steps_per_token == pytest.approx(cell.measured_steps_per_token, rel=0.005)
    assert abs(cell.steps_per_token.value / (cell.measured_steps_per_token or 0) - 1) > 0.05
    assert not checked.findings


def test_steps_of_another_weight_hide_no_contradiction(tmp_path: Path) -> None:
    """Counters that say 10 % more steps than the replay are a finding, by their own weight."""
    folder = simulated(tmp_path / "one", ARMS, 40)

    def more(record: Record) -> None:
        record["arms"][1]["acceptance"]["steps"] = round(1.1 * record["arms"][1]["acceptance"]["steps"])

    (said,) = check_trials([edited(folder, more)], costs("ngram")).findings
    assert "ngram at 1 at a time: it took" in said


def test_before_any_reload_the_library_stands_in_and_arms_that_measure_are_not_judged(tmp_path: Path) -> None:
    arms = {"baseline": None, "null": NULL, "synthetic": ngram(7, 1, 1, **SYNTHETIC), "ngram": ngram(3, 2, 4)}
    folder, file = simulated(tmp_path / "one", arms, 20), tmp_path / "costs.json"
    own = check_trials([folder], costs())
    bare = check_trials([folder], costs(), before_reload=True)
    assert [one.arm for one in bare.cells] == [one.arm for one in own.cells] == ["ngram"]
    assert bare.cells[0].predicted.high / bare.cells[0].predicted.low > 1.5
    assert bare.cells[0].predicted != own.cells[0].predicted
    assert sum("it only measures, and what it measures is left out" in text for text in bare.left_out) == 2
    assert check_trials([folder], costs("ngram"), before_reload=True).cells == bare.cells
    save_costs(costs("ngram"), file)
    done = run_cli("predict", "--check", folder, "--costs", file, "--before-reload", "--json")
    assert done.json["cells"] == json.loads(bare.model_dump_json())["cells"]
    refused = run_cli("predict", folder, "--costs", file, "--before-reload")
    assert (refused.code, refused.err) == (1, "draftworth: --before-reload goes with --check\n")


def test_answers_that_a_server_remembers_are_pooled_apart(tmp_path: Path) -> None:
    points = {"first": 110, "second": 110}
    both = simulated(tmp_path / "both", {"baseline": None, "suffix": SUFFIX}, 20, points=points)
    service = {"type": "endpoints", "baseline": "http://a:1"}
    folders = []
    for label in points:
        folder = simulated(tmp_path / label, {"baseline": None, "suffix": SUFFIX}, 20)
        rows = [row for row in pq.read_table(both / "requests.parquet").to_pylist() if row["point"] == label]
        pq.write_table(pa.Table.from_pylist([row | {"point": ""} for row in rows]), folder / "requests.parquet")
        edited(
            folder,
            lambda record: record["config"].update(service=service, arms=[{"name": "suffix", "url": "http://a:2"}]),
        )
        folders.append(folder)
    checked = check_trials(folders, costs("suffix"))
    assert [cell.source for cell in checked.cells] == ["replay", "remembered"]
    assert [(one.source, one.cells) for one in checked.pools] == [("replay", 1), ("remembered", 1)]
    said = run_cli("predict", "--check", folders[0], "--check", folders[1]).out
    assert "1 cell: median absolute error" in said
    assert "also from what the arm's server had answered to the same prompts before" in said


def test_a_pool_tells_how_often_intervals_hold_and_how_wide_they_are(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "one", ARMS, 20)
    (cell,) = check_trials([folder], costs("ngram")).cells
    assert (cell.prompts, cell.starts) == (20, 1)
    assert cell.base_ms == pytest.approx(10.0)
    assert cell.measured_base_ms == pytest.approx(10.0)

    def made(predicted: tuple[float, float, float], measured: tuple[float, float, float]) -> CheckedCell:
        ends = [dict(zip(("value", "low", "high"), one, strict=True)) for one in (predicted, measured)]
        error = predicted[0] / measured[0] - 1
        return CheckedCell.model_validate(
            cell.model_dump() | {"predicted": ends[0], "measured": ends[1], "error": error, "sign_right": None}
        )

    found = pool(
        [
            made((1.5, 1.2, 1.8), (1.4, 1.3, 1.5)),
            made((1.0, 0.8, 1.2), (1.3, 1.25, 1.4)),
            made((0.5, 0.4, 0.8), (0.5, 0.5, 0.5)),
        ]
    )
    assert (found.inside, found.decides, found.measured_decides) == (2, 2, 3)
    assert found.width == pytest.approx(1.5)
    assert found.measured_width == pytest.approx(1.12)
    assert found.median_error == pytest.approx(1.5 / 1.4 - 1)


@pytest.mark.parametrize(("load", "most"), [("1", 0.0), ("4", 3 * (60 - 10) / 109)])
def test_a_time_to_the_first_token_tells_what_prefills_of_others_add(tmp_path: Path, load: str, most: float) -> None:
    """Three others' prefills of 50 ms each, over the 109 tokens that an answer decodes; half of it stands."""
    folder, file = simulated(tmp_path / "one", ARMS, 6), tmp_path / "costs.json"
    save_costs(costs("ngram"), file)
    words = ("predict", folder, "--costs", file, "--k", "3", "--min", "2", "--max", "4", "--concurrency", load)
    (told,) = run_cli(*words, "--json", "--ttft", "60").json["settings"]
    assert told["prefill_ms"] == pytest.approx({"value": most / 2, "low": 0.0, "high": most})
    plain = run_cli(*words, "--json").json
    without = plain["settings"][0]
    if load == "1":
        assert told == without
        return
    note = "what the prefills of other requests add to each token at 4 at a time is not known and not counted"
    assert any(note in text for text in plain["findings"])
    assert without["prefill_ms"] is None
    ratio, base, p = without["tpot_ratio"]["value"], told["parts"]["base_ms"], most / 2
    assert told["tpot_ratio"]["value"] == pytest.approx((ratio * base + p) / (base + p))
    assert f"; prefills of others add {p:.2f}" in run_cli(*words, "--ttft", "60").out


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    done = run_cli("predict", tmp_path, "--costs", tmp_path, f"--ttft={value}")
    assert done.code == 1
    assert "--ttft: must be above 0 and below 3,600,000 ms" in done.err
