"""From blocks to the record: what is remarked, what weakens a verdict, which outputs are checked, what is hidden."""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from draftworth import redact
from draftworth.bench.base import Closed, Open, RequestRow, ScoredOutput, Target
from draftworth.bench.points import Point
from draftworth.bench.rows import write_rows
from draftworth.bench.window import Window
from draftworth.engines.base import LogWarning, StartupFacts
from draftworth.engines.vllm import VLLM
from draftworth.errors import MeasureError, ServerDiedError, TrialError, UsageError
from draftworth.findings import Code, Finding, find
from draftworth.reports.markdown import report
from draftworth.services.base import Observed, ProcessId
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import CommonConfig, TrialConfig
from draftworth.trials.judge import arms_of, compare_arm, decided
from draftworth.trials.outcome import _best, make_record
from draftworth.trials.plan import plan
from draftworth.trials.plan_text import lines
from draftworth.trials.power import power_of
from draftworth.trials.record import ArmComparison, TrialRecord, read
from draftworth.trials.remarks import ArmInfo, warmer
from draftworth.trials.restore import Restored
from draftworth.trials.scoring import checked, score_all, spread
from draftworth.trials.steps import Kind
from draftworth.verdicts.base import Interval, Verdict
from draftworth.verdicts.rules import Rules

NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
POINT = Point(Closed(1), 128)
SPREAD = (10.0, 12.0, 14.0, 11.0, 13.0, 15.0, 9.0, 12.5, 13.5, 10.5)


def config_of(*arms: str, **verdict: Any) -> TrialConfig:
    return TrialConfig.model_validate(
        {
            "service": {"command": ["vllm", "serve", "m", "--api-key", "hush"], "port": 8000},
            "arms": [{"name": name, "speculative_config": NGRAM} for name in arms or ("ngram",)],
            "verdict": {"output_check": False, **verdict},
        }
    )


def row(arm: str = "baseline", prompt: str = "p", tpot: float = 10.0, **changes: Any) -> RequestRow:
    made = RequestRow(
        arm=arm,
        block=1,
        prompt_id=prompt,
        category="chat",
        repeat=0,
        started_unix=0.0,
        ok=True,
        tokens=101,
        first_chunk_tokens=1,
        token_source="usage",
        ttft_ms=50.0,
        decode_ms=tpot * 100,
        tpot_ms=tpot,
        token_ids=list(range(101)),
        prompt_token_ids=[1],
    )
    return replace(made, **changes)


def block(arm: str, number: int, factor: float = 1.0, *, facts: StartupFacts | None = None) -> Block:
    start = 2 if arm == "baseline" and number > 1 else 1
    rows = [row(arm, f"p{i}", factor * tpot, block=number, start=start) for i, tpot in enumerate(SPREAD)]
    speculating = arm != "baseline"
    told = facts or StartupFacts(version="0.32.0", config={"a": "1"}, speculating=speculating)
    window = Window(arm=arm, point=POINT, rows=rows)
    return Block(arm=arm, number=number, start=start, windows=[window], check_rows=rows, facts=told)


def record_of(blocks: Sequence[Block], config: TrialConfig | None = None, **outcome: Any) -> TrialRecord:
    config = config or config_of()
    made = plan(config, Observed(running=False), VLLM(), version="0.32.0", prompts=len(SPREAD))
    left = Outcome(blocks=list(blocks), restored=Restored("nothing ran before"), **outcome)
    arms = arms_of(config, made.commands)
    shown = redact.config(config)
    return make_record(
        left, arms, config, VLLM(), shown_config=shown, trial="t", began_unix=0.0, seconds=1.0, machine={}
    )


# --- verdicts


