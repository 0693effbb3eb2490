import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.decisions.decisions_lab import edited, keep, run, tree

from draftworth.costs.base import Costs
from draftworth.decisions import check as checking
from draftworth.decisions import known as known_module
from draftworth.decisions.assumptions import same_service
from draftworth.decisions.check import check
from draftworth.decisions.known import Known
from draftworth.decisions.records import read_all, writing
from draftworth.decisions.traffic import mix_shift

ONE = '[[options]]\nname = "A"\ntitle = "n-gram"\nmethod = "ngram"\narm = "ngram-5"\n'
LATER = "20261215-100000"
RULED_OUT = ("slower", (1.2, 1.1, 1.3))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder whose only option was ruled out on vLLM 0.32.0."""
    tree(tmp_path, ONE)
    keep(tmp_path, edited(*RULED_OUT))
    assert run(tmp_path, "decide", "latest").code == 0
    return tmp_path


def checked(home: Path, *words: str) -> dict[str, Any]:
    done = run(home, "decisions", "check", "--json", *words)
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def reasons(home: Path) -> list[str]:
    found: list[str] = checked(home)["options"][0]["reopen"]
    return found


def renamed(data: dict[str, Any], arm: str) -> dict[str, Any]:
    """Return a record whose variant has another name."""
    text: dict[str, Any] = json.loads(json.dumps(data).replace('"ngram-5"', f'"{arm}"'))
    return text


def test_with_nothing_newer_nothing_is_reopened(home: Path) -> None:
    assert reasons(home) == []
    assert run(home, "decisions", "check").out == "Nothing is to be reopened.\n"


def test_a_newer_trial_with_another_verdict_reopens(home: Path) -> None:
    keep(home, edited("faster", trial=LATER))
    (reason,) = reasons(home)
    assert reason.startswith(
        f"trial {LATER} says otherwise: ngram-5 is adopted: TPOT ratio to the baseline 0.750 (95 % "
    )


def test_a_newer_trial_with_the_same_verdict_confirms_even_on_another_version(home: Path) -> None:
    keep(home, edited(*RULED_OUT, trial=LATER, version="0.33.0"))
    found = checked(home)["options"][0]
    assert found["reopen"] == []
    assert f"trial {LATER} confirms it, under engine version: 0.32.0 then, 0.33.0 now" in found["remarks"][0]


def test_one_that_does_not_decide_reopens_nothing_by_itself(home: Path) -> None:
    keep(home, edited("inconclusive", (0.95, 0.85, 1.06), trial=LATER))
    found = checked(home)["options"][0]
    assert (found["reopen"], "does not decide it" in found["remarks"][0]) == ([], True)


def test_another_version_in_a_trial_of_another_arm_reopens(home: Path) -> None:
    keep(home, renamed(edited(trial=LATER, version="0.33.0"), "eagle"))
    assert reasons(home) == [f"trial {LATER} is of other conditions: engine version: 0.32.0 then, 0.33.0 now"]


def test_other_hardware_reopens_and_another_kernel_does_not(home: Path) -> None:
    data = renamed(edited(trial=LATER), "eagle")
    data["machine"]["kernel"] = "7.0"
    keep(home, data)
    assert reasons(home) == []
    data["machine"]["cores"] = 64
    keep(home, data)
    told = "hardware: processor AMD EPYC, cores 2 then, processor AMD EPYC, cores 64 now"
    assert reasons(home) == [f"trial {LATER} is of other conditions: {told}"]


def test_an_older_trial_or_one_of_another_model_reopens_nothing(home: Path) -> None:
    keep(home, renamed(edited(trial="20261130-100000", version="0.33.0"), "eagle"))
    other = json.loads(json.dumps(renamed(edited(trial=LATER, version="0.33.0"), "eagle")).replace("SmolLM2", "Qwen3"))
    keep(home, other)
    assert reasons(home) == []


def test_traffic_of_another_mix_reopens(home: Path) -> None:
    data = renamed(edited(trial=LATER), "eagle")
    # 10 prompts, 2 of each of five categories; now 12: 4 coding and 2 of each other: 1/3 - 1/5 = 13 % moved.
    for one in [*data["comparison"]["categories"], *data["comparisons"][0]["categories"]]:
        one["pairs"] = 4 if one["category"] == "coding" else 2
    keep(home, data)
    assert reasons(home) == [f"trial {LATER} has other traffic: 13 % of the prompts moved to other categories"]


def test_how_much_of_a_mix_moved() -> None:
    assert mix_shift({"a": 1, "b": 1}, {"a": 50, "b": 50}) == 0
    assert mix_shift({"a": 1}, {"b": 3}) == 1
    assert mix_shift({"a": 3, "b": 1}, {"a": 2, "b": 2}) == 0.25
    assert mix_shift({}, {"a": 1}) is None


def costs(home: Path, **said: Any) -> None:
    (home / "costs").mkdir(exist_ok=True)
    said = {"created": "2026-12-20T00:00:00Z", "engine": "vllm", "model": "SmolLM2-135M-Instruct", **said}
    (home / "costs" / "c.json").write_text(Costs(**said).model_dump_json())


def test_newer_costs_of_another_version_reopen(home: Path) -> None:
    costs(home, version="0.34.0")
    assert reasons(home) == ["costs/c.json is of other conditions: engine version: 0.32.0 then, 0.34.0 now"]
    costs(home, version="0.34.0", created="2026-11-01T00:00:00Z")
    assert reasons(home) == []
    costs(home, version="0.34.0", model="Qwen3-8B")
    assert reasons(home) == []


def prediction(
    home: Path,
    value: float,
    low: float,
    high: float,
    created: str = "2026-12-20T00:00:00Z",
    *,
    made: str = "",
    path: str = "predictions/p.json",
) -> None:
    one = {"value": value, "low": low, "high": high}
    setting = {
        "k": 2,
        "concurrency": 1,
        "length_per_step": 1.5,
        "coverage": 0.5,
        "length_per_drafting_step": 2.0,
        "parts": {"base_ms": 4.0, "verify_ms": 1.0, "mode_ms": 1.0},
        "idle_speed_up": 0.9,
        "break_even_length": 2.0,
        "limit": "nothing",
        "speed_up": one,
        "steps_per_token": one,
        "tpot_ratio": one,
        "step_ms": one,
    }
    data = {"trace": {}, "drafter": "vllm-ngram", "costs": {"created": created}, "settings": [setting], "verdict": "v"}
    (home / path).parent.mkdir(exist_ok=True)
    (home / path).write_text(json.dumps(data | ({"created": made} if made else {})))


def test_a_prediction_beyond_the_bound_reopens(home: Path) -> None:
    prediction(home, 1.1, 1.01, 1.2)
    assert reasons(home) == []
    prediction(home, 1.1, 1.03, 1.2)
    assert reasons(home) == [
        "predictions/p.json predicts a speed-up of 1.100 (1.030 to 1.200) at k = 2, concurrency 1: above 1.02"
    ]
    prediction(home, 1.1, 1.03, 1.2, created="2026-11-01T00:00:00Z")
    assert reasons(home) == []


def test_what_is_adopted_is_reopened_by_a_prediction_below_and_by_its_gate(tmp_path: Path) -> None:
    gate = '[options.gate]\nwords = "w"\nall = [{ predicted_speed_up_at_least = 1.02 }]\n'
    tree(tmp_path, ONE + gate)
    keep(tmp_path, edited("faster"))
    assert run(tmp_path, "decide", "latest").code == 0
    assert reasons(tmp_path) == []
    prediction(tmp_path, 0.9, 0.85, 0.95)
    first, second = reasons(tmp_path)
    assert first.endswith("0.900 (0.850 to 0.950) at k = 2, concurrency 1: below 0.98")
    assert second.startswith("its gate no longer holds: predictions/p.json: best predicted speed-up 0.900")


def test_apply_writes_one_record_and_is_then_done(home: Path) -> None:
    costs(home, version="0.34.0")
    found = checked(home, "--apply")
    assert len(found["written"]) == 1
    last = read_all(home / "decisions")[-1]
    assert (last.decision.number, last.decision.by, last.decision.before, last.decision.state) == (
        2,
        "check",
        "ruled out",
        "reopened",
    )
    assert last.decision.reasons == ("costs/c.json is of other conditions: engine version: 0.32.0 then, 0.34.0 now",)
    assert checked(home, "--apply")["written"] == []
    assert "A  reopened  n-gram" in run(home, "decisions").out
    # The evidence that was left behind does not decide it again.
    done = run(home, "decide", "20261201-100000")
    assert (done.code, "rests on this very evidence" in done.err) == (1, True)
    keep(home, edited(*RULED_OUT, trial=LATER, version="0.34.0"))
    assert f"nothing was decided on it: `draftworth decide {LATER} --option A`" in run(home, "decisions", "check").out
    assert run(home, "decide", "latest").code == 0
    assert reasons(home) == []


def test_what_cannot_be_read_is_named_and_the_rest_is_checked(home: Path) -> None:
    costs(home, version="0.34.0")
    folder = keep(home, edited(trial=LATER))
    (folder / "trial.json").write_text('{"schema_version": 2, "id": 3}')
    found = checked(home)
    assert len(found["options"][0]["reopen"]) == 1
    assert len(found["left_out"]) == 1
    assert "trial.json: damaged" in found["left_out"][0]


def test_a_damaged_record_stops_everything_with_its_line(home: Path) -> None:
    path = next((home / "decisions").glob("0001*"))
    path.write_text(path.read_text(encoding="utf-8").replace('by = "trial"', 'by = "me"'), encoding="utf-8")
    for words in (("decisions",), ("decisions", "check"), ("decisions", "next"), ("decide", "latest")):
        done = run(home, *words)
        assert (done.code, f"{path}:9: by: input should be 'trial'" in done.err) == (1, True), done.err


def test_a_gate_that_came_to_hold_is_told(tmp_path: Path) -> None:
    tree(
        tmp_path,
        f'{ONE}[[options]]\nname = "B"\ntitle = "b"\n[options.gate]\nwords = "after A"\n'
        'all = [{ option = "A", state = ["adopted"] }]\n',
    )
    assert checked(tmp_path)["options"][1]["remarks"] == []
    keep(tmp_path, edited())
    run(tmp_path, "decide", "latest")
    assert checked(tmp_path)["options"][1]["remarks"] == [
        "its gate holds: it can be taken up (option A is adopted)",
    ]


def test_next_orders_by_gate_state_gain_and_cost(tmp_path: Path) -> None:
    def option(name: str, more: str = "") -> str:
        return f'[[options]]\nname = "{name}"\ntitle = "t"\n{more}\n'

    def gate(condition: str) -> str:
        return f'[options.gate]\nwords = "w"\nall = [{{ {condition} }}]'

    def gain(value: float) -> str:
        return f'gain = {{ value = {value}, source = "s" }}'

    tree(
        tmp_path,
        option("closed", gate('option = "open", state = ["adopted"]'))
        + option("part-of-closed", 'parent = "closed"')
        + option("unknown", gate('file = "x"'))
        + option("open")
        + option("gain-small", gain(1.1))
        + option("gain-large", gain(1.5))
        + option("cheap", 'reload_minutes = { value = 3, source = "s" }')
        + option("pending", 'state = "pending"'),
    )
    found = run(tmp_path, "decisions", "next", "--json").json
    assert [one["option"] for one in found["steps"]] == [
        "pending",
        "gain-large",
        "gain-small",
        "cheap",
        "open",
        "unknown",
        "closed",
        "part-of-closed",
    ]


def test_next_takes_the_cost_from_starts_and_says_what_is_not_known(tmp_path: Path) -> None:
    tree(tmp_path, ONE + '[[options]]\nname = "B"\ntitle = "b"\n')
    page = run(tmp_path, "decisions", "next").out
    assert page.count("- Reloads of one trial: not known.") == 2
    assert page.count("- Expected speed-up: not known.") == 2
    costs(tmp_path, version="1", reload_s=90.0)
    assert (
        "- Reloads of one trial: 3 min, costs/c.json, twice the baseline's start."
        in run(tmp_path, "decisions", "next").out
    )
    # The demo's starts: 29.344 s of the variant, 28.066 s the longest of the baseline: 0.957 min.
    keep(tmp_path, edited("inconclusive", (0.95, 0.85, 1.06)))
    # A folder that is not there is a mistyped one: it is not made.
    done = run(tmp_path, "decisions", "next", "--out", tmp_path / "page" / "next.md")
    assert (done.code, "next.md: cannot be written: No such file or directory" in done.err) == (1, True)
    assert not (tmp_path / "page").exists()
    out = tmp_path / "next.md"
    assert run(tmp_path, "decisions", "next", "--out", out).out == ""
    page = out.read_text(encoding="utf-8")
    assert "- Reloads of one trial: 0.957 min, starts of trial 20261201-100000." in page
    assert "- Reloads of one trial: 0.957 min, starts of trial 20261201-100000, another arm's." in page


def test_no_tree_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "decisions")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "there is no options tree yet" in done.err


# --- which prediction is new


def test_a_prediction_is_as_new_as_it_was_made_and_not_as_its_costs(home: Path) -> None:
    old = "2026-11-30T00:00:00+00:00"  # the day before the trial
    prediction(home, 1.5, 1.4, 1.6, created=old, made="2026-12-20T00:00:00Z")
    assert len(reasons(home)) == 1
    prediction(home, 1.5, 1.4, 1.6, created=old, made="2026-11-30T12:00:00Z")
    assert reasons(home) == []
    # Of one moment with the trial, in whatever form it is written: not later.
    prediction(home, 1.5, 1.4, 1.6, created="2026-12-20T00:00:00Z", made="2026-12-01T12:00:00+02:00")
    assert reasons(home) == []


@pytest.mark.parametrize("named", [False, True])
def test_the_newest_prediction_counts_whatever_the_files_times_are(tmp_path: Path, *, named: bool) -> None:
    gate = '[options.gate]\nwords = "w"\nall = [{ predicted_speed_up_at_least = 1.02 }]\n'
    evidence = '[[options.evidence]]\nkind = "prediction"\npath = "evidence/new.json"\n'
    tree(tmp_path, ONE + (evidence if named else "") + gate)
    prediction(tmp_path, 1.5, 1.4, 1.6, made="2026-10-01T00:00:00Z", path="predictions/october.json")
    new = "evidence/new.json" if named else "predictions/december.json"
    prediction(tmp_path, 0.8, 0.7, 0.9, made="2026-12-20T00:00:00Z", path=new)
    for seconds in (1, 2_000_000_000):  # a checkout writes the files in any order
        os.utime(tmp_path / "predictions" / "october.json", (seconds, seconds))
        holds = checked(tmp_path)["options"][0]["holds"]
        assert (holds["holds"], new in holds["reason"]) == (False, True)


# --- other traffic


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"temperature": 1.0}, "temperature: 0 then, 1 now"),
        ({"max_tokens": [4096]}, "most tokens of an answer: 96 then, 4096 now"),
        ({"concurrency": [1, 64]}, "1 at a time then, 1, 64 at a time now"),
        ({"rate": [4.0]}, "1 at a time then, 4 requests a second now"),
        ({"context_tokens": [8192]}, "tokens that prompts are filled up to: none then, 8192 now"),
        ({"ignore_eos": True}, "answers past their end: no then, yes now"),
        ({"source": "/traces/ours.jsonl"}, "prompts: builtin then, own now"),
        ({"max_tokens": [100]}, None),  # within a tenth
        ({"limit": 5, "seed": 3, "repeats": 4}, None),
    ],
)
@pytest.mark.parametrize("kept", [True, False])
def test_every_other_traffic_that_a_record_promises_reopens(
    home: Path, sent: dict[str, Any], said: str | None, *, kept: bool
) -> None:
    (path,) = (home / "decisions").glob("0001-*")
    text = path.read_text(encoding="utf-8")
    assert "Other traffic in a newer trial: " in text
    if not kept:  # a record of an earlier version does not tell its requests: its trial does
        lines = text.splitlines(keepends=True)
        assert sum(one.startswith("requests = ") for one in lines) == 1
        path.write_text("".join(one for one in lines if not one.startswith("requests = ")), encoding="utf-8")
    data = renamed(edited(trial=LATER), "eagle")
    data["config"]["workload"].update(sent)
    keep(home, data)
    assert reasons(home) == ([f"trial {LATER} has other traffic: {said}"] if said else [])


def test_a_load_within_those_of_a_sweep_is_no_other_traffic(tmp_path: Path) -> None:
    tree(tmp_path, ONE)
    data = edited(*RULED_OUT)
    data["config"]["workload"]["concurrency"] = [1, 16]
    keep(tmp_path, data)
    assert run(tmp_path, "decide", "latest").code == 0
    later = renamed(edited(trial=LATER), "eagle")
    for load, many in ((8, False), (17, False), (18, True)):
        later["config"]["workload"]["concurrency"] = [load]
        keep(tmp_path, later)
        assert bool(reasons(tmp_path)) is many, load


# --- what --apply writes


def test_what_apply_writes_names_its_evidence(home: Path) -> None:
    costs(home, version="0.34.0")
    prediction(home, 1.5, 1.4, 1.6)
    keep(home, edited("faster", trial=LATER))
    checked(home, "--apply")
    last = read_all(home / "decisions")[-1]
    found = {(one.kind, one.trial or one.path) for one in last.decision.evidence}
    assert found == {("trial", LATER), ("costs", "costs/c.json"), ("prediction", "predictions/p.json")}
    assert f"## Evidence\n\n- trial {LATER}" in last.body
    assert checked(home)["left_out"] == []


def test_apply_sees_what_was_decided_while_it_waited(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(home, ONE + ONE.replace('"A"', '"B"').replace("ngram-5", "eagle"))
    keep(home, renamed(edited(*RULED_OUT, trial="20261202-100000"), "eagle"))
    assert run(home, "decide", "latest", "--option", "B").code == 0
    costs(home, version="0.34.0")
    assert [bool(one["reopen"]) for one in checked(home)["options"]] == [True, True]

    @contextmanager
    def slow(folder: Path) -> Iterator[None]:
        assert run(home, "decide", "--option", "A", "--state", "reopened").code == 0
        with writing(folder):
            yield

    monkeypatch.setattr(checking, "writing", slow)
    assert [Path(one).name[:4] for one in checking.apply(home / "decisions", "2026-12-21").written] == ["0004"]
    last = read_all(home / "decisions")[-1].decision
    assert (last.number, last.option, last.by) == (4, "B", "check")


# --- many trials


def test_which_service_an_option_is_of_is_told_once(tmp_path: Path) -> None:
    options = [ONE.replace('"A"', f'"o{at}"') for at in range(4)]
    tree(tmp_path, "".join(options))
    for at in range(30):
        keep(tmp_path, edited(*RULED_OUT, trial=f"20261201-1000{at:02}"))
    known = Known.read(tmp_path / "decisions")
    with mock.patch.object(known_module, "same_service", wraps=same_service) as compared:
        check(known)
    # Each option with each trial a few times, and never each trial with each other: 30 * 30 * 4 = 3600.
    assert compared.call_count <= 4 * 30 * 5
