"""A drafter that learns from answers, asked the same prompts again: told, and no verdict rests on it."""

from typing import Any

import pytest
from tests.fakes.openai_server import Script, serving
from tests.trials.conftest import Case
from tests.trials.test_trials_outcome import config_of, row

from draftworth.bench.base import Closed
from draftworth.bench.points import Point
from draftworth.bench.window import Window
from draftworth.engines.vllm import VLLM
from draftworth.findings import Code
from draftworth.search.grid import candidates_of
from draftworth.services.base import Observed
from draftworth.trials.base import Block, Outcome
from draftworth.trials.config import TrialConfig
from draftworth.trials.judge import arms_of, judge_all
from draftworth.trials.plan import plan
from draftworth.trials.remarks import ArmInfo
from draftworth.trials.remembered import learns, remembered

SUFFIX = {"method": "suffix", "num_speculative_tokens": 8}
ONE, FOUR = (Point(Closed(at_once), 128, label=f"{at_once} at a time") for at_once in (1, 4))


def suffix(config: dict[str, Any] = SUFFIX) -> ArmInfo:
    return ArmInfo("suffix", config=config, speculates=True)


def block(arm: str, windows: list[tuple[Point, str, float]], *, start: int = 1, number: int = 1) -> Block:
    """One start's answers: point, prompts and TPOT of each window."""
    made = [
        Window(
            arm,
            point,
            [row(arm, prompt, tpot, point=point.label, started_unix=at) for at, prompt in enumerate(prompts)],
        )
        for point, prompts, tpot in windows
    ]
    return Block(arm, number, start, windows=made)


@pytest.mark.parametrize(
    ("config", "args", "engine", "name"),
    [
        (SUFFIX, (), "vllm", "suffix decoding"),
        ({**SUFFIX, "suffix_decoding_max_cached_requests": 0}, (), "vllm", None),  # each request's own tree alone
        ({"method": "ngram", "num_speculative_tokens": 3}, (), "vllm", None),
        (None, ("--speculative-algorithm", "NGRAM"), "sglang", "NGRAM drafting"),
        (None, ("--speculative-algorithm=NGRAM",), "sglang", "NGRAM drafting"),
        (None, ("--speculative-algorithm", "EAGLE3"), "sglang", None),
        (None, ("--spec-type", "draft-mtp,ngram-mod"), "llamacpp", "ngram-mod drafting"),
        (None, ("--spec-type", "ngram-simple"), "llamacpp", None),
        (None, ("--spec-default",), "llamacpp", "ngram-mod drafting"),
        ({"algorithm": "NGRAM", "num_draft_tokens": 4}, (), "sglang", "NGRAM drafting"),
        ({"speculative_algorithm": "NGRAM"}, (), "sglang", "NGRAM drafting"),
        ({"speculative-algorithm": "ngram"}, (), "sglang", "NGRAM drafting"),  # 0.5.12 and later take any case
        ({"algorithm": "EAGLE3", "draft_model_path": "/h"}, (), "sglang", None),
        ({"algorithm": None}, (), "sglang", None),
        ({"type": "ngram-mod"}, (), "llamacpp", "ngram-mod drafting"),
        ({"spec_type": "ngram-map-k"}, (), "llamacpp", "ngram-map-k drafting"),
        ({"--spec-type": "draft-mtp, ngram-cache"}, (), "llamacpp", "ngram-cache drafting"),
        (
            {"type": ["draft-simple", "ngram-map-k4v"], "draft": {"model": "/d"}},
            (),
            "llamacpp",
            "ngram-map-k4v drafting",
        ),
        ({"spec-default": True}, (), "llamacpp", "ngram-mod drafting"),
        ({"type": "ngram-simple", "size_m": 8}, (), "llamacpp", None),
        ({"type": ["draft-simple"]}, ("--spec-type", "ngram-mod"), "llamacpp", "ngram-mod drafting"),
        ({"file": "x.yaml"}, (), "trtllm", None),
    ],
)
def test_which_drafters_learn_from_other_answers(
    config: dict[str, Any] | None, args: tuple[str, ...], engine: str, name: str | None
) -> None:
    assert learns(config, args, engine) == name


def test_repeats_within_a_start_are_counted_and_another_start_is_new() -> None:
    twice = block("suffix", [(ONE, "abcabc", 1.0)])
    assert "answered 3 of the 6 prompts" in remembered(suffix(), [twice])[ONE.label].message
    again = block("suffix", [(ONE, "abc", 1.0)], start=2, number=2)
    assert remembered(suffix(), [block("suffix", [(ONE, "abc", 1.0)]), again]) == {}
    assert remembered(suffix({"method": "ngram"}), [twice]) == {}


