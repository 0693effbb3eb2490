import json
from pathlib import Path
from typing import Any

import pytest
from tests.decisions.decisions_lab import edited, keep, run, tree
from tests.decisions.test_decisions_example import checked

from draftworth.decisions.assumptions import version_key
from draftworth.decisions.base import Assumptions, Option
from draftworth.decisions.conditions import _PARAMETERS, Condition, Gate, Holds
from draftworth.decisions.fits import unfit
from draftworth.decisions.gates import KINDS, evaluate, wrong_gate
from draftworth.decisions.known import Known
from draftworth.decisions.methods import family, is_head
from draftworth.engines.vllm.releases import METHODS

HEAD = '[[options.evidence]]\nkind = "head"\nhead = "org/h"\ntrained_for = "K2"\n'


def holds(home: Path, conditions: str, *, how: str = "all", option: str = "", name: str = "C") -> Holds:
    """Evaluate a gate of option C in a tree that also has A, ngram by the arm ngram-5."""
    text = (
        '[[options]]\nname = "A"\ntitle = "a"\nmethod = "ngram"\narm = "ngram-5"\nstate = "pending"\n'
        f'[[options]]\nname = "C"\ntitle = "c"\nmethod = "eagle3"\n{option}'
        f'[options.gate]\nwords = "w"\n{how} = [{conditions}]\n'
    )
    known = Known.read(tree(home, text))
    found = known.tree.find(name)
    assert found is not None
    assert found.gate is not None
    return evaluate(found.gate, found, known)


