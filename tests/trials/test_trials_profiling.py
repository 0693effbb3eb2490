"""Profiles of a trial: what is sent under the profiler, and traces that cannot be read."""

import gzip
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.reports.reports_trials import folder_of, record

from draftworth.bench.base import Closed, Prompt, Target
from draftworth.findings import Code, find
from draftworth.reports.trial.gather import gather
from draftworth.reports.trial_page import page_of
from draftworth.trials.profiling import kept, kept_or_lost, profile_server, read_taken, warm_and_profiled

KERNEL = {"ph": "X", "cat": "kernel", "name": "nvjet_tst", "ts": 1.0, "dur": 2.0, "pid": 0, "tid": 7}


def prompts(many: int) -> list[Prompt]:
    return [Prompt(f"p{at}", f"c{at * 4 // many}", ({"role": "user", "content": f"ask {at}"},)) for at in range(many)]


def taken(folder: Path, arm: str, text: bytes) -> Path:
    traces = folder / "profiles" / arm
    traces.mkdir(parents=True)
    (traces / "rank0.1.pt.trace.json.gz").write_bytes(text)
    (folder / "profiles" / f"{arm}.taken.json").write_text('{"tokens": 4}')
    return traces


def whole(*names: str) -> bytes:
    events = [{**KERNEL, "name": name, "ts": 1.0 + 10 * at} for at, name in enumerate(names)]
    return gzip.compress(json.dumps({"traceEvents": events}).encode())


@pytest.mark.parametrize(
    ("many", "at_once", "profiled"), [(100, 1, 8), (100, 64, 64), (100, 100, 75), (9, 4, 7), (8, 64, 6), (2, 8, 1)]
)
def test_no_prompt_is_profiled_that_warmed_the_server_up(many: int, at_once: int, profiled: int) -> None:
    """Suffix decoding would draft the whole of an answer that it has given before."""
    every = prompts(many)
    warming, chosen = warm_and_profiled(every, at_once)
    assert len(chosen) == len(warming) == profiled
    asked = {str(one.messages) for one in chosen}
    assert len(asked) == profiled
    assert not asked & {str(one.messages) for one in warming}
    assert len({one.id for one in warming}) == len(warming)
    if many == 100:
        assert {one.category for one in chosen} == {"c0", "c1", "c2", "c3"}, "not of the first category alone"
    assert warm_and_profiled(every, at_once) == (warming, chosen), "the same for both servers"


def test_what_is_sent_under_the_profiler_was_not_answered_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []

    async def measure(_: Target, *, prompts: list[Prompt], load: Closed, **__: Any) -> Any:
        done.append(([str(one.messages) for one in prompts], load.concurrency))
        return SimpleNamespace(rows=[])

    async def post(_: Target, path: str) -> None:
        done.append(path)

    monkeypatch.setattr("draftworth.bench.run.measure", measure)
    monkeypatch.setattr("draftworth.trials.profiling._post", post)
    target = Target("http://127.0.0.1:9", "m")
    why = profile_server(target, prompts(40), tmp_path, "profile-a", at_once=16, seconds=60, tell=lambda _: None)
    assert why is None
    (warm, at_once), start, (chosen, under), stop = done
    assert (start, stop) == ("/start_profile", "/stop_profile")
    assert at_once == under == 16
    assert len(chosen) == 16, "as many as run at a time in the trial"
    assert not set(warm) & set(chosen)


def test_the_same_prompt_under_another_name_does_not_warm_up_either() -> None:
    same = [Prompt(f"p{at}", "c", ({"role": "user", "content": "ask"},)) for at in range(20)]
    for some in (same, same[:1]):
        warming, chosen = warm_and_profiled(some, 4)
        assert chosen
        assert not {str(one.messages) for one in chosen} & {str(one.messages) for one in warming}


def test_a_profile_that_cannot_be_read_is_told_on_the_page(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "trial", ("ngram-5",))
    taken(folder, "profile-baseline", b"\x1f\x8b")
    taken(folder, "profile-ngram-5", whole("nvjet_tst", "nvjet_tst"))
    trial = record(("ngram-5",))
    for _ in range(2):  # whoever reads it first
        found = gather(folder, trial, None)
        assert list(found.profiles) == ["ngram-5"]
        (said,) = [one for one in found.missing if "profile-baseline" in one]
        assert said.startswith("profile-baseline: no profile: profiles/profile-baseline/rank0.1.pt.trace.json.gz: ")
        assert "the gzip file is cut off" in said
        assert "the gzip file is cut off" in page_of(found)
    known = find(Code.NOT_PROFILED, "profile-baseline: no profile: told", arm="profile-baseline")
    once = gather(folder, trial.model_copy(update={"findings": (known,)}), None)
    assert not any("profile-baseline" in one for one in once.missing), "the record tells it"


def lost(folder: Path, arm: str) -> str:
    found = kept_or_lost(folder, arm)[1]
    return found.message if found else ""


def test_a_trace_is_tried_again_when_it_or_draftworth_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = taken(tmp_path, "profile-a", b"\x1f\x8b")
    assert [one.arm for one in read_taken(tmp_path)] == ["profile-a"]

    def again(*_: object, **__: object) -> Any:
        raise ZeroDivisionError("tried again")

    with monkeypatch.context() as patch:
        patch.setattr("draftworth.profiles.read.read_profile", again)
        assert read_taken(tmp_path) == []
        patch.setattr("draftworth.__version__", "99.0")
        (found,) = read_taken(tmp_path)
        assert "tried again" in found.message
    (traces / "rank0.1.pt.trace.json.gz").write_bytes(whole("nvjet_tst", "nvjet_tst"))
    assert read_taken(tmp_path) == []
    assert kept(tmp_path, "profile-a") is not None
    assert not lost(tmp_path, "profile-a")


def test_a_profile_is_told_where_it_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(tmp_path, "profile-a", whole("nvjet_tst", "nvjet_tst"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("draftworth.trials.profiling._write", full)
    assert kept(tmp_path, "profile-a") is not None
    assert not lost(tmp_path, "profile-a")
    shutil.rmtree(tmp_path / "profiles" / "profile-a")
    assert kept(tmp_path, "profile-a") is None
    assert "no such file" in lost(tmp_path, "profile-a")


def test_a_damaged_profile_is_told(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "profile-a.json").write_text("{")
    assert kept(tmp_path, "profile-a") is None
    assert "profiles/profile-a.json is damaged" in lost(tmp_path, "profile-a")
    assert not lost(tmp_path, "profile-b"), "it was never profiled"
