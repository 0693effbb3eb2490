"""Answers survive a kill at any byte, and answers of other settings are put aside."""

from pathlib import Path

from draftworth.training.answers import Answer, AnswerLog


def written(path: Path) -> bytes:
    with AnswerLog(path, "key") as log:
        for at in range(3):
            log.add(Answer(f"c{at}", 0, 0, {"role": "assistant", "content": "x"}, "stop", [1, 2], [3, at]))
    return path.read_bytes()


def test_answers_are_there_again(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl")
    with AnswerLog(tmp_path / "a.jsonl", "key") as log:
        assert log.findings == []
        assert log.known["c2", 0, 0].output_ids == [3, 2]
        assert log.known["c2", 0, 0].message == {"role": "assistant", "content": "x"}


def test_killed_at_any_byte_what_is_whole_is_kept_and_the_file_goes_on(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole.jsonl")
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        path = tmp_path / "a.jsonl"
        path.write_bytes(whole[:size])
        kept = max(0, sum(end <= size for end in ends) - 1)
        with AnswerLog(path, "key") as log:
            assert len(log.known) == kept
            torn = size >= ends[0] and size not in ends
            assert bool(log.findings) == torn
            log.add(Answer("new", 0, 0))
        with AnswerLog(path, "key") as log:
            assert len(log.known) == kept + 1
            assert log.findings == []


def test_a_damaged_line_is_counted_and_only_that_one_lost(tmp_path: Path) -> None:
    lines = written(tmp_path / "a.jsonl").splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_bytes(b"".join([lines[0], lines[1], b'{"conversation": 3}\n', lines[3]]))
    with AnswerLog(tmp_path / "a.jsonl", "key") as log:
        assert sorted(log.known) == [("c0", 0, 0), ("c2", 0, 0)]
        assert log.findings == ["a.jsonl: 1 damaged lines; those answers are asked for again"]


def test_answers_of_other_settings_are_put_aside_and_not_deleted(tmp_path: Path) -> None:
    before = written(tmp_path / "a.jsonl")
    with AnswerLog(tmp_path / "a.jsonl", "other") as log:
        assert log.known == {}
        assert "put aside" in log.findings[0]
    assert (tmp_path / "a-1.jsonl").read_bytes() == before
