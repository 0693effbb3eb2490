"""Traces are read as they were written, in every form; what cannot be used is counted and named."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.traces.traces_kit import jsonl, read, row, table, write

from draftworth.errors import UsageError
from draftworth.traces import writing
from draftworth.traces.columns import BadRow
from draftworth.traces.store import TraceWriter, open_trace

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=12)
ROWS = st.lists(
    st.tuples(
        IDS,
        IDS.filter(bool),
        st.booleans(),
        st.sampled_from(["", "code", "ü"]),
        st.sampled_from([None, 0.0, 0.7]),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)
FORMS: dict[str, Callable[[Path, Any], Path]] = {"t.parquet": write, "t.jsonl": jsonl}


def rows_of(given_rows: Any) -> list[dict[str, Any]]:
    return [
        row(
            number,
            prompt,
            output,
            thinking_tokens=len(output) // 2 if thinks else None,
            category=category,
            temperature=temperature,
            exact=exact,
        )
        for number, (prompt, output, thinks, category, temperature, exact) in enumerate(given_rows)
    ]


@given(ROWS, st.integers(1, 60), st.integers(1, 5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, made: Any, tokens: int, group: int
) -> None:
    folder = tmp_path_factory.mktemp("t")
    expected = rows_of(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "ROWS_A_GROUP", group)
        write(folder / "t.parquet", expected)
    assert read(folder / "t.parquet") == expected
    assert read(jsonl(folder / "t.jsonl", expected)) == expected
    for name in ("t.parquet", "t.jsonl"):
        sizes = [
            (len(batch), len(batch.tokens), batch.first_row)
            for batch in open_trace(folder / name).batches(tokens=tokens)
        ]
        assert all(total <= tokens or many == 1 for many, total, _ in sizes)
        assert [first for _, _, first in sizes] == list(np.cumsum([0] + [many for many, _, _ in sizes])[:-1])
        assert sum(many for many, _, _ in sizes) == len(expected)


def test_packed_lines_are_read_whatever_their_name(tmp_path: Path) -> None:
    expected = [row(1, [1, 2], [3]), row(2, [], [4, 5])]
    plain = jsonl(tmp_path / "plain", expected).read_bytes()
    (tmp_path / "a").write_bytes(gzip.compress(plain))
    with pa.CompressedOutputStream(str(tmp_path / "b"), "zstd") as packed:
        packed.write(plain)
    assert read(tmp_path / "a") == read(tmp_path / "b") == expected
    (tmp_path / "cut").write_bytes(gzip.compress(plain)[:-9])
    with pytest.raises(UsageError, match="broken packed file"):
        read(tmp_path / "cut")


def test_a_folder_of_parquet_is_one_trace(tmp_path: Path) -> None:
    first, second = row(1, [1], [2]), row(2, [3], [4])
    write(tmp_path / "a.parquet", [first])
    write(tmp_path / "b.parquet", [second])
    (tmp_path / ".c.parquet.partial").write_bytes(b"half")
    assert open_trace(tmp_path).requests == 2
    assert read(tmp_path) == [first, second]


def test_columns_that_are_missing_or_unknown_do_not_matter(tmp_path: Path) -> None:
    bare = [{"prompt_token_ids": [1], "output_token_ids": [2], "latency": 3.5}]
    for path in (jsonl(tmp_path / "t.jsonl", bare), table(tmp_path / "t.parquet", bare)):
        assert read(path) == [{**row(1, [1], [2]), "request_id": "request-1", "model": None}]


def test_tables_of_others_are_traces_where_they_hold_ids(tmp_path: Path) -> None:
    kinds = {"prompt": pa.large_list(pa.int64()), "response": pa.list_(pa.uint32()), "id": pa.int64()}
    path = table(tmp_path / "t.parquet", [{"id": 7, "prompt": [1, 2], "response": [3]}], kinds)
    assert [(one["request_id"], one["prompt_token_ids"], one["output_token_ids"]) for one in read(path)] == [
        ("7", [1, 2], [3])
    ]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"output_token_ids": []}, "the output is empty"),
    ({"prompt_token_ids": None}, "no prompt_token_ids"),
    ({"output_token_ids": None}, "no output_token_ids"),
    ({"prompt_token_ids": [1, -5]}, "a token id is negative"),
    ({"output_token_ids": [9, 100]}, "a token id is outside the vocabulary of 100"),
    ({"thinking_tokens": 7}, "thinking_tokens is no number from 0 to the output's length"),
]


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl"])
def test_bad_rows_are_counted_and_the_first_is_named(tmp_path: Path, name: str) -> None:
    good = row(0, [1], [99])
    wrong = [row(number, [1], [2], **change) for number, (change, _) in enumerate([*BAD, BAD[0]], start=1)]
    rows = [good, *wrong]
    path = table(tmp_path / name, rows) if name == "t.parquet" else jsonl(tmp_path / name, rows)
    trace = open_trace(path, vocabulary=100)
    assert read(trace) == [good]
    at = "{}: row {}" if name == "t.parquet" else "{}:{}"
    assert trace.bad.counts == {reason: 2 if number == 0 else 1 for number, (_, reason) in enumerate(BAD)}
    assert trace.bad.first == {reason: at.format(path, number + 2) for number, (_, reason) in enumerate(BAD)}
    assert f"2 left out: the output is empty (first: {at.format(path, 2)})" in trace.bad.lines()
    read(trace)
    assert trace.bad.total == 7, "a second reading starts its count anew"


def test_bad_lines_and_bad_types_are_counted(tmp_path: Path) -> None:
    lines = [
        row(1, [1], [2]),
        '{"prompt_token_ids": [1], "output_tok',
        "[1]",
        row(3, [1], [2], output_token_ids=[1, "2"]),
        row(4, [1], [2], output_token_ids=[1, True]),
        row(5, [1], [2], prompt_token_ids=[1.5]),
        row(6, [2**40], [2]),
        row(7, [2**70], [2]),
    ]
    trace = open_trace(jsonl(tmp_path / "t.jsonl", lines))
    assert len(read(trace)) == 1
    assert trace.bad.counts == {
        "not JSON": 1,
        "no JSON object": 1,
        "output_token_ids is of the wrong type": 2,
        "prompt_token_ids is of the wrong type": 1,
        "a token id is above 2147483647": 2,
    }


def test_missing_and_large_ids_in_a_table(tmp_path: Path) -> None:
    kinds = {name: pa.list_(pa.int64()) for name in ("prompt_token_ids", "output_token_ids")}
    made = [row(1, [1], [2]), row(2, [1, None], [2]), row(3, [1], [2**31]), row(4, [5, 6], [7])]  # type: ignore[list-item]
    trace = open_trace(table(tmp_path / "t.parquet", made, kinds))
    assert read(trace) == [made[0], made[3]]
    assert trace.bad.counts == {"a token id is missing or no whole number": 1, "a token id is above 2147483647": 1}


def test_a_trace_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    for name, make in FORMS.items():
        if name == "t.jsonl":
            path = make(tmp_path / name, [row(1, [1], [])])
            with pytest.raises(UsageError, match=r"no usable request: 1 left out: the output is empty \(first: .*:1\)"):
                read(path)
        else:
            with pytest.raises(UsageError, match="has no requests"):
                read(make(tmp_path / name, []))


@pytest.mark.parametrize("name", sorted(FORMS))
def test_several_models_are_refused_with_their_names(tmp_path: Path, name: str) -> None:
    made = [row(1, [1], [2]), row(2, [1], [2], model="n"), row(3, [1], [3], model=None), row(4, [1], [4], model="o")]
    path = FORMS[name](tmp_path / name, made)
    with pytest.raises(UsageError, match="has requests of 3 models: m, n, o; choose one with --model NAME"):
        read(path)
    trace = open_trace(path, model="n")
    assert read(trace) == [made[1]]
    assert trace.bad.counts == {
        "of another model than the chosen one": 2,
        "does not say its model, which the choice needs": 1,
    }
    with pytest.raises(
        UsageError, match="no requests of the model 'x'; there are those of m, n, o: choose with --model"
    ):
        read(path, model="x")
    unnamed = FORMS[name](tmp_path / f"u{name}", [row(1, [1], [2], model=None)])
    with pytest.raises(UsageError, match="does not say of which model its requests are: leave --model out"):
        read(unnamed, model="x")


@pytest.mark.parametrize("name", sorted(FORMS))
def test_several_tokenizers_are_refused(tmp_path: Path, name: str) -> None:
    made = [row(1, [1], [2], tokenizer_hash="sha256:1"), row(2, [1], [2], tokenizer_hash="sha256:2")]
    with pytest.raises(UsageError, match=r"made with several tokenizers \(sha256:1 and sha256:2\)|\(sha256:2 and sha"):
        read(FORMS[name](tmp_path / name, made))


def test_what_is_no_trace_is_told_in_one_line(tmp_path: Path) -> None:
    whole = write(tmp_path / "t.parquet", [row(n, list(range(2000)), [n]) for n in range(50)]).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    (tmp_path / "broken.parquet").write_bytes(whole[:200] + bytes(600) + whole[800:])
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "noise").write_bytes(b"\x00\xff\x12\n" * 10)
    (tmp_path / "folder").mkdir()
    table(tmp_path / "floats.parquet", [row(1, [1], [2], prompt_token_ids=[1.5])])
    table(tmp_path / "other.parquet", [{"x": 1}])
    for name, says in [
        ("nowhere", "no such file"),
        ("cut.parquet", "not a readable Parquet file"),
        ("broken.parquet", "not a readable Parquet file"),
        ("empty", "is empty"),
        ("noise", "is no trace"),
        ("folder", "is no trace: it has neither Parquet files nor a trial's requests.parquet"),
        ("floats.parquet", "not lists of token ids"),
        ("other.parquet", "is no trace"),
    ]:
        with pytest.raises(UsageError) as error:
            read(tmp_path / name)
        assert says in str(error.value), name
        assert str(tmp_path / name) in str(error.value)
        assert "\n" not in str(error.value)


def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    kind = pq.read_schema(write(tmp_path / "t.parquet", [row(1, [1], [2])]))
    later = kind.with_metadata({"draftworth": "trace", "schema_version": "2"})
    pq.write_table(later.empty_table(), tmp_path / "later.parquet")
    with pytest.raises(UsageError, match=r"schema_version 2; this Draftworth reads traces up to 1"):
        open_trace(tmp_path / "later.parquet")


def test_a_trace_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(RuntimeError), TraceWriter(path) as writer:  # noqa: PT012 - what happens inside is the point
        writer.add(request_id="1", prompt=[1], output=[2])
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    write(path, [row(1, [1], [2])])
    with pytest.raises(UsageError, match="is there already"):
        TraceWriter(path)
    with pytest.raises(UsageError, match="no such folder"):
        TraceWriter(tmp_path / "no" / "t.parquet")


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize(
    ("name", "said"),
    [("x" * 300 + ".parquet", "cannot be written: File name too long"), ("t.jsonl", "written as Parquet")],
)
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, name: str, said: str, parts: bool) -> None:  # noqa: FBT001
    with pytest.raises(UsageError, match=said) as error:
        TraceWriter(tmp_path / name, parts=parts).__enter__()
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError, match=r"/proc/x\.parquet cannot be written: "):
        TraceWriter(Path("/proc/x.parquet"), parts=parts).__enter__()
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        open_trace(tmp_path / ("x" * 300))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line_and_what_is_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "Arrow says: No space left on device, and more", str(path))

    monkeypatch.setattr(writing, "TOKENS_A_GROUP", 1)
    writer = TraceWriter(tmp_path / "t.parquet", parts=True).__enter__()
    writer.add(request_id="1", prompt=[1], output=[2])
    monkeypatch.setattr(writing, "_open", full)
    with pytest.raises(UsageError, match=r"t\.parquet cannot be written: No space left on device$"):
        writer.add(request_id="2", prompt=[1], output=[2])
    with pytest.raises(UsageError, match="cannot be written"):
        writer.close()
    assert [one["request_id"] for one in read(tmp_path / "t.parquet.parts")] == ["1"]


def test_a_recording_without_a_row_leaves_no_file(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.parquet", parts=True):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_writer_refuses_what_cannot_be_replayed_and_goes_on(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.parquet", vocabulary=10) as writer:
        for prompt, output, thinking in [([1], [], None), ([10], [1], None), ([1], [-1], None), ([1], [1], 2)]:
            with pytest.raises(BadRow):
                writer.add(request_id="x", prompt=prompt, output=output, thinking=thinking)
        writer.add(request_id="y", prompt=np.array([3], np.int64), output=(4,), thinking=1)
    assert (writer.rows, writer.tokens) == (1, 2)
    assert [one["output_token_ids"] for one in read(tmp_path / "t.parquet")] == [[4]]


def test_a_killed_recording_loses_no_part(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    script = (
        "import os, sys; from pathlib import Path; from draftworth.traces.store import TraceWriter\n"
        "with TraceWriter(Path(sys.argv[1]), parts=True) as w:\n"
        "    for n in range(5):\n"
        "        w.add(request_id=str(n), prompt=[n], output=[n, n])\n"
        "        if n in (1, 3): w.flush()\n"
        "    os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == 9
    with pytest.raises(UsageError, match=r"cut off before its end; what it had written is in .*t\.parquet\.parts"):
        open_trace(path)
    assert [one["request_id"] for one in read(path.with_name("t.parquet.parts"))] == ["0", "1", "2", "3"]
    with pytest.raises(UsageError, match="holds what a recording that was cut off had written"):
        TraceWriter(path, parts=True)


def test_two_recordings_never_share_a_name(tmp_path: Path) -> None:
    path, other = tmp_path / "t.parquet", tmp_path / "o.parquet"
    first = TraceWriter(path, parts=True).__enter__()
    second = TraceWriter(path, parts=True)
    with pytest.raises(UsageError, match="another recording writes here"):
        second.__enter__()
    first.add(request_id="a", prompt=[1], output=[2])
    path.write_bytes(b"somebody else's")
    with pytest.raises(UsageError, match="appeared while this trace was written"):
        first.close()
    assert path.read_bytes() == b"somebody else's"
    assert [one["request_id"] for one in read(tmp_path / "t.parquet.parts")] == ["a"], "nothing is lost"
    third = TraceWriter(other).__enter__()
    third.add(request_id="a", prompt=[1], output=[2])
    other.write_bytes(b"somebody else's")
    with pytest.raises(UsageError, match="appeared while"):
        third.close()
    assert other.read_bytes() == b"somebody else's"


def test_parts_become_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "PART_S", 0.0)
    path = tmp_path / "t.parquet"
    with TraceWriter(path, parts=True) as writer:
        for number in range(4):
            writer.add(request_id=f"r{number}", prompt=[number], output=[1], model="m")
        assert len(list((tmp_path / "t.parquet.parts").glob("*.parquet"))) == 4
    assert list(tmp_path.iterdir()) == [path]
    assert read(path) == [row(number, [number], [1]) for number in range(4)]
    assert pq.read_metadata(path).num_row_groups == 1, "small parts are put together"


def test_an_interrupted_recording_keeps_what_it_had(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(KeyboardInterrupt), TraceWriter(path, parts=True) as writer:  # noqa: PT012 - same
        writer.add(request_id="r1", prompt=[1], output=[2], model="m")
        raise KeyboardInterrupt
    assert read(tmp_path / "t.parquet.parts") == [row(1, [1], [2])]


def test_one_request_of_ten_million_tokens(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    long = np.arange(10_000_000, dtype=np.int32) % 50_000
    with TraceWriter(path) as writer:
        writer.add(request_id="short", prompt=[1], output=[2])
        writer.add(request_id="long", prompt=long[:-1], output=long[-1:])
        writer.add(request_id="last", prompt=[1], output=[2])
    batches = list(open_trace(path).batches(tokens=1000))
    assert [list(batch.request_ids) for batch in batches] == [["short"], ["long"], ["last"]]
    assert np.array_equal(batches[1].tokens, long)


MEMORY = """
import resource, sys
from pathlib import Path
import numpy as np
from draftworth.traces.store import TraceWriter, open_trace

