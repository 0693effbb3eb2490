"""Which of a trial's answers, counts and costs a check of predictions takes: every cause of a wrong cell so far."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.predict.edited_trial import NULL, SUFFIX, SYNTHETIC, Record, costs, edited, rewritten, right
from tests.predict.simulated_trial import Server, T, ngram, simulated, step_ms, texts

from draftworth.predict.check import check_trials

# Which requests, and how they are weighed.


def test_prompts_count_alike_whatever_their_length(tmp_path: Path) -> None:
    """A verdict is about means over prompts: a long answer that drafts much is one of many."""
    folder = simulated(tmp_path / "one", {"baseline": None, "ngram": ngram(7, 2, 4)}, 40, mixed=True)
    checked = check_trials([folder], costs("ngram"))
    right(checked, 1)
    server, pooled = Server(ngram(7, 2, 4)), [0.0, 0.0]
    for prompt, output in texts(40, mixed=True):
        pooled[0] += sum(step_ms(step, 7) for step in server.steps(prompt, output))
        pooled[1] += T[1] * (len(output) - 1)
    # Had steps been pooled over all tokens, the cell would be off by far more than it is allowed to be.
    assert abs(pooled[1] / pooled[0] / checked.cells[0].measured.value - 1) > 0.1


def test_a_baseline_that_is_measured_twice_teaches_a_suffix_tree_once(tmp_path: Path) -> None:
    arms = {"baseline": None, "suffix": SUFFIX}
    once = check_trials([simulated(tmp_path / "once", arms, 20)], costs("suffix"))
    twice = check_trials([simulated(tmp_path / "twice", arms, 20, legs=2)], costs("suffix"))
    right(once, 1)
    right(twice, 1)
    assert twice.cells[0].steps_per_token.value == pytest.approx(once.cells[0].steps_per_token.value, rel=1e-9)
    assert twice.cells[0].steps_per_token.value == pytest.approx(once.cells[0].measured_steps_per_token, rel=0.01)


def test_each_leg_of_a_baseline_counts_where_nothing_is_shared(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "one", {"baseline": None, "ngram": ngram(3, 2, 4)}, 20, legs=2)
    right(check_trials([folder], costs("ngram")), 1)


def test_a_start_that_served_several_points_keeps_its_tree_over_them(tmp_path: Path) -> None:
    """The second point meets the first one's answers, as its server did; both loads are one at a time."""
    points = {"60 out": 60, "110 out": 110}
    folder = simulated(tmp_path / "one", {"baseline": None, "suffix": SUFFIX}, 20, legs=2, points=points)
    checked = check_trials([folder], costs("suffix"))
    right(checked, 2)
    first, second = checked.cells
    assert second.measured.value > 1.3 * first.measured.value
    for cell in checked.cells:
        # Out of what each answer told: the arm's counts are of both points together.
        assert cell.steps_per_token.value == pytest.approx(cell.measured_steps_per_token, rel=0.02)


def test_a_restart_of_the_arm_empties_its_tree(tmp_path: Path) -> None:
    folder = simulated(tmp_path / "one", {"baseline": None, "suffix": SUFFIX}, 20)
    single = check_trials([folder], costs("suffix")).cells[0]
    rows = pq.read_table(folder / "requests.parquet").to_pylist()
    again = [{**row, "block": row["block"] + 2, "start": 2, "started_unix": row["started_unix"] + 1e3} for row in rows]
    pq.write_table(pa.Table.from_pylist([*rows, *again]), folder / "requests.parquet")
    checked = check_trials([folder], costs("suffix"))
    right(checked, 1)
    assert checked.cells[0].predicted == single.predicted


def test_servers_that_ran_already_keep_their_tree_from_trial_to_trial(tmp_path: Path) -> None:
    """Trials between endpoints restart nothing: the second asks servers that have answered it all before."""
    points = {"first": 110, "second": 110}
    both = simulated(tmp_path / "both", {"baseline": None, "suffix": SUFFIX}, 20, points=points)
    at = {"type": "endpoints", "baseline": "http://a:1"}
    arms = [{"name": "suffix", "url": "http://a:2"}]
    folders = []
    for label in points:
        folder = simulated(tmp_path / label, {"baseline": None, "suffix": SUFFIX}, 20)
        rows = [row for row in pq.read_table(both / "requests.parquet").to_pylist() if row["point"] == label]
        pq.write_table(pa.Table.from_pylist([row | {"point": ""} for row in rows]), folder / "requests.parquet")
        edited(folder, lambda record: record["config"].update(service=at, arms=arms))
        folders.append(folder)
    right(check_trials(folders[::-1], costs("suffix")), 2)
    edited(folders[1], lambda record: record["config"]["arms"][0].update(url="http://b:2"))
    assert abs(check_trials(folders, costs("suffix")).cells[1].error) > 0.2


