import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import Window
from draftworth.engines.sglang import SGLang
from draftworth.engines.sglang.releases import LENGTH, RATE_NEW, RATE_OLD, RATE_UNKNOWN, number, rate_formula
from draftworth.engines.sglang.spec_lines import SGLangWindowReader
from draftworth.findings import Code, Finding

DATA = Path(__file__).parent / "data" / "sglang"


def windows(release: str, version: str | None = None) -> list[Window]:
    reader = SGLangWindowReader(version)
    found = [reader.take(line) for line in (DATA / f"log_{release}.txt").read_text(encoding="utf-8").splitlines()]
    assert not any(isinstance(one, Finding) for one in found)
    return [one for one in found if isinstance(one, Window)]


def figures(window: Window) -> dict[str, float]:
    return {one.name: one.value for one in window.told}


def line(length: str = "2.31", rate: str = ", accept rate: 0.44", end: str = ", gen throughput (token/s): 9.00") -> str:
    return f"[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 9, accept len: {length}{rate}{end}"


def test_the_first_layout_has_a_length_only() -> None:
    (window,) = windows("0.4.6")
    assert window.at == "2025-05-01 10:00:55"
    assert window.counts is None
    (told,) = window.told
    assert (told.name, told.value, told.formula) == ("accept len", 2.31, LENGTH)
    assert told.scope == "window of 40 decode steps of TP0"
    assert window.line.startswith("Decode batch. #running-req: 2")


def test_hybrid_caches_and_disaggregation_do_not_hide_the_length() -> None:
    assert [figures(window) for window in windows("0.5.3")] == [{"accept len": 3.02}, {"accept len": 1.0}]
    assert windows("0.5.3")[1].told[0].scope == "window of 40 decode steps of DP1 TP1"


def test_the_old_rate_counts_the_bonus_token_and_says_so() -> None:
    first, second = windows("0.5.9", "0.5.9")
    assert figures(first) == {"accept len": 4.0, "accept rate": 0.8}  # 4.00 / N = 4.00 / 5
    assert figures(second) == {"accept len": 1.0, "accept rate": 0.2}  # nothing accepted
    assert {one.formula for window in (first, second) for one in window.told} == {LENGTH, RATE_OLD}
    assert first.told[0].scope == "window of 20 decode steps"  # the log tells its own interval


def test_the_new_rate_is_of_drafts_alone() -> None:
    first, second = windows("0.5.12", "0.5.12")
    assert figures(first) == {"accept len": 2.5, "accept rate": 0.5}  # 1.5 / (N - 1) = 1.5 / 3
    assert figures(second) == {"accept len": 1.0, "accept rate": 0.0}
    assert first.told[1].formula == RATE_NEW
    assert [window.told[0].scope[-3:] for window in (first, second)] == ["DP0", "DP1"]


def test_without_a_version_the_rate_is_decided_by_its_length_and_the_width_the_log_tells() -> None:
    assert all(window.told[1].formula.startswith(RATE_OLD) for window in windows("0.5.9"))
    assert all(window.told[1].formula.startswith(RATE_NEW) for window in windows("0.5.12"))


def test_the_newest_layout_has_caps_ranks_milliseconds_and_may_come_through_ray() -> None:
    first, second = windows("0.5.23", "0.5.23")
    assert figures(first) == {"accept len": 3.1, "accept rate": 0.3, "cap len": 5.25, "block accept len": 3.4}
    assert first.at == "2026-11-10 09:00:05.123"
    assert first.told[0].scope == "window of 40 decode steps of DP0 PP1 TP2 EP3"
    assert figures(second) == {"accept len": 2.0, "accept rate": 0.14}


def test_the_arithmetic_decides_only_where_one_formula_fits() -> None:
    assert rate_formula(None) == RATE_UNKNOWN
    assert rate_formula(None, 2.5, 0.5) == RATE_UNKNOWN
    assert rate_formula(None, 1.0, 0.2).startswith(RATE_OLD)
    assert rate_formula(None, 1.0, 0.0) == RATE_UNKNOWN  # a very wide draft gives 0.00 in both
    assert rate_formula(None, 1.0, 0.0, 5).startswith(RATE_NEW)
    assert rate_formula(None, 2.5, 0.62, 4).startswith(RATE_OLD)
    assert rate_formula(None, 2.5, 0.5, 4).startswith(RATE_NEW)
    assert rate_formula(None, 4.0, 1.0, 4) == RATE_UNKNOWN  # all accepted: both give 1
    assert rate_formula(None, 2.5, 0.1, 4) == RATE_UNKNOWN
    assert rate_formula(None, float("nan"), 0.1, 4) == RATE_UNKNOWN
    assert rate_formula("0.5.10.post1", 2.5, 0.5, 4) == RATE_OLD
    assert rate_formula("0.5.11", 2.5, 0.62, 4) == RATE_NEW


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 16), st.integers(1, 400), st.data())
def test_the_arithmetic_never_names_the_wrong_formula(width: int, steps: int, data: st.DataObject) -> None:
    accepted = data.draw(st.integers(0, steps * (width - 1)))
    length = round((accepted + steps) / steps, 2)
    assert not rate_formula(None, length, round((accepted + steps) / (steps * width), 2), width).startswith(RATE_NEW)
    assert not rate_formula(None, length, round(accepted / (steps * (width - 1)), 2), width).startswith(RATE_OLD)


