"""Whole logs through the reader that the verb uses."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftworth.errors import UsageError
from draftworth.findings import Code
from draftworth.readings.log import read_log, read_open

DATA = Path(__file__).parents[1] / "engines" / "data"
BANNER = "(APIServer pid=1) INFO 11-30 00:00:01 [x.py:1] vLLM API server version {version}\n"
LINE = (
    "(APIServer pid=1) INFO 11-30 00:{minute:02}:00 [metrics.py:101] SpecDecoding metrics: "
    "Mean acceptance length: 2.50, Accepted throughput: 1.50 tokens/s, Drafted throughput: 3.00 tokens/s, "
    "Accepted: 15 tokens, Drafted: 30 tokens, Per-position acceptance rate: 0.800, 0.500, 0.200, "
    "Avg Draft acceptance rate: 50.0%\n"
)
"""10 drafting steps of 3 tokens; 8, 5 and 2 of them accepted."""
NOISE = 'INFO:     10.0.0.7:4711 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


def log(*parts: str) -> io.BytesIO:
    return io.BytesIO("".join(parts).encode())


def test_windows_of_a_log_are_added_exactly() -> None:
    found = read_open(
        log(BANNER.format(version="0.32.0"), NOISE, *[LINE.format(minute=m) for m in range(4)]), "x", None
    )
    assert (found.engine, found.version, found.windows_seen) == ("vllm", "0.32.0", 4)
    counts = found.counts
    assert counts is not None
    assert (counts.drafting_steps, counts.drafted, counts.accepted) == (40, 120, 60)
    assert counts.accepted_per_position == (32, 20, 8)
    assert counts.why_not("steps")
    assert [window.at for window in found.windows] == [f"11-30 00:{m:02}:00" for m in range(4)]


def test_only_the_last_start_counts_unless_all_are_asked_for() -> None:
    parts = [
        BANNER.format(version="0.31.0"),
        LINE.format(minute=1),
        BANNER.format(version="0.32.0"),
        LINE.format(minute=2),
    ]
    last = read_open(log(LINE.format(minute=0), *parts), "x", None)
    assert (last.version, last.windows_seen, last.counts and last.counts.drafted) == ("0.32.0", 1, 30)
    (said,) = [one for one in last.findings if one.code is Code.SEVERAL_STARTS]
    assert said.message.startswith("2 starts of a server; 2 windows before the last one are not counted")
    every = read_open(log(LINE.format(minute=0), *parts), "x", None, all_starts=True)
    assert (every.windows_seen, every.counts and every.counts.drafted) == (3, 90)


def test_only_the_newest_windows_are_kept_and_all_are_counted() -> None:
    found = read_open(log(*[LINE.format(minute=m) for m in range(20)]), "x", None, 5)
    assert (len(found.windows), found.windows_seen, found.counts and found.counts.drafted) == (5, 20, 600)
    assert found.windows[0].at == "11-30 00:15:00"
    assert Code.WINDOWS_NOT_LISTED in {one.code for one in found.findings}


def test_a_line_that_contradicts_itself_is_in_no_count_and_is_named() -> None:
    wrong = LINE.format(minute=1).replace("Accepted: 15", "Accepted: 31")
    found = read_open(log(LINE.format(minute=0), wrong, LINE.format(minute=2)), "x", None)
    assert found.counts is not None
    assert (found.counts.accepted, found.counts.drafted) == (30, 60)
    (said,) = [one for one in found.findings if one.code in {Code.COUNTS_CONTRADICT, Code.LINES_UNREADABLE}]
    assert said.message.startswith(f"1 line: byte {len(LINE.format(minute=0))}: ")


def test_journalds_json_and_binary_noise_change_nothing() -> None:
    plain = read_open(log(*[LINE.format(minute=m) for m in range(3)]), "x", None)
    exported = "".join(
        json.dumps({"__REALTIME_TIMESTAMP": "1", "MESSAGE": list(LINE.format(minute=m).encode())}) + "\n"
        for m in range(3)
    )
    noisy = io.BytesIO(b"\xff\xfe\x00\n" + exported.encode() + b"\x00" * 100 + b"\n")
    assert read_open(noisy, "x", None).counts == plain.counts


def test_a_log_of_nobody_says_whose_logs_are_known(tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_text("hello\nworld\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"other\.log: no line of .*vLLM.* is in it; is it the log"):
        read_log(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="it is empty"):
        read_log(path)


def test_a_log_without_speculation_says_so() -> None:
    found = read_log(DATA / "vllm_0.32_baseline.txt")
    assert found.counts is None
    assert [one.code for one in found.findings] == [Code.NO_SPECULATION_SEEN]
    assert (found.version, found.facts.speculating) == ("0.32.0", False)


def test_a_real_logs_windows_are_exact_counts() -> None:
    found = read_log(DATA / "vllm_0.32_ngram.txt")
    counts = found.counts
    assert counts is not None
    # By hand of its two lines: 385 and 190 tokens drafted five a step, 99 and 90 accepted.
    assert (counts.drafting_steps, counts.drafted, counts.accepted) == ((385 + 190) // 5, 575, 189)
    assert sum(counts.accepted_per_position or ()) == 189
    assert (found.version, found.facts.runner) == ("0.32.0", "V1")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 2))
def test_bytes_thrown_into_a_log_never_end_in_a_traceback(junk: bytes, at: int, copies: int) -> None:
    text = (BANNER.format(version="0.32.0") + LINE.format(minute=0) * 2).encode()
    found = read_open(io.BytesIO(text[:at] + junk * copies + text[at:]), "x", "vllm")
    counts = found.counts
    if counts is not None and counts.drafted is not None:
        assert counts.drafted in {0, 30, 60}


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    import tracemalloc  # noqa: PLC0415 - only here

    path = tmp_path / "long.log"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(200):
            file.write(NOISE * 3000 + LINE.format(minute=1))
    assert path.stat().st_size > 40e6
    tracemalloc.start()
    found = read_log(path, windows=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.windows_seen == 200
    assert peak < 20e6


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("vllm_0.32_fails_unknown_flag.txt", "unrecognized arguments: --nonsense"),
        ("vllm_0.32_fails_bad_key.txt", "banana: Unexpected keyword argument"),
        ("llamacpp/fails_no_mtp_layers.txt", "context type MTP requested but model doesn't contain MTP layers"),
        ("llamacpp/fails_port_busy.txt", "couldn't bind HTTP server socket"),
    ],
)
def test_a_start_that_failed_is_told_in_the_servers_own_words(name: str, says: str) -> None:
    found = read_log(DATA / name)
    (said,) = [one for one in found.findings if one.code is Code.START_FAILED]
    assert says in said.message


def test_a_log_of_another_engine_than_the_one_named_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"no line of vLLM is in it"):
        read_log(DATA / "llamacpp" / "ngram_simple_log.txt", name="vllm")


PIDS = ("(APIServer pid=1)", "(APIServer pid=2)")


def of_process(number: int, minute: int) -> str:
    return LINE.format(minute=minute).replace(PIDS[0], PIDS[number])


def test_two_servers_in_one_journal_are_not_added() -> None:
    parts = [of_process(minute % 2, minute) for minute in range(6)]
    found = read_open(log(*parts), "x", None)
    assert found.counts is None
    (said,) = [one for one in found.findings if one.code is Code.SEVERAL_SERVERS]
    assert said.message == "2 servers write this log in turns: pid=1, pid=2"
    one = read_open(log(*parts), "x", None, only="pid=2")
    assert one.counts is not None
    assert (one.counts.drafted, one.findings) == (90, ())


def test_another_process_behind_the_first_is_another_start_though_no_line_says_so() -> None:
    found = read_open(log(*[of_process(minute > 2, minute) for minute in range(5)]), "x", None)
    assert found.counts is not None
    assert (found.counts.drafted, found.windows_seen) == (60, 2)
    (said,) = found.findings
    assert "3 windows before the last one are not counted" in said.message
    every = read_open(log(*[of_process(minute > 2, minute) for minute in range(5)]), "x", None, all_starts=True)
    assert every.counts is not None
    assert every.counts.drafted == 150


def test_a_damaged_gzip_is_one_clear_error(tmp_path: Path) -> None:
    import gzip  # noqa: PLC0415 - only here

    path = tmp_path / "log.gz"
    data = bytearray(gzip.compress(("".join(LINE.format(minute=m) for m in range(50)) * 50).encode()))
    for at in range(60, 120):
        data[at] ^= 0x5A
    path.write_bytes(bytes(data))
    with pytest.raises(UsageError, match=r"log\.gz: cannot be read"):
        read_log(path)


def test_a_key_in_the_words_of_a_failed_start_is_hidden(tmp_path: Path) -> None:
    path = tmp_path / "serve.log"
    text = (DATA / "vllm_0.32_fails_unknown_flag.txt").read_text()
    path.write_text(text.replace("--nonsense", "--nonsense --api-key=sk-1234567890abcdef"), encoding="utf-8")
    found = read_log(path)
    assert "--nonsense" in found.findings[0].message
    assert "1234567890abcdef" not in str(found.document())
