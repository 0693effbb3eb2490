"""What may be adopted, and what is refused: read from a trial's folder, before anything is looked at or changed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.errors import RefusedError, UsageError
from draftworth.findings import Code, find
from draftworth.gpus.base import Gpus
from draftworth.hosts.local import LocalHost
from draftworth.services.base import Observed
from draftworth.services.systemd.adoption import adopted_trial, mode_for, path_for, text_of, trial_in
from draftworth.services.systemd.bus import ExecCommand
from draftworth.services.systemd.files import FileFact
from draftworth.services.systemd.found import UnitFound
from draftworth.services.systemd.snapshot import UnitSnapshot
from draftworth.trials.adopted import NAME, Adoption, chosen, command_for, keep, put_back, read_adoption, read_trial
from draftworth.trials.driver.local import LocalStation
from draftworth.trials.journal import Journal
from draftworth.trials.record import ArmComparison, ArmRecord, TrialRecord, write
from draftworth.verdicts.base import Interval, OutputCheck, Verdict

ID = "20261130-101112"
SERVE = ("/opt/vllm/bin/vllm", "serve", "m", "--port", "8000")
SPECULATION = ("--speculative-config", '{"method":"ngram","num_speculative_tokens":5}')
MEASURING = ("--per-request-spec-decode-metrics", "summary")
SAME = OutputCheck(status="same", reason="48 outputs agree")


def snapshot(argv: tuple[str, ...] = SERVE, **fields: Any) -> UnitSnapshot:
    """Return a unit that runs a command."""
    texts = dict.fromkeys(("description", "unit_file_state", "type", "restart", "kill_mode", "standard_output"), "")
    lists = dict.fromkeys(
        ("drop_ins", "files", "environment_files", "dependents", "triggers", "specifiers", "state_directories"), ()
    )
    unknown = dict.fromkeys(
        ("fragment", "timeout_start_s", "timeout_stop_s", "main_pid", "invocation", "control_group", "user")
    )
    given: dict[str, Any] = {
        **texts,
        **lists,
        **unknown,
        "asked": "vllm",
        "unit": "vllm.service",
        "names": ("vllm.service",),
        "load": "loaded",
        "active": "active",
        "sub": "running",
        "n_restarts": 0,
        "dynamic_user": False,
        "working_directory": None,
        "exec_start": (ExecCommand(path=argv[0], argv=argv, flags=("privileged",)),),
        "properties": {},
    }
    return UnitSnapshot(**{**given, **fields})


def comparison(**fields: Any) -> ArmComparison:
    """Return a comparison of an arm that is faster, with the same output."""
    ratio = Interval(estimate=0.6, low=0.5, high=0.7)
    given: dict[str, Any] = {"arm": "ngram-5", "verdict": Verdict.FASTER, "tpot_ratio": ratio, "output_check": SAME}
    return ArmComparison(**{**given, **fields})


def record(*comparisons: ArmComparison, **fields: Any) -> TrialRecord:
    """Return the record of a complete trial."""
    best = (comparisons or (comparison(),))[0]
    given: dict[str, Any] = {
        "id": ID,
        "draftworth": "0.1.0",
        "created": "2026-11-30T10:11:12Z",
        "finished": "2026-11-30T10:21:12Z",
        "verdict": best.verdict,
        "reason": "the whole interval lies below 1",
        "best": best.arm,
        "restored": True,
        "comparisons": comparisons or (best,),
        "arms": (ArmRecord(name="ngram-5", engine="vllm", version="0.32.0"),),
    }
    return TrialRecord(**{**given, **fields})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a trial on a unit that has found ngram-5 faster."""
    path = tmp_path / "trials" / ID
    path.mkdir(parents=True)
    (path / "tag").write_text(f"{ID}-abcdef", encoding="ascii")
    config: dict[str, Any] = {
        "service": {"type": "systemd", "unit": "vllm.service"},
        "arms": [{"name": "ngram-5", "speculative_config": {"method": "ngram", "num_speculative_tokens": 5}}],
    }
    (path / "request.json").write_text(json.dumps({"config": config, "port": 8000}), encoding="utf-8")
    write(record(), path)
    journal(path)
    return path


def journal(
    folder: Path, *, argv: tuple[str, ...] = SERVE, ran: tuple[str, ...] = (*SERVE, *MEASURING, *SPECULATION)
) -> None:
    """Write the journal of such a trial."""
    unit = UnitFound(
        snapshot=snapshot(argv), way="parallel", why="by rule", systemd=252, gpus=Gpus(source="none", gpus=())
    )
    observed = Observed(running=True, command=argv, unit=unit)
    arms = [
        {
            "name": "ngram-5",
            "speculative_config": {"method": "ngram", "num_speculative_tokens": 5},
            "args": [],
            "env": {},
        }
    ]
    (folder / "journal.db").unlink(missing_ok=True)
    with Journal(folder / "journal.db", create=True) as written:
        config = {"service": {"port": 8000}, "arms": arms}
        written.append("begin", observed=observed.model_dump(mode="json"), config=config)
        with written.step("03-start-ngram-5", command=list(ran)):
            pass


