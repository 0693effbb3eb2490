"""What benchmarks/train_gpu.py does before and after a GPU: ids, hold-outs, pieces, and what goes on from what."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from benchmarks.train_gpu import parser
from benchmarks.train_gpu_carry import copy, cut, join
from benchmarks.train_gpu_floor import floor
from benchmarks.train_gpu_ids import Answers, Prompts, Ragged, loss_tokens, samples
from benchmarks.train_gpu_prompts import select
from benchmarks.train_gpu_run import check_same, length_of
from benchmarks.train_gpu_serve import MT_BENCH, choose, compared
from tests.training.training_making import make_target

from benchmarks import train_gpu_pack
from draftworth.training.workers.packing import followed, groups, spans_of

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen"


def some_answers() -> Answers:
    """Answers to prompts 0 (train), 1 (held out), 2 (train)."""
    lists = [[5, 6, 2], [5, 6, 2], [7, 2], [8, 2], [9], [49151, 2]]
    greedy = [True, False, False, True, False, True]
    return Answers(
        Ragged.of(lists),
        np.array([0, 0, 0, 1, 1, 2]),
        np.array(greedy),
        np.array([True, True, True, True, False, True]),
    )


def some_prompts() -> Prompts:
    return Prompts(
        Ragged.of([[1, 10], [1, 11, 12], [1, 13]]),
        np.array([0, 1, 1]),
        np.array([False, True, False]),
        np.array([4, 7, 9]),
        ("gsm8k", "p3:xsum"),
        {"read": 3},
    )


def test_ids_take_two_bytes_and_come_back_as_they_were(tmp_path: Path) -> None:
    answers, prompts = some_answers(), some_prompts()
    answers.save(tmp_path / "answers.npz")
    prompts.save(tmp_path / "prompts.npz")
    back = Answers.load(tmp_path / "answers.npz")
    assert [one.tolist() for one in back.ids] == [[5, 6, 2], [5, 6, 2], [7, 2], [8, 2], [9], [49151, 2]]
    assert back.ids.ids.itemsize == 2
    assert back.ended.tolist() == answers.ended.tolist()
    again = Prompts.load(tmp_path / "prompts.npz")
    assert (again.sources, again.counts, again.row.tolist()) == (prompts.sources, {"read": 3}, [4, 7, 9])
    with pytest.raises(ValueError, match="16 bits"):
        Ragged.of([[1, 65536]])
    assert [one.tolist() for one in Ragged.of([[], [3]])] == [[], [3]]


def test_parts_are_joined_and_tokens_to_learn_from_are_those_of_prompts_that_are_not_held_out() -> None:
    answers = some_answers()
    both = Answers.joined([answers, answers])
    assert [one.tolist() for one in both.ids] == [one.tolist() for one in answers.ids] * 2
    assert both.ids.lengths.tolist() == [3, 3, 2, 2, 1, 2] * 2
    assert loss_tokens([answers], some_prompts().held) == 3 + 3 + 2 + 2


def test_a_sample_is_a_prompt_with_an_answer_once_and_held_out_ones_are_of_temperature_0() -> None:
    found = [
        (held, name, whole.tolist(), begins)
        for held, name, _, whole, begins, _ in samples(some_prompts(), some_answers())
    ]
    assert found == [
        (False, "gsm8k/4~0", [1, 10, 5, 6, 2], 2),
        (False, "gsm8k/4~2", [1, 10, 7, 2], 2),
        (True, "p3:xsum/7~3", [1, 11, 12, 8, 2], 3),
        (False, "p3:xsum/9~5", [1, 13, 49151, 2], 2),
    ]


def test_a_source_is_held_out_whole_and_of_others_a_share_and_nothing_near_what_must_stay_unseen(
    tmp_path: Path,
) -> None:
    target = make_target(tmp_path / "target")
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text(json.dumps({"turns": [f"Please say {WORDS} aloud"]}) + "\n", encoding="utf-8")
    rows = [("gsm8k", f"How many apples are {at} apples?") for at in range(20)]
    rows += [("humaneval", f"def f{at}(x): return a very long thing") for at in range(5)]
    rows += [("gsm8k", f"Now {WORDS.upper()} and more"), ("gsm8k", rows[0][1]), ("gsm8k", "long " * 200)]
    found = select(rows, target, [unseen], whole="humaneval", share=0.1, most=300)
    assert found.counts["left out: 13 words in a row of what must stay unseen"] == 1
    assert found.counts["left out: the same prompt again"] == 1
    assert found.counts["left out: more than 300 tokens"] == 1
    sources = [found.sources[one] for one in found.source]
    assert [bool(held) for held, source in zip(found.held, sources, strict=True) if source == "humaneval"] == [True] * 5
    held = [
        row
        for row, is_held, source in zip(found.row, found.held, sources, strict=True)
        if is_held and source == "gsm8k"
    ]
    assert 1 <= len(held) <= 3
    assert found.counts["train"] + found.counts["held_out"] == len(found.ids) == 25
    # The ids are what a server is sent: the template with the beginning of an answer.
    asked = "<|im_start|>user\nHow many apples are 0 apples?<|im_end|>\n<|im_start|>assistant\n"
    assert len(next(iter(found.ids))) == len(asked) - len("<|im_start|>") * 2 - len("<|im_end|>") + 3
    again = select(rows, target, [unseen], whole="humaneval", share=0.1, most=300)
    assert again.held.tolist() == found.held.tolist()


def test_pieces_come_back_part_by_part_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "fit"
    (folder / "checkpoints" / "3").mkdir(parents=True)
    content = np.random.default_rng(0).bytes(250_000)
    (folder / "checkpoints" / "3" / "model.safetensors").write_bytes(content)
    (folder / "best").symlink_to(Path("checkpoints", "3"))
    pieces = cut(folder, ["best", "checkpoints"], tmp_path / "state", 100_000)
    assert len(pieces) == 3
    back = tmp_path / "back"
    assert [copy(tmp_path / "state", back, part, 2) for part in (0, 1)] == [2, 2]
    join(back, tmp_path / "again")
    assert (tmp_path / "again" / "best" / "model.safetensors").read_bytes() == content
    (back / "piece-001").write_bytes(b"x")
    with pytest.raises(SystemExit, match="piece-001"):
        join(back, tmp_path / "third")
    (back / "piece-002").unlink()
    (back / "piece-001").write_bytes(pieces[1].read_bytes())
    with pytest.raises(SystemExit, match=r"piece-002: missing"):
        join(back, tmp_path / "third")


def test_a_training_goes_on_only_from_what_it_was_made_from(tmp_path: Path) -> None:
    path = tmp_path / "made_from.json"
    check_same(path, {"data": "a", "epochs": 10})
    check_same(path, {"data": "a", "epochs": 10})
    with pytest.raises(SystemExit, match=r"\(epochs\)"):
        check_same(path, {"data": "a", "epochs": 12})


def test_a_target_reads_the_longest_samples_first_and_no_more_than_fits() -> None:
    assert groups([3, 10, 4, 9], 20) == [[1, 3], [2, 0]]
    assert groups([30, 1], 20) == [[0], [1]]
    assert groups([], 20) == []


def test_where_samples_lie_in_a_row_and_which_tokens_are_followed() -> None:
    documents = np.array([0, 0, 0, 1, 1, 2, -1, -1])
    assert spans_of(documents) == [(0, 3), (3, 5), (5, 6)]
    assert followed(documents).tolist() == [0, 1, 3]


def test_the_floor_is_that_of_counting_by_hand() -> None:
    shape = {"layer": 100, "output": 1000, "output_trained": 0, "projection": 10, "trainable": 110, "states": 8}
    found = floor(shape, 10, 0.5, {"bf16_tflops": 1e-6, "copy_tb_s": 1e-6}, steps=3)
    assert found["flops"] == 10 * (3 * (6 * 100 + 4 * 1000) + 6 * 10 + 2 * 1000)
    assert found["flops_learned_alone"] == 10 * (3 * (6 * 100 + 4 * 500) + 6 * 10 + 2 * 500)
    assert found["bytes"] == 80 + 110 * 28
    assert found["ms"] == pytest.approx(1e3 * found["flops"] / 1e6)
    trained = floor({**shape, "output_trained": 1}, 10, 0.5, {"bf16_tflops": 1e-6, "copy_tb_s": 1e-6}, steps=3)
    assert trained["flops"] - found["flops"] == 10 * 3 * 2 * 1000


def test_questions_are_mt_benchs_first_and_then_of_the_others_in_turns() -> None:
    rows = [{"category": name, "n": at} for at in range(4) for name in ("rag", *MT_BENCH[:2], "qa")]
    found = choose(rows, 11)
    assert [row["category"] for row in found[:8]] == [*MT_BENCH[:2]] * 4
    assert [(row["category"], row["n"]) for row in found[8:]] == [("rag", 0), ("qa", 0), ("rag", 1)]


def test_a_servers_counters_are_held_against_the_walk_over_the_same_answers() -> None:
    walked = {"k": 2, "steps": 100, "full_steps": 80, "accepted": 120, "accepted_at": [64, 40]}
    found = compared({"drafts": 100, "accepted": 121, "per_position": [70, 51]}, walked)
    assert found["server_length"] == pytest.approx(2.21)
    assert found["difference"] == pytest.approx(2.21 / 2.20 - 1)
    assert found["within_2_percent"]
    assert not compared({"drafts": 100, "accepted": 150, "per_position": [80, 70]}, walked)["within_2_percent"]
    assert length_of(walked) == pytest.approx(1 + 104 / 80)


def test_every_stage_has_a_verb() -> None:
    made = parser().parse_args(["fit", "--run", "r", "--epochs", "3"])
    assert (made.verb, made.limit, made.epochs) == ("fit", 480.0, 3)
    assert parser().parse_args(["answers", "--model", "m", "--prompts", "p", "--parts", "q"]).at_a_time == 512


def test_a_wheel_that_travelled_in_pieces_is_put_into_the_site(tmp_path: Path) -> None:
    folder = tmp_path / "vllm"
    folder.mkdir()
    with zipfile.ZipFile(tmp_path / "whole.whl", "w") as wheel:
        wheel.writestr("engine/__init__.py", "x = 1\n" * 500)
    whole = (tmp_path / "whole.whl").read_bytes()
    for name, part in (("p_aa", whole[:100]), ("p_ab", whole[100:])):
        (folder / name).write_bytes(part)
    train_gpu_pack.pack(tmp_path / "bundles", {"vllm": folder})
    train_gpu_pack.unpack(tmp_path / "bundles" / "vllm", tmp_path / "there", tmp_path / "site")
    assert (tmp_path / "site" / "engine" / "__init__.py").read_text() == "x = 1\n" * 500
