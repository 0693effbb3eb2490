"""Small parts of a trial: redaction, remaining time, interrupts, where trials are kept, words."""

import io
import os
import signal
import time
from pathlib import Path

import pytest

from draftworth import redact
from draftworth.errors import UsageError
from draftworth.reports.words import interval, number, percent
from draftworth.trials.home import all_trials, find_trial, new_trial
from draftworth.trials.interrupts import Interrupt, Interrupts
from draftworth.trials.progress import Progress, Remaining, duration
from draftworth.trials.ready import LogFollower
from draftworth.verdicts.base import Interval


def test_secrets_are_hidden_and_the_rest_is_not() -> None:
    env = {"HF_TOKEN": "x", "MY_API_KEY": "y", "VLLM_CPU_KVCACHE_SPACE": "1", "PROXY": "http://u:p@h:1/"}
    assert redact.environment(env) == {
        "HF_TOKEN": "(hidden)",
        "MY_API_KEY": "(hidden)",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "PROXY": "http://(hidden)@h:1/",
    }
    argv = [
        "env",
        "OPENAI_API_KEY=s",
        "vllm",
        "--api-key",
        "s",
        "--hf-token=s",
        "--tokenizer",
        "t",
        "--max-tokens",
        "9",
    ]
    shown = redact.command(argv)
    assert "s" not in " ".join(shown).replace("OPENAI", "").split()
    assert shown == (
        *("env", "OPENAI_API_KEY=(hidden)", "vllm", "--api-key", "(hidden)", "--hf-token=(hidden)"),
        *("--tokenizer", "t", "--max-tokens", "9"),
    )


def test_remaining_time_is_said_only_when_it_is_known() -> None:
    now = [0.0]
    left = Remaining(["start", "measure", "start", "measure"], clock=lambda: now[0])
    left.next_step()
    assert left.seconds() is None
    now[0] = 30.0
    left.next_step()
    assert left.seconds() is None, "how long measuring takes is not known yet"
    now[0] = 40.0
    left.share(1, 4)
    # This measurement takes 40 s in all, of which 30 are left, but no whole one was seen yet.
    assert left.seconds() is None
    now[0] = 70.0
    left.next_step()
    assert left.seconds() == pytest.approx(30.0 + 40.0)
    now[0] = 80.0
    assert left.seconds() == pytest.approx(20.0 + 40.0)


def test_remaining_time_uses_an_earlier_trial() -> None:
    now = [0.0]
    left = Remaining(["start", "measure"], {"start": 50.0, "measure": 20.0}, clock=lambda: now[0])
    left.next_step()
    assert left.seconds() == pytest.approx(70.0)


@pytest.mark.parametrize(("seconds", "text"), [(4.4, "4 s"), (65, "1 min 05 s"), (3600 + 720, "1 h 12 min")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_progress_writes_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Progress(stream, kinds=["start", "measure"]) as progress:
        progress.step("start baseline")
        progress.now("loading weights")
        progress.now("loading weights")
        progress.step("measure baseline")
        progress.count(10, 10, "13.2 ms a token")
    lines = stream.getvalue().splitlines()
    assert [line.split("  ")[-1].split(" - about")[0].strip() for line in lines] == [
        "0 s [1/2] start baseline",
        "loading weights",
        "0 s [2/2] measure baseline",
        "10/10 13.2 ms a token",
    ]
    assert "\x1b" not in stream.getvalue()


def test_a_closed_output_does_not_disturb_progress() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        stream.close()
        progress.step("start")
        progress.count(1, 2)


def test_the_first_signal_interrupts_and_later_ones_are_remarked() -> None:
    told: list[str] = []
    interrupts = Interrupts(told.append)
    with interrupts.installed():
        with pytest.raises(Interrupt, match="SIGTERM"):
            _signal_myself(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    assert interrupts.received == "SIGTERM"
    assert told == ["SIGINT: the service is being put back first; this cannot be skipped"]


def _signal_myself(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(1)


def test_an_ignored_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts(lambda _: None).installed():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_trials_are_found_by_id_and_as_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWORTH_HOME", str(tmp_path / "home"))
    with pytest.raises(UsageError, match="no trials here"):
        find_trial("latest")
    made = [new_trial() for _ in range(11)]
    assert all_trials() == made, "the eleventh of a second sorts after the second"
    assert find_trial("latest") == made[-1]
    assert find_trial(made[3].name) == made[3]
    assert made[0].stat().st_mode & 0o077 == 0, "prompts and answers are private"
    with pytest.raises(UsageError, match=rf"no trial 'x' .*the newest is {made[-1].name}"):
        find_trial("x")


def test_a_growing_log_is_read_without_cutting_characters(tmp_path: Path) -> None:
    class Collect:
        text = ""

        def feed(self, text: str) -> None:
            self.text += text

    data = "läuft → 40 %\nfertig ✓ 😀\n".encode()
    path = tmp_path / "log"
    reader = Collect()
    follower = LogFollower(path, reader)  # type: ignore[arg-type]  # only feed is used
    follower.read()
    with path.open("wb", buffering=0) as file:
        for byte in data:
            file.write(bytes([byte]))
            follower.read()
    assert reader.text == data.decode()


def test_words_say_what_is_not_known() -> None:
    assert number(None) == "not known"
    assert percent(None) == "not known"
    assert interval(None) == "not known"
    assert interval(Interval(estimate=0.7)) == "0.700 (too few prompts for an interval)"
    assert interval(Interval(estimate=0.7, low=0.65, high=0.76)) == "0.700 (0.650 to 0.760)"
    assert (number(1234.5), number(12.34), number(1.234)) == ("1,234", "12.3", "1.23")