# ---------------------------------------------------------------------- which arm


def test_the_best_arm_is_chosen(folder: Path) -> None:
    assert chosen(folder, None)[1].arm == "ngram-5"


def test_another_arm_is_chosen_by_its_name(folder: Path) -> None:
    write(record(comparison(), comparison(arm="ngram-3")), folder)
    assert chosen(folder, "ngram-3")[1].arm == "ngram-3"


@pytest.mark.parametrize("verdict", [one for one in Verdict if one is not Verdict.FASTER])
def test_only_faster_is_adopted(folder: Path, verdict: Verdict) -> None:
    write(record(comparison(verdict=verdict, reason="because of figures")), folder)
    with pytest.raises(RefusedError, match=r"not faster: because of figures"):
        chosen(folder, None)


def test_another_arm_has_to_be_faster_itself(folder: Path) -> None:
    write(record(comparison(), comparison(arm="eagle", verdict=Verdict.INCONCLUSIVE)), folder)
    with pytest.raises(RefusedError, match=r"arm eagle .* is inconclusive"):
        chosen(folder, "eagle")


@pytest.mark.parametrize("status", ["diverged", "suspect", "unchecked"])
def test_only_the_same_output_is_adopted_whatever_the_speed(folder: Path, status: str) -> None:
    write(record(comparison(output_check=OutputCheck(status=status, reason="3 positions"))), folder)
    with pytest.raises(RefusedError, match=f"{status}: 3 positions"):
        chosen(folder, None)


def test_an_output_that_nobody_checked_is_not_adopted(folder: Path) -> None:
    write(record(comparison(output_check=None)), folder)
    with pytest.raises(RefusedError, match=r"verdict\.output_check = true"):
        chosen(folder, None)


def test_text_made_by_a_configured_acceptance_is_not_adopted(folder: Path) -> None:
    write(record(findings=(find(Code.SYNTHETIC_ACCEPTANCE, "0.8", arm="ngram-5"),)), folder)
    with pytest.raises(RefusedError, match="configured rate"):
        chosen(folder, None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"restored": False}, f"draftworth trial restore {ID}"),
        ({"error": "the server died"}, "the server died"),
        ({"finished": None}, "could not be measured to its end"),
        ({"best": None}, "no verdict on any arm"),
    ],
)
def test_a_trial_that_is_not_complete_is_refused(folder: Path, fields: dict[str, Any], said: str) -> None:
    write(record(**fields), folder)
    with pytest.raises(RefusedError, match=said):
        chosen(folder, None)


def test_a_trial_without_a_record_is_refused(folder: Path) -> None:
    (folder / "trial.json").unlink()
    with pytest.raises(RefusedError, match="trial status"):
        chosen(folder, None)


def test_an_arm_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"--arm medusa: .* its arms: ngram-5"):
        chosen(folder, "medusa")


# ---------------------------------------------------------------------- which command


def test_the_command_is_the_arms_without_what_only_measuring_needs(folder: Path) -> None:
    made = command_for(read_trial(folder), record(), "ngram-5")
    assert made == ExecCommand(path=SERVE[0], argv=(*SERVE, *SPECULATION), flags=("privileged",))


def test_secrets_of_the_command_are_those_of_the_unit_and_not_what_the_journal_shows(folder: Path) -> None:
    key = "sk-0123456789abcdef"
    argv = (*SERVE, "--api-key", key)
    journal(folder, argv=argv, ran=(*SERVE, "--api-key", "(hidden)", *MEASURING, *SPECULATION))
    assert command_for(read_trial(folder), record(), "ngram-5").argv == (*argv, *SPECULATION)


def test_a_command_that_the_trial_did_not_run_is_refused(folder: Path) -> None:
    journal(folder, ran=(*SERVE, "--spec", "something older"))
    with pytest.raises(RefusedError, match="something older"):
        command_for(read_trial(folder), record(), "ngram-5")


def test_an_arm_that_was_never_started_is_refused(folder: Path) -> None:
    with pytest.raises(RefusedError, match="no arm medusa"):
        command_for(read_trial(folder), record(), "medusa")


def test_a_request_that_was_edited_is_refused(folder: Path) -> None:
    asked = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    asked["config"]["arms"][0]["speculative_config"]["num_speculative_tokens"] = 9
    (folder / "request.json").write_text(json.dumps(asked), encoding="utf-8")
    with pytest.raises(RefusedError, match="the same arms"):
        read_trial(folder)