def test_an_average_that_a_reset_logs_is_told() -> None:
    window = SGLangWindowReader().take("[2026-01-01 00:00:00 TP0] avg_spec_accept_length=2.8732\n")
    assert isinstance(window, Window)
    assert figures(window) == {"avg_spec_accept_length": 2.8732}
    assert isinstance(SGLangWindowReader().take("[2026-01-01 00:00:00] avg_spec_accept_length=nan"), Finding)


@pytest.mark.parametrize(
    "text",
    [
        line(length="nan"),
        line(length="2.3"),
        line(length=""),
        line(length="0.50"),
        line(length="-1.00"),
        line(rate=", accept rate: ?"),
        line(rate="", end=""),
        line(end=""),
        line(rate=", accept len: 2.31"),
    ],
)
def test_a_line_that_cannot_be_read_is_a_finding(text: str) -> None:
    found = SGLangWindowReader("0.5.12").take(text)
    assert isinstance(found, Finding)
    assert found.code == Code.LINES_UNREADABLE


def test_lines_that_do_not_speculate_tell_nothing() -> None:
    reader = SGLangWindowReader()
    for text in (
        "[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 9, gen throughput (token/s): 1.00",
        'INFO:     127.0.0.1:1 - "GET /accept len: 2.00 HTTP/1.1" 200 OK',
        "[2026-01-01 00:00:00] somebody asked what accept len: 2.31 means",
        "",
    ):
        assert reader.take(text) is None


def test_collectors_prefixes_are_taken_away() -> None:
    plain = line()
    for text in (
        f"Nov 10 09:00:05 host sglang[12]: {plain}",
        f"2026-11-10T09:00:05.1Z stdout F {plain}",
        f"server-1  | \x1b[32m{plain}\x1b[0m",
        json.dumps({"log": plain + "\n", "time": "2026-11-10T09:00:05Z"}),
        json.dumps({"MESSAGE": list(plain.encode()), "__REALTIME_TIMESTAMP": "1"}),
    ):
        window = SGLangWindowReader("0.5.12").take(text)
        assert isinstance(window, Window)
        assert figures(window) == {"accept len": 2.31, "accept rate": 0.44}


def test_every_line_that_is_read_holds_a_needle_and_access_lines_hold_none() -> None:
    needles = SGLang.log_needles
    assert len(needles) <= 30
    access = b'[2025-05-01 10:00:56] INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    assert not any(needle in access for needle in needles)
    plain = b"[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 9, token usage: 0.00, cuda graph: True"
    assert not any(needle in plain for needle in needles)
    for file in DATA.glob("log_*.txt"):
        reader = SGLangWindowReader()
        for text in file.read_text(encoding="utf-8").splitlines():
            if reader.take(text) is not None:
                assert any(needle in text.encode() for needle in needles)


def test_versions_are_numbers() -> None:
    assert number("v0.5.12.post1") == (0, 5, 12)
    assert number("0.5") == (0, 5, 0)
    assert number("main") is number(None) is number("") is None


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.integers(0, 80), st.sampled_from(["", "accept len: ", "server_args=", "accept rate: "]))
def test_odd_lines_never_raise(junk: str, at: int, word: str) -> None:
    reader = SGLangWindowReader()
    text = line()
    for odd in (junk, word + junk, text[:at] + junk + text[at:], text[: at + 40] + word + junk):
        found = reader.take(odd)
        for told in found.told if isinstance(found, Window) else ():
            assert told.value >= 0


@settings(max_examples=60, deadline=None)
@given(st.integers(100, 2000), st.integers(0, 100))
def test_figures_come_back_as_they_were_printed(length: int, rate: int) -> None:
    text = line(f"{length / 100:.2f}", f", accept rate: {rate / 100:.2f}")
    window = SGLangWindowReader("0.5.12").take(text)
    assert isinstance(window, Window)
    assert figures(window) == {"accept len": length / 100, "accept rate": rate / 100}
