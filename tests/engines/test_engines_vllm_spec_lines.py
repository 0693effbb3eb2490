import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.engines.base import Window
from draftworth.engines.counts import sum_counts
from draftworth.engines.vllm.rounded import Printed, solve
from draftworth.engines.vllm.spec_lines import VLLMWindowReader
from draftworth.findings import Code, Finding

DATA = Path(__file__).parent / "data" / "vllm"
RECORDED = Path(__file__).parent / "data" / "vllm_0.32_ngram.txt"


def windows(path: Path) -> list[Window]:
    reader = VLLMWindowReader()
    found = [reader.take(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert not any(isinstance(one, Finding) for one in found)
    return [one for one in found if isinstance(one, Window)]


def counts(window: Window) -> tuple[int | None, int | None, int | None, tuple[int, ...] | None]:
    assert window.counts is not None
    found = window.counts
    return found.drafting_steps, found.drafted, found.accepted, found.accepted_per_position


def told(window: Window) -> dict[str, float]:
    return {one.name: one.value for one in window.told}


def newer(accepted: int, drafted: int, length: str, rates: str, rate: str) -> str:
    return (
        f"INFO 11-30 00:31:14 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: {length}, Accepted "
        f"throughput: 9.11 tokens/s, Drafted throughput: 35.41 tokens/s, Accepted: {accepted} tokens, "
        f"Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {rate}%"
    )


def older(accepted: int, drafted: int, length: str, rates: str, rate: str) -> str:
    return (
        f"INFO 04-28 10:01:10 [metrics.py:83] SpecDecoding metrics: Draft acceptance rate: {rate}%, Mean acceptance "
        f"length: {length}, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}"
    )


def total_of_v0(k: int, agreed: int, drafted: int, emitted: int) -> str:
    return (
        "Speculative metrics: Draft acceptance rate: 0.560, System efficiency: 0.500, "
        f"Number of speculative tokens: {k}, Number of accepted tokens: {agreed}, "
        f"Number of draft tokens: {drafted}, Number of emitted tokens: {emitted}."
    )


FIRST = (77, 385, 99, (37, 24, 15, 13, 10))
SECOND = (38, 190, 90, (25, 20, 18, 14, 13))


def test_a_recorded_log_gives_the_drafting_steps_and_positions_behind_its_rounded_rates() -> None:
    # ngram with 5 tokens drafts all 5 each time: 385 / 5 = 77 and 190 / 5 = 38 steps. The second line's counts minus
    # the scrapes of the same server are in test_engines_vllm_metrics.
    first, second = windows(RECORDED)
    assert (counts(first), counts(second)) == (FIRST, SECOND)
    assert (first.at, second.at) == ("11-30 00:31:14", "11-30 00:31:24")
    assert first.counts is not None
    assert first.counts.source == "log of vLLM 0.32.0, SpecDecoding metrics"
    assert set(first.counts.not_given) == {"steps", "emitted"}
    assert told(first)["Mean acceptance length"] == 2.29
    assert told(first)["Avg Draft acceptance rate"] == 25.7
    assert told(first)["Accepted throughput"] == 9.11
    assert told(first)["Per-position acceptance rate, position 4"] == 0.130
    assert first.line.startswith("SpecDecoding metrics: Mean")


@pytest.mark.parametrize("name", ["log_0.8.5_v1.txt", "log_0.9.2.txt", "log_0.10.2.txt"])
def test_every_layout_of_v1_gives_the_same_counts(name: str) -> None:
    first = windows(DATA / name)[0]
    assert counts(first) == FIRST
    assert first.counts is not None
    assert first.counts.length_per_drafting_step == pytest.approx(1 + 99 / 77)


def test_the_length_of_0_8_is_told_without_the_bonus_token_whatever_the_version() -> None:
    length = "Mean acceptance length"
    first = windows(DATA / "log_0.8.5_v1.txt")[0]
    assert told(first)[length] == 1.29
    assert {one.formula for one in first.told if one.name == length} == {"accepted / drafting steps"}
    later = windows(DATA / "log_0.9.2.txt")[0]
    assert told(later)[length] == 2.29
    assert {one.formula for one in later.told if one.name == length} == {"1 + accepted / drafting steps"}


def test_a_window_without_drafts_is_zero_where_0_8_prints_nan() -> None:
    idle = windows(DATA / "log_0.8.5_v1.txt")[1]
    assert counts(idle) == (0, 0, 0, (0, 0, 0, 0, 0))
    assert idle.told == ()


def test_drafts_that_a_grammar_refused_leave_steps_without_drafted_tokens() -> None:
    none_left, more_steps = windows(DATA / "log_0.33_grammar.txt")
    assert counts(none_left) == (None, 0, 0, (0, 0))
    assert none_left.counts is not None
    assert "grammar" in none_left.counts.not_given["drafting_steps"]
    # 1 accepted, 1.25 and 0.250 a step: 4 steps, though 3 tokens were drafted
    assert counts(more_steps) == (4, 3, 1, (1, 0))


BANNER = "INFO 11-30 00:30:36 [api_server.py:1977] vLLM API server version "


def read_after(version: str, line: str) -> Window:
    reader = VLLMWindowReader()
    if version:
        assert reader.take(BANNER + version) is None
    found = reader.take(line)
    assert isinstance(found, Window)
    assert found.counts is not None
    return found


def test_where_nothing_was_accepted_no_position_was_and_the_steps_stay_open() -> None:
    line = newer(0, 30, "1.00", "0.000, 0.000, 0.000", "0.0")
    found = read_after("0.11.2", line)
    assert counts(found) == (None, 30, 0, (0, 0, 0))
    assert found.counts is not None
    assert found.counts.between == {"drafting_steps": (10, 30)}
    # From 0.14.1 on any number of further steps may have lost every draft to a grammar.
    for version in ("0.14.1", "0.13.0", "0.32.0", ""):
        found = read_after(version, line)
        assert counts(found) == (None, 30, 0, (0, 0, 0))
        assert found.counts is not None
        assert found.counts.between == {"drafting_steps": (10, None)}
        assert found.counts.why_not("drafting_steps") == "told only rounded: at least 10"


def test_steps_whose_drafts_a_grammar_refused_are_never_left_out_of_what_fits() -> None:
    # The truth: 300 steps of one token, 33 of them refused, 2 accepted. 1 + 2 / 300 = 1.0067, 2 / 300 = 0.0067; so
    # 2 / n rounds to 0.007 from 2 / 0.0075 = 266.7 to 2 / 0.0065 = 307.7.
    line = newer(2, 267, "1.01", "0.007", "0.7")
    for version in ("0.14.1", "0.33.0", ""):
        found = read_after(version, line)
        assert found.counts is not None
        assert found.counts.drafting_steps is None
        assert found.counts.between == {"drafting_steps": (267, 307)}
    # 0.11.2 counts refused drafts as drafted: every step has one.
    assert counts(read_after("0.11.2", line))[0] == 267


def test_a_rate_by_position_bounds_the_steps_where_the_length_does_not() -> None:
    # 1 / n prints 0.001 from 1 / 0.0015 to 1 / 0.0005, and 1.00 as a length.
    found = read_after("0.33.0", newer(1, 900, "1.00", "0.001, 0.000, 0.000", "0.1"))
    assert found.counts is not None
    # In double precision 1 / 2000 lies above 0.0005.
    assert found.counts.between == {"drafting_steps": (667, 2000)}
    open_end = read_after("0.33.0", newer(1, 9000, "1.00", "0.000, 0.000, 0.000", "0.0"))
    assert open_end.counts is not None
    assert open_end.counts.between == {"drafting_steps": (3000, None)}
    assert isinstance(VLLMWindowReader().take(newer(1, 9000, "1.00", "0.0000", "0.0")), Finding)


def test_data_parallel_engines_print_a_line_each_and_their_windows_add_up() -> None:
    both = windows(DATA / "log_0.33_two_engines.txt")
    total = sum_counts([one.counts for one in both])
    assert total is not None
    assert (total.drafting_steps, total.drafted, total.accepted) == (77 + 38, 385 + 190, 99 + 90)
    assert total.accepted_per_position == (62, 44, 33, 27, 23)


def test_the_totals_of_v0_become_differences_and_a_smaller_total_is_a_restart() -> None:
    # Drafting steps are drafted / k, and each emits the accepted tokens and one more: 300 - 100 = 200 of 500.
    start, then, restarted = windows(DATA / "log_0.8.5_v0.txt")
    assert counts(start) == (100, 500, 200, None)
    assert counts(then) == (250 - 100, 1250 - 500, 510 - 200, None)
    assert counts(restarted) == (10, 50, 10, None)
    for one in (start, then, restarted):
        assert one.counts is not None
        assert "differences of its totals (the first since the start)" in one.counts.source
        assert set(one.counts.not_given) == {"steps", "emitted", "accepted_per_position"}
        assert {figure.scope for figure in one.told} == {"since the start"}
    assert told(then) == {
        "Draft acceptance rate": 0.56,
        "System efficiency": 0.507,
        "Number of accepted tokens": 700,
    }


def test_a_start_in_the_log_begins_the_totals_of_v0_anew() -> None:
    line = (DATA / "log_0.8.5_v0.txt").read_text(encoding="utf-8").splitlines()[3]
    reader = VLLMWindowReader()
    for text in (line, "INFO 04-28 11:00:00 [api_server.py:1043] vLLM API server version 0.8.5", line):
        found = reader.take(text)
    assert isinstance(found, Window)
    assert counts(found) == (100, 500, 200, None)


@pytest.mark.parametrize(
    "start",
    [
        "INFO 04-28 11:00:00 [api_server.py:1044] args: Namespace(host=None, port=8000)",
        "INFO 04-28 11:00:00 [x.py:1] non-default args: {'port': 8000}",
        "INFO 04-28 11:00:00 [llm_engine.py:243] Initializing a V0 LLM engine (v0.8.5) with config: model='m'",
        "INFO 04-28 11:00:00 [x.py:1] vLLM server version 0.9.2, serving model m",
    ],
)
def test_every_line_that_begins_a_start_begins_the_totals_anew_though_the_new_ones_are_larger(start: str) -> None:
    first, second = (DATA / "log_0.8.5_v0.txt").read_text(encoding="utf-8").splitlines()[3:5]
    assert "args" not in first + second
    reader = VLLMWindowReader()
    reader.take(first)
    assert reader.take(start) is None
    found = reader.take(second)
    assert isinstance(found, Window)
    assert counts(found) == (250, 1250, 510, None)


def test_diffusion_models_lines_give_figures_of_their_own_and_no_counts() -> None:
    busy, idle = windows(DATA / "log_0.24_diffusion.txt")
    assert busy.counts is None
    assert told(busy) == {
        "Committed token throughput": 25.6,
        "Mean denoising steps per canvas": 8.0,
        "Mean tokens committed per denoising step": 4.0,
        "Committed": 256.0,
        "Denoising steps": 64.0,
        "Canvas positions evaluated": 2048.0,
    }
    assert "Mean denoising steps per canvas" not in told(idle)


def test_a_line_is_read_behind_whatever_collected_it_with_its_time() -> None:
    found = windows(DATA / "log_0.33_wrapped.txt")
    assert [counts(one) for one in found] == [FIRST] * 11
    assert [one.at for one in found] == [
        "Nov 30 00:31:14",
        "2026-11-30T00:31:14+0000",
        "2026-11-30T00:53:20Z",
        "2026-11-30T00:53:20Z",
        "2026-11-30T00:31:14.5Z",
        "2026-11-30T00:31:14.5Z",
        "11-30 00:31:14",
        "11-30 00:31:14",
        "2026-11-30 00:31:14,120",
        "2026-11-30T00:53:20Z",
        "11-30 00:31:14",
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (newer(99, 385, "2.29", "0.481, 0.312", "25.7")[:-20], Code.LINES_UNREADABLE),
        (newer(99, 385, "2.2x", "0.481", "25.7"), Code.LINES_UNREADABLE),
        (older(99, 330, "1.50", "", "30.0"), Code.LINES_UNREADABLE),
        (total_of_v0(5, 280, 500, 99), Code.COUNTS_CONTRADICT),
        (total_of_v0(5, 280, 500, 400), Code.COUNTS_CONTRADICT),
        (older(0, 0, "1.00", "nan", "nan"), Code.COUNTS_CONTRADICT),
        (newer(-9, 385, "2.29", "0.481", "25.7"), Code.LINES_UNREADABLE),
        (newer(9, 10**13, "2.29", "0.481", "25.7"), Code.LINES_UNREADABLE),
        (newer(9, 18, "2.00", ", ".join(["1.000"] * 600), "50.0"), Code.LINES_UNREADABLE),
        (newer(99, 385, "2.29", "-0.481", "25.7"), Code.COUNTS_CONTRADICT),
        (newer(99, 385, "2.29", "1.481", "25.7"), Code.COUNTS_CONTRADICT),
        (newer(99, 98, "2.29", "0.481", "101.0"), Code.COUNTS_CONTRADICT),
        (newer(99, 385, "2.29", "0.481, 0.312, 0.195, 0.169, 0.130", "35.7"), Code.COUNTS_CONTRADICT),
        (newer(99, 385, "3.29", "0.481, 0.312, 0.195, 0.169, 0.130", "25.7"), Code.COUNTS_CONTRADICT),
        (newer(99, 385, "2.29", "0.130, 0.169, 0.195, 0.312, 0.481", "25.7"), Code.COUNTS_CONTRADICT),
        (newer(99, 385, "nan", "nan", "25.7"), Code.COUNTS_CONTRADICT),
        (older(99, 385, "1.79", "0.481, 0.312, 0.195, 0.169, 0.130", "25.7"), Code.COUNTS_CONTRADICT),
        ("INFO 04-28 10:01:10 [metrics.py:508] Speculative metrics: Draft acceptance rate: 0.5", Code.LINES_UNREADABLE),
        (total_of_v0(5, 280, 501, 300), Code.COUNTS_CONTRADICT),
        (
            total_of_v0(0, 280, 500, 300),
            Code.COUNTS_CONTRADICT,
        ),
        ("INFO 07-01 10:01:10 [metrics.py:158] DiffusionDecoding metrics: Committed: 9", Code.LINES_UNREADABLE),
    ],
)
def test_lines_that_cannot_be_are_findings_and_never_counts(line: str, code: Code) -> None:
    found = VLLMWindowReader().take(line)
    assert isinstance(found, Finding)
    assert found.code is code
    assert len(found.message) < 300
    assert "\n" not in found.message


@pytest.mark.parametrize(
    "line",
    [
        "",
        'INFO:     127.0.0.1:1 - "GET /version HTTP/1.1" 200 OK',
        "INFO 11-30 00:31:14 [logger.py:39] Received request: prompt: 'what is SpecDecoding metrics: Mean', params",
        "INFO 11-30 00:31:14 [loggers.py:300] Engine 000: Avg prompt throughput: 20.1 tokens/s",
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert VLLMWindowReader().take(line) is None


@st.composite
def drafted_windows(draw: st.DrawFn) -> tuple[str, int, tuple[int, ...], tuple[int, ...]]:
    release = draw(st.sampled_from(["0.8.5", "0.9.2", "0.10.2", "0.11.2", "0.14.1", "0.33.0", ""]))
    steps = draw(st.one_of(st.integers(1, 60), st.integers(1, 3000), st.integers(1, 2_000_000)))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    refused = 0
    if release in ("0.14.1", "0.33.0", ""):  # steps that a grammar left without any drafted token
        refused = draw(st.one_of(st.just(0), st.integers(0, steps), st.integers(0, steps // 8)))
    drafted = [steps - refused]
    accepted: list[int] = []
    for _ in range(draw(st.integers(0, 7))):
        drafted.append(drafted[-1] if rng.random() < 0.5 else rng.randint(0, drafted[-1]))
    for most in drafted:
        accepted.append(rng.randint(0, min([most, *accepted[-1:]])))
    return release, steps, tuple(drafted), tuple(accepted)


@settings(max_examples=200, deadline=None)
@given(drafted_windows())
def test_what_a_release_prints_is_read_back_with_the_truth_inside(
    window: tuple[str, int, tuple[int, ...], tuple[int, ...]],
) -> None:
    release, steps, drafted, accepted = window
    total, all_drafted = sum(accepted), sum(drafted)
    rates = ", ".join(f"{n / steps:.3f}" for n in accepted)
    length = f"{total / steps + (release != '0.8.5'):.2f}"
    write = older if release in ("0.8.5", "0.9.2") else newer
    rate = f"{100 * total / all_drafted:.1f}" if all_drafted else "nan"
    found = read_after(release, write(total, all_drafted, length, rates, rate))
    assert found.counts is not None
    assert (found.counts.drafted, found.counts.accepted) == (all_drafted, total)
    if found.counts.drafting_steps is not None:
        assert found.counts.drafting_steps == steps
    elif "drafting_steps" in found.counts.between:
        low, high = found.counts.between["drafting_steps"]
        assert low <= steps
        if high is None:
            assert set(rates) <= set("0., ")
            assert release not in ("0.8.5", "0.9.2", "0.10.2", "0.11.2")
        else:
            assert low < high
            assert steps <= high
    else:
        assert all_drafted == 0
        assert "grammar" in found.counts.not_given["drafting_steps"]
    assert found.counts.accepted_per_position in (None, accepted)


@settings(max_examples=100)
@given(st.integers(1, 40), st.integers(1, 3), st.booleans(), st.data())
def test_what_is_left_is_what_trying_every_number_leaves(
    steps: int,
    k: int,
    refused: bool,  # noqa: FBT001 - hypothesis gives it
    data: st.DataObject,
) -> None:
    accepted: list[int] = []
    for _ in range(k):
        accepted.append(data.draw(st.integers(0, min([steps, *accepted[-1:]]))))
    total = sum(accepted)
    drafted = data.draw(st.integers(max(1, total), k * steps)) if refused else k * steps
    rates = tuple(f"{n / steps:.3f}" for n in accepted)
    printed = Printed(total, drafted, f"{1 + total / steps:.2f}", 1, rates)

    def rows(n: int, position: int, left: int, most: int) -> int:
        """Count the falling rows of whole numbers that print like this."""
        if position == k:
            return int(left == 0)
        fitting = (a for a in range(min(most, left) + 1) if f"{a / n:.3f}" == rates[position])
        return sum(rows(n, position + 1, left - a, a) for a in fitting)

    fits = {
        n: rows(n, 0, total, n)
        for n in range(-(-drafted // k), (2001 * total if refused else drafted) + 1)
        if f"{1 + total / n:.2f}" == printed.length and rows(n, 0, total, n)
    }
    found = solve(printed, refused=refused)
    assert found is not None
    if refused and total == 0:
        assert found == (-(-drafted // k), None, None)
        return
    assert (found.low, found.high) == (min(fits), max(fits))
    only = len(fits) == 1 and next(iter(fits.values())) == 1
    assert found.per_position == (tuple(accepted) if only else None)


def test_the_largest_windows_are_solved_at_once() -> None:
    steps, accepted = 3_333_333, (3_000_000, 2_000_000, 1_000_000)
    printed = Printed(
        sum(accepted), 3 * steps, f"{1 + sum(accepted) / steps:.2f}", 1, tuple(f"{n / steps:.3f}" for n in accepted)
    )
    found = solve(printed, refused=True)
    assert found is not None
    assert found.high is not None
    assert found.low <= steps <= found.high
    assert found.high - found.low < 0.003 * steps


LINES = st.sampled_from(
    [
        *RECORDED.read_text(encoding="utf-8").splitlines()[80:],
        *(line for path in sorted(DATA.glob("log_*.txt")) for line in path.read_text(encoding="utf-8").splitlines()),
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(LINES, st.integers(0, 400), st.text(max_size=4), st.integers(0, 4)), max_size=6))
def test_damaged_lines_never_raise(pieces: list[tuple[str, int, str, int]]) -> None:
    reader = VLLMWindowReader()
    for line, at, put_in, left_out in pieces:
        found = reader.take(line[:at] + put_in + line[at + left_out :])
        assert found is None or isinstance(found, (Window, Finding))
        if isinstance(found, Window) and found.counts is not None:
            drafted, accepted = found.counts.drafted, found.counts.accepted
            assert drafted is not None
            assert accepted is not None
            assert 0 <= accepted <= drafted


@given(st.text(max_size=60))
def test_any_text_behind_a_sign_never_raises(text: str) -> None:
    for sign in ("SpecDecoding metrics:", "Speculative metrics:", "DiffusionDecoding metrics:", '{"MESSAGE":'):
        VLLMWindowReader().take(f"{sign}{text}")


def test_long_rows_of_digits_are_refused_in_no_time() -> None:
    found = VLLMWindowReader().take(newer(9, 18, "2.00", "0" * 50_000 + "x", "50.0"))
    assert isinstance(found, Finding)