def test_a_clean_trial_is_faster_and_a_foreign_request_in_any_arm_makes_it_inconclusive() -> None:
    blocks = [block("baseline", 1), block("ngram", 2, 0.5), block("baseline", 3)]
    assert record_of(blocks).verdict is Verdict.FASTER
    blocks[0].findings.append(find(Code.FOREIGN_REQUESTS, "baseline: 9 of theirs", arm="baseline"))
    found = record_of(blocks)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.exit_code == 3
    assert found.reason.startswith("faster, but somebody else used the server")
    assert {one.verdict for one in found.categories} == {Verdict.INCONCLUSIVE}
    assert found.comparison is not None
    assert found.comparison.tpot_ratio is not None
    assert found.comparison.tpot_ratio.estimate == pytest.approx(0.5)


def test_speculation_that_is_off_weakens_its_own_variant_only() -> None:
    off = StartupFacts(config={"a": "1"}, speculating=False)
    config = config_of("off", "on")
    blocks = [block("baseline", 1), block("off", 2, 0.4, facts=off), block("on", 3, 0.6), block("baseline", 4)]
    found = record_of(blocks, config)
    assert {one.arm: one.verdict for one in found.comparisons} == {
        "off": Verdict.INCONCLUSIVE,
        "on": Verdict.FASTER,
    }
    assert (found.best, found.verdict) == ("on", Verdict.FASTER), "the better verdict, not the lower ratio"


def saturated(arm: str, *, code: Code = Code.CLIENT_SATURATED) -> Finding:
    return find(code, f"{arm}: the client used 99% of a core", arm=arm)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a", {"a": Verdict.INCONCLUSIVE, "b": Verdict.FASTER}),
        ("b", {"a": Verdict.FASTER, "b": Verdict.INCONCLUSIVE}),
        ("baseline", {"a": Verdict.INCONCLUSIVE, "b": Verdict.INCONCLUSIVE}),
    ],
)
def test_a_busy_client_weakens_the_comparisons_its_arm_is_in(where: str, expected: dict[str, Verdict]) -> None:
    blocks = [block("baseline", 1), block("a", 2, 0.4), block("b", 3, 0.5), block("baseline", 4)]
    one = next(block for block in blocks if block.arm == where)
    one.windows[0].findings.append(saturated(where))
    found = record_of(blocks, config_of("a", "b"))
    assert {one.arm: one.verdict for one in found.comparisons} == expected


def test_a_finding_of_no_arm_and_foreign_requests_of_another_variant_weaken_every_comparison() -> None:
    blocks = [block("baseline", 1), block("a", 2, 0.4), block("b", 3, 0.5), block("baseline", 4)]
    for finding in (saturated("b", code=Code.FOREIGN_REQUESTS), find(Code.CLIENT_SATURATED, "the client was busy")):
        blocks[2].findings[:] = [finding]
        found = record_of(blocks, config_of("a", "b"))
        assert {one.verdict for one in found.comparisons} == {Verdict.INCONCLUSIVE}


def test_one_busy_point_weakens_the_whole_and_itself_and_no_other_point() -> None:
    low, high = Point(Closed(1), 128, label="1 at a time"), Point(Closed(64), 128, label="64 at a time")
    blocks = [block("baseline", 1), block("ngram", 2, 0.4), block("baseline", 3)]
    for one in blocks:
        rows = one.windows[0].rows
        one.windows = [Window(one.arm, at, rows=[replace(row, point=at.label) for row in rows]) for at in (low, high)]
    blocks[1].windows[1].findings.append(saturated("ngram"))
    found = record_of(blocks)
    points = {one.category: one.verdict for one in found.categories if one.kind == "point"}
    assert points == {"1 at a time": Verdict.FASTER, "64 at a time": Verdict.INCONCLUSIVE}
    assert found.verdict is Verdict.INCONCLUSIVE


def enough_at_first(blocks: Sequence[Block]) -> bool:
    config = config_of()
    made = plan(config, Observed(running=False), VLLM(), version="0.32.0", prompts=len(SPREAD))
    return decided(blocks, arms_of(config, made.commands), config, look=1, looks=2)