def test_two_points_of_one_concurrency_are_two_cells(tmp_path: Path) -> None:
    points = {"24 out": 24, "110 out": 110}
    folder = simulated(tmp_path / "one", {"baseline": None, "ngram": ngram(3, 2, 4)}, 20, points=points)
    checked = check_trials([folder], costs("ngram"))
    right(checked, 2)
    assert checked.cells[0].measured.value != checked.cells[1].measured.value
    rewritten(folder, lambda row: {name: value for name, value in row.items() if name != "spec_stats"})
    without = check_trials([folder], costs("ngram"))
    # The arm's counts are of both points together: they are neither's.
    assert [cell.measured_steps_per_token for cell in without.cells] == [None, None]


# Whose costs.


def test_servers_are_not_averaged(tmp_path: Path) -> None:
    arms = {"baseline": None, "null": NULL, "ngram": ngram(1, 2, 4)}
    fast = simulated(tmp_path / "fast", arms, 20)
    slow = rewritten(
        simulated(tmp_path / "slow", arms, 20),
        lambda row: row | {"decode_ms": 10 * row["decode_ms"], "tpot_ms": 10 * row["tpot_ms"]},
    )
    alone = [check_trials([folder]).cells[0] for folder in (fast, slow)]
    assert check_trials([fast, slow]).cells == tuple(alone)
    assert alone[1].step_ms.value == pytest.approx(10 * alone[0].step_ms.value, rel=0.01)


def test_trials_of_one_server_share_its_modes(tmp_path: Path) -> None:
    first = simulated(tmp_path / "1", {"baseline": None, "null": NULL, "synthetic": ngram(7, 1, 1, **SYNTHETIC)}, 20)
    second = simulated(tmp_path / "2", {"baseline": None, "ngram": ngram(3, 2, 4)}, 20)

    def serve(record: Record, gpu: str, port: str) -> None:
        record["machine"] = {"gpu": gpu}
        record["arms"][0]["command"] = ["vllm", "serve", "m", "--port", port]

    edited(first, lambda record: serve(record, "H200", "1"))
    edited(second, lambda record: serve(record, "H200", "2"))
    shared = check_trials([first, second], costs())
    assert abs(shared.cells[0].error) < 0.02
    edited(second, lambda record: serve(record, "L4", "2"))
    apart = check_trials([first, second], costs())
    assert abs(apart.cells[0].error) > abs(shared.cells[0].error)
    assert "trial 2: no null-draft or synthetic arm, so no engine mode" in apart.left_out


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"engine": "sglang"}, "the costs file is of sglang, this trial's server is vllm"),
        ({"model": "Qwen/Other"}, "the costs file is of the model 'Qwen/Other', this trial's server serves 'target'"),
    ],
)
def test_costs_of_another_server_are_refused(tmp_path: Path, more: Record, why: str) -> None:
    folder = simulated(tmp_path / "one", {"baseline": None, "ngram": ngram(3, 2, 4)}, 5)
    edited(folder, lambda record: record["config"].update(service={"model": "target"}))
    checked = check_trials([folder], costs("ngram", **more))
    assert not checked.cells
    assert checked.left_out == (f"trial one: {why}; the file is not used for it",)
    assert len(check_trials([folder], costs("ngram", model="/models/Target")).cells) == 1


# Intervals.


def test_figures_have_real_intervals(tmp_path: Path) -> None:
    arms = {"baseline": None, "ngram": ngram(7, 2, 4), "synthetic": ngram(7, 1, 1, **SYNTHETIC)}
    folder = simulated(tmp_path / "one", arms, 20)
    known = costs("ngram")
    wide = known.model_copy(
        update={"points": tuple(one.model_copy(update={"high": 1.2 * one.ms}) for one in known.points)}
    )
    for cell in check_trials([folder], wide).cells:
        for found in (cell.step_ms, cell.steps_per_token, cell.predicted):
            assert found.low <= found.value <= found.high
            assert found.high > 1.01 * found.low, cell
    counts = json.loads((folder / "trial.json").read_text())["arms"][2]["acceptance"]
    synthetic = check_trials([folder], known).cells[1]
    # Every second step accepts one token, so steps emit 1 or 2; what is not told is taken at its widest.
    least = 1.96 * 0.5 / (counts["emitted"] / counts["steps"]) / counts["steps"] ** 0.5
    assert synthetic.steps_per_token.high / synthetic.steps_per_token.value > 1 + least
    assert synthetic.steps_per_token.value == synthetic.measured_steps_per_token


def test_a_null_draft_of_another_trial_of_the_server_gives_m0(tmp_path: Path) -> None:
    """On one server null-draft and synthetic were measured in trials of their own, each beside the same baseline."""
    synthetic = ngram(7, 1, 1, rejection_sample_method="synthetic", synthetic_acceptance_length=2.0)
    first = simulated(tmp_path / "20260101-000000", {"baseline": None, "null-draft": ngram(5, 60, 60)})
    second = simulated(
        tmp_path / "20260101-000001", {"baseline": None, "synthetic-7": synthetic, "ngram-3": ngram(3, 2, 4)}
    )

    def served(record: Record) -> None:
        record["arms"][0]["command"] = ["vllm", "serve", "m"]

    for folder in (first, second):
        edited(folder, served)
    checked = check_trials([first, second], costs())
    (cell,) = checked.cells
    assert cell.arm == "ngram-3"
    assert abs(cell.error) < 0.02
    assert sum("was used to fit an engine mode" in text for text in checked.left_out) == 2