def test_a_trial_on_a_process_is_refused(folder: Path) -> None:
    (folder / "tag").unlink()
    with pytest.raises(RefusedError, match="not on a systemd unit"):
        read_trial(folder)


def test_a_copy_of_another_machines_trial_is_refused(folder: Path) -> None:
    (folder / "fetched.json").write_text("{}", encoding="utf-8")
    with pytest.raises(RefusedError, match="--host"):
        read_trial(folder)


@pytest.mark.parametrize("name", ["request.json", "journal.db"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\xfe nonsense"])
def test_a_damaged_folder_is_refused(folder: Path, name: str, content: bytes | None) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(RefusedError, match=ID):
        read_trial(folder)


def test_without_root_it_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(folder.parent.parent))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RefusedError, match="sudo"):
        LocalStation().adopt(ID, arm=None, restart=False, say=print)
    with pytest.raises(RefusedError, match="sudo"):
        LocalStation().unadopt(ID, restart=False, say=print)


# ---------------------------------------------------------------------- the record of it


def adoption(**fields: Any) -> Adoption:
    given: dict[str, Any] = {
        "trial": ID,
        "unit": "vllm.service",
        "arm": "ngram-5",
        "command": SERVE,
        "path": "/etc/systemd/system/vllm.service.d/50-draftworth-adopted.conf",
        "sha256": "0" * 64,
        "new_folder": True,
        "drop_ins": (),
        "adopted_unix": 1.0,
    }
    return Adoption(**{**given, **fields})


def test_what_was_adopted_is_read_back(folder: Path) -> None:
    assert read_adoption(folder) is None
    keep(folder, adoption())
    assert read_adoption(folder) == adoption()


def test_a_damaged_record_of_it_is_told_of(folder: Path) -> None:
    (folder / NAME).write_text("{", encoding="utf-8")
    with pytest.raises(RefusedError, match=NAME):
        read_adoption(folder)


def test_what_was_there_before_is_there_again(folder: Path) -> None:
    keep(folder, adoption())
    put_back(folder, None)
    assert not (folder / NAME).exists()
    put_back(folder, adoption(undone_unix=2.0))
    assert read_adoption(folder) == adoption(undone_unix=2.0)


# ---------------------------------------------------------------------- the drop-in


def drop_in(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("10-first.conf", "[Service]\nExecStart=\nExecStart=/x\n", "50-draftworth-adopted.conf"),
        ("override.conf", "[Service]\nEnvironment=A=ExecStart=1\n# ExecStart=/x\n", "50-draftworth-adopted.conf"),
        ("override.conf", "[Service]\n  ExecStart =\n", "z-draftworth-adopted.conf"),
        ("50-f.conf", "[Service]\nExecStart=\n", "z-draftworth-adopted.conf"),
    ],
)
def test_it_is_read_behind_whatever_sets_the_command(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = path_for(LocalHost(), "a.service", [drop_in(tmp_path, name, text)])
    assert path == f"/etc/systemd/system/a.service.d/{expected}"


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs", "Cn"]), min_size=1),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.text(st.characters(codec="utf-8")), max_size=3),
)
def test_comments_never_become_settings(words: list[str], about: list[str]) -> None:
    text = text_of(ID, ExecCommand(path="/bin/x", argv=("/bin/x", *words)), about)
    settings = [line for line in text.split("\n") if line and not line.startswith("#")]
    assert settings[:2] == ["[Service]", "ExecStart="]
    assert len(settings) == 3
    assert settings[2].startswith("ExecStart=/bin/x ")
    assert trial_in(text.encode()) == ID


def test_a_drop_in_of_somebody_else_is_of_no_trial(tmp_path: Path) -> None:
    assert trial_in(b"[Service]\nExecStart=\n# Adopted by Draftworth from trial 1\n") is None
    mine = drop_in(tmp_path, "50-draftworth-adopted.conf", f"# Adopted by Draftworth from trial {ID}\n[Service]\n")
    other = drop_in(tmp_path, "override.conf", "# Adopted by Draftworth from trial 2\n")
    assert adopted_trial(LocalHost(), [other, mine]) == ID
    assert adopted_trial(LocalHost(), [other]) is None


@pytest.mark.parametrize(
    ("modes", "expected"), [((0o644,), 0o644), ((0o600,), 0o600), ((0o644, 0o640), 0o640), ((0o777,), 0o644)]
)
def test_nobody_reads_it_who_could_not_read_the_units_files(modes: tuple[int, ...], expected: int) -> None:
    files = tuple(FileFact(path=f"/{at}", kind="drop-in", sha256="0", mode=mode) for at, mode in enumerate(modes))
    assert mode_for(snapshot(files=files)) == expected
