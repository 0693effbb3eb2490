import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.errors import DraftworthError, UsageError
from draftworth.findings import Code
from draftworth.readings.file import kind_of, read_file, read_two

DATA = Path(__file__).parents[1] / "engines" / "data"
BEFORE, AFTER = DATA / "vllm_0.32_metrics_before.txt", DATA / "vllm_0.32_metrics_after.txt"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("# HELP vllm:x y\n# TYPE vllm:x counter\n", "metrics"),
        ('vllm:spec_decode_num_drafts_total{engine="0"} 1.0\n', "metrics"),
        ("INFO 11-30 00:00:00 [x.py:1] hello\n", "log"),
        ('{"MESSAGE": "hello", "PRIORITY": "6"}\n{"MESSAGE": "x"}\n', "log"),
        ('{"log": "hello\\n", "stream": "stdout"}\n', "log"),
        ('{"choices": [], "metrics": {}}\n', "page"),
        ('{\n  "internal_states": []\n}\n', "page"),
        ("[INFO] hello\n", "log"),
        ("[2026-11-30 00:00:00] server_args=ServerArgs(model_path='x')\n", "log"),
        ('[{"iter": 1}]', "page"),
        ("", "log"),
        ("\x00\x01\x02", "log"),
    ],
)
def test_a_files_kind_is_told_by_its_first_bytes(head: str, kind: str) -> None:
    assert kind_of(head.encode()) == kind


def test_a_saved_page_gives_the_counts_since_the_start() -> None:
    found = read_file(AFTER)
    assert (found.kind, found.engine, found.models) == ("metrics", "vllm", ("smol",))
    assert found.counts is not None
    assert (found.counts.drafting_steps, found.counts.drafted, found.counts.accepted) == (45, 218, 16)
    assert found.counts.accepted_per_position == (8, 4, 3, 1, 0)
    assert "since the server's start" in found.counts.source


def test_two_saved_pages_give_what_lies_between() -> None:
    old, new, between = read_file(BEFORE).counts, read_file(AFTER).counts, read_two(BEFORE, AFTER).counts
    assert old is not None
    assert new is not None
    assert between is not None
    for name in ("steps", "drafting_steps", "drafted", "accepted", "emitted"):
        assert getattr(between, name) == getattr(new, name) - getattr(old, name)


def test_counters_that_go_backwards_are_a_finding_and_no_counts() -> None:
    found = read_two(AFTER, BEFORE)
    assert found.counts is None
    assert Code.COUNTER_RESET in {one.code for one in found.findings}


def test_a_page_without_speculation_says_so_and_counts_steps() -> None:
    found = read_file(DATA / "vllm_0.32_metrics_baseline.txt")
    assert found.counts is not None
    assert found.counts.steps
    assert found.counts.drafted is None
    assert [one.code for one in found.findings] == [Code.NO_SPECULATION_SEEN]
    assert "does not speculate" in found.findings[0].message


def test_acceptance_above_one_is_a_finding_and_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "page.txt"
    path.write_text(AFTER.read_text().replace("num_accepted_tokens_total{", 'num_accepted_tokens_total{x="1",'))
    text = path.read_text()
    start = text.index("vllm:spec_decode_num_accepted_tokens_total{")
    end = text.index("\n", start)
    path.write_text(text[:start] + text[start:end].rsplit(" ", 1)[0] + " 999.0" + text[end:])
    found = read_file(path)
    assert found.counts is not None
    assert found.counts.acceptance_rate is None
    assert "999 tokens accepted of 218 drafted" in next(
        one.message for one in found.findings if one.code is Code.COUNTS_CONTRADICT
    )


def test_another_programs_metrics_are_named(tmp_path: Path) -> None:
    path = tmp_path / "node.txt"
    path.write_text('# TYPE node_cpu_seconds_total counter\nnode_cpu_seconds_total{cpu="0"} 5\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"node\.txt: .*node_cpu_seconds_total"):
        read_file(path)


def test_answers_one_a_line_are_added(tmp_path: Path) -> None:
    stats = {
        "num_spec_steps": 4,
        "num_draft_tokens": 12,
        "num_accepted_draft_tokens": 5,
        "acceptance_histogram": [1, 1, 2, 0],
        "mean_acceptance_length": 2.25,
        "draft_acceptance_rate": 0.4167,
        "num_spec_tokens": 3,
    }
    answer = {"choices": [], "model": "smol", "metrics": {"speculative_decoding": stats}}
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(answer) + "\n" for _ in range(3)), encoding="utf-8")
    found = read_file(path)
    assert found.counts is not None
    assert (found.counts.drafting_steps, found.counts.drafted, found.counts.accepted) == (12, 36, 15)
    # Steps that accepted more than 0, 1, 2 tokens, by hand of the histogram.
    assert found.counts.accepted_per_position == (9, 6, 0)


@pytest.mark.parametrize("text", ['{"a": 1}', "[]", "{}", '{"choices": [', "[1, 2"])
def test_json_of_nobody_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "page.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"page\.json"):
        read_file(path)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4000), st.binary(max_size=40))
