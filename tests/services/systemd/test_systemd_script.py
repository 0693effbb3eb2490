"""The restore script by itself: its syntax, and what it does where systemctl says what a test wants."""

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.services.systemd.names import Names
from draftworth.services.systemd.net import after_death, boot_unit, deadman_units, restore_unit
from draftworth.services.systemd.script import Ask, Recipe, ask_files, clean_script, completion, restore_script

NAMES = Names("20261130-120000-abcdef")
RECIPE = Recipe(
    names=NAMES,
    unit="llm.service",
    variants=(NAMES.variant("a"),),
    files=(NAMES.path(NAMES.variant("a")),),
    triggers=("llm.socket",),
    dependents=("gateway.service",),
    gpu_mib={"GPU-1": 900, "GPU-2": 30000},
    ask=Ask("http://127.0.0.1:1/v1/completions", completion("m"), {"Authorization": "Bearer sk-secret"}),
    finisher=("python", "-m", "draftworth"),
    lasting=("/etc/systemd/system/x",),
)


@given(
    st.builds(
        Recipe,
        names=st.just(NAMES),
        unit=st.text(alphabet="abc-@.$'\" ", min_size=1),
        variants=st.lists(st.text(alphabet="ab-'$ ", min_size=1), max_size=3).map(tuple),
        files=st.lists(st.text(alphabet="/ab'$ .", min_size=1), max_size=3).map(tuple),
        triggers=st.lists(st.text(alphabet="ab.'$", min_size=1), max_size=2).map(tuple),
        dependents=st.lists(st.text(alphabet="ab.'$", min_size=1), max_size=2).map(tuple),
        ask=st.none() | st.just(RECIPE.ask),
        gpu_mib=st.dictionaries(st.text(alphabet="GPU-1'", min_size=1), st.integers(0, 10**6), max_size=2),
        finisher=st.lists(st.text(alphabet="ab' $", min_size=1), max_size=2).map(tuple),
    )
)
def test_it_is_a_script_that_a_posix_shell_reads_whatever_the_names_are(recipe: Recipe) -> None:
    text = restore_script(recipe)
    assert not re.search(r"@[A-Z_]+@", text), "every place was filled"
    checked = subprocess.run(["sh", "-n"], input=text.encode(), capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr.decode() + text


def test_no_key_is_in_the_script_or_the_units() -> None:
    texts = [restore_script(RECIPE), restore_unit(RECIPE), *deadman_units(RECIPE, 60, "/bin/systemctl").values()]
    texts += [boot_unit(RECIPE, "multi-user.target", "/bin/systemctl"), after_death(NAMES), repr(RECIPE)]
    assert all("sk-secret" not in text for text in texts)
    assert b"sk-secret" in ask_files(RECIPE)["headers"]


def test_every_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    (tmp_path / "llm.service").write_text("[Service]\nExecStart=/bin/true\n", encoding="ascii")
    units = {NAMES.restore: restore_unit(RECIPE), **deadman_units(RECIPE, 60, "/bin/systemctl")}
    units[NAMES.boot] = boot_unit(RECIPE, "multi-user.target", "/bin/systemctl")
    for name, text in units.items():
        (tmp_path / name).write_text(text, encoding="ascii")
    for name in units:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)], capture_output=True, text=True, check=False
        )
        ours = [line for line in done.stderr.splitlines() if "draftworth" in line]
        assert not ours, done.stderr


class Machine:
    """A folder of programs in front of PATH: a systemctl that answers from files and writes down what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.run.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.state("llm.service", "inactive")
        self.program(
            "systemctl",
            f"""echo "$*" >>{folder}/told
for word; do unit=$word; done
case $1 in
  show) case $3 in ActiveState) ;; esac
    case "$*" in
      *ActiveState*) cat "{folder}/state-$unit" 2>/dev/null || echo inactive ;;
      *ControlGroup*) echo /none ;;
      *) echo success ;;
    esac ;;
  start) [ -e "{folder}/refuses-$unit" ] && exit 1; echo active >"{folder}/state-$unit" ;;
  stop) for one; do [ -e "{folder}/state-$one" ] && echo inactive >"{folder}/state-$one"; done; true ;;