def test_a_trial_goes_on_where_a_finding_so_far_would_take_the_verdict_back() -> None:
    blocks = [block("baseline", 1), block("ngram", 2, 0.4), block("baseline", 3)]
    assert enough_at_first(blocks)
    blocks[1].windows[0].findings.append(saturated("ngram"))
    assert not enough_at_first(blocks)
    off = StartupFacts(config={"a": "1"}, speculating=False)
    assert not enough_at_first([block("baseline", 1), block("ngram", 2, 0.4, facts=off), block("baseline", 3)])
    on = StartupFacts(config={"a": "1"}, speculating=True)
    assert not enough_at_first([block("baseline", 1, facts=on), block("ngram", 2, 0.4), block("baseline", 3)])
    warm = [block("baseline", 1), block("ngram", 2, 0.4), block("baseline", 3)]
    for one, cached in zip(warm, (0, 90, 0), strict=True):
        one.cache = (100, cached)
    assert not enough_at_first(warm)


@pytest.mark.parametrize(
    ("load", "factor", "most"),
    [
        # A tenth of 101 prompt tokens more, before each of B - 1 others, over 101 tokens of an answer.
        (4, 2.0, -math.log(1 - 0.3)),
        (4, 0.5, -math.log(1 - 0.6)),  # of a variant that takes half the time it is twice the share
        (1, 2.0, 0.0),
        (16, 2.0, None),
        (None, 2.0, None),
    ],
)
def test_what_a_colder_cache_can_account_for(load: int | None, factor: float, most: float | None) -> None:
    base, variant = block("baseline", 1), block("ngram", 2, factor)
    base.cache, variant.cache = (1000, 100), (1000, 0)
    for one in (base, variant):
        told = POINT if load is None else replace(POINT, load=Closed(load))
        rows = [replace(row, prompt_tokens=101, ttft_ms=None) for row in one.rows]
        one.windows = [replace(one.windows[0], point=told, rows=rows)]
    if load is None:
        base.windows[0].point = replace(POINT, load=Open(2.0))
    (found,) = warmer(ArmInfo("ngram", speculates=True), [base], [variant])
    assert found.accounts_for == (None if most is None else pytest.approx(most))
    (other,) = warmer(ArmInfo("ngram", speculates=True), [base], [variant], "ttft")
    assert other.accounts_for is None
    base.cache, variant.cache = variant.cache, base.cache
    (warm,) = warmer(ArmInfo("ngram", speculates=True), [base], [variant])
    assert (warm.code, warm.accounts_for) == (Code.PREFIX_CACHE_WARMER, None)


def test_a_token_of_a_prompt_takes_no_more_than_the_first_token_did() -> None:
    base, variant = block("baseline", 1), block("ngram", 2, 2.0)
    base.cache, variant.cache = (1000, 100), (1000, 0)
    tpot = sum(row.tpot_ms or 0.0 for row in base.rows) / len(base.rows)
    # 101 tokens of a prompt, of which the baseline computed nine tenths, took 0.2 steps each; the variant's 0.1.
    for one, share in ((base, 0.2 * 0.9), (variant, 0.1)):
        rows = [replace(row, prompt_tokens=101, ttft_ms=101 * share * tpot) for row in one.rows]
        one.windows = [replace(one.windows[0], point=replace(POINT, load=Closed(4)), rows=rows)]
    (found,) = warmer(ArmInfo("ngram", speculates=True), [base], [variant])
    # Three others x a tenth x 0.2 of the baseline's step, of a TPOT twice as long.
    assert found.accounts_for == pytest.approx(-math.log(1 - 3 * 0.1 * 0.2 / 2), rel=0.02)


