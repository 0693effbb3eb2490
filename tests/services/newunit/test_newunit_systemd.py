"""The unit on real systemd: starts, waits, serves, stops, and never loops without an end."""

import http.server
import json
import os
import threading
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.real.private_systemd import PrivateSystemd
from tests.services.newunit.engine import FakeEngine, installed, journal, shown, wait_for

from draftworth.services.newunit.base import Asked

# Words that people really give, and those that systemd or a shell would read otherwise.
NASTY = (
    '{"method": "ngram", "num_speculative_tokens": 5}',
    *("", " ", "a b", "'", '"', "\\", "\\x41", "$HOME", "${HOME}", "$$", "%h", "%%", "%n", ";", "\\;", "#x", "~", "*"),
    *("-", "@x", "a\nb", "a\tb", "é漢", "--chat-template={{ x }}", "x" * 5000, "=", "line\\"),
)


def test_the_process_gets_exactly_the_words(module_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    asked = Asked(command=(*engine.command, *NASTY), name="words")
    unit = installed(module_systemd, asked, engine.machine())
    module_systemd.systemctl("start", unit.name)
    assert engine.starts()[0]["argv"] == [*engine.command[1:], *NASTY]
    module_systemd.systemctl("stop", unit.name)
    path = "/org/freedesktop/systemd1/unit/words_2eservice"
    interface = "org.freedesktop.systemd1.Service"
    words = ["busctl", "--json=short", "get-property", "org.freedesktop.systemd1", path, interface, "ExecStart"]
    ((program, argv, *_),) = json.loads(module_systemd.run(words).stdout)["data"]
    assert program == engine.command[0]
    assert [word.replace("$$", "$") for word in argv] == [*asked.command]  # D-Bus shows `$` before it is collapsed


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(
        st.text(st.characters(min_codepoint=1, max_codepoint=0xFFFD, exclude_categories=("Cs", "Cn")), max_size=20),
        max_size=20,
    ),
    value=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc", "Cn"))),
)
def test_any_words_and_variables_arrive(
    module_systemd: PrivateSystemd, engine: FakeEngine, words: list[str], value: str
) -> None:
    (engine.folder / "starts").unlink(missing_ok=True)
    asked = Asked(command=(*engine.command, "--", *words), name="anywords", env={"X": value}, health_wait=False)
    unit = installed(module_systemd, asked, engine.machine())
    module_systemd.systemctl("start", unit.name)
    wait_for(lambda: len(engine.starts()) == 1, "it runs")
    module_systemd.systemctl("stop", unit.name)
    (start,) = engine.starts()
    assert start["argv"] == [*engine.command[1:], "--", *words]
    environ = start["env"]
    assert isinstance(environ, dict)
    assert environ["X"] == value


def test_the_start_is_over_when_it_serves_and_the_stop_when_it_is_gone(
    module_systemd: PrivateSystemd, engine: FakeEngine
) -> None:
    engine.tell("load", "2")
    unit = installed(module_systemd, Asked(command=engine.command, name="serves"), engine.machine(user="daemon"))
    began = time.monotonic()
    module_systemd.systemctl("start", unit.name)
    assert time.monotonic() - began >= 2
    assert shown(module_systemd, unit, "ActiveState") == "active"
    environ = engine.starts()[0]["env"]
    assert isinstance(environ, dict)
    cache = environ["VLLM_CACHE_ROOT"]
    assert cache == "/var/cache/serves/vllm"
    assert module_systemd.run(["stat", "-c", "%U", "/var/cache/serves"]).stdout.decode().strip() == "daemon"
    assert shown(module_systemd, unit, "LimitNOFILE") == "65536"
    assert shown(module_systemd, unit, "LimitMEMLOCK") == "infinity"
    assert (shown(module_systemd, unit, "KillMode"), shown(module_systemd, unit, "OOMPolicy")) == ("mixed", "stop")
    module_systemd.systemctl("stop", unit.name)
    assert (shown(module_systemd, unit, "ActiveState"), shown(module_systemd, unit, "Result")) == (
        "inactive",
        "success",
    )


