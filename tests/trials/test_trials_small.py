"""Small parts of a trial: redaction, remaining time, interrupts, where trials are kept, words."""

import io
import os
import re
import signal
import string
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth import redact
from draftworth.errors import UsageError
from draftworth.reports.words import interval, number, percent
from draftworth.trials.home import all_trials, find_trial, new_trial
from draftworth.trials.interrupts import Interrupt, Interrupts
from draftworth.trials.progress import Progress, duration
from draftworth.trials.ready import LogFollower
from draftworth.trials.remaining import Remaining
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


def test_every_key_of_a_list_and_every_variable_of_a_container_are_hidden() -> None:
    argv = [
        "docker",
        "run",
        "--env=HF_TOKEN=a b",
        "-eX_KEY=c",
        "-e",
        "AWS_ACCESS_KEY_ID=d",
        "img",
        "--api-key",
        "k1",
        "k2",
    ]
    assert redact.command([*argv, "--port", "80"]) == (
        *("docker", "run", "--env=HF_TOKEN=(hidden)", "-eX_KEY=(hidden)", "-e", "AWS_ACCESS_KEY_ID=(hidden)", "img"),
        *("--api-key", "(hidden)", "(hidden)", "--port", "80"),
    )


def test_what_only_sounds_like_a_secret_stays_readable() -> None:
    argv = [
        *("vllm", "serve", "m", "--long-prefill-token-threshold", "9", "--max-num-batched-tokens", "64"),
        *("--speculative-config", '{"method":"ngram","num_speculative_tokens":5}', "--tokenizer", "t"),
    ]
    assert redact.command(argv) == tuple(argv)
    for line in (
        "KeyError: 'rope_scaling'",
        "error: argument --api-key: expected at least one argument",
        "args: {'api_key': None, 'num_speculative_tokens': 5, 'eos_token_id': 2, 'num_key_value_heads': 3}",
        "12.3 ms a token: fine; see hf_overrides and https://docs.vllm.ai/en/latest",
    ):
        assert redact.text(line) == line


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "non-default args: {'port': 80, 'api_key': ['x', 'y'], 'model': 'm'}",
            "non-default args: {'port': 80, 'api_key': (hidden), 'model': 'm'}",
        ),
        ("serve m --api-key x y --port 80", "serve m --api-key (hidden) (hidden) --port 80"),
        ("HF_TOKEN=x exec vllm", "HF_TOKEN=(hidden) exec vllm"),
        ("Authorization: Bearer abc", "Authorization: (hidden)"),
        ("sent 'Bearer abcdefgh' to", "sent 'Bearer (hidden)' to"),
        ("using hf_AbCdEfGhIjKl to", "using (hidden) to"),
        ("from https://me:pw@host/x", "from https://(hidden)@host/x"),
    ],
)
def test_secrets_in_lines_of_a_log_are_hidden(line: str, shown: str) -> None:
    assert redact.text(line) == shown
    assert redact.text(shown) == shown


SECRETS = st.text(string.ascii_letters + string.digits, min_size=1, max_size=20).map("Zq9".__add__)
IN_A_LINE = (
    "bash -c 'vllm serve m --api-key {a} {b} --port 1'",
    'sh -c "exec vllm serve m --api-key={a} --hf-token {b}"',
    "vllm serve --api-key '{a}' \"{b}\" && echo done",
    "vllm serve --api-key='{a} {b}' x",
    'vllm serve --api-key="{a} {b}',
    "['vllm', '--api-key', '{a}', '{b}', '--port', '1']",
    '["vllm","--api-key","{a}","{b}"]',
    "args: Namespace(host=None, api_key=['{a}', '{b}'], port=1)",
    "api_key=['{a}, {b}]",
    "args: {{'api_key': '{a}', 'hf_token': '{b}'}}",
    '{{"api_key":"{a}","x":{{"password":"{b}"}}}}',
    "export HF_TOKEN={a}; OPENAI_API_KEY='{b}' vllm",
    "docker run --env=HF_TOKEN={a} -e MY_SECRET={b} img",
    "Authorization: Bearer {a}{b}",
    "GET / HTTP/1.1 authorization='Bearer {a}' cookie={b}",
    "curl https://{a}:{b}@host/ https://{a}@host",
)


@given(SECRETS, SECRETS, st.sampled_from(IN_A_LINE))
def test_a_secret_never_survives_in_a_line(first: str, second: str, form: str) -> None:
    line = form.format(a=first, b=second)
    for shown in (redact.text(line), *redact.command(["bash", "-c", line]), *redact.command([line])):
        assert first not in shown
        assert second not in shown


