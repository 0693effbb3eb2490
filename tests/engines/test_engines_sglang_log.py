import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import StartupFacts
from draftworth.engines.sglang import SGLang, server_args
from draftworth.engines.sglang.confounders import confounders
from draftworth.engines.sglang.failures import failure_hint
from draftworth.engines.sglang.log import SGLangLogReader

DATA = Path(__file__).parent / "data" / "sglang"


def text(release: str) -> str:
    return (DATA / f"log_{release}.txt").read_text(encoding="utf-8")


def facts(log: str, version: str | None = None) -> StartupFacts:
    reader = SGLangLogReader(version)
    reader.feed(log)
    return reader.facts()


def test_a_whole_start_is_read() -> None:
    found = facts(text("0.4.6"))
    assert found.phase == "serving"
    assert found.version is None  # no release logs it
    assert (found.speculating, found.device, found.runner) == (True, "cuda", None)
    assert found.config["speculative_num_draft_tokens"] == "8"
    assert found.config["model_path"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert found.config["max_total_tokens"] == "None"
    assert found.config["json_model_override_args"] == "{}"
    assert found.config["kv_cache_tokens"] == "300000"
    assert found.config["effective_max_running_requests"] == "48"
    assert [warning.code for warning in found.warnings] == ["overlap_schedule_off", "attention_backend_chosen"]


def test_phases_follow_the_start() -> None:
    reader = SGLangLogReader()
    seen = []
    for line in text("0.4.6").splitlines():
        reader.feed(line + "\n")
        if reader.facts().phase not in seen:
            seen.append(reader.facts().phase)
    assert seen == [
        "starting Python",
        "reading the model's configuration",
        "starting the engine",
        "loading weights",
        "loading weights, 50 %",
        "allocating the KV cache",
        "capturing CUDA graphs",
        "starting the HTTP server",
        "answering a first request",
        "serving",
    ]


def test_warnings_of_a_start_come_before_its_arguments() -> None:
    found = facts(text("0.5.12"), "0.5.12")
    assert found.version == "0.5.12"
    assert [(one.code, one.confounds) for one in found.warnings] == [
        ("max_running_requests_changed", True),
        ("draft_width_changed", False),
    ]
    assert found.speculating


def test_arguments_printed_as_a_dict_are_read() -> None:
    found = facts(text("0.5.23"))
    assert found.config["speculative_algorithm"] == "DSPARK"
    assert found.config["cuda_graph_bs"] == "[1, 2, 4]"
    assert found.config["api_key"] == "None"
    assert [warning.code for warning in found.warnings] == ["mixed_chunk_off"]


@pytest.mark.parametrize("release", ["0.4.6", "0.5.23"])
def test_no_secret_is_kept(release: str) -> None:
    assert "very-private-words" in text(release)
    assert "very-private-words" not in facts(text(release)).model_dump_json()


def test_the_facts_are_those_of_the_last_start() -> None:
    reader = SGLangLogReader()
    reader.feed(text("0.4.6"))
    assert reader.starts == 1
    reader.feed(text("0.5.12"))
    assert reader.starts == 2
    found = reader.facts()
    assert found.config["speculative_algorithm"] == "EAGLE3"
    assert "kv_cache_tokens" not in found.config
    assert "overlap_schedule_off" not in {warning.code for warning in found.warnings}


def test_a_server_that_is_started_again_and_again_begins_a_start_each_time() -> None:
    start = text("0.5.12").splitlines()
    failing = "\n".join([*start[:4], "[2026-05-20 09:00:01] ValueError: no"]) + "\n"
    reader = SGLangLogReader()
    reader.feed(failing * 3)
    assert reader.starts == 3
    assert len(reader.facts().warnings) == 2


def test_a_log_without_a_start_tells_nothing_of_one() -> None:
    reader = SGLangLogReader()
    reader.feed("[2026-05-20 09:00:05 DP0] Decode batch, #running-req: 8, #token: 1, accept len: 2.50, x: 1\n")
    assert reader.starts == 0
    assert reader.facts() == StartupFacts(phase="starting Python")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (
            "Overlap scheduler is disabled because of using eagle3 or standalone speculative decoding.",
            "overlap_schedule_off",
        ),
        (
            "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative algorithm.",
            "overlap_schedule_off",
        ),
        ("Spec v1 is used for eagle/eagle3/standalone speculative decoding because x.", "overlap_schedule_off"),
        ("Overlap schedule is not implemented for speculative decoding on CPU.", "overlap_schedule_off"),
        ("The mixed chunked prefill are disabled because of using ngram speculative decoding.", "mixed_chunk_off"),
        (
            "speculative_num_draft_tokens is set to 12 by default for ngram speculative decoding. ",
            "draft_width_changed",
        ),
        ("speculative_adaptive disabled: x. Falling back to static speculative params.", "adaptive_off"),
        ("Tree speculative sampling kernel unavailable (likely AMD/HIP build).", "greedy_verification"),
        ("Cuda graph is disabled because of using torch native attention backend", "cuda_graph_off"),
        ("Cutlass MLA only supports a page_size of 128, change page_size to 128.", "page_size_changed"),
        ("FA4 backend only supports page size 128, changing page_size from 1 to 128.", "page_size_changed"),
        ("Radix cache is disabled because --enable-mis is set.", "radix_cache_off"),
    ],
)
def test_lines_that_matter_are_warnings_and_hold_a_needle(message: str, code: str) -> None:
    for log in (f"[2026-01-01 00:00:00 TP0] {message}\n", json.dumps({"message": message}) + "\n"):
        assert [one.code for one in facts(log).warnings] == [code]
        assert any(needle in log.encode() for needle in SGLang.log_needles)
    quoted = f"[2026-01-01 00:00:00] Receive: obj=GenerateReqInput(text='{message}')\n"
    assert facts(quoted).warnings == ()