def test_a_setting_that_was_left_early_has_the_cache_of_the_windows_it_has() -> None:
    # Later parts find their prompts cached by earlier loads; the variant never came to them.
    base, variant = block("baseline", 1), block("ngram", 2, 0.4)
    (window,) = base.windows
    base.windows = [replace(window, cache=(100, 0)), replace(window, cache=(100, 90))]
    base.cache, variant.cache = (200, 90), (100, 2)
    arm = ArmInfo("ngram", speculates=True)
    assert warmer(arm, [base], [variant]) == []
    variant.cache = (100, 40)
    assert [one.code for one in warmer(arm, [base], [variant])] == [Code.PREFIX_CACHE_WARMER]
    base.windows = base.windows[:1]
    base.cache, variant.cache = (100, 40), (100, 0)
    assert [one.code for one in warmer(arm, [base], [variant])] == [Code.PREFIX_CACHE_COLDER]


def test_the_restart_prior_of_the_first_token_is_the_files() -> None:
    blocks = [block("baseline", 1), block("ngram", 2, 0.4), block("baseline", 3)]
    widths = []
    for sd in (0.1, 0.4):
        config = config_of(metric="ttft", restart_sd_ttft=sd, restart_sd_variant=0.0)
        arms = arms_of(config, {"baseline": (), "ngram": ()})
        ratio = compare_arm(blocks, arms[1], config, variants=1, look=1, looks=1).comparison.ratio
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        widths.append(math.log(ratio.high / ratio.low))
    # TTFT is the same in every row: 2 x 1.96 sqrt(sd^2 / 2 + sd^2).
    assert widths == pytest.approx([2 * 1.959964 * sd * math.sqrt(1.5) for sd in (0.1, 0.4)], rel=1e-4)


def compared(arm: str, verdict: Verdict, ratio: float | None) -> ArmComparison:
    return ArmComparison(arm=arm, verdict=verdict, tpot_ratio=None if ratio is None else Interval(estimate=ratio))


@given(
    st.permutations(
        [
            compared("a", Verdict.FASTER, 0.8),
            compared("b", Verdict.FASTER, 0.9),
            compared("c", Verdict.NO_DIFFERENCE, 0.99),
            compared("d", Verdict.INCONCLUSIVE, 0.6),
            compared("e", Verdict.SLOWER, 1.1),
            compared("f", Verdict.ERROR, 0.1),
            compared("g", Verdict.ERROR, None),
        ]
    )
)
def test_the_best_variant_has_the_best_verdict_then_the_lowest_ratio(some: list[ArmComparison]) -> None:
    order = []
    while some:
        best = _best(some)
        assert best is not None
        order.append(best.arm)
        some.remove(best)
    assert order == list("abcdefg")


# --- what a file may ask for


@pytest.mark.parametrize(("load", "named"), [({"rate": 2.0}, "rate"), ({"replay_speed": 1.0}, "replay_speed")])
def test_throughput_is_no_verdict_where_arrivals_set_it(load: dict[str, Any], named: str) -> None:
    asked: dict[str, Any] = {"verdict": {"metric": "throughput"}, "workload": load}
    with pytest.raises(ValidationError) as caught:
        CommonConfig.model_validate(asked)
    (error,) = caught.value.errors()
    assert error["msg"] == (
        'Value error, verdict.metric = "throughput" needs workload.concurrency: '
        f"with workload.{named} the arrivals set the throughput; choose tpot, ttft or goodput"
    )
    assert CommonConfig.model_validate({"verdict": {"metric": "throughput"}}).verdict.metric == "throughput"
    assert CommonConfig.model_validate({"verdict": {"metric": "ttft"}, "workload": load}).verdict.metric == "ttft"


def test_the_files_priors_are_those_of_the_verdicts() -> None:
    asked, rules = CommonConfig().verdict, Rules()
    assert asked.restart_priors(None) == asked.restart_priors("cuda") == (rules.prior_baseline, rules.prior_variant)
    assert asked.restart_sd_ttft == rules.prior_ttft
    assert (rules.prior_baseline, rules.prior_variant, rules.prior_ttft) == (0.006, 0.08, 0.10)


def test_a_cpus_starts_spread_by_more_unless_the_file_says_by_how_much() -> None:
    assert CommonConfig().verdict.restart_priors("cpu") == (0.07, 0.08)
    said = CommonConfig.model_validate({"verdict": {"restart_sd_baseline": 0.0, "restart_sd_variant": 0.01}})
    assert said.verdict.restart_priors("cpu") == (0.0, 0.01)