def test_a_later_load_of_the_same_start_is_told_and_the_first_is_not() -> None:
    sweep = block("suffix", [(ONE, "abcd", 1.0), (FOUR, "abcd", 1.0)])
    found = remembered(suffix(), [sweep])
    assert list(found) == [FOUR.label]
    assert found[FOUR.label].code is Code.DRAFTS_REMEMBERED


def test_prompts_that_the_server_answered_before_the_trial_count() -> None:
    met = Window("suffix", ONE, [row("suffix", name, 1.0, prompt_token_ids=[at]) for at, name in enumerate("abcd")])
    assert remembered(suffix(), [Block("suffix", 1, windows=[met])], frozenset({(0,), (2,)}))
    assert not remembered(suffix(), [Block("suffix", 1, windows=[met])], frozenset({(7,)}))


def test_a_gain_from_remembered_answers_is_no_verdict_but_the_fresh_loads_is() -> None:
    prompts = "abcdefghijkl"
    config = config_of("suffix", restart_sd_baseline=0.0, restart_sd_variant=0.0)
    arms = [arms_of(config, {"baseline": (), "suffix": ()})[0], suffix()]

    def judged(points: list[Point]) -> Any:
        outcome = Outcome(
            blocks=[
                block("baseline", [(point, prompts, 10.0) for point in points]),
                block("suffix", [(point, prompts, 5.0) for point in points], number=2),
            ]
        )
        return judge_all(outcome, arms, config, VLLM())

    (once,), _, _ = judged([ONE])
    assert once.verdict == "faster"
    (swept,), _, findings = judged([ONE, FOUR])
    assert swept.verdict == "inconclusive"
    assert "met these prompts' answers before" in swept.reason
    assert {one.category: str(one.verdict) for one in swept.categories if one.kind == "point"} == {
        ONE.label: "faster",
        FOUR.label: "inconclusive",
    }
    assert [one.code for one in findings].count(Code.DRAFTS_REMEMBERED) == 1


def test_a_server_that_an_earlier_trial_asked_the_same_is_remembered(case: Case) -> None:
    with (
        serving(Script(token_ms=2.0, tokens=12)) as one,
        serving(Script(token_ms=0.5, tokens=12), speculative_config=SUFFIX) as other,
    ):
        arms = (
            f'[service]\ntype = "endpoints"\nlooks = 1\nbaseline = "{one.base_url}"\n[[arms]]\nname = "suffix"\n'
            f'url = "{other.base_url}"\nspeculative_config = {{ method = "suffix", num_speculative_tokens = 8 }}\n'
        )
        work = "[workload]\nprompts_per_category = 4\nmax_tokens = 12\nwarmup = 1\n[verdict]\noutput_check = false\n"
        case.file.write_text(arms + work, encoding="utf-8")
        first, second = case.run(), case.run()
    assert first.json["verdict"] == "faster"
    assert second.json["verdict"] == "inconclusive"
    told = next(one for one in second.json["findings"] if one["code"] == "drafts_remembered")
    assert "20 of the 20 prompts" in told["message"]


@pytest.mark.parametrize(
    ("engine", "grid", "learning"),
    [("sglang", {"algorithm": "NGRAM"}, "NGRAM"), ("llamacpp", {"type": "ngram-mod"}, "ngram-mod")],
)
def test_an_arm_of_another_engines_grid_is_recognised(engine: str, grid: dict[str, Any], learning: str) -> None:
    arm = candidates_of([grid], engine=engine).candidates[0]
    info = ArmInfo(arm.name, config=arm.config, speculates=True, engine=engine)
    found = remembered(info, [block(arm.name, [(ONE, "abcabc", 1.0)])])
    assert f"{learning} drafting learns from every answer" in found[ONE.label].message


@pytest.mark.parametrize(
    ("workload", "spec", "told"),
    [
        ({"concurrency": [1, 4]}, SUFFIX, True),
        ({"repeats": 2}, SUFFIX, True),
        ({}, SUFFIX, False),
        ({"repeats": 2}, {"method": "ngram", "num_speculative_tokens": 3}, False),
    ],
)
def test_the_plan_says_so_before_a_reload_is_spent(
    workload: dict[str, Any], spec: dict[str, Any], *, told: bool
) -> None:
    config = TrialConfig.model_validate(
        {
            "service": {"command": ["vllm", "serve", "m"], "port": 8000},
            "arms": [{"name": "one", "speculative_config": spec}],
            "workload": workload,
        }
    )
    made = plan(config, Observed(running=False), VLLM(), version="0.32.0", prompts=10)
    assert any("learns from every answer" in note for note in made.notes) is told