def test_a_baseline_does_not_speculate() -> None:
    line = "[2026-05-20 09:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm=None)\n"
    assert facts(line).speculating is False


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 400), max_size=20))
def test_the_facts_do_not_depend_on_where_pieces_end(sizes: list[int]) -> None:
    log = text("0.5.12")
    reader = SGLangLogReader()
    at = 0
    for size in sizes:
        reader.feed(log[at : at + size])
        at += size
    reader.feed(log[at:])
    assert reader.facts() == facts(log)


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=200), st.integers(0, 3000))
def test_odd_text_never_raises(junk: str, at: int) -> None:
    log = text("0.4.6")
    facts(log[:at] + junk + log[at:])
    server_args.parse("ServerArgs(" + junk)
    server_args.parse(junk)


@settings(max_examples=80, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}_[a-z]{1,4}", fullmatch=True).filter(lambda key: not server_args._is_secret(key)),
        st.none()
        | st.booleans()
        | st.integers()
        | st.lists(st.integers(), max_size=3)
        | st.text("abc,=()[]{} ", max_size=9),
        max_size=5,
    )
)
def test_arguments_come_back_in_both_forms(config: dict[str, object]) -> None:
    wanted = {key: value if isinstance(value, str) else repr(value) for key, value in config.items()}
    printed = ", ".join(f"{key}={value!r}" for key, value in config.items())
    assert server_args.parse(f"ServerArgs({printed})") == wanted
    assert server_args.parse(repr(config)) == wanted


def test_a_cut_line_gives_no_half_value() -> None:
    assert server_args.parse("ServerArgs(a='x', b=12") == {"a": "x"}
    assert server_args.parse("nonsense") == {}


def test_the_width_is_known_only_where_it_cannot_change() -> None:
    assert server_args.width({"speculative_num_draft_tokens": "4"}) == 4
    assert server_args.width({"speculative_num_draft_tokens": "4", "speculative_adaptive": "True"}) is None
    assert server_args.width({"speculative_num_draft_tokens": "None"}) is server_args.width({}) is None


@pytest.mark.parametrize(
    ("log", "hint"),
    [
        (
            "launch_server.py: error: unrecognized arguments: --speculative-x 1",
            "error: unrecognized arguments: --speculative-x 1",
        ),
        (
            (
                "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
                "ValueError: Currently ngram speculative decoding does not support dp attention.\n"
                "[2026-01-01 00:00:00] Received sigquit from a child process. It usually means the child failed."
            ),
            "ValueError: Currently ngram speculative decoding does not support dp attention.",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried\nRuntimeError: x",
            "torch.OutOfMemoryError: CUDA out of memory. Tried",
        ),
        ("Killed", "Killed: the kernel ended the process, most often for want of memory"),
        (
            "EOFError\n[2026-01-01 00:00:00] AssertionError:\nenable_mixed_chunk is required",
            "AssertionError: enable_mixed_chunk is required",
        ),
        (
            "[Errno 98] error while attempting to bind on address",
            "[Errno 98] error while attempting to bind on address",
        ),
        ("bash: sglang: command not found", "bash: sglang: command not found"),
        ("all is well", None),
    ],
)
def test_a_failed_start_says_why(log: str, hint: str | None) -> None:
    assert failure_hint(log) == hint
    assert SGLang().failure_hint(log) == hint


def test_differences_of_two_starts_are_named_but_for_speculation_ports_and_keys() -> None:
    old = {"speculative_algorithm": "None", "port": "1", "disable_overlap_schedule": "False", "kv_cache_tokens": "1000"}
    new = {"speculative_algorithm": "EAGLE", "port": "2", "disable_overlap_schedule": "True", "kv_cache_tokens": "1005"}
    found = confounders(StartupFacts(config=old, version="0.5.9"), StartupFacts(config=new, version="0.5.12"))
    assert [(one.name, one.baseline, one.variant) for one in found] == [
        ("version", "0.5.9", "0.5.12"),
        ("disable_overlap_schedule", "False", "True"),
    ]
    assert "--disable-overlap-schedule" in found[1].note
    assert confounders(StartupFacts(config=old), StartupFacts(config=old)) == ()
    less = {**old, "kv_cache_tokens": "900"}
    assert [one.name for one in confounders(StartupFacts(config=old), StartupFacts(config=less))] == ["kv_cache_tokens"]


def test_a_log_without_arguments_is_told_as_such_and_its_warnings_are_compared() -> None:
    warned = facts(text("0.5.12"))
    found = confounders(StartupFacts(), warned.model_copy(update={"config": {}}))
    assert [one.name for one in found] == ["configuration", "max_running_requests_changed"]
    assert found[1].baseline == "not logged"
    # The configurations tell it themselves.
    other = StartupFacts(config={"max_running_requests": "48"})
    assert "max_running_requests_changed" not in {one.name for one in confounders(other, warned)}
