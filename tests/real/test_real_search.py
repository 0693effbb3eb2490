"""A search on a real unit: a setting that dies has the host put the original back, and the search goes on behind it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers import wait_for
from tests.real.private_systemd import PrivateSystemd
from tests.real.unit_case import QUICK, UnitCase

EACH = "min_gain = 0.0\nmin_chance = 0.0\nlooks = 1\n"
TIGHT = "[verdict]\nrestart_sd_baseline = 0.005\nrestart_sd_variant = 0.01\n"


@pytest.fixture
def case(module_systemd: PrivateSystemd, tmp_path: Path) -> Iterator[UnitCase]:
    found = UnitCase(module_systemd, tmp_path, unit="searched.service")
    yield found
    found.systemd.systemctl("stop", found.unit, check=False)


@pytest.mark.parametrize("service", ["append_args = true", 'append_args = true\nway = "drop-in"'])
def test_a_setting_that_dies_is_one_that_failed(case: UnitCase, service: str) -> None:
    draft = '{ method = "draft_model", model = "d", num_speculative_tokens = %d }\ncheck = false'
    script = {**QUICK, "by_k": {"2": {"die_at": "load"}, "4": {"token_ms": 1.0}}}
    arms = [(f"draft-{k}", draft % k) for k in (2, 4)]
    case.serve(script).trial(service=service, prompts=8, arms=arms, extra=f"{TIGHT}\n[search]\n{EACH}")
    before = case.facts()
    done = case.cli("trial", "search", str(case.file), "--yes", "--json", timeout_s=150.0)
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (record["verdict"], record["best"], record["restored"]) == ("faster", "draft-4", True)
    tried = {one["name"]: one["failed"] for one in record["search"]["tried"]}
    assert list(tried) == ["draft-2", "draft-4"], "of equal ones the first by name is tried first"
    assert "the server ended while it started" in tried["draft-2"]
    assert tried["draft-4"] is None
    assert not [one for one in record["findings"] if one["code"] == "leftovers"], record["findings"]
    stopped = [event.step for event in case.events() if event.kind == "effect" and "stop-original" in event.step]
    assert len(stopped) == 2, "it came back behind the setting that died, and was stopped again for the next"
    assert case.facts() == before
    # The drop-in that would adopt it, as `trial adopt` writes it.
    text = (case.trials()[-1] / "adopt.conf").read_text(encoding="utf-8")
    assert '"num_speculative_tokens":4' in text.replace("\\", "").replace(" ", "")
    adopted = case.cli("trial", "adopt", record["id"], "--arm", "draft-4")
    assert adopted.code == 0, adopted.err
    drop_in = next(path for path in case.systemd.etc.glob(f"{case.unit}.d/*.conf"))
    assert drop_in.read_text(encoding="utf-8").split("[Service]")[1] == text.split("[Service]")[1]
    assert case.cli("trial", "unadopt", record["id"]).code == 0


def test_the_original_is_stopped_by_a_step_of_its_own_for_a_baseline_with_flags(case: UnitCase) -> None:
    script = {**QUICK, "by_k": {"2": {"token_ms": 1.0}, "4": {"die_at": "load"}}}
    draft = '{ method = "draft_model", model = "d", num_speculative_tokens = %d }\ncheck = false'
    arms = [("draft-2", draft % 2), ("draft-4", draft % 4)]
    case.serve(script).trial(arms=arms, prompts=4, extra=f"{TIGHT}\n[search]\n{EACH}")
    text = case.file.read_text(encoding="utf-8")
    flags = '[[arms]]\nname = "baseline"\nargs = ["--max-model-len", "4096"]\n\n[workload]'
    case.file.write_text(text.replace("[workload]", flags), encoding="utf-8")
    before = case.facts()
    done = case.cli("trial", "search", str(case.file), "--yes", "--json", timeout_s=150.0)
    record = json.loads(done.out)
    assert record["restored"] is True
    assert [one["name"] for one in record["search"]["tried"]] == ["draft-2", "draft-4"]
    away = False
    for step in [event.step for event in case.events() if event.kind == "intent"]:
        if "stop-original" in step or "restore" in step:
            away = "stop-original" in step
        elif "start-" in step:
            assert away, f"{step} while the original serves"
    assert case.facts() == before


def test_a_search_that_was_stopped_goes_on_and_its_best_can_be_adopted(case: UnitCase) -> None:
    script = {**QUICK, "by_k": {"2": {"token_ms": 1.0}, "4": {"token_ms": 90.0}}}
    draft = '{ method = "draft_model", model = "d", num_speculative_tokens = %d }\ncheck = false'
    arms = [(f"draft-{k}", draft % k) for k in (2, 4)]
    case.serve(script).trial(prompts=8, arms=arms, extra=f"{TIGHT}\n[search]\n{EACH}")
    before = case.facts()
    started = case.cli("trial", "search", str(case.file), "--yes", "--detach")
    assert started.code == 0, started.err
    wait_for(lambda: case.reached("measure-draft-4"), 60.0, "the second setting is measured")
    first = started.out.strip()
    assert case.cli("trial", "stop", first).code == 0
    case.cli("trial", "attach", first)
    assert (case.record()["restored"], case.record()["search"]["complete"]) == (True, False)
    assert case.facts() == before
    case.script({**script, "by_k": {**script["by_k"], "4": {"token_ms": 3.0}}})
    again = case.cli("trial", "search", str(case.file), "--yes", timeout_s=150.0)
    assert again.code == 0, again.out + again.err
    record = case.record()
    assert {one["name"]: one["trial"] for one in record["search"]["tried"]} == {"draft-2": first, "draft-4": None}
    # The first trial ended before its check: its answers are checked in the second.
    assert (record["verdict"], record["best"]) == ("faster", "draft-2")
    (earlier,) = record["earlier"]
    assert (earlier["arm"], earlier["output_check"]["status"]) == ("draft-2", "same")
    assert earlier["output_check"]["variant_positions"] == earlier["output_check"]["baseline_positions"]
    assert (record["search"]["best"][0]["trial"], record["search"]["best"][0]["output"]) == (first, "same")
    assert f"adopt it: draftworth trial adopt {record['id']} --arm draft-2" in again.out
    text = (case.trials()[-1] / "adopt.conf").read_text(encoding="utf-8")
    assert case.facts() == before
    adopted = case.cli("trial", "adopt", record["id"], "--arm", "draft-2")
    assert adopted.code == 0, adopted.err
    drop_in = next(path for path in case.systemd.etc.glob(f"{case.unit}.d/*.conf"))
    assert drop_in.read_text(encoding="utf-8").split("[Service]")[1] == text.split("[Service]")[1]
    assert case.cli("trial", "unadopt", record["id"]).code == 0
