"""`draftworth predict` as a person runs it, on measurements that are kept: what it says, and what it leaves out."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import run_cli

from draftworth.costs.base import Costs
from draftworth.costs.file import load_costs, save_costs

DATA = Path(__file__).parents[2] / "benchmarks" / "data" / "prediction"
GPU, CPU, CPU_B = (DATA / name for name in ("h200-smollm2-a", "cpu-smollm2-a", "cpu-smollm2-b"))
COSTS = "costs-baseline.json"


def shown(*words: object) -> str:
    done = run_cli("predict", *words)
    assert done.code == 0, done.err
    return done.out


def document(*words: object) -> Any:
    return json.loads(shown(*words, "--json"))


def short_answers(folder: Path) -> Path:
    path = folder / "trace.jsonl"
    row = {"prompt_token_ids": [1, 2, 3, 4, 5, 6, 7, 8], "output_token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]}
    path.write_text("".join(json.dumps({"request_id": f"r{at}", **row}) + "\n" for at in range(40)))
    return path


def test_suffix_takes_the_librarys_mode_of_n_gram() -> None:
    words = (GPU / "all-1", "--costs", GPU / COSTS, "--concurrency", "1", "--k", "5")
    suffix, ngram = (document(*words, "--drafter", name) for name in ("vllm-suffix", "vllm-ngram-v1"))
    assert suffix["reloads"] == []
    assert suffix["verdict"].startswith(
        "It cannot be told without 3 reloads of 106 s (null-draft; synthetic-5; and back)"
    )
    (one,), other = suffix["settings"], ngram["settings"][0]
    assert one["parts"]["mode_ms"] > 2
    assert one["speed_up"]["value"] < 0.6
    assert one["speed_up"]["low"] < other["speed_up"]["low"], "widened"
    assert any("that of ngram, widened (library" in why for why in one["why"])


def test_without_any_engine_mode_every_row_says_at_best(tmp_path: Path) -> None:
    costs = load_costs(CPU / COSTS).model_copy(update={"engine": "sglang", "version": "0.5.23", "runner": None})
    save_costs(costs, tmp_path / "costs.json")
    words = (CPU / "all-1", "--costs", tmp_path / "costs.json", "--concurrency", "1", "--k", "3,5")
    said = shown(*words, "--drafter", "sglang-ngram")
    rows = [line for line in said.splitlines() if line.startswith("  k = ")]
    assert len(rows) == 2
    assert all("at best, without engine mode, " in row and "not known" in row for row in rows)
    assert "is predicted at best, without engine mode, " in said
    assert "Worth a trial" not in said
    assert "Only a trial" not in said
    assert document(*words, "--drafter", "sglang-ngram")["settings"][0]["parts"]["mode_ms"] is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"version": "0.25.0"}, "the costs file is of vllm 0.25.0, this trial's server is vllm 0.32.0"),
        ({"version": "0.32.0.dev7"}, None),
        ({"version": "0.32"}, None),
        ({"runner": "V2"}, "the costs file is of model runner V2, this trial's server is model runner V1"),
        ({"machine": "1 x NVIDIA H100"}, "the costs file is of on NVIDIA H100"),
        ({"machine": "cpu"}, "the costs file is of on cpu"),
        ({"machine": "cuda"}, None),
        ({"machine": "2 x NVIDIA H200"}, None),
    ],
)
def test_costs_of_another_server_judge_nothing(tmp_path: Path, changed: dict[str, str], why: str | None) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / "requests.parquet").symlink_to(CPU / "all-1" / "requests.parquet")
    record = json.loads((CPU / "all-1" / "trial.json").read_text())
    record["arms"][0]["runner"] = "V1"
    record["machine"]["gpus"] = ["1 x NVIDIA H200"]
    (folder / "trial.json").write_text(json.dumps(record))
    fit = {"machine": "1 x NVIDIA H200", **changed}
    save_costs(load_costs(CPU / COSTS).model_copy(update=fit), tmp_path / "costs.json")
    done = run_cli("predict", "--check", folder, "--costs", tmp_path / "costs.json")
    assert done.code == (0 if why is None else 6), done.out
    if why is not None:
        assert f"left out: trial {record['id']}: {why.replace('of on', 'of a server on')}" in done.out
        assert "No arm could be judged." in done.out


def test_a_machine_that_only_sent_the_requests_tells_no_device(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    (folder / "requests.parquet").symlink_to(CPU / "all-1" / "requests.parquet")
    record = json.loads((CPU / "all-1" / "trial.json").read_text())
    record["machine"]["gpus"] = ["1 x NVIDIA H200"]
    record["config"]["service"]["baseline"] = "http://10.0.0.7:8000"
    (folder / "trial.json").write_text(json.dumps(record))
    assert run_cli("predict", "--check", folder, "--costs", CPU / COSTS).code == 0


def test_steps_that_contradict_the_replay_are_a_finding() -> None:
    done = run_cli("predict", "--check", CPU_B / "all-1", "--costs", CPU_B / COSTS, "--json")
    assert done.code == 0
    (said,) = done.json["findings"]
    assert "suffix-8 at 1 at a time: it took 0.145 steps a token, the replay says 0.642" in said
    assert "its server knew these prompts already" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--k", "10000"), "--k 10000: num_speculative_tokens=10000 must be 1 to 1,024"),
        (("--k", "10000", "--drafter", "vllm-suffix"), "vllm-suffix: k=10000 must be 1 to 1,024"),
        (("--k", ",".join(map(str, range(1005, 1025)))), "20 settings with k up to 1,024 are too many for one pass"),
        (("--concurrency", "10000"), "--concurrency: must be at most 4,096 requests at a time, not 10,000"),
    ],
)
def test_what_would_not_end_is_refused_in_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = run_cli("predict", short_answers(tmp_path), "--costs", CPU / COSTS, *words)
    assert done.code == 1
    assert said in done.err
    assert len([line for line in done.err.splitlines() if line.startswith("draftworth: ")]) == 1


def test_the_longest_draft_and_the_largest_load_take_no_memory_to_speak_of(tmp_path: Path) -> None:
    told = document(short_answers(tmp_path), "--costs", CPU / COSTS, "--k", "3,1024", "--concurrency", "1,4096")
    assert {one["k"] for one in told["settings"]} == {3, 1024}
    assert all(one["speed_up"]["low"] > 0 for one in told["settings"])


def probed_at(context: int, path: Path) -> Path:
    known = load_costs(CPU / COSTS)
    points = tuple(one.model_copy(update={"context": context}) for one in known.points)
    save_costs(Costs.model_validate(known.model_copy(update={"points": points}).model_dump()), path)
    return path


def test_another_context_is_named_with_its_remedy_and_only_loads_that_were_not_probed_are(tmp_path: Path) -> None:
    words = (CPU / "all-1", "--k", "3", "--costs")
    context = document(*words, CPU / COSTS)["trace"]["context"]
    near = document(*words, CPU / COSTS)["findings"]
    assert not any("probed" in text for text in near)
    far = document(*words, probed_at(1024, tmp_path / "far.json"), "--concurrency", "1,4,7")["findings"]
    (said,) = (text for text in far if "at a context of 1,024 tokens" in text)
    assert f"the trace's is {context} half-way an answer: figures at 1, 4 at a time" in said
    assert f"`draftworth probe --context {context}` measures them" in said
    (other,) = (text for text in far if "was not probed at" in text)
    assert other.startswith("the baseline was not probed at 7 at a time")


def test_settings_of_suffix_are_told_apart() -> None:
    said = shown(
        *(CPU / "all-1", "--costs", CPU / COSTS, "--drafter", "vllm-suffix", "--k", "5", "--concurrency", "1"),
        *("--set", "suffix_decoding_max_spec_factor=1,4", "--set", "suffix_decoding_min_token_prob=0.05,0.4"),
    )
    rows = [line.split(")")[0].strip() for line in said.splitlines() if line.startswith("  k = ")]
    wanted = {f"k = 5 (max_spec_factor {f}, min_token_prob {p}" for f in (1, 4) for p in (0.05, 0.4)}
    assert wanted <= set(rows)
    assert "All with suffix_decoding_max_tree_depth 24, suffix_decoding_max_cached_requests 10000." in said


def test_drafters_are_ranked_together() -> None:
    told = document(
        *(CPU / "all-1", "--costs", CPU / COSTS, "--drafter", "vllm-ngram-v1,vllm-suffix", "--k", "3,5"),
        *("--concurrency", "1"),
    )
    assert told["drafter"] == "vllm-ngram-v1,vllm-suffix"
    alone = document(CPU / "all-1", "--costs", CPU / COSTS, "--k", "3,5", "--concurrency", "1")
    assert [one for one in told["settings"] if one["drafter"] == "vllm-ngram-v1"] == alone["settings"]
    assert {one["drafter"] for one in told["settings"]} == {"vllm-ngram-v1", "vllm-suffix"}
    done = run_cli("predict", CPU / "all-1", "--costs", CPU / COSTS, "--drafter", "vllm-ngram-v1,sglang-ngram")
    assert (done.code, "sglang-ngram drafts in sglang" in done.err) == (1, True)


def test_what_a_head_must_reach_hangs_on_no_drafter() -> None:
    words = (CPU / "all-1", "--costs", CPU / COSTS, "--heads", "--k", "3", "--concurrency", "1,4", "--drafter")
    one, other = (document(*words, name)["heads"] for name in ("vllm-ngram-v1", "vllm-suffix"))
    assert one == other


def test_sources_are_few_and_derived_cells_are_called_so() -> None:
    words = (CPU / "all-1", "--costs", CPU / COSTS, "--concurrency", "1", "--k", "1", "--drafter", "vllm-ngram-v1")
    said = shown(*words)
    sources = said[said.index("Costs are from:") :].splitlines()[1:]
    sources = [line for line in sources if line.startswith("  ") and "further source" not in line]
    assert 1 <= len(sources) <= 3
    assert "T of 1 x 2 tokens: derived from 2 streams of one token" in json.dumps(document(*words))
    assert "one start takes about 25 s" in said or "of 25 s" in said
    assert "about 0 min" not in said
