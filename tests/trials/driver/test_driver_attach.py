"""Following a trial: what is told as its driver, the host and the record come and go."""

import json
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from draftworth.errors import UsageError
from draftworth.hosts.base import CommandResult, HostError
from draftworth.trials.driver import attach
from draftworth.trials.driver.attach import end_trial, follow, names_of, state_of
from draftworth.trials.record import SCHEMA_VERSION

TAG = "20260101-000000-abcdef"
TRIAL, RESTORE, RECORD = (f"draftworth-{kind}-{TAG}.service" for kind in ("trial", "restore", "record"))


class Host:
    """Units in states that a test sets; each look may move them on."""

    name = "this machine"

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.then: list[Any] = []
        self.calls: list[list[str]] = []
        self.down = False

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        self.calls.append(list(argv))
        if self.down:
            return CommandResult(tuple(argv), 1, b"", b"Failed to connect to bus: Connection refused\n")
        if argv[1] == "show":
            if argv[-1] == TRIAL and self.then:
                self.then.pop(0)()
            return CommandResult(tuple(argv), 0, self.states.get(argv[-1], "inactive").encode() + b"\n", b"")
        return CommandResult(tuple(argv), 0, b"", b"")

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        raise NotImplementedError

    def remove(self, path: str) -> bool:
        raise NotImplementedError


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(attach, "_POLL_S", 0.01)
    monkeypatch.setattr(attach, "_LOOK_EVERY_S", 0.02)
    return Host()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "20260101-000000"
    folder.mkdir()
    (folder / "tag").write_text(f"{TAG}\n", encoding="ascii")
    return folder


def log(folder: Path, *events: Mapping[str, Any]) -> None:
    with (folder / "progress.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)


def result(folder: Path, code: int = 0) -> None:
    text = json.dumps({"exit": code, "text": "", "commands": []})
    (folder / "result.json").write_text(text, encoding="utf-8")


def told(lines: Iterator[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_everything_until_the_end_and_from_where_it_was(host: Host, folder: Path) -> None:
    host.states[TRIAL] = "active"
    log(folder, {"kind": "step", "text": "one {"}, {})

    def goes_on() -> None:
        time.sleep(0.1)
        log(folder, {"kind": "step", "text": 'two "}'})
        time.sleep(0.1)
        log(folder, {"kind": "step", "text": "three"})
        result(folder, 3)

    driver = threading.Thread(target=goes_on)
    driver.start()
    found = told(follow(host, folder))
    driver.join()
    assert [event.get("text") for event in found] == ["one {", None, 'two "}', "three", ""]
    assert found[-1] == {"kind": "end", "exit": 3, "text": "", "commands": []}
    # Each event says from where to go on behind it.
    for number, event in enumerate(found[:-1]):
        if "at" in event:
            assert told(follow(host, folder, event["at"])) == found[number + 1 :]
    assert [("at" in event) for event in found] == [True, False, True, True, False]


def test_it_says_that_it_is_there(host: Host, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "_ALIVE_EVERY_S", 0.05)
    host.states[TRIAL] = "active"
    lines = follow(host, folder)
    assert isinstance(lines, Generator)
    assert [json.loads(next(lines))["kind"] for _ in range(3)] == ["alive"] * 3
    lines.close()


def test_a_driver_that_dies(host: Host, folder: Path) -> None:
    """It ends only when the host has put the service back and the record is there."""
    names = names_of(folder)
    host.states[TRIAL] = "failed"
    host.files[names.armed] = b""

    def restoring() -> None:
        host.states[RESTORE] = "activating"
        host.files[names.state] = b"starting\n"

    def between() -> None:
        host.files.clear()
        host.states[RESTORE] = "inactive"

    def recording() -> None:
        host.states[RECORD] = "active"

    def recorded() -> None:
        host.states[RECORD] = "inactive"
        (folder / "trial.json").write_text(
            json.dumps(
                {
                    "schema_version": SCHEMA_VERSION,
                    "id": folder.name,
                    "draftworth": "0.1.0",
                    "created": "2026-01-01T00:00:00Z",
                    "verdict": "error",
                    "reason": "the trial's process died",
                    "restored": True,
                }
            ),
            encoding="utf-8",
        )

    host.then = [lambda: None, restoring, between, recording, recorded, lambda: None, lambda: None]
    found = told(follow(host, folder))
    said = "the trial's driver died; the host puts the service back by itself"
    assert [event.get("text") for event in found] == [
        f"{said} (writing the record)",
        f"{said} (starting)",
        f"{said} (writing the record)",
        "",
    ]
    assert (found[-1]["kind"], found[-1]["exit"]) == ("end", 6)
    assert all(event.get("own") for event in found[:-1])


def test_systemd_that_does_not_answer_is_asked_again(host: Host, folder: Path) -> None:
    """It must not be taken for a driver that died."""
    host.down = True
    with pytest.raises(HostError, match=r"its state cannot be asked: Failed to connect to bus"):
        state_of(host, TRIAL)
    threading.Timer(0.3, result, (folder,)).start()
    assert [event["kind"] for event in told(follow(host, folder))] == ["end"]
    assert len(host.calls) > 3


def test_only_a_trial_at_work_is_ended(host: Host, folder: Path) -> None:
    assert end_trial(host, folder) is False
    host.states[TRIAL] = "active"
    assert end_trial(host, folder) is True
    assert host.calls[-1] == ["systemctl", "kill", "--kill-who=main", "--signal=INT", "--", TRIAL]


def test_a_trial_of_a_process_is_not_followed(host: Host, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not on a systemd unit: it runs in the process that started it"):
        next(follow(host, tmp_path))
