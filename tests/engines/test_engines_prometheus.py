import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.prometheus import Layout, delta, positions, read, since_start
from draftworth.errors import MeasureError
from draftworth.findings import Code

LAYOUT = Layout(
    title="X",
    prefix="x:",
    per_position="x:pos_total",
    gauges=frozenset({"x:length"}),
    rank_labels=("engine",),
    hint="does the URL lead to it?",
)
PAGE = """\
# HELP x:drafts_total drafts
# TYPE x:drafts_total counter
x:drafts_total{engine="0",model_name="m"} 10.0
x:drafts_total{engine="1",model_name="m"} 32.0
# TYPE x:drafts_created gauge
x:drafts_created{engine="0",model_name="m"} 1.7e+09
# TYPE x:pos counter
x:pos_total{engine="0",position="0"} 7.0
x:pos_total{engine="1",position="0"} 3.0
x:pos_total{engine="0",position="1"} 4.0
# TYPE x:length gauge
x:length{engine="0"} 2.5
# TYPE x:wait histogram
x:wait_bucket{le="1"} 3
x:wait_count 5
x:wait_sum 1.5
other_total 99
"""


def test_counters_are_summed_over_ranks_and_buckets_left_out() -> None:
    page = read(PAGE, LAYOUT)
    assert page.counters == {"x:drafts_total": 42, "x:pos_total": 14, "x:wait_count": 5, "x:wait_sum": 1.5}
    assert (page.per_position, page.engines, page.models) == ((10, 4), 2, ("m",))
    assert page.gauges == {"x:length": (2.5,)}
    assert page.findings == ()


def test_a_page_without_type_lines_is_read_by_its_names() -> None:
    bare = "".join(f"{line}\n" for line in PAGE.splitlines() if not line.startswith("#"))
    assert read(bare, LAYOUT).counters == read(PAGE, LAYOUT).counters


def test_a_page_cut_off_in_a_number_does_not_count_it() -> None:
    cut = PAGE[: PAGE.index("32.0") + 1]
    page = read(cut, LAYOUT)
    assert "x:drafts_total" not in page.counters, "10 alone would be a wrong number"
    assert [one.code for one in page.findings] == [Code.METRICS_CUT]
    assert "ends in the middle of a line" in page.findings[0].message


@pytest.mark.parametrize("value", ["NaN", "-3", "+Inf", "abc", ""])
def test_a_value_that_is_no_count_spoils_its_counter_and_is_named(value: str) -> None:
    page = read(PAGE.replace("32.0", value), LAYOUT)
    assert "x:drafts_total" not in page.counters
    assert page.counters["x:wait_count"] == 5
    assert [one.code for one in page.findings] == [Code.METRICS_UNREADABLE]
    assert "x:drafts_total" in page.findings[0].message


def test_a_spoilt_position_gives_no_positions_at_all() -> None:
    page = read(PAGE.replace('position="1"} 4.0', 'position="1"} NaN'), LAYOUT)
    assert (page.per_position, "x:pos_total" in page.counters) == (None, False)


def test_two_models_are_found_and_one_can_be_chosen() -> None:
    two = PAGE.replace('engine="1",model_name="m"', 'engine="1",model_name="n"')
    both = read(two, LAYOUT)
    assert both.counters["x:drafts_total"] == 42
    assert [one.code for one in both.findings] == [Code.SEVERAL_MODELS]
    assert "m, n" in both.findings[0].message
    one = read(two, LAYOUT, model="n")
    assert (one.counters["x:drafts_total"], one.findings) == (32, ())
    with pytest.raises(MeasureError, match=r"no series of the model 'q'; it has those of m, n"):
        read(two, LAYOUT, model="q")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# TYPE go_gc counter\ngo_gc_total 1\n", r"no x: counters \(there are go_gc_total\)"),
        ("<html><body>502</body></html>\n", "no Prometheus text: it begins with '<html>"),
        ("", "no x: counters"),
    ],
)
def test_another_programs_page_is_refused_and_says_what_is_there(text: str, says: str) -> None:
    with pytest.raises(MeasureError, match=says):
        read(text, LAYOUT)


