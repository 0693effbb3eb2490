import re
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from draftworth.engines.base import Window
from draftworth.engines.counts import Sum
from draftworth.engines.llamacpp.log_lines import parse
from draftworth.engines.llamacpp.metrics import counts, parse_metrics
from draftworth.engines.llamacpp.rounding import drafting_steps
from draftworth.engines.llamacpp.spec_lines import NEEDLES, SpecReader
from draftworth.findings import Code, Finding

DATA = Path(__file__).parent / "data" / "llamacpp"


def read(text: str) -> list[Window]:
    reader = SpecReader()
    found = [reader.take(line) for line in text.splitlines()]
    assert not any(isinstance(one, Finding) for one in found)
    return [one for one in found if isinstance(one, Window)]


def log(name: str) -> str:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def total(windows: list[Window]) -> Sum:
    added = Sum()
    for one in windows:
        if one.counts is not None:
            added.add(one.counts)
    return added


@pytest.mark.parametrize("name", ["ngram_simple", "ngram_mod"])
def test_a_real_log_and_the_counters_of_its_server_tell_the_same(name: str) -> None:
    pages = [parse_metrics(log(f"{name}_metrics_{when}")) for when in ("before", "after")]
    page = counts(pages[0], pages[1])
    windows = [one for one in read(log(f"{name}_log")) if one.counts is not None][:9]
    found = total(windows).total()
    assert found is not None
    assert (found.drafted, found.accepted, found.drafting_steps) == (page.drafted, page.accepted, page.drafting_steps)
    # /metrics counts nine first tokens among the tokens, and nine prompts among the steps.
    assert page.emitted is not None
    assert page.steps is not None
    assert (found.emitted, found.steps) == (page.emitted - 9, page.steps - 9)


def test_a_request_that_drafted_nothing_is_a_window_once_the_log_has_shown_drafts() -> None:
    windows = read(log("ngram_simple_log"))
    nothing = [one for one in windows if one.counts is not None and one.counts.drafted == 0]
    # Four of the nine requests, two of them of a single token.
    assert len(nothing) == 4
    assert all(one.counts is not None and one.counts.drafting_steps == 0 for one in nothing)
    assert read(log("baseline_log")) == []


def test_a_log_of_9093_with_its_lines_of_one_message() -> None:
    first, stats, _, second = read(log("log_9093"))
    assert first.counts is not None
    # 100 tokens, the first from the prompt; 60 accepted.
    assert (first.counts.drafted, first.counts.accepted) == (80, 60)
    assert (first.counts.emitted, first.counts.steps) == (99, 39)
    assert first.counts.drafting_steps is None
    assert "b9837" in first.counts.not_given["drafting_steps"]
    assert first.told == ()
    assert [(told.name, told.value) for told in stats.told] == [
        ("draft #gen tokens", 80),
        ("draft #acc tokens", 60),
        ("draft #calls(a)", 10),
    ]
    last = second.counts
    assert last is not None
    assert (last.drafted, last.emitted, last.steps) == (0, 19, 19)


def test_slots_that_write_at_once_are_told_apart() -> None:
    windows = [one for one in read(log("log_9246")) if one.counts is not None]
    found = [(w.at, w.counts.emitted, w.counts.accepted, w.counts.steps) for w in windows if w.counts]
    assert found == [("0.03.000.060", 29, 9, 20), ("0.03.000.090", 49, 20, 29)]


def test_the_mean_length_gives_the_drafting_steps_between_two_ends() -> None:
    line = "slot x: id  0 | task 1 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean len =  2.92"
    (window,) = read(line)
    assert window.counts is not None
    # 1 + 167 / 87 = 2.9195: only 87 steps print so.
    assert window.counts.drafting_steps == 87
    assert window.told[0].value == 2.92
    assert window.told[0].formula == "1 + accepted / verified drafts"
    assert set(window.counts.not_given) == {"accepted_per_position", "steps", "emitted"}
    line = "draft acceptance = 0.50000 ( 5000 accepted / 10000 generated), mean len =  2.50"
    (window,) = read(line)
    assert window.counts is not None
    # 1 + 5000 / n prints 2.50 for 3323 (2.5047) to 3344 (2.4952).
    assert window.counts.between["drafting_steps"] == (3323, 3344)