def test_what_a_plan_can_see_is_by_the_prior_of_its_metric() -> None:
    # 2.801585 standard errors, many prompts: sqrt(0.006^2 + 0.08^2), and sqrt(2) 0.1 for the first token.
    for metric, sd in (("tpot", 0.0802247), ("throughput", 0.0802247), ("ttft", 0.1414214), ("goodput", 0.1414214)):
        config = config_of(metric=metric, slo={"ttft_ms": 500.0})
        found = power_of(config, prompts=10**6, starts=(1, 1), looks=1, variants=1).detectable
        assert found == pytest.approx(math.exp(2.801585 * sd) - 1, rel=1e-3)


# --- which outputs are checked


def answers(arm: str, finished: Sequence[int], **changes: Any) -> list[RequestRow]:
    """Answers to six prompts in the order they finished; the first four are of one category."""
    return [row(arm, f"p{n}", category="chat" if n < 4 else "code", started_unix=float(n), **changes) for n in finished]


def ids(chosen: dict[str, list[RequestRow]]) -> dict[str, list[str]]:
    return {arm: [one.prompt_id for one in some] for arm, some in chosen.items()}


def test_the_same_prompts_of_every_category_are_checked_in_every_arm() -> None:
    rows = {"x": answers("x", [5, 4, 3, 2, 1, 0]), "baseline": answers("baseline", [2, 0, 1, 5, 3, 4])}
    assert ids(checked(rows, 4)) == {"x": ["p0", "p4", "p1", "p5"], "baseline": ["p0", "p4", "p1", "p5"]}


def test_a_prompt_that_one_arm_did_not_answer_is_checked_in_none() -> None:
    rows = {"baseline": answers("baseline", range(6)), "x": answers("x", [1, 2, 3, 4, 5])}
    rows["x"].append(row("x", "p0", ok=False))
    rows["x"].append(row("x", "p0", repeat=1))
    assert ids(checked(rows, 2)) == {"baseline": ["p1", "p4"], "x": ["p1", "p4"]}


def test_an_arm_without_token_ids_does_not_take_the_others_check() -> None:
    rows = {"baseline": answers("baseline", range(6)), "x": answers("x", range(6), token_ids=[])}
    assert ids(checked(rows, 2)) == {"baseline": ["p0", "p4"], "x": []}
    assert checked({}, 2) == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers())), st.integers(0, 9))
def test_spreading_keeps_order_and_is_even(items: list[tuple[str, int]], most: int) -> None:
    found = spread(items, most, category=lambda item: item[0])
    assert len(found) == min(most, len(items))
    for name in "abc":
        mine = [item for item in items if item[0] == name]
        taken = [item for item in found if item[0] == name]
        assert taken == mine[: len(taken)]
        others = max(sum(item[0] == other for item in found) for other in "abc")
        assert len(taken) >= min(len(mine), others - 1)


def test_all_arms_share_one_deadline_and_running_out_of_time_is_no_error_of_the_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, given_s = [100.0], []

    def slow(_target: Target, some: Sequence[RequestRow], *, timeout_s: float, **_rest: Any) -> list[ScoredOutput]:
        given_s.append(timeout_s)
        if timeout_s < 40.0:
            raise TrialError("limits.downtime_s was reached")
        now[0] += 40.0
        return [ScoredOutput(one.prompt_id, one.arm, (0.0,), 1) for one in some]

    monkeypatch.setattr("draftworth.trials.scoring.score", slow)
    monkeypatch.setattr("draftworth.trials.scoring.time.monotonic", lambda: now[0])
    rows = {arm: answers(arm, range(6)) for arm in ("baseline", "x", "y")}
    with pytest.raises(MeasureError, match="the time was up after 0 of 18 outputs"):
        score_all(Target("u", "m"), rows, limit=100, most=9, timeout_s=100.0, on_count=lambda *_: None)
    assert given_s == [100.0, 60.0, 20.0]