esac""",
        )
        self.program("systemd-run", f'echo "systemd-run $*" >>{folder}/told')

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def state(self, unit: str, state: str) -> None:
        (self.folder / f"state-{unit}").write_text(state + "\n", encoding="ascii")

    def restore(
        self, recipe: Recipe, seconds: float = 20, *, without: str = "no-such-program"
    ) -> "subprocess.CompletedProcess[str]":
        text = restore_script(replace(recipe, files=tuple(str(self.folder / "units" / one) for one in ("v.service",))))
        text = text.replace(NAMES.folder, str(self.run)).replace(
            "PATH=/usr/local/sbin", f"PATH={self.bin}:/usr/local/sbin"
        )
        text = text.replace(f"command -v {without}", f"command -v no-{without}")
        return subprocess.run(
            ["sh", "-c", text], capture_output=True, text=True, timeout=seconds, check=False, env={"HOME": "/"}
        )

    @property
    def told(self) -> list[str]:
        return (self.folder / "told").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


PLAIN = replace(RECIPE, ask=None, gpu_mib={}, triggers=(), dependents=(), lasting=())


def test_the_variant_is_stopped_before_the_original_is_started(machine: Machine) -> None:
    machine.state(NAMES.variant("a"), "active")
    done = machine.restore(PLAIN)
    assert done.returncode == 0, done.stderr + done.stdout
    told = machine.told
    stop = told.index(f"stop {NAMES.variant('a')}")
    start = told.index("start --no-block llm.service")
    assert told.index("daemon-reload") < stop < told.index("reset-failed llm.service") < start


def test_an_original_that_runs_untouched_is_neither_stopped_nor_started(machine: Machine) -> None:
    machine.state("llm.service", "active")
    done = machine.restore(PLAIN)
    assert done.returncode == 0
    assert not [line for line in machine.told if line.startswith(("start", "stop")) and "llm.service" in line]


def test_a_unit_that_may_run_a_variant_is_stopped_first(machine: Machine) -> None:
    machine.state("llm.service", "active")
    (machine.run / "changed").touch()
    assert machine.restore(PLAIN).returncode == 0
    told = machine.told
    assert told.index("stop llm.service") < told.index("start --no-block llm.service")
    assert not (machine.run / "changed").exists()


def test_an_original_that_does_not_start_fails_the_script_so_that_it_runs_again(machine: Machine) -> None:
    (machine.folder / "refuses-llm.service").touch()
    done = machine.restore(PLAIN)
    assert done.returncode == 1
    assert "NOT restored yet: llm.service cannot be started; trying again" in done.stdout
    assert (machine.run / "state").read_text(encoding="utf-8").startswith("failing")
    (machine.folder / "refuses-llm.service").unlink()
    assert machine.restore(PLAIN).returncode == 0


def test_sockets_and_dependents_come_back(machine: Machine) -> None:
    done = machine.restore(replace(PLAIN, triggers=("llm.socket",), dependents=("gateway.service",)))
    assert done.returncode == 0
    told = machine.told
    assert (
        told.index("start llm.socket")
        < told.index("start --no-block llm.service")
        < told.index("start gateway.service")
    )


def test_while_the_trial_is_at_work_its_way_back_stays(machine: Machine) -> None:
    machine.state("llm.service", "active")
    machine.state(NAMES.trial, "active")
    assert machine.restore(PLAIN).returncode == 0
    assert machine.run.is_dir()
    assert not [line for line in machine.told if line.startswith("systemd-run")]
    machine.state(NAMES.trial, "deactivating")
    assert machine.restore(PLAIN).returncode == 0
    assert machine.told[-1].startswith(f"systemd-run --no-block --collect --quiet --unit={NAMES.record} ")


def test_what_takes_the_way_back_away_removes_everything_and_then_writes_the_record(machine: Machine) -> None:
    units = machine.folder / "units"
    units.mkdir()
    recipe = replace(PLAIN, files=(str(units / "v.service"),), lasting=(str(units / "boot.service"),))
    recipe = replace(recipe, finisher=("touch", str(machine.folder / "recorded")))
    script = machine.folder / "clean.sh"
    for path in (units / "v.service", units / "boot.service", machine.run / "armed"):
        path.touch()
    text = clean_script(recipe).replace(NAMES.clean, str(script)).replace(NAMES.folder, str(machine.run))
    script.write_text(text, encoding="utf-8")
    programs = f"{machine.bin}:/usr/bin:/bin"
    assert subprocess.run(["sh", str(script)], check=False, env={"PATH": programs}).returncode == 0
    assert not machine.run.exists()
    assert not script.exists()
    assert list(units.iterdir()) == []
    assert (machine.folder / "recorded").exists()
    assert machine.told[0] == f"stop {NAMES.deadman} {NAMES.restore}"
    assert machine.told.index("daemon-reload") < machine.told.index(
        f"reset-failed {' '.join((*recipe.variants, *recipe.units, NAMES.trial))}"
    )


def test_only_the_very_processes_that_were_written_down_are_ended(machine: Machine) -> None:
    ours = subprocess.Popen(["sleep", "60"])
    other = subprocess.Popen(["sleep", "60"])

    def started(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])

    try:
        lines = f"{ours.pid} {started(ours.pid)}\n{other.pid} {started(other.pid) - 1}\n999999999 5\n"
        (machine.run / "pids").write_text(lines, encoding="ascii")
        assert machine.restore(PLAIN).returncode == 0
        assert ours.wait(5) == -9
        assert other.poll() is None, "its pid was used again by another process: the start time differs"
    finally:
        ours.kill()
        other.kill()
        ours.wait()
        other.wait()


def test_gpu_memory_is_waited_for_and_a_neighbours_is_not(machine: Machine) -> None:
    machine.program(
        "nvidia-smi",
        f"count=$(($(cat {machine.folder}/asked 2>/dev/null || echo 0) + 1)); echo $count >{machine.folder}/asked\n"
        '[ "$count" -lt 3 ] && own=50000 || own=400\n'
        'echo "GPU-1, $own"; echo "GPU-9, 80000"; echo "GPU-2, 29000"',
    )
    done = machine.restore(replace(PLAIN, gpu_mib={"GPU-1": 900, "GPU-2": 30000}))
    assert done.returncode == 0
    assert (machine.folder / "asked").read_text(encoding="ascii").strip() == "3"
    assert "waiting for GPU memory: GPU-1 50000 MiB" in done.stdout


@contextmanager
def answering(codes: list[int]) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that answers with these codes, the last one for ever, and keeps what it was asked."""
    asked: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.headers.get("Authorization", ""), body))
            self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/completions", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("program", ["curl", "python3"])
def test_it_asks_for_a_token_until_there_is_one(machine: Machine, program: str) -> None:
    with answering([503, 200]) as (url, asked):
        recipe = replace(PLAIN, ask=Ask(url, completion("m"), {"Authorization": "Bearer sk-1"}))
        text = {
            name: data.replace(NAMES.folder.encode(), str(machine.run).encode())
            for name, data in ask_files(recipe).items()
        }
        for name, data in text.items():
            (machine.run / name).write_bytes(data)
        done = machine.restore(recipe, without="nothing" if program == "curl" else "curl")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(asked) == 2
    assert asked[-1] == ("Bearer sk-1", b'{"model": "m", "prompt": "Hello", "max_tokens": 1}')


def test_a_service_that_never_answers_is_tried_again_by_the_unit(machine: Machine) -> None:
    recipe = replace(PLAIN, start_s=1, ask=Ask("http://127.0.0.1:9/v1/completions", b"{}"))
    for name, data in ask_files(recipe).items():
        (machine.run / name).write_bytes(data)
    done = machine.restore(recipe)
    assert done.returncode == 1
    assert "it does not generate" in done.stdout