@given(
    st.lists(st.one_of(SECRETS, st.tuples(SECRETS, SECRETS).map(" ".join)), min_size=1, max_size=4),
    st.sampled_from(["--api-key {}", "--api-key={}", "--env=HF_TOKEN={}", "-e A_KEY={}", "-eA_KEY={}", "A_TOKEN={}"]),
    st.sampled_from([[], ["--port", "80"]]),
)
def test_a_secret_never_survives_in_a_command(secrets: list[str], form: str, rest: list[str]) -> None:
    front, gap, back = form.partition(" ")
    argv = ["vllm", "serve", "m", *([front, *secrets] if back == "{}" else [])]
    if back != "{}":
        argv += [word.format(secret) for secret in secrets for word in ((front, back) if gap else (front,))]
    shown = redact.command([*argv, *rest])
    assert not any("Zq9" in word for word in shown)
    assert list(shown[-len(rest) :] if rest else ()) == rest
    assert len(shown) == len(argv) + len(rest)


@given(st.text(max_size=200))
def test_any_text_can_be_made_safe(line: str) -> None:
    redact.text(line)
    redact.command([line, line])


@pytest.mark.parametrize("piece", ["x", "a.b-", "://", "['--api-key', ", "token=['a", "api_key='", "\\", "hf_a", "a="])
def test_a_long_line_takes_no_long_time(piece: str) -> None:
    began = time.monotonic()
    redact.text(piece * 20_000)
    assert time.monotonic() - began < 2.0


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


def test_lines_are_written_in_order() -> None:
    stream = io.StringIO()
    with Progress(stream) as progress:
        for number in range(500):
            progress.line(str(number))
    assert stream.getvalue().split() == [str(number) for number in range(500)]


def _full_pipe() -> tuple[int, int]:
    """Return the ends of a pipe that takes no more bytes; writing to it waits."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for size in (65536, 1):
        try:
            while True:
                os.write(writing, b"x" * size)
        except BlockingIOError:
            pass
    os.set_blocking(writing, True)
    return reading, writing


def test_a_full_pipe_never_holds_a_trial() -> None:
    reading, writing = _full_pipe()
    with os.fdopen(writing, "w") as stream:
        began = time.monotonic()
        with Progress(stream, kinds=["start"]) as progress:
            progress.step("start")
            for number in range(5000):
                progress.now(f"loading {number}")
                progress.count(1, 1)
            spent = time.monotonic() - began
        closing = time.monotonic() - began - spent
    os.close(reading)  # the waiting thread ends with a broken pipe
    assert spent < 1.0, "no call waits"
    assert closing < 2.0, "the end waits a second at most"


def test_a_full_pipe_does_not_change_how_the_tool_ends() -> None:
    script = (
        "from draftworth.trials.progress import Progress\n"
        "with Progress() as progress:\n"
        "    for number in range(100): progress.line('x' * 100)\n"
        "raise SystemExit(3)\n"
    )
    reading, writing = _full_pipe()
    try:
        done = subprocess.run([sys.executable, "-c", script], stderr=writing, check=False, timeout=30)
    finally:
        os.close(writing)
        os.close(reading)
    assert done.returncode == 3


def test_a_terminal_shows_lines_and_a_status_and_never_holds_a_trial() -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as stream:
        with Progress(stream, kinds=["start"]) as progress:
            progress.step("start baseline")
            progress.now("loading [weights]")
            time.sleep(0.6)
        seen = os.read(master, 65536).decode()
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
        assert "0 s [1/1] start baseline\r\n" in plain, "the line stays"
        assert "0 s [1/1] start baseline: loading [weights]" in plain, "the status"
        assert "\\[" not in plain
        # Nobody reads the terminal any more: its buffer fills up.
        began = time.monotonic()
        with Progress(stream) as progress:
            for _ in range(2000):
                progress.line("y" * 100)
        assert time.monotonic() - began < 2.5
        os.close(master)


def test_the_first_signal_interrupts_and_later_ones_are_remarked() -> None:
    told: list[str] = []
    interrupts = Interrupts(told.append)
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with interrupts.installed():
        with pytest.raises(Interrupt, match="SIGTERM"):
            _signal_myself(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    assert interrupts.received == "SIGTERM"
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "the way out is not cut short either"
    for one, handler in before.items():
        signal.signal(one, handler)
    assert told == [
        "SIGTERM: ending the trial; the service is put back first",
        "SIGINT: the service is being put back first; this cannot be skipped",
    ]


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
    with pytest.raises(UsageError, match="has no trials"):
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