def test_rows_are_stored_in_the_order_they_were_sent(tmp_path: Path) -> None:
    rows = [row(prompt="c", started_unix=2.0), row(prompt="d", block=2), row(prompt="b", started_unix=1.0)]
    stored = pq.read_table(write_rows(rows, tmp_path))
    assert stored["prompt_id"].to_pylist() == ["b", "c", "d"]


# --- secrets


def test_no_secret_of_a_server_reaches_the_record_or_the_report() -> None:
    line = "non-default args: {'api_key': ['hush'], 'port': 8000}"
    warned = LogWarning(code="eager", line="CUDA graphs off for --api-key hush", advice="x", confounds=True)
    facts = StartupFacts(config={"a": "1"}, speculating=True, warnings=(warned,))
    blocks = [block("baseline", 1), block("ngram", 2, 0.5, facts=facts), block("baseline", 3)]
    died = ServerDiedError("the server died: HF_TOKEN=hush", ["INFO started", line])
    for found in (record_of(blocks), record_of(blocks, error=died)):
        assert "hush" not in found.model_dump_json()
        assert "hush" not in report(found)
    assert record_of(blocks, error=died).error_tail == (
        "INFO started",
        "non-default args: {'api_key': (hidden), 'port': 8000}",
    )
    assert record_of(blocks, error=died).error == "the server died: HF_TOKEN=(hidden)"


def test_a_difference_is_named_once() -> None:
    warnings = [LogWarning(code="eager", line=line, advice="x", confounds=True) for line in ("one", "two")]
    facts = StartupFacts(config={"a": "1"}, speculating=True, warnings=tuple(warnings))
    found = record_of([block("baseline", 1), block("ngram", 2, facts=facts), block("baseline", 3)])
    (finding,) = [one for one in found.findings if one.code is Code.CONFOUNDED]
    assert finding.message == "ngram differs from the baseline in eager"


# --- the plan


def test_the_plan_has_the_commands_that_stop_and_restore_the_original() -> None:
    argv = ("/opt/vllm/bin/python", "-m", "vllm", "serve", "/my models/m", "--api-key", "hush")
    observed = Observed(
        running=True,
        process=ProcessId(pid=1234, started=1, boot="b"),
        command=argv,
        cwd="/srv/a b",
        user="u",
        log="/log",
        notes=("its umask is not kept",),
    )
    config = config_of()
    made = plan(config, observed, VLLM(), version="0.32.0", prompts=1)
    steps = {step.kind: step for step in made.steps}
    assert steps[Kind.STOP_ORIGINAL].command == ("kill", "-TERM", "1234")
    assert (steps[Kind.RESTORE].command, steps[Kind.RESTORE].cwd) == (argv, "/srv/a b")
    shown = lines(made, observed, config)
    assert "    $ kill -TERM 1234   (then SIGKILL after 30 s)" in shown
    (restore,) = [line for line in shown if line.startswith("    $ cd ")]
    command = shlex.join([*argv[:-1], "(hidden)"])
    assert restore == f"    $ cd '/srv/a b' && {command}   (with the environment it had)"
    assert "Note: its umask is not kept" in shown
    assert "hush" not in json.dumps(shown)


def test_a_plan_from_nothing_restores_nothing() -> None:
    made = plan(config_of(), Observed(running=False), VLLM(), version=None, prompts=1)
    (restore,) = [step for step in made.steps if step.kind is Kind.RESTORE]
    assert restore.command == ()


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_record_with_what_is_no_figure_is_damaged(tmp_path: Path, word: str) -> None:
    (tmp_path / "trial.json").write_text(f'{{"schema_version": 2, "seconds": {word}}}', encoding="utf-8")
    with pytest.raises(UsageError, match=f"damaged: {word} is no figure"):
        read(tmp_path)