def test_statistics_are_told_and_never_counted() -> None:
    windows = [one for one in read(log("ngram_mod_log")) if one.counts is None]
    assert len(windows) == 11
    last = windows[-1].told
    assert [one.name for one in last] == [
        "ngram-mod #gen tokens",
        "ngram-mod #acc tokens",
        "ngram-mod #calls(a)",
        "ngram-mod mean len",
    ]
    assert last[0].scope == "since the start"
    assert last[3].value == pytest.approx(1 + last[1].value / last[2].value, abs=0.005)


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "1.02.003.004 I ",
        "Dec 04 01:32:11 host llama-server[10778]: ",
        "2026-11-30T07:00:00.000000Z stdout F ",
        "llama-1  | 0.00.001.002 I ",
        "\x1b[34m0.00.001.002\x1b[0m \x1b[32mI \x1b[0m",
    ],
)
def test_what_stands_in_front_of_a_line_changes_nothing(prefix: str) -> None:
    line = (
        f"{prefix}slot print_timing: id 12 | task 345 | draft acceptance = 0.50000 (    4 accepted /     8 generated)"
    )
    (window,) = read(line)
    assert window.counts is not None
    assert (window.counts.drafted, window.counts.accepted) == (8, 4)
    assert window.line.startswith("draft acceptance")
    assert parse(line).slot == (12, 345)


def test_json_lines_are_read_too() -> None:
    inner = "slot print_timing: id  0 | task 1 | draft acceptance = 0.50000 (    4 accepted /     8 generated)"
    for text in (f'{{"type":"log","time":12,"level":"info","msg":"{inner}"}}', f'{{"MESSAGE":"{inner}","_PID":"1"}}'):
        (window,) = read(text)
        assert window.counts is not None
        assert window.counts.accepted == 4


@pytest.mark.parametrize(
    "line",
    [
        "draft acceptance = 0.50000 (    9 accepted /     8 generated)",
        "draft acceptance = 0.90000 (    4 accepted /     8 generated)",
        "draft acceptance = 0.50000 (    4 accepted /     8 generated), mean len = 77.00",
        "draft acceptance = 0.50000 (    4 accep",
        "draft acceptance = nan (    0 accepted /     0 generated)",
        "statistics ngram-mod: #calls(b,g,a) = 1 2",
    ],
)
def test_a_line_that_cannot_be_is_a_finding(line: str) -> None:
    found = SpecReader().take(line)
    assert isinstance(found, Finding)
    assert found.code is Code.LINES_UNREADABLE
    assert line[:20] in found.message


def test_every_line_that_is_read_holds_a_needle() -> None:
    for name in ("ngram_simple_log", "ngram_mod_log", "log_9093", "log_9246"):
        lines = [line for line in log(name).splitlines() if any(needle in line.encode() for needle in NEEDLES)]
        kept = "\n".join(lines)
        assert [one.counts for one in read(kept)] == [one.counts for one in read(log(name))]


@settings(max_examples=100)
@given(st.integers(1, 3000), st.integers(0, 9000), st.integers(0, 3000))
def test_the_true_number_of_drafting_steps_lies_between_the_ends(steps: int, accepted: int, refused: int) -> None:
    drafted = max(accepted + refused, steps)
    found = drafting_steps(accepted, drafted, f"{1.0 + accepted / steps:.2f}")
    assert found is not None
    assert found[0] <= steps <= found[1] <= drafted


@settings(max_examples=100)
@given(st.integers(0, 63), st.integers(0, 9999), st.integers(0, 500), st.integers(1, 500), st.integers(0, 500))
def test_a_line_written_as_the_server_does_is_read_back(
    slot: int, task: int, accepted: int, steps: int, more: int
) -> None:
    drafted = max(accepted, steps) + more
    assume(drafted > 0)
    line = (
        f"0.00.575.337 I slot print_timing: id {slot:2d} | task {task} | draft acceptance = {accepted / drafted:0.5f} "
        f"({accepted:5d} accepted / {drafted:5d} generated), mean len = {1.0 + accepted / steps:5.2f}"
    )
    (window,) = read(line)
    assert window.counts is not None
    assert (window.counts.accepted, window.counts.drafted) == (accepted, drafted)
    low, high = window.counts.between.get(
        "drafting_steps", (window.counts.drafting_steps, window.counts.drafting_steps)
    )
    assert low is not None
    assert high is not None
    assert low <= steps <= high


@settings(max_examples=100)
@given(st.lists(st.text(max_size=60), max_size=6), st.sampled_from([needle.decode() for needle in NEEDLES]))
def test_no_line_breaks_the_reader(lines: list[str], needle: str) -> None:
    reader = SpecReader()
    for line in lines:
        for text in (line, f"{needle}{line}", f"{line}{needle} 9", f"slot x: id  1 | task 2 | {needle}{line}"):
            found = reader.take(text)
            assert found is None or isinstance(found, (Window, Finding))


def test_the_words_of_a_pull_request_are_read_too() -> None:
    line = (
        "0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 "
        "generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)"
    )
    (window,) = read(line)
    assert window.counts is not None
    assert window.counts.drafting_steps == 87
    assert re.search(r"167 accepted", window.line)


