"""Failures 1 to 15: what is refused before anything is changed, and odd units that are tried all the same."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.guarantees.case import MEASURED, SLOW, Case, made_case
from tests.guarantees.marks import failure, shows
from tests.real.private_systemd import PrivateSystemd

DROP_IN = 'append_args = true\nway = "drop-in"'
WAYS = ["append_args = true", DROP_IN]


@pytest.fixture
def case(module_systemd: PrivateSystemd, tmp_path: Path) -> Iterator[Case]:
    with made_case(module_systemd, tmp_path) as made:
        yield made


def refused(case: Case, *words: str) -> None:
    """Check that plan and run say why they refuse, and that nothing was changed."""
    case.remember()
    pid = case.pid()
    for verb in ("plan", "run"):
        options = ("--yes",) if verb == "run" else ()
        done = case.cli("trial", verb, str(case.file), *options)
        assert done.code == 2, done.err
        for word in words:
            assert word in done.err
    assert case.pid() == pid
    assert not any((folder / "journal.db").exists() for folder in case.trials())
    case.as_before()


@failure(
    10,
    produced="ExecStart= is a wrapper script, `bash -c`, or `conda run`, without append_args",
    outcome="refused, exit code 2: there is no place for the flag; the line says what to change",
)
@shows("G9", "refused before the first change, by plan and run alike, with exit code 2")
@pytest.mark.parametrize("kind", ["script", "bash -c", "conda run"])
def test_a_command_without_a_place_for_the_flag_is_refused(case: Case, kind: str) -> None:
    program = case.folder / "serve"
    start = {"script": str(program), "bash -c": f'/bin/bash -c "exec {case.exec_start()}"', "conda run": ""}[kind]
    program.write_text(f'#!/bin/sh\n[ "$1" != run ] || shift 3\nexec {case.exec_start()}\n', encoding="utf-8")
    program.chmod(0o755)
    if kind == "conda run":
        program = program.rename(case.folder / "conda")
        start = f"{program} run -n vllm python serve.py"
    case.serve(exec_start=start).trial(service=f"port = {case.port}")
    refused(case, "no place for the engine's flags in ExecStart=", "append_args = true")


@failure(
    10,
    produced="ExecStart= is `docker run …`",
    outcome="refused, exit code 2: the server would be no process of the unit",
)
def test_a_container_is_refused(case: Case) -> None:
    program = case.folder / "docker"
    program.write_text(f"#!/bin/sh\nexec {case.exec_start()}\n", encoding="utf-8")
    program.chmod(0o755)
    case.serve(exec_start=f"{program} run --rm image serve").trial(service=f"port = {case.port}")
    refused(case, "runs `docker`: the server is then no process of the unit")


@failure(
    11,
    produced="--speculative-config is in ExecStart= already, or in a variable of an EnvironmentFile= that it expands",
    outcome="refused, exit code 2: the baseline speculates; the line names the file",
)
@pytest.mark.parametrize("where", ["ExecStart=", "EnvironmentFile="])
def test_a_flag_that_is_there_already_is_refused(case: Case, where: str) -> None:
    flag = '--speculative-config={"method":"ngram","num_speculative_tokens":3}'
    (case.folder / "extra").write_text(f"EXTRA='{flag}'\n", encoding="utf-8")
    start, settings = f"{case.exec_start()} ${{EXTRA}}", f"EnvironmentFile={case.folder}/extra"
    if where == "ExecStart=":
        start, settings = f"{case.exec_start()} '{flag}'", ""
    case.serve(exec_start=start, service=settings).trial(service="append_args = true")
    case.remember()
    done = case.cli("trial", "plan", str(case.file))
    assert done.code == 2, done.err
    assert "speculates already" in done.err
    assert "in its ExecStart" in done.err if where == "ExecStart=" else str(case.folder / "extra") in done.err


@failure(
    8,
    produced="drop-ins of the unit, of its prefix and for every service; one in /etc with the name of another in /run",
    outcome="the variant has every setting of the original as loaded; a second difference would have refused it",
)
@failure(
    9,
    produced="ExecStartPre= twice, ExecStart= reset and given again, comments in a continued line, quotes, `\\x41`, "
    "`%%`, `$$`, `${VAR}`",
    outcome="the variant's process has the original's words and the flags, and nothing else",
)
@shows("G10", "every loaded property is compared before the original is stopped, and the command word by word")
@pytest.mark.parametrize("service", WAYS, ids=["parallel", "drop-in"])
def test_a_unit_with_everything_differs_in_its_flag_alone(case: Case, service: str) -> None:
    text = f"""[Unit]
Description=everything %% in "one"
[Service]
Environment="A=a b" B=$c
ExecStartPre=/bin/true
ExecStartPre=-/bin/false
ExecStart=/bin/false
ExecStart=
ExecStart={case.exec_start()} \\
# a comment in a continued line
  --served-model-name fake "q u\\tote" 'single "in" it' \\x41 100%% $$HOME ${{A}} \\
  ; not a comment
