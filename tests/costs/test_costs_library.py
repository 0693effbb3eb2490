"""The library of engine modes: its entries, and intervals that hold them."""

from typing import Literal

import pytest

from draftworth.costs.base import EngineMode
from draftworth.costs.library import library, lookup


def test_every_entry_has_its_source_and_hardware() -> None:
    for one in library().entries:
        assert one.source
        assert one.hardware
        assert (one.base_ms is None) == (one.step_ms is None)
        assert one.base_ms is not None or one.ratio is not None
        assert one.kind == "drafting" or one.tokens == 1


def test_entries_are_the_measured_rows() -> None:
    known = {(one.how[:4], one.kind, one.batch, one.tokens): one for one in library().entries if "H200" in one.hardware}
    # The null-draft arm of the H200 server: 4.03 -> 7.12 ms at one stream, 9.08 -> 13.6 at eight.
    assert known["HTTP", "idle", 1, 1].added_ms == pytest.approx(7.118 - 4.034, abs=2e-3)
    assert known["HTTP", "idle", 8, 1].added_ms == pytest.approx(13.56 - 9.08, abs=0.02)
    # k = 5 in process: 256 tokens in 139 steps at 5.8589 ms a token, 101 of them drafting, 8.061 ms without a draft.
    step = 5.8589 * 256 / 139
    assert known["LLM ", "drafting", 1, 6].step_ms == pytest.approx((step - 38 / 139 * 8.061) / (101 / 139), abs=1e-3)


def test_the_interval_holds_every_known_row() -> None:
    for one in library().entries:
        if one.added_ms is None or one.base_ms is None:
            continue
        found = lookup(
            engine=one.engine,
            version=one.version,
            runner=one.runner,
            method=one.method,
            base_ms=one.base_ms,
            kind=one.kind,
        )
        assert found is not None
        assert found.low <= one.added_ms <= found.high
        assert found.base_ms + found.low <= (one.step_ms or 0) <= found.base_ms + found.high
        assert found.low < found.ms < found.high
        assert found.step_ms == found.base_ms + found.ms


def test_it_says_where_a_figure_comes_from_and_guesses_no_other_mode() -> None:
    found = lookup(engine="vllm", version="0.33.0", runner="V1", method="ngram", base_ms=12.0, batch=4)
    assert found is not None
    assert found.source.startswith("library: 10 entries (")
    assert "none of 0.33.0" in found.source
    assert found.batch == 4
    for other in ({"method": "eagle3"}, {"runner": "V2"}, {"engine": "sglang"}):
        asked = {"engine": "vllm", "version": None, "runner": "V1", "method": "ngram", **other}
        assert lookup(**asked, base_ms=12.0) is None, other  # type: ignore[arg-type]


def asked(kind: Literal["idle", "drafting"]) -> EngineMode:
    found = lookup(engine="vllm", version=None, runner="V1", method="ngram", base_ms=8.8, kind=kind, batch=1, tokens=6)
    assert found is not None
    return found


def test_a_drafting_step_is_told_by_pairs_of_one_run_and_not_by_means_over_machines() -> None:
    # In process on an H200, one stream: 4.174 ms for steps that draft nothing, 3.037 and 1.962 for k = 5 and 3.
    idle, drafting = asked("idle"), asked("drafting")
    assert drafting.ms / idle.ms == pytest.approx((3.0372 / 4.1743 * 1.9615 / 4.1743) ** 0.5, rel=1e-3)
    assert (drafting.kind, drafting.tokens) == ("drafting", 6)
    assert "from 2 pairs of one run" in drafting.source


def test_drafting_is_not_taken_for_cheaper_than_the_evidence_says() -> None:
    idle, drafting = asked("idle"), asked("drafting")
    assert drafting.ms >= idle.low
    assert drafting.high >= idle.high
    # One run's ratio may be anything up to twice on another machine: that drafting steps add as much is held.
    assert drafting.low < idle.ms < drafting.high


def test_a_machine_with_idle_steps_alone_moves_both_kinds_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    before = asked("drafting").ms / asked("idle").ms
    slow = next(one for one in library().entries if "AMD" in one.hardware)
    without = library().model_copy(update={"entries": tuple(one for one in library().entries if one is not slow)})
    monkeypatch.setattr("draftworth.costs.library.library", lambda: without)
    assert asked("drafting").ms / asked("idle").ms == pytest.approx(before)


def test_without_pairs_drafting_steps_add_what_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = asked("idle")
    alone = library().model_copy(update={"entries": tuple(one for one in library().entries if one.kind == "idle")})
    monkeypatch.setattr("draftworth.costs.library.library", lambda: alone)
    found = asked("drafting")
    assert found.ms == pytest.approx(idle.ms)
    assert found.low < idle.low < idle.high < found.high
    assert "as of the other kind" in found.source