def test_a_counter_that_fell_or_went_is_a_restart() -> None:
    before = read(PAGE, LAYOUT)
    with pytest.raises(MeasureError, match="fell from 42 to 15"):
        delta(before, read(PAGE.replace("32.0", "5.0"), LAYOUT), "x:drafts_total")
    with pytest.raises(MeasureError, match="went between two scrapes"):
        delta(before, read("x:wait_count 5\n", LAYOUT), "x:drafts_total")
    with pytest.raises(MeasureError, match="x:drafts_created changed"):
        delta(before, read(PAGE.replace("1.7e+09", "1.8e+09"), LAYOUT), "x:drafts_total")


def test_differences_are_by_hand() -> None:
    before, after = read(PAGE, LAYOUT), read(PAGE.replace("32.0", "40.0").replace("7.0", "9.0"), LAYOUT)
    assert delta(before, after, "x:drafts_total") == 8
    assert positions(before, after, "x:pos_total") == (2, 0)
    assert delta(since_start(after), after, "x:drafts_total") == 50
    assert delta(before, after, "x:unknown_total") is None


@settings(max_examples=200)
@given(st.text(alphabet=st.sampled_from('x:abc_total{}"=,\\ \n0123.eE+-#NaInf\x00é'), max_size=120))
def test_no_text_is_too_odd(text: str) -> None:
    try:
        page = read(text, LAYOUT)
    except MeasureError:
        return
    assert all(value >= 0 for value in page.counters.values())


@settings(max_examples=100)
@given(st.integers(0, len(PAGE)))
def test_a_page_cut_anywhere_never_gives_a_wrong_sum(end: int) -> None:
    whole = read(PAGE, LAYOUT)
    lines = PAGE[:end]
    try:
        page = read(lines, LAYOUT)
    except MeasureError:
        return
    cut = bool(page.findings) and page.findings[0].code is Code.METRICS_CUT
    assert cut == (bool(lines) and not lines.endswith("\n"))
    for name, value in page.counters.items():
        # Series that stand wholly behind the cut are unknown to any reader.
        assert value <= whole.counters[name]


def test_a_sum_too_large_for_a_number_is_none() -> None:
    page = read("x:drafts_total 1e308\nx:drafts_total 1e308\nx:wait_count 1\n", LAYOUT)
    assert page.counters == {"x:wait_count": 1}


RANKS = Layout(
    title="X",
    prefix="x:",
    per_position="x:pos_total",
    rank_labels=("engine",),
    together=("x:drafts_total", "x:accepted_total"),
    fixed_series=True,
)
TWO_RANKS = "".join(
    f'x:{name}_total{{engine="{rank}"}} {value}.0\n'
    for name, values in (("drafts", (100, 100)), ("accepted", (200, 200)))
    for rank, value in enumerate(values)
)


def test_a_page_cut_at_a_line_of_one_rank_gives_no_sum_of_the_other_alone() -> None:
    whole = read(TWO_RANKS, RANKS)
    assert whole.counters == {"x:drafts_total": 200, "x:accepted_total": 400}
    lines = TWO_RANKS.splitlines(keepends=True)
    page = read("".join(lines[:-1]), RANKS)
    assert page.counters == {}
    assert [one.code for one in page.findings] == [Code.PARTIAL_RANKS]
    # Cut inside the name: what was counted of it before the cut is a part of a sum too.
    stump = read("".join(lines[:-1]) + "x:accep", RANKS)
    assert "x:accepted_total" not in stump.counters


def test_a_rank_that_went_or_came_late_makes_no_difference_of_sums() -> None:
    whole = read(TWO_RANKS, RANKS)
    one = read("".join(line for line in TWO_RANKS.splitlines(keepends=True) if 'engine="0"' in line), RANKS)
    grown = read(TWO_RANKS.replace("100.0", "400.0"), RANKS)
    assert delta(whole, grown, "x:drafts_total") == 600
    for before, after in ((whole, one), (one, whole)):
        with pytest.raises(MeasureError, match=r"engine=1 (went|appeared) between two scrapes"):
            delta(before, after, "x:drafts_total")


def test_two_pages_in_one_file_are_not_added() -> None:
    page = read(TWO_RANKS + TWO_RANKS, RANKS)
    assert page.counters == {}
    assert "stands there twice" in page.findings[0].message
