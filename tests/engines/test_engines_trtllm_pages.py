import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import AcceptanceCounts, PageFacts
from draftworth.engines.trtllm import TensorRTLLM
from draftworth.errors import MeasureError
from draftworth.findings import Code

DATA = Path(__file__).parent / "data" / "trtllm"


def document(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def read(value: Any, version: str | None = None) -> PageFacts:
    found = TensorRTLLM(version).read_page(value)
    assert found is not None
    return found


def counted(facts: PageFacts) -> AcceptanceCounts:
    assert facts.counts is not None
    return facts.counts


def codes(facts: PageFacts) -> list[Code]:
    return [finding.code for finding in facts.findings]


def test_iterations_are_added_up_and_generating_requests_are_the_steps() -> None:
    facts = read(document("iterations_1.2_eagle3.json"), "1.2.1")
    found = counted(facts)
    assert found.steps == 0 + 4 + 4 + 3
    assert (found.drafting_steps, found.drafted, found.accepted) == (11, 33, 18)
    assert found.coverage == 1.0
    assert found.length_per_drafting_step == 1 + 18 / 11
    assert found.source == "/metrics of TensorRT-LLM 1.2.1, iterations 100 to 104, 1 numbers between them not listed"
    assert set(found.not_given) == {"accepted_per_position", "emitted"}
    assert "padding included" in found.meaning["drafted"]
    assert facts.findings == ()
    told = {one.name: (one.value, one.scope) for one in facts.told}
    assert told["acceptanceLength"] == (9 / 3, "iteration 104")
    assert told["draftOverhead"] == (2.3 / 11.5, "iteration 104")


def test_an_older_layout_of_the_ngram_drafter_is_read_too() -> None:
    found = counted(read(document("iterations_0.21_ngram.json"), "0.21.0"))
    assert (found.steps, found.drafting_steps, found.drafted, found.accepted) == (6, 3, 12, 5)
    assert found.coverage == 3 / 6


def test_zeros_of_a_release_that_does_not_fill_them_are_not_counts() -> None:
    facts = read(document("iterations_1.1_zero.json"))
    found = counted(facts)
    assert codes(facts) == [Code.NOT_COUNTED]
    assert (found.steps, found.drafted, found.accepted, found.drafting_steps) == (4, None, None, None)
    assert "PR #9855" in found.not_given["accepted"]
    # From 1.3 on a zero says that nothing was drafted.
    assert counted(read(document("iterations_1.1_zero.json"), "1.3.0rc5")).drafted == 0


def test_a_server_that_does_not_speculate_tells_its_steps() -> None:
    rows = [{**row, "specDecodingStats": None} for row in document("iterations_1.2_eagle3.json")]
    facts = read(rows)
    assert codes(facts) == [Code.NO_SPECULATION_SEEN]
    assert counted(facts).steps == 11
    assert counted(facts).drafted is None


def test_rows_of_other_ranks_repeat_the_first_and_dropped_frames_are_told() -> None:
    facts = read(document("iterations_1.3_ranks.json"))
    found = counted(facts)
    assert (found.steps, found.drafting_steps, found.drafted, found.accepted) == (11, 11, 33, 13)
    assert codes(facts) == [Code.PARTIAL_RANKS, Code.ITERATIONS_LOST]
    assert "2 iterations" in facts.findings[1].message


def test_an_iteration_listed_twice_counts_once_and_two_versions_of_one_contradict() -> None:
    rows = document("iterations_1.2_eagle3.json")
    facts = read([*rows, copy.deepcopy(rows[1])])
    assert counted(facts).drafted == 33
    assert codes(facts) == [Code.METRICS_UNREADABLE]
    other = copy.deepcopy(rows[1])
    other["specDecodingStats"] |= {"numAcceptedTokens": 6, "acceptanceLength": 2.5}
    with pytest.raises(MeasureError, match="iteration 101 is listed twice with different figures"):
        read([*rows, other])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("acceptanceLength", 9.0, "is not"),
        ("numAcceptedTokens", 5000, "accepted"),
        ("numRequestsWithDraftTokens", 500, "requests"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(key: str, value: float, message: str) -> None:
    rows = document("iterations_1.2_eagle3.json")
    spec = rows[1]["specDecodingStats"]
    spec[key] = value
    if key != "acceptanceLength":
        count = spec["numRequestsWithDraftTokens"]
        spec["acceptanceLength"] = (spec["numAcceptedTokens"] + count) / count
    with pytest.raises(MeasureError, match=message):
        read(rows)


@pytest.mark.parametrize("value", [-1, None, "12", 1.5, True])
def test_an_unreadable_iteration_is_left_out_and_said(value: object) -> None:
    rows = document("iterations_1.2_eagle3.json")
    rows[1]["specDecodingStats"]["numDraftTokens"] = value
    facts = read([*rows, "a stranger"])
    assert counted(facts).drafted == 21
    assert "unreadable ones left out" in counted(facts).source
    assert codes(facts) == [Code.METRICS_UNREADABLE]
    assert "entries are no iterations" in facts.findings[0].message


@pytest.mark.parametrize(
    "value", [None, [], {}, {"iter": 1}, "text", [1, 2], [{"id": 1}], {"version": "0.32.0"}, [{"iter": 3}]]
)
def test_other_documents_are_none_of_these_pages(value: object) -> None:
    assert TensorRTLLM().read_page(value) is None


def test_requests_of_perf_metrics_are_added_up() -> None:
    facts = read(document("perf_metrics_1.3.json"), "1.3.0")
    found = counted(facts)
    assert (found.drafted, found.accepted, found.acceptance_rate) == (90, 36, 0.4)
    assert set(found.not_given) == {"steps", "drafting_steps", "accepted_per_position", "emitted"}
    assert found.source == "/perf_metrics of TensorRT-LLM 1.3.0, 2 of 3 requests"
    assert facts.findings == ()


def test_perf_metrics_without_counts_give_no_zero() -> None:
    # TensorRT-LLM PR #17082: the counts of a request were 0 on the PyTorch backend, and left out of the page with it.
    facts = read(document("perf_metrics_1.2.json"))
    assert codes(facts) == [Code.NOT_COUNTED]
    assert counted(facts).drafted is None
    assert "PR #17082" in counted(facts).not_given["accepted"]


def test_draft_counts_are_never_made_from_the_configured_length() -> None:
    # TensorRT-LLM PR #14724 multiplied the iterations by max_draft_len: 20 steps of up to 3 are not 60 drafted tokens.
    rows = document("iterations_1.2_eagle3.json")
    rows[3]["specDecodingStats"] |= {"numDraftTokens": 5}
    assert counted(read(rows)).drafted == 12 + 12 + 5
    rows = [{**row, "specDecodingStats": None} for row in rows]
    assert counted(read(rows)).drafted is None


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"acceptance_rate": 0.9}, "contradict"),
        ({"total_accepted_draft_tokens": 61}, "contradict"),
        ({"total_draft_tokens": "60"}, "not of the form"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(update: dict[str, object], message: str) -> None:
    rows = document("perf_metrics_1.3.json")
    rows[0]["perf_metrics"]["speculative_decoding"] |= update
    with pytest.raises(MeasureError, match=message):
        read(rows)


def test_a_disaggregated_server_tells_the_part_that_generates_and_requests_count_once() -> None:
    rows = document("perf_metrics_1.3.json")
    wrapped = [{"ctx_server": "a", "gen_server": "b", "gen_perf_metrics": row} for row in rows]
    assert counted(read(wrapped)).drafted == 90
    facts = read([*rows, rows[0], {"odd": 1}])
    assert counted(facts).drafted == 90
    assert codes(facts) == [Code.METRICS_UNREADABLE, Code.METRICS_UNREADABLE]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["iterations_1.3_ranks.json", "iterations_1.2_eagle3.json", "perf_metrics_1.3.json"]),
    st.integers(0, 5),
    st.lists(st.integers(0, 40), max_size=3),
    ODD,
)
def test_no_damaged_page_raises_anything_but_a_measure_error(
    name: str, index: int, path: list[int], value: object
) -> None:
    rows = document(name)
    target: Any = rows
    keys: list[Any] = [index % len(rows), *path]
    for key in keys[:-1]:
        inner = target[key] if isinstance(target, list) else target[list(target)[key % len(target)]]
        if not isinstance(inner, dict | list) or not inner:
            break
        target = inner
    if isinstance(target, list):
        target[0] = value
    else:
        target[list(target)[keys[-1] % len(target)]] = value
    try:
        facts = TensorRTLLM().read_page(rows)
    except MeasureError:
        return
    if facts is not None and facts.counts is not None:
        rate = facts.counts.acceptance_rate
        assert rate is None or 0 <= rate <= 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64), st.integers(0, 8)), min_size=1, max_size=20))
def test_sums_over_iterations_are_what_was_written(rows: list[tuple[int, int, int]]) -> None:
    template = document("iterations_1.2_eagle3.json")[1]
    written = []
    for number, (requests, drafts, accepted) in enumerate(rows):
        row = copy.deepcopy(template) | {"iter": number, "timestamp": str(number)}
        row["inflightBatchingStats"]["numGenRequests"] = requests
        drafted, taken = drafts * requests, min(accepted, drafts) * requests
        row["specDecodingStats"] |= {
            "numDraftTokens": drafted,
            "numAcceptedTokens": taken,
            "numRequestsWithDraftTokens": requests,
            "acceptanceLength": (taken + requests) / requests if requests else 0.0,
        }
        written.append(row)
    found = counted(read(written, "1.3.0"))
    assert found.steps == sum(requests for requests, _, _ in rows)
    assert found.drafted == sum(requests * drafts for requests, drafts, _ in rows)
    assert found.accepted == sum(requests * min(drafts, accepted) for requests, drafts, accepted in rows)