TimeoutStopSec=5
[Install]
WantedBy=multi-user.target
"""
    text = text.replace("  ; not a comment\n", "  semi;colon\n")
    case.script(SLOW)
    case.systemd.write_unit(case.unit, text)
    case.systemd.write_unit(f"{case.unit}.d/10-own.conf", "[Service]\nTimeoutStopSec=7\nNice=3\n")
    case.systemd.write_unit(f"{case.unit}.d/20.conf", "[Service]\nIOWeight=50\n", "run")
    case.systemd.write_unit(f"{case.unit}.d/20.conf", "[Service]\nIOWeight=70\n")
    case.systemd.write_unit("service.d/every.conf", "[Service]\nLimitNOFILE=4096\n")
    case.systemd.systemctl("daemon-reload")
    case.systemd.systemctl("enable", case.unit)
    case.systemd.systemctl("start", case.unit)
    case.wait_serving()
    case.trial(service=service).remember()
    before = case.systemd.run(["cat", f"/proc/{case.pid()}/cmdline"]).stdout.split(b"\0")[:-1]
    shown = [f"--property={name}" for name in ("Nice", "IOWeight", "LimitNOFILE", "TimeoutStopUSec", "Environment")]
    facts = case.systemd.systemctl("show", *shown, case.unit)
    assert "TimeoutStopUSec=7s" in facts
    assert "IOWeight=70" in facts, "the one in /etc"
    seen: list[list[bytes]] = []
    found: list[str] = []

    def look() -> None:
        unit = next(iter(case.variants()), case.unit)
        seen.append(case.systemd.run(["cat", f"/proc/{case.pid(unit)}/cmdline"]).stdout.split(b"\0")[:-1])
        found.append(case.systemd.systemctl("show", *shown, unit))

    done = case.run_while(lambda: case.reached("measure-ngram-5"), look)
    assert done.code in MEASURED, done.err
    assert seen[0][: len(before)] == before
    assert seen[0][len(before)].startswith(b"--speculative-config")
    assert found == [facts]
    case.wait_back(10)


@failure(
    12,
    produced="%n in an argument and in Environment=, StateDirectory=, PrivateTmp=yes, RuntimeDirectory=",
    outcome="the variant is a drop-in on the unit itself, so that name, folders and state are the original's",
)
def test_specifiers_and_directories_are_the_originals(case: Case) -> None:
    settings = "Environment=NAME=%n\nStateDirectory=%p\nRuntimeDirectory=%p\nPrivateTmp=yes\nBindPaths=/tmp"
    case.serve(SLOW, exec_start=f"{case.exec_start()} --served-model-name %n", service=settings)
    case.trial().remember()
    state = f"/var/lib/{case.unit.removesuffix('.service')}/kept"
    case.systemd.run(["touch", state])
    seen: list[bytes] = []
    done = case.run_while(
        lambda: case.reached("measure-ngram-5"),
        lambda: seen.append(
            case.systemd.run(["cat", f"/proc/{case.pid()}/environ", f"/proc/{case.pid()}/cmdline"]).stdout
        ),
    )
    assert done.code in MEASURED, done.err
    assert f"NAME={case.unit}".encode() in seen[0]
    assert f"--served-model-name\0{case.unit}".encode() in seen[0]
    case.systemd.run(["test", "-e", state])
    case.wait_back(10)


@failure(
    13,
    produced="a person runs `systemctl start` on the original while the variant is measured",
    outcome="Conflicts= stops the variant, so the two never run at once; the trial ends with exit code 6, the original "
    "serves",
)
@shows("G4", "starting the original stops the variant first, by systemd itself")
def test_a_person_who_starts_the_original_ends_the_trial(case: Case) -> None:
    case.serve(SLOW).trial().remember()
    start = lambda: case.systemd.systemctl("start", case.unit)  # noqa: E731 - one act
    done = case.run_while(lambda: case.reached("measure-ngram-5"), start)
    assert done.code == 6, done.err
    case.wait_back(10)


@failure(
    13,
    produced="a person runs `systemctl restart` on the unit while its drop-in makes it the variant",
    outcome="the variant is another start than the one that was measured: exit code 6; the original serves",
)
def test_a_person_who_restarts_the_unit_ends_the_trial(case: Case) -> None:
    case.serve(SLOW).trial(service=DROP_IN).remember()
    restart = lambda: case.systemd.systemctl("restart", case.unit)  # noqa: E731 - one act
    done = case.run_while(lambda: case.reached("measure-ngram-5"), restart)
    assert done.code == 6, done.err
    case.wait_back(10)


@failure(
    13,
    produced="a timer that starts the unit every second (cron, a pull of Ansible)",
    outcome="it is stopped while a variant runs or the unit is down, and runs again afterwards",
)
def test_a_timer_that_starts_the_unit_is_stopped_meanwhile(case: Case) -> None:
    timer = f"{case.unit.removesuffix('.service')}.timer"
    case.systemd.write_unit(timer, "[Timer]\nOnActiveSec=1\nOnUnitInactiveSec=1\nAccuracySec=10ms\n")
    case.serve()
    case.systemd.systemctl("start", timer)
    case.trial().remember()
    done = case.run()
    assert done.code in MEASURED, done.err
    assert case.state(timer) == "active"
    case.wait_back(10)


@failure(
    13,
    produced="another active unit has Upholds= on it: systemd starts it again as soon as it is stopped",
    outcome="refused, exit code 2, with the unit that upholds it",
)
def test_a_unit_that_is_upheld_is_refused(case: Case) -> None:
    keeper = f"keeper-{case.unit}"
    case.serve()
    case.systemd.write_unit(keeper, f"[Unit]\nUpholds={case.unit}\n[Service]\nExecStart=/bin/sleep 1000\n")
    case.systemd.systemctl("daemon-reload")
    case.systemd.systemctl("start", keeper)
    case.trial()
    refused(case, keeper, "Upholds=")


@failure(
    15,
    produced="secrets in Environment=, in an argument, and in the key that the trial's file names",
    outcome="none is in record, report or journal of the trial, in what plan and run print, or in what the trial's "
    "units say; what the server itself prints stays in logs/, which its owner alone can read",
)
def test_no_secret_is_written_anywhere(case: Case) -> None:
    secrets = {name: f"s3cr3t{name}x7f3k9" for name in ("env", "key")}
    start = f"{case.exec_start()} --api-key ${{VLLM_KEY}}"
    settings = f"Environment=HF_TOKEN={secrets['env']}\nEnvironment=VLLM_KEY={secrets['key']}"
    case.serve(exec_start=start, service=settings).trial(service=f'{DROP_IN}\napi_key_env = "MY_KEY"').remember()
    env = {"MY_KEY": secrets["key"]}
    plan = case.cli("trial", "plan", str(case.file), "--files", env=env)
    assert plan.code == 0, plan.err
    done = case.cli("trial", "run", str(case.file), "--yes", "--json", env=env)
    assert done.code in MEASURED, done.err
    case.wait_back(10)
    printed = {"plan": plan.out + plan.err, "run": done.out + done.err}
    ours = ["-t", "systemd", "-t", "draftworth-trial", "-t", "draftworth-restore"]
    printed["journal"] = case.systemd.run(["journalctl", "-o", "cat", "--no-pager", *ours]).stdout.decode(
        errors="replace"
    )
    kept = [path for path in case.home.rglob("*") if path.is_file() and path.parent.name != "logs"]
    printed |= {str(path): path.read_text("utf-8", "replace") for path in kept}
    assert case.trials()[-1].stat().st_mode & 0o077 == 0, "the server's own words, in logs, are for its owner alone"
    for where, text in printed.items():
        for name, secret in secrets.items():
            assert secret not in text, f"{name} is in {where}"


@failure(
    6,
    produced="a second trial on the unit while one is at work, from another home",
    outcome="refused, exit code 2, with the trial that is at work; that one goes on",
)
@shows("G8", "one trial a service, whoever asks and from wherever")
def test_a_second_trial_is_refused_while_one_is_at_work(case: Case) -> None:
    case.serve(SLOW).trial().remember()
    second: list[tuple[int, str]] = []

    def ask() -> None:
        home = {"DRAFTWORTH_HOME": str(case.folder / "other")}
        done = case.cli("trial", "run", str(case.file), "--yes", env=home)
        second.append((done.code, done.err))

    done = case.run_while(lambda: case.reached("measure-ngram-5"), ask)
    assert done.code in MEASURED, done.err
    assert second[0][0] == 2, second
    case.wait_back(10)


@shows("G20", "the steps that `trial plan --json` prints are the steps of the run's journal")
@shows("G14", "the baseline is measured before and after the variant, in the same session and with the same warm-up")
@shows("G16", "each step is in the journal as an intent before, and an effect after it")
@shows("G19", "after the trial the original runs its own command; nothing is adopted")
def test_run_does_what_plan_shows(case: Case) -> None:
    case.serve().trial().remember()
    plan = case.cli("trial", "plan", str(case.file), "--json")
    steps = [step["id"] for step in json.loads(plan.out)["steps"]]
    done = case.run()
    assert done.code in MEASURED, done.err
    events = [event for event in case.events() if event.step]
    intents = [event.step for event in events if event.kind == "intent"]
    assert [step for step in steps if step in intents] == [step for step in intents if step in steps]
    assert [kind for kind in (event.kind for event in events) if kind in {"intent", "effect"}] == [
        "intent",
        "effect",
    ] * len(intents)
    case.wait_back(5)