def test_a_page_cut_and_spoilt_anywhere_gives_findings_or_an_error_never_a_traceback(end: int, junk: bytes) -> None:
    from draftworth.readings.page import read_metrics  # noqa: PLC0415 - what is tested takes text

    text = AFTER.read_text()
    spoilt = text[-end:] + junk.decode("utf-8", "replace") if end else junk.decode("utf-8", "replace")
    try:
        found = read_metrics(spoilt, "x", name="vllm")
    except DraftworthError:
        return
    assert found.counts is None or found.counts.drafted in {None, 218}


def test_an_answer_that_contradicts_itself_is_left_out_and_named(tmp_path: Path) -> None:
    stats = {
        "num_spec_steps": 2,
        "num_draft_tokens": 6,
        "num_accepted_draft_tokens": 3,
        "acceptance_histogram": [0, 1, 1, 0],
        "mean_acceptance_length": 2.5,
        "draft_acceptance_rate": 0.5,
        "num_spec_tokens": 3,
    }
    good = json.dumps({"choices": [], "metrics": {"speculative_decoding": stats}})
    bad = json.dumps({"choices": [], "metrics": {"speculative_decoding": {**stats, "num_accepted_draft_tokens": 9}}})
    path = tmp_path / "answers.jsonl"
    path.write_text(f"{good}\n{bad}\n{good}\n", encoding="utf-8")
    found = read_file(path)
    assert found.counts is not None
    assert (found.counts.drafted, found.counts.accepted) == (12, 6)
    (said,) = found.findings
    assert said.code is Code.LINES_UNREADABLE
    assert said.message.startswith("1 of 3 documents: document 2: ")
    path.write_text(bad, encoding="utf-8")
    with pytest.raises(UsageError, match=r"answers\.jsonl: "):
        read_file(path)


def written(path: Path, documents: object, *, by_line: bool) -> Path:
    text = "\n".join(map(json.dumps, documents)) if by_line and isinstance(documents, list) else json.dumps(documents)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("by_line", [True, False], ids=["one a line", "a list"])
def test_answers_of_every_engine_are_added_from_lines_and_from_lists(tmp_path: Path, by_line: object) -> None:
    kept = json.loads((DATA / "sglang" / "answers.json").read_text())
    sglang = [kept["0.5.12 /generate"], kept["0.5.19 chat"]]
    found = read_file(written(tmp_path / "a.jsonl", sglang, by_line=bool(by_line)))
    # Each: 8 verify calls, 8 correct drafts of 24 proposed, 17 tokens, the first of them prefill's.
    counts = found.counts
    assert counts is not None
    assert (found.engine, counts.steps, counts.accepted, counts.drafted, counts.emitted) == ("sglang", 16, 16, 48, 32)

    timings = {"predicted_n": 21, "draft_n": 20, "draft_n_accepted": 10, "prompt_n": 3}
    plain = {"predicted_n": 5, "prompt_n": 3}
    answers = [{"choices": [], "timings": timings}, {"content": "x", "timings": plain}]
    found = read_file(written(tmp_path / "b.jsonl", answers, by_line=bool(by_line)))
    counts = found.counts
    assert counts is not None
    # One drafted 20 and accepted 10 in 21 - 1 - 10 steps; the other drafted nothing in 5 - 1.
    assert (found.engine, counts.drafted, counts.accepted, counts.steps) == ("llamacpp", 20, 10, 14)


def test_an_answer_of_tensorrt_llm_is_read() -> None:
    counts = read_file(DATA / "trtllm" / "answer_pr19311.json").counts
    assert counts is not None
    assert (counts.drafted, counts.accepted, counts.accepted_per_position) == (60, 30, (12, 12, 6))


def test_chunks_of_one_stream_are_one_answer_and_the_last_counts(tmp_path: Path) -> None:
    chunks = [
        {"id": "a", "choices": [], "timings": {"predicted_n": n, "draft_n": d, "draft_n_accepted": k, "prompt_n": 3}}
        for n, d, k in ((2, 3, 1), (5, 6, 3), (11, 9, 7))
    ]
    found = read_file(written(tmp_path / "a.jsonl", chunks, by_line=True))
    assert found.counts is not None
    assert (found.counts.drafted, found.counts.accepted, found.counts.emitted) == (9, 7, 10)


def test_series_of_two_models_give_no_counts_until_one_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "two.txt"
    text = AFTER.read_text()
    path.write_text(text + text.replace('model_name="smol"', 'model_name="other"').replace("# ", "# _"))
    found = read_file(path)
    assert found.counts is not None
    assert found.counts.drafted is None
    assert "--model reads one" in found.counts.why_not("drafted")
    assert Code.SEVERAL_MODELS in {one.code for one in found.findings}
    one = read_file(path, model="other")
    assert one.counts is not None
    assert (one.counts.drafted, one.models) == (218, ("other",))
