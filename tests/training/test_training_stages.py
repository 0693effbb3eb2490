"""A stage is trusted only when it was finished, and old only when something it depends on changed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.training.training_making import R1, make_target

from draftworth.errors import UsageError
from draftworth.training import stages
from draftworth.training.base import StageName
from draftworth.training.stages import (
    is_fresh,
    key_of,
    prepare,
    read_manifest,
    required,
    target_inputs,
    why_stale,
    write_atomically,
    write_manifest,
)


def made(folder: Path, **inputs: str) -> str:
    prepare(folder)
    found = write_manifest(
        folder, StageName.VOCAB, inputs=inputs, counts={"size": 3}, facts={"a": [1]}, began=time.monotonic()
    )
    return found.key


def test_a_finished_stage_is_fresh_until_an_input_changes(tmp_path: Path) -> None:
    key = made(tmp_path / "vocab", tokenizer="a", target="b")
    assert is_fresh(tmp_path / "vocab", key)
    assert key == key_of({"target": "b", "tokenizer": "a"})
    assert why_stale(tmp_path / "vocab", {"target": "b", "tokenizer": "a"}) == ""
    assert why_stale(tmp_path / "vocab", {"target": "b", "tokenizer": "c"}) == "changed since: tokenizer"
    assert why_stale(tmp_path / "vocab", {"target": "b"}) == "changed since: tokenizer"
    assert why_stale(tmp_path / "vocab", {"target": "b", "tokenizer": "a", "new": "d"}) == "changed since: new"
    found = read_manifest(tmp_path / "vocab")
    assert found is not None
    assert (found.stage, found.counts, found.facts) == (StageName.VOCAB, {"size": 3}, {"a": [1]})


def test_a_stage_that_is_made_again_is_not_trusted_meanwhile(tmp_path: Path) -> None:
    key = made(tmp_path / "vocab", tokenizer="a")
    (tmp_path / "vocab" / "d2t.npy").write_bytes(b"half")
    prepare(tmp_path / "vocab")
    assert not is_fresh(tmp_path / "vocab", key)
    assert why_stale(tmp_path / "vocab", {"tokenizer": "a"}) == "it was interrupted; what is whole is kept"
    assert why_stale(tmp_path / "fit", {}) == "it has not run yet"


def test_a_missing_or_damaged_manifest_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run `draftworth train vocab` first"):
        required(tmp_path, StageName.VOCAB)
    made(tmp_path / "vocab", tokenizer="a")
    path = tmp_path / "vocab" / "manifest.json"
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[:40], encoding="utf-8")
    with pytest.raises(UsageError, match=r"damaged .*remove the file"):
        read_manifest(tmp_path / "vocab")
    path.write_text(whole.replace('"schema_version": 1', '"schema_version": 99'), encoding="utf-8")
    with pytest.raises(UsageError, match="later Draftworth"):
        read_manifest(tmp_path / "vocab")


def test_a_target_is_named_by_its_content_and_not_by_its_place(tmp_path: Path) -> None:
    one = target_inputs(make_target(tmp_path / "one"))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    os.utime(tmp_path / "two" / "config.json", (1, 1))
    (tmp_path / "two" / "README.md").write_text("a card", encoding="utf-8")
    assert target_inputs(tmp_path / "two") == one
    other = target_inputs(make_target(tmp_path / "three", R1))
    assert other["tokenizer"] == one["tokenizer"]
    assert other["chat_template"] != one["chat_template"]
    config = json.loads((tmp_path / "two" / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "two" / "config.json").write_text(json.dumps({**config, "rope_theta": 1.0}), encoding="utf-8")
    changed = target_inputs(tmp_path / "two")
    assert changed["target"] != one["target"]
    assert changed["chat_template"] == one["chat_template"]


def test_large_weights_are_told_apart_by_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "SMALL", 1000)
    folder = make_target(tmp_path / "one")
    weights = folder / "model.safetensors"
    found = set()
    for at in (None, 0, 5_000_000, 9_999_999):
        content = bytearray(10_000_000)
        if at is not None:
            content[at] = 1
        weights.write_bytes(content)
        found.add(target_inputs(folder)["target"])
    assert len(found) == 4


def test_a_target_without_its_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config.json: no such file; `target` is the folder"):
        target_inputs(tmp_path)


def test_a_file_is_whole_or_the_old_one_when_its_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_atomically(path, b"old")
    code = (
        "import sys, pathlib\nfrom draftworth.training.stages import write_atomically\n"
        "print('ready', flush=True)\n"
        "while True: write_atomically(pathlib.Path(sys.argv[1]), b'n' * 300_000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
    assert path.read_bytes() in {b"old", b"n" * 300_000}


def test_other_files_of_the_same_inputs_are_another_output(tmp_path: Path) -> None:
    # A second try answers what the first left out: the inputs are the same, the samples are not.
    keys = []
    for digest in ("sha256:1", "sha256:2"):
        own = StageName.DATA.folder(tmp_path)
        prepare(own)
        files = {"train": digest}
        write_manifest(
            own, StageName.DATA, inputs={"a": "b"}, counts={}, facts={"files": files}, began=time.monotonic()
        )
        keys.append((stages.output_key(tmp_path, StageName.DATA), required(tmp_path, StageName.DATA).key))
    (one, same), (other, as_well) = keys
    assert same == as_well
    assert one != other