def test_a_start_without_speculation_behind_one_with_has_no_windows() -> None:
    speculating, plain = log("ngram_simple_log"), log("baseline_log")
    assert [one.counts for one in read(speculating + plain)] == [one.counts for one in read(speculating)]


def test_the_build_of_a_start_says_what_its_windows_count() -> None:
    lines = (
        "0.00.008.570 I cmn  common_param: common_params_print_info: build {} (abc) with GNU 12.2.0 for Linux x86_64\n"
        "0.00.008.571 I cmn  common_param: common_params_print_info: verbosity = 4 (adjust with the `-lv N` CLI arg)\n"
        "0.00.009.000 I slot print_timing: id  0 | task 1 |        eval time =   1.00 ms /    10 tokens (\n"
        "0.00.009.001 I slot print_timing: id  0 | task 1 | draft acceptance = 0.50000 (    4 accepted /     8 "
        "generated)\n"
    )
    old, new, untold = read(lines.format(10204) + lines.format(11434) + "\n".join(lines.split("\n")[1:]))
    assert old.counts is not None
    assert new.counts is not None
    assert untold.counts is not None
    assert set(old.counts.meaning) == {"steps", "accepted"}
    assert set(new.counts.meaning) == set(untold.counts.meaning) == {"steps"}


def ended(task: int, tokens: int, draft: tuple[int, int] | None = None) -> str:
    slot = f"0.01.000.000 I slot print_timing: id  0 | task {task} | "
    lines = [f"{slot}       eval time =   1.00 ms / {tokens:5d} tokens ("]
    if draft:
        lines.append(f"{slot}draft acceptance = {draft[0] / draft[1]:.5f} ({draft[0]:5d} accepted / {draft[1]:5d} gen")
        lines[-1] += "erated)"
    return "\n".join([*lines, f"0.01.000.001 I slot      release: id  0 | task {task} | stop processing: n_tokens = 9"])


def test_requests_before_the_first_draft_are_counted_whatever_their_order() -> None:
    plain = [ended(task, 101) for task in range(10)]
    drafted = ended(99, 101, (50, 60))
    for order in ([*plain, drafted], [drafted, *plain], [*plain[:4], drafted, *plain[4:]]):
        found = total(read("\n".join(order))).total()
        assert found is not None
        # Ten requests of 100 steps, and one of 100 tokens behind the first with 50 accepted.
        assert (found.steps, found.emitted, found.drafted, found.accepted) == (1050, 1100, 60, 50)
    first = read("\n".join([*plain, drafted]))[0]
    assert first.counts is not None
    assert "the 10 requests of this start before it, without a draft" in first.counts.source


def test_requests_of_an_earlier_start_are_not_added_to_a_draft_of_the_next() -> None:
    begin = "0.00.000.807 I srv  llama_server: initializing ..."
    (window,) = read("\n".join([ended(1, 101), begin, ended(2, 11), ended(3, 101, (50, 60))]))
    assert window.counts is not None
    assert (window.counts.steps, window.counts.emitted) == (60, 110)


def test_a_server_that_is_known_to_speculate_counts_requests_without_any_draft() -> None:
    known = "0.00.574.200 I srv    load_model: speculative decoding context initialized"
    statistics = (
        "0.01.0 I statistics ngram-mod: #calls(b,g,a) = 1 9 0, #gen drafts = 0, #acc drafts = 0, #gen tokens = 0, "
        "#acc tokens = 0"
    )
    for log in ([known, ended(1, 101), ended(2, 11)], [ended(1, 101), statistics, ended(2, 11)]):
        found = total(read("\n".join(log))).total()
        assert found is not None
        assert (found.steps, found.emitted, found.drafted, found.drafting_steps) == (110, 110, 0, 0)
    assert total(read("\n".join([ended(1, 101), ended(2, 11)]))).total() is None


@settings(max_examples=100)
@given(st.data(), st.lists(st.tuples(st.integers(2, 300), st.integers(0, 9)), min_size=1, max_size=8))
def test_a_sum_does_not_depend_on_the_order_of_requests(data: st.DataObject, asked: list[tuple[int, int]]) -> None:
    logs = [
        ended(task, tokens, (min(tokens - 1, good), good + 1) if good else None)
        for task, (tokens, good) in enumerate(asked)
    ]
    found, again = (
        total(read("\n".join(order))).total() for order in (logs, data.draw(st.permutations(logs), label="order"))
    )
    assert (found is None) == (again is None) == all(good == 0 for _, good in asked)
    if found is not None and again is not None:
        assert (found.steps, found.emitted, found.accepted) == (again.steps, again.emitted, again.accepted)
