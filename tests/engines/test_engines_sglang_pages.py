import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.sglang.pages import read_page
from draftworth.errors import MeasureError
from draftworth.findings import Code

DATA = Path(__file__).parent / "data" / "sglang"


def page(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"server_info_{name}.json").read_text(encoding="utf-8"))
    return found


def test_the_oldest_layout_has_its_figure_at_the_top() -> None:
    found = read_page(page("0.4.6"))
    assert found is not None
    assert (found.version, found.model) == ("0.4.6", "meta-llama/Llama-3.1-8B-Instruct")
    assert [(one.name, one.value, one.scope) for one in found.told] == [
        ("avg_spec_accept_length", 2.31, "since the last reset")
    ]
    assert [one.code for one in found.findings] == [Code.LIFETIME_AVERAGE]


def test_every_rank_is_told_and_ranks_without_a_figure_are_named() -> None:
    found = read_page(page("0.5.9"))
    assert found is not None
    assert [(one.value, one.scope) for one in found.told] == [
        (2.9, "since the last reset, rank 2"),
        (3.67, "since the last reset, rank 3"),
        (4.64, "since the last reset, rank 5"),
    ]
    assert [one.code for one in found.findings] == [Code.LIFETIME_AVERAGE, Code.PARTIAL_RANKS]
    assert found.findings[1].message == (
        "avg_spec_accept_length is told by 3 of 6 ranks; not by rank 0, rank 1, rank 4"
    )
    assert found.counts is None


def test_a_router_tells_of_the_servers_that_decode() -> None:
    found = read_page(page("pd"))
    assert found is not None
    assert [one.value for one in found.told] == [2.25]
    assert found.config["disaggregation_mode"] == "decode"


def test_a_speculating_server_that_has_no_figure_yet_says_so() -> None:
    found = read_page(page("0.5.23"))
    assert found is not None
    assert found.told == ()
    assert [one.code for one in found.findings] == [Code.NO_SPECULATION_SEEN]
    assert "first 40 decode steps" in found.findings[0].message
    plain = read_page({**page("0.5.23"), "speculative_algorithm": None})
    assert plain is not None
    assert plain.findings == ()


@pytest.mark.parametrize("name", ["0.4.6", "0.5.9", "pd", "0.5.23"])
def test_no_secret_is_kept(name: str) -> None:
    found = read_page(page(name))
    assert found is not None
    assert "very-private-words" not in found.model_dump_json()
    assert "internal_states" not in found.config
    assert found.config["speculative_algorithm"] in ("EAGLE", "EAGLE3")


@pytest.mark.parametrize("value", ["2.9", True, float("nan"), float("inf"), 10**400, 0.4, -1, [2.0]])
def test_an_impossible_average_is_no_figure(value: object) -> None:
    with pytest.raises(MeasureError):
        read_page({**page("0.4.6"), "avg_spec_accept_length": value})


@pytest.mark.parametrize("document", [None, [], "x", 3, {}, {"decode": []}, {"decode": "x"}, {"model_path": "m"}])
def test_another_page_is_none(document: object) -> None:
    assert read_page(document) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(JSON, JSON, JSON)
def test_odd_pages_raise_nothing_else(states: object, average: object, version: object) -> None:
    odd = {**page("0.5.9"), "internal_states": states, "avg_spec_accept_length": average, "version": version}
    for document in (odd, {"decode": [odd, states]}, states):
        try:
            read_page(document)
        except MeasureError:
            continue