def test_every_kind_of_condition_is_evaluated_and_documented() -> None:
    assert set(KINDS) == set(_PARAMETERS)
    page = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind} = " not in page and f", `{kind} = " not in page] == []


@pytest.mark.parametrize(
    ("condition", "ratio", "expected"),
    [
        ('verdict = "faster"', (0.75, 0.6, 0.9), True),
        ('verdict = "slower"', (0.75, 0.6, 0.9), False),
        ("ratio_below = 1.0", (0.75, 0.6, 0.9), True),
        ("ratio_below = 0.8", (0.75, 0.6, 0.9), None),
        ("ratio_below = 0.5", (0.75, 0.6, 0.9), False),
        ("ratio_above = 1.0", (0.75, 0.6, 0.9), False),
        ("ratio_above = 0.5", (0.75, 0.6, 0.9), True),
        ("ratio_above = 0.7", (0.75, 0.6, 0.9), None),
    ],
)
@pytest.mark.parametrize("name", ["A", "ngram-5", "20261201-100000"])
def test_a_trial_decides_where_its_whole_interval_does(
    tmp_path: Path, condition: str, ratio: tuple[float, float, float], *, expected: bool | None, name: str
) -> None:
    keep(tmp_path, edited("faster", ratio))
    assert holds(tmp_path, f'{{ trial = "{name}", {condition} }}').holds is expected


def test_the_newest_trial_counts_and_none_is_not_known(tmp_path: Path) -> None:
    assert holds(tmp_path, '{ trial = "A", verdict = "faster" }') == Holds(
        holds=None,
        reason="no trial measured A",
        parts=(Holds(holds=None, reason="no trial measured A"),),
    )
    keep(tmp_path, edited("faster"))
    keep(tmp_path, edited("slower", (1.2, 1.1, 1.3), trial="20261202-090000"))
    found = holds(tmp_path, '{ trial = "A", verdict = "faster" }')
    assert (found.holds, found.reason) == (False, "trial 20261202-090000: ngram-5 is slower")


def test_another_options_state(tmp_path: Path) -> None:
    assert holds(tmp_path, '{ option = "A", state = ["pending", "adopted"] }').holds is True
    assert holds(tmp_path, '{ option = "A", state = ["adopted"] }').holds is False
    assert holds(tmp_path, '{ option = "Z", state = ["adopted"] }').holds is None


def prediction(home: Path, speed_ups: list[tuple[float, float, float]], needed: tuple[float, float, float]) -> str:
    """Keep a prediction with settings k = 1, 2, … and one head at k = 3; returns the lines that name it."""
    setting: dict[str, Any] = {
        "concurrency": 1,
        "length_per_step": 1.5,
        "coverage": 0.5,
        "length_per_drafting_step": 2.0,
        "parts": {"base_ms": 4.0, "verify_ms": 1.0, "mode_ms": 1.0},
        "idle_speed_up": 0.9,
        "break_even_length": 2.0,
        "limit": "nothing",
    }

    def figure(one: tuple[float, float, float]) -> dict[str, float]:
        return dict(zip(("value", "low", "high"), one, strict=True))

    one = figure((1.0, 1.0, 1.0))
    settings = [
        setting | {"k": k, "speed_up": figure(found), "steps_per_token": one, "tpot_ratio": one, "step_ms": one}
        for k, found in enumerate(speed_ups, 1)
    ]
    head = {"k": 3, "concurrency": 1, "draft_ms": 0.6, "step_ms": 6.0, "length": figure(needed), "possible": True}
    data = {"trace": {}, "drafter": "vllm-ngram", "costs": {}, "settings": settings, "verdict": "v", "heads": [head]}
    (home / "p.json").write_text(json.dumps(data))
    return '[[options.evidence]]\nkind = "prediction"\npath = "p.json"\n'


@pytest.mark.parametrize(
    ("limit", "expected"), [("1.02", True), ("1.04", True), ("1.07", None), ("1.2", None), ("1.31", False)]
)
def test_a_prediction_decides_where_its_whole_interval_does(
    tmp_path: Path, limit: str, *, expected: bool | None
) -> None:
    named = prediction(tmp_path, [(1.10, 1.05, 1.15), (1.05, 0.8, 1.3)], (2, 2, 2))
    found = holds(tmp_path, f"{{ predicted_speed_up_at_least = {limit} }}", option=named)
    assert found.holds is expected
    assert "best predicted speed-up 1.100 (1.050 to 1.150) at k = 1, concurrency 1" in found.reason


def test_a_prediction_of_one_setting_only(tmp_path: Path) -> None:
    named = prediction(tmp_path, [(1.10, 1.05, 1.15), (1.05, 0.8, 1.3)], (2, 2, 2))
    assert holds(tmp_path, "{ predicted_speed_up_at_least = 1.02, k = 2 }", option=named).holds is None
    assert (
        "predicts no such setting"
        in holds(tmp_path, "{ predicted_speed_up_at_least = 1.02, k = 9 }", option=named).reason
    )


def test_a_prediction_that_is_damaged_is_not_known_and_told(tmp_path: Path) -> None:
    named = prediction(tmp_path, [(1.1, 1.0, 1.2)], (2, 2, 2))
    (tmp_path / "p.json").write_text("{")
    assert holds(tmp_path, "{ predicted_speed_up_at_least = 1.02 }", option=named).holds is None
    known = Known.read(tmp_path / "decisions")
    known.predictions(known.tree.options[1])
    assert len(known.left_out) == 1
    assert "p.json: no prediction that can be read" in known.left_out[0]


@pytest.mark.parametrize(("limit", "expected"), [("2.4", True), ("2.0", None), ("1.5", False)])
def test_what_a_head_needs(tmp_path: Path, limit: str, *, expected: bool | None) -> None:
    named = prediction(tmp_path, [(1.0, 1.0, 1.0)], (2.0, 1.6, 2.4))
    assert holds(tmp_path, f"{{ needed_length_at_most = {limit}, k = 3 }}", option=named).holds is expected
    assert holds(tmp_path, f"{{ needed_length_at_most = {limit}, k = 4 }}", option=named).holds is None


def test_a_head_for_a_model(tmp_path: Path) -> None:
    assert holds(tmp_path, '{ head_for = "K2" }').holds is None
    assert holds(tmp_path, '{ head_for = "K2" }', option=HEAD).holds is True
    found = holds(tmp_path, '{ head_for = "K2.5" }', option=HEAD)
    assert (found.holds, found.reason) == (False, "org/h was trained for K2, not for K2.5")


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        ("value = 2.5, low = 2.4, high = 2.6", True),
        ("value = 2.5", True),
        ("value = 2.5, low = 2.3, high = 2.7", None),
        ("value = 1.5, low = 1.4, high = 1.7", None),
        ("value = 2.0", None),
        ("value = 1.5", False),
    ],
)
@pytest.mark.parametrize("source", ["prediction", "stated"])
def test_a_head_pays_where_it_reaches_what_breaks_even(
    tmp_path: Path, reached: str, *, expected: bool | None, source: str
) -> None:
    stated = '[[options.evidence]]\nkind = "break-even"\nk = 3\nlength = { value = 2.0, low = 1.6, high = 2.4 }\n'
    needed = prediction(tmp_path, [(1.0, 1.0, 1.0)], (2.0, 1.6, 2.4)) if source == "prediction" else stated
    head = f"{HEAD}k = 3\nlength = {{ {reached} }}\n"
    assert holds(tmp_path, "{ head_pays_at_k = 3 }", option=head + needed).holds is expected
    assert holds(tmp_path, "{ head_pays_at_k = 5 }", option=head + needed).holds is None
    assert holds(tmp_path, "{ head_pays_at_k = 3 }", option=HEAD + needed).holds is None


@pytest.mark.parametrize(
    ("asked", "expected"), [("0.17", True), ("0.25.0", True), ("0.25", True), ("0.25.1", False), ("1", False)]
)
def test_the_engine_seen_last(tmp_path: Path, asked: str, *, expected: bool) -> None:
    condition = f'{{ engine = "vllm", version_at_least = "{asked}" }}'
    assert holds(tmp_path, condition).holds is None
    keep(tmp_path, edited(version="0.9.2", trial="20261201-100000"))
    keep(tmp_path, edited(version="0.25.0", trial="20261202-100000"))
    assert holds(tmp_path, condition).holds is expected
    assert holds(tmp_path, f'{{ engine = "sglang", version_at_least = "{asked}" }}').holds is None


def test_versions_compare_by_their_numbers() -> None:
    assert version_key("0.10.0") > version_key("0.9.2")
    assert version_key("v0.17.0rc1") == version_key("0.17") == (0, 17)
    assert version_key("0.17.1.dev3+g12") == (0, 17, 1)
    assert version_key("main") == ()


def test_a_file_that_is_not_there_is_a_check_that_was_not_made(tmp_path: Path) -> None:
    assert holds(tmp_path, '{ file = "x.json" }').holds is None
    (tmp_path / "x.json").touch()
    assert holds(tmp_path, '{ file = "x.json" }').holds is True


YES, NO, UNKNOWN = (
    '{ option = "A", state = ["pending"] }',
    '{ option = "A", state = ["adopted"] }',
    '{ file = "none" }',
)


@pytest.mark.parametrize(
    ("how", "conditions", "expected"),
    [
        ("all", (YES, YES), True),
        ("all", (YES, NO), False),
        ("all", (YES, UNKNOWN), None),
        ("all", (NO, UNKNOWN), False),
        ("any", (NO, NO), False),
        ("any", (YES, UNKNOWN), True),
        ("any", (NO, UNKNOWN), None),
        ("all", (f"{{ any = [{NO}, {YES}] }}", YES), True),
        ("any", (f"{{ all = [{YES}, {UNKNOWN}] }}", NO), None),
    ],
)
def test_conditions_join_in_three_values(
    tmp_path: Path, how: str, conditions: tuple[str, str], *, expected: bool | None
) -> None:
    for some in (conditions, conditions[::-1]):
        assert holds(tmp_path, ", ".join(some), how=how).holds is expected


@pytest.mark.parametrize(
    ("condition", "wrong"),
    [
        (Condition(trial="ngram-5", verdict="faster"), True),
        (Condition(option="A", state=("adopted",)), True),
        (Condition(any=(Condition(trial="A", ratio_below=1.0), Condition(file="x"))), True),
        (Condition(option="A", state=("ruled out",)), False),
        (Condition(head_for="K2"), False),
    ],
)
def test_a_heads_gate_that_hangs_on_n_gram_is_the_wrong_gate(
    tmp_path: Path, condition: Condition, *, wrong: bool
) -> None:
    keep(tmp_path, edited())
    holds(tmp_path, YES)
    known = Known.read(tmp_path / "decisions")
    option = Option(name="C", title="c", method="eagle3", gate=Gate(words="if n-gram works", all=(condition,)))
    remarks = wrong_gate(option, known)
    assert bool(remarks) is wrong
    if wrong:
        assert "says nothing of what a head (eagle3) has accepted" in remarks[0]
    assert wrong_gate(option.model_copy(update={"method": "suffix"}), known) == []


# --- heads


def test_a_heads_model_is_told_with_or_without_its_folder(tmp_path: Path) -> None:
    head = HEAD.replace('"K2"', '"moonshotai/K2"')
    assert holds(tmp_path, '{ head_for = "k2" }', option=head).holds is True
    assert holds(tmp_path, '{ head_for = "/hub/models--moonshotai--K2/snapshots/0a1b" }', option=head).holds is True
    assert holds(tmp_path, '{ head_for = "K2.5" }', option=head).holds is False


def test_one_and_the_same_head_must_fit_and_pay(tmp_path: Path) -> None:
    even = '[[options.evidence]]\nkind = "break-even"\nk = 3\nlength = { value = 1.6 }\n'
    reached = "k = 3\nlength = { value = 3.0 }\n"
    llama = HEAD.replace("org/h", "org/llama").replace('"K2"', '"Llama-3-8B"') + reached
    conditions = '{ head_for = "K2" }, { head_pays_at_k = 3 }'
    # One was trained for it, and another one's length was measured.
    found = holds(tmp_path, conditions, option=HEAD + llama + even)
    assert found.holds is None
    assert found.reason == "org/h's acceptance length was not measured; 1.60 breaks even at k = 3 (stated)"
    assert holds(tmp_path, conditions, option=llama + even).holds is False
    nested = f"{{ all = [{conditions}] }}"
    assert holds(tmp_path, nested, option=llama + HEAD + even).holds is None
    for option in (HEAD + reached + llama + even, llama + HEAD + reached + even, HEAD + HEAD + reached + llama + even):
        assert holds(tmp_path, conditions, option=option).holds is True


def test_what_the_tree_says_of_a_head_now_counts_before_what_a_record_kept(tmp_path: Path) -> None:
    def option(reached: str) -> str:
        even = '[[options.evidence]]\nkind = "break-even"\nk = 3\nlength = { value = 2.0 }\n'
        return f'arm = "ngram-5"\n{HEAD}k = 3\nlength = {{ value = {reached} }}\n{even}'

    assert holds(tmp_path, "{ head_pays_at_k = 3 }", option=option("1.5")).holds is False
    keep(tmp_path, edited("inconclusive", (0.95, 0.85, 1.06)))
    assert run(tmp_path, "decide", "latest", "--option", "C", "--although", "a test").code == 0
    assert holds(tmp_path, "{ head_pays_at_k = 3 }", option=option("2.5")).holds is True


def test_a_gate_that_asks_only_whether_a_heads_check_is_there_is_the_wrong_gate(tmp_path: Path) -> None:
    (tmp_path / "check.json").write_text(checked("failed"))
    holds(tmp_path, YES)
    known = Known.read(tmp_path / "decisions")
    gate = Gate(words="checked", all=(Condition(file="check.json"),))
    (remark,) = wrong_gate(Option(name="C", title="c", method="eagle3", gate=gate), known)
    assert remark.endswith("ask head_check instead")


@pytest.mark.parametrize(
    ("method", "same", "head"),
    [
        ("deepseek_mtp", "mtp", True),
        ("qwen3_next_mtp", "mtp", True),
        ("NEXTN", "mtp", True),
        ("FROZEN_KV_MTP", "mtp", True),
        ("STANDALONE", "draft_model", True),
        ("draft-simple", "draft_model", True),
        ("draft-eagle3", "eagle3", True),
        ("draft-mtp", "mtp", True),
        ("draft_model", "draft_model", True),
        ("Draft_Target", "draft_model", True),
        ("dspark", "dspark", True),
        ("EAGLE3", "eagle3", True),
        ("ngram", "ngram", False),
        ("ngram-simple", "ngram_simple", False),
        ("suffix", "suffix", False),
        ("extract_hidden_states", "extract_hidden_states", False),
        ("", "", False),
    ],
)
def test_methods_are_known_by_every_engines_name(method: str, same: str, *, head: bool) -> None:
    assert (family(method), is_head(method)) == (same, head)


def test_every_method_that_vllm_knows_is_a_head_or_drafts_without_a_model() -> None:
    without = {"ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class"}
    assert {one for one in METHODS if not is_head(one)} == without


def test_a_trial_of_a_models_own_mtp_decides_mtp() -> None:
    option = Option(name="M", title="m", method="mtp")
    assert unfit(option, "a", "deepseek_mtp", Assumptions()) == []
    assert unfit(option, "a", "eagle3", Assumptions()) != []