def fill(path, requests, length):
    ids = np.random.default_rng(1).integers(0, 50_000, 2 * length + 1000).astype(np.int32)
    with TraceWriter(path) as writer:
        for number in range(requests):
            some = ids[number % 1000:][:2 * length]
            writer.add(request_id=f"request-{number}", prompt=some[:length], output=some[length:])

def read(path):
    return sum(len(batch) for batch in open_trace(path).batches(tokens=1_000_000))

folder, requests, length = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
fill(folder / "warm.parquet", 1 + 3_000_000 // (2 * length), length)
read(folder / "warm.parquet")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fill(folder / "t.parquet", requests, length)
written = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert read(folder / "t.parquet") == requests
print(written - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def grown(folder: Path, requests: int, length: int) -> tuple[int, int]:
    """Return MiB by which memory grew while writing, and in all."""
    command = [sys.executable, "-c", MEMORY, str(folder), str(requests), str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    written, everything = done.stdout.split()
    return int(written) >> 10, int(everything) >> 10


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    # 40 million tokens: 160 MB of ids, of which ten times those that warm up would show.
    written, everything = grown(tmp_path, 20_000, 1000)
    assert written < 40
    assert everything < 60


@pytest.mark.torture
def test_memory_does_not_grow_with_millions_of_short_requests(tmp_path: Path) -> None:
    written, everything = grown(tmp_path, 5_000_000, 10)
    assert written < 60
    assert everything < 100