def test_a_crash_loop_ends_in_failed_after_three_starts(module_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    engine.tell("crash", "1")
    unit = installed(module_systemd, Asked(command=engine.command, name="loop"), engine.machine(), restart_s=1)
    module_systemd.systemctl("start", unit.name, check=False)
    wait_for(lambda: shown(module_systemd, unit, "ActiveState") == "failed", "the loop ends")
    time.sleep(2)
    assert shown(module_systemd, unit, "ActiveState") == "failed"
    assert len(engine.starts()) == 3
    assert "Start request repeated too quickly" in journal(module_systemd, unit)
    (engine.folder / "crash").unlink()
    module_systemd.systemctl("reset-failed", unit.name)
    module_systemd.systemctl("start", unit.name)
    assert shown(module_systemd, unit, "ActiveState") == "active"
    module_systemd.systemctl("stop", unit.name)


def test_loads_that_never_end_are_stopped_and_end_in_failed(module_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    # The interval is computed from these times, so the loop has to end within it as it would with hours.
    engine.tell("load", "1000")
    asked = Asked(command=engine.command, name="endless", load_timeout_s=3, stop_timeout_s=1)
    unit = installed(module_systemd, asked, engine.machine(), restart_s=1)
    began = time.monotonic()
    assert "timeout" in module_systemd.run(["systemctl", "start", unit.name], check=False).stderr.decode()
    assert time.monotonic() - began < 10
    wait_for(lambda: shown(module_systemd, unit, "ActiveState") == "failed", "the loop ends", 40)
    assert len(engine.starts()) == 3


def test_a_worker_that_ignores_sigterm_does_not_outlive_a_killed_front_end(
    module_systemd: PrivateSystemd, engine: FakeEngine
) -> None:
    engine.tell("worker", "1")
    unit = installed(module_systemd, Asked(command=engine.command, name="worker"), engine.machine())
    module_systemd.systemctl("start", unit.name)
    pid = (engine.folder / "worker-pid").read_text().strip()
    assert module_systemd.run(["kill", "-0", pid], check=False).returncode == 0
    module_systemd.systemctl("kill", "--kill-who=main", "--signal=KILL", unit.name)
    wait_for(lambda: module_systemd.run(["kill", "-0", pid], check=False).returncode != 0, "the worker ends", 5)
    module_systemd.systemctl("stop", unit.name)


def test_the_start_waits_for_gpu_memory(module_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    engine.tell("smi-memory", "0, 40960\n1, 3\n")
    engine.tell("smi-next", "0, 1000\n1, [N/A]\n")
    asked = Asked(command=(*engine.command, "-tp", "2"), name="gpuwait", gpu_wait_s=20)
    unit = installed(module_systemd, asked, engine.machine(user="daemon", gpus=2))
    module_systemd.systemctl("start", unit.name)
    assert "waiting for GPU memory: GPU 0: 40960 MiB in use" in journal(module_systemd, unit)
    assert shown(module_systemd, unit, "ActiveState") == "active"
    module_systemd.systemctl("stop", unit.name)


def test_gpu_memory_that_stays_taken_fails_the_start_and_says_who_has_it(
    module_systemd: PrivateSystemd, engine: FakeEngine
) -> None:
    engine.tell("smi-memory", "0, 1001\n")
    asked = Asked(command=engine.command, name="gputaken", gpus=("0",), gpu_wait_s=3)
    unit = installed(module_systemd, asked, engine.machine(gpus=1))
    assert module_systemd.run(["systemctl", "start", unit.name], check=False).returncode != 0
    log = journal(module_systemd, unit)
    assert "GPU memory not free after 3s, more than 1000 MiB in use: GPU 0: 1001 MiB in use" in log
    assert "4711, 40960 MiB, /opt/other/engine" in log
    assert engine.starts() == []
    assert "-i 0 --query-gpu=index,memory.used" in (engine.folder / "smi-calls").read_text()
    module_systemd.systemctl("stop", unit.name)


def test_a_driver_that_is_not_there_yet_is_waited_for(module_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    engine.tell("smi-memory", "0, 4\n")
    engine.tell("smi-fails", "")
    asked = Asked(command=engine.command, name="driver", gpu_wait_s=30)
    unit = installed(module_systemd, asked, engine.machine(gpus=1))
    module_systemd.systemctl("start", "--no-block", unit.name)
    wait_for(lambda: "driver not loaded" in journal(module_systemd, unit), "it says that it waits")
    (engine.folder / "smi-fails").unlink()
    wait_for(lambda: shown(module_systemd, unit, "ActiveState") == "active", "it starts")
    module_systemd.systemctl("stop", unit.name)


def test_a_stranger_on_the_port_is_not_taken_for_the_server(module_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", engine.port), Stranger) as stranger:
        thread = threading.Thread(target=stranger.serve_forever)
        thread.start()
        unit = installed(module_systemd, Asked(command=engine.command, name="stranger"), engine.machine())
        assert module_systemd.run(["systemctl", "start", unit.name], check=False).returncode != 0
        stranger.shutdown()
        thread.join()
    assert f"somebody listens already at http://127.0.0.1:{engine.port}" in journal(module_systemd, unit)
    assert engine.starts() == []
    module_systemd.systemctl("stop", unit.name)


def test_a_user_a_folder_and_a_file_of_secrets(module_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    secrets = engine.folder / "my secrets 5%.env"
    secrets.write_text("HF_TOKEN=hf_abc\n")
    secrets.chmod(0o600)
    folder = engine.folder / "a b"
    folder.mkdir()
    asked = Asked(
        command=engine.command, name="folder", env_files=(str(secrets),), cwd=str(folder), description="My %h model"
    )
    unit = installed(module_systemd, asked, engine.machine(user="daemon"))
    module_systemd.systemctl("start", unit.name)
    (start,) = engine.starts()
    assert start["cwd"] == str(folder)
    environ = start["env"]
    assert isinstance(environ, dict)
    assert (environ["HF_TOKEN"], environ["USER"]) == ("hf_abc", "daemon")
    assert shown(module_systemd, unit, "Description") == "My %h model"
    assert "hf_abc" not in unit.text
    module_systemd.systemctl("stop", unit.name)


def test_enabled_it_starts_at_boot(private_systemd: PrivateSystemd, engine: FakeEngine) -> None:
    unit = installed(private_systemd, Asked(command=engine.command, name="boots"), engine.machine())
    private_systemd.systemctl("enable", unit.name)
    private_systemd.reboot()
    wait_for(lambda: shown(private_systemd, unit, "ActiveState") == "active", "it serves after a boot")
    assert os.path.lexists(private_systemd.etc / "multi-user.target.wants" / unit.name)
