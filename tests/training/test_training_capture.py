"""States kept while answers are written: what is taken over, what is computed, and what is never believed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.training.training_making import Said, chat, make_target, write_recipe, write_rows
from tests.training.training_server import AnsweringServer, answering, states_of

from draftworth.errors import RefusedError, UsageError
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import read
from draftworth.training import states_compared
from draftworth.training.base import StageManifest, StageName
from draftworth.training.capture import FULL, KEPT, UNSOUND, tokens_of
from draftworth.training.recipe_file import load_recipe
from draftworth.training.run import run_stages
from draftworth.training.stages import read_manifest

TALKS = 6


class Case:
    """A folder with chats, a target and a server that extracts states."""

    def __init__(self, folder: Path, server: AnsweringServer) -> None:
        self.folder, self.server = folder, server
        self.said = Said()
        write_rows(folder / "chat.jsonl", [chat(f"question {n}", "old", f"more {n}", "old") for n in range(TALKS)])

    def run(self, *names: StageName, states: str = 'dtype = "fp32"', data: str = "", **more: Any) -> StageManifest:
        """Run stages, and return the last one's manifest."""
        fields = {"states": "true", "concurrency": 2, "retries": 0, **more}
        lines = "\n".join(f"{name} = {value}" for name, value in fields.items())
        text = f'[data.regenerate]\nurl = "{self.server.url}"\n{lines}\n[states]\n{states}'
        recipe = load_recipe(write_recipe(self.folder, text, data=f"held_out = 0.2\n{data}"))
        self.said = Said()
        run_stages(recipe, names, self.said)
        found = read_manifest(names[-1].folder(recipe.folder))
        assert found is not None
        return found

    @property
    def kept(self) -> list[Path]:
        """Files that were kept with the answers."""
        return sorted((self.folder / "recipe-run" / "data" / "states").glob("*.safetensors"))

    @property
    def states(self) -> list[tuple[NDArray[np.int32], NDArray[np.float32]]]:
        """Tokens and states of all samples."""
        found = []
        for path in sorted((self.folder / "recipe-run" / "states").glob("*/hs_*.safetensors")):
            ids = tokens_of(path)
            found.append((ids, read(read_header(path)["hidden_states"]).reshape(len(ids), 4, 128).astype(np.float32)))
        return found

    @property
    def stored(self) -> list[Path]:
        """What is left of the server's files."""
        assert self.server.storage is not None
        return list(self.server.storage.iterdir())


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    monkeypatch.setattr(states_compared, "installed", lambda: None)
    (tmp_path / "storage").mkdir()
    with answering(make_target(tmp_path / "target"), lambda last: f"<{last}>") as server:
        server.storage = tmp_path / "storage"
        yield Case(tmp_path, server)


DATA, STATES = StageName.DATA, StageName.STATES


def test_states_are_kept_with_the_answers_and_taken_over(case: Case) -> None:
    made = case.run(DATA)
    assert made.counts[f"regenerated: {KEPT}"] == 2 * TALKS
    asked = case.server.asked[1:]  # the first one is a test
    answers = [body for body in asked if "kv_transfer_params" in body]
    assert all(body["kv_transfer_params"] == {"include_output_tokens": True} for body in answers)
    assert len(asked) - len(answers) == 24, "whether sampled answers follow the temperature"
    # The second turn's states begin with the first one's: one file a conversation, and none of the server's is left.
    assert len(case.kept) == TALKS
    assert case.stored == []

    before = len(case.server.asked)
    found = case.run(STATES)
    assert (found.counts["samples"], found.counts["taken_over"], found.counts["made_now"]) == (TALKS, TALKS, 0)
    assert f"{TALKS} of {TALKS} samples have the states that were kept with their answers, 0 are computed" in (
        case.said.text
    )
    assert len(case.server.asked) == before
    for ids, states in case.states:
        assert np.array_equal(states[:-1], states_of(ids)[:-1])
        assert not states[-1].any()
    # They take their room once.
    assert all(path.stat().st_nlink == 2 for path in case.kept)


def test_a_cut_sample_has_all_of_its_states(case: Case) -> None:
    found = case.run(DATA, STATES, data="max_tokens = 60")
    assert found.counts["taken_over"] == TALKS
    for ids, states in case.states:
        assert len(ids) == 60
        assert np.array_equal(states, states_of(ids))


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_a_narrower_type_is_kept_through_a_cut(case: Case, dtype: str) -> None:
    case.run(DATA, STATES, data="max_tokens = 60", states=f'dtype = "{dtype}"')
    for ids, states in case.states:
        wanted = states_of(ids)
        if dtype == "bf16":
            assert np.abs(states / wanted - 1).max() < 2**-8
        else:
            assert np.abs(states).max() <= 448


def test_where_the_room_ends_answers_go_on_and_their_states_are_computed(case: Case) -> None:
    case.run(DATA, states='dtype = "fp32"\ndisk_gib = 0.0006')
    made = read_manifest(case.folder / "recipe-run" / "data")
    assert made is not None
    assert made.counts[f"regenerated: {FULL}"] > 0
    assert made.counts[f"regenerated: {KEPT}"] > 0
    assert sum(path.stat().st_size for path in case.kept) <= 0.0006 * 2**30
    assert case.stored == []
    found = case.run(STATES)
    assert 0 < found.counts["taken_over"] < TALKS
    assert found.counts["taken_over"] + found.counts["made_now"] == TALKS
    assert len(case.states) == TALKS


@pytest.mark.parametrize("how", ["nan", "short", "other tokens"])
def test_states_that_are_not_sound_cost_no_answer_and_are_computed(case: Case, how: str) -> None:
    ways = {
        "nan": lambda ids, states: (ids, states * np.nan),
        "short": lambda ids, states: (ids[:-1], states[:-1]),
        "other tokens": lambda ids, states: (ids + 1, states),
    }
    sound, tests = case.server.spoil, iter([True])
    case.server.spoil = lambda ids, states: sound(ids, states) if next(tests, False) else ways[how](ids, states)
    made = case.run(DATA, concurrency=1)
    assert made.counts[f"regenerated: {UNSOUND}"] == 2 * TALKS
    assert case.said.text.count("the first states that were not kept") == 1
    assert case.kept == case.stored == []
    case.server.spoil = sound
    found = case.run(STATES)
    assert (found.counts["taken_over"], found.counts["made_now"]) == (0, TALKS)
    assert all(np.array_equal(states, states_of(ids)) for ids, states in case.states)


def test_a_file_that_a_server_names_elsewhere_is_not_touched(case: Case) -> None:
    elsewhere = case.folder / "elsewhere"
    elsewhere.mkdir()

    def moved(ids: NDArray[np.int32], states: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        case.server.storage = elsewhere
        return ids, states

    case.server.spoil = moved
    made = case.run(DATA, concurrency=1)
    assert made.counts[f"regenerated: {UNSOUND}"] == 2 * TALKS
    assert str(elsewhere) in case.said.text
    assert len(list(elsewhere.glob("*.safetensors"))) == 2 * TALKS


def test_an_interrupted_run_keeps_what_it_has_and_believes_nothing_half_written(case: Case) -> None:
    case.run(DATA)
    run = case.folder / "recipe-run"
    # As a kill leaves it: no manifest, a file begun, and one that the disk lost the end of.
    (run / "data" / "manifest.json").unlink()
    (case.kept[0].parent / ".x.safetensors.7.tmp").write_bytes(b"half")
    case.kept[0].write_bytes(case.kept[0].read_bytes()[:-5])
    before = len(case.server.asked)
    case.run(DATA)
    assert len(case.server.asked) == before
    assert not list(case.kept[0].parent.glob(".*"))
    found = case.run(STATES)
    assert (found.counts["taken_over"], found.counts["made_now"]) == (TALKS - 1, 1)
    # Interrupted behind this: the files in their place are kept, and counted as before.
    (run / "states" / "manifest.json").unlink()
    again = case.run(STATES)
    assert (again.counts["taken_over"], again.counts["made_now"]) == (TALKS - 1, 0)


def test_states_of_other_layers_or_another_target_are_removed(case: Case) -> None:
    case.run(DATA)
    found = case.run(STATES, states='dtype = "fp32"\nlayers = [1, 4, 5]')
    assert (found.counts["taken_over"], found.counts["made_now"]) == (0, TALKS)
    assert "states kept with the answers were of another target, other layers or another dtype: removed" in (
        case.said.text
    )
    assert case.kept == []
    # Other sampling: other answers, so other tokens; what was kept for the old ones goes.
    case.run(DATA, temperature=0.1)
    assert len(case.kept) == TALKS
    old = case.kept[0].with_name("old.safetensors")
    old.touch()
    case.run(DATA, temperature=0.2)
    assert len(case.kept) == TALKS
    assert not old.exists()


def test_states_that_are_not_the_targets_are_removed_and_computed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.run(DATA)

    class Environment:
        python = "python"

    slots = [{"expected": 2, "found": 3, "shift": 0, "difference": 0.0, "difference_expected": 0.3}]
    monkeypatch.setattr(states_compared, "installed", Environment)
    monkeypatch.setattr(states_compared, "run_worker", lambda *_, **__: {"slots": slots, "samples": 2})
    with pytest.raises(RefusedError, match=r"kept with the answers: slot 0 should be .*after 2 .*after 3"):
        case.run(STATES)
    assert case.kept == []
    slots[0] |= {"found": 2, "difference_expected": 1e-6}
    found = case.run(STATES)
    assert (found.counts["taken_over"], found.counts["made_now"]) == (0, TALKS)


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ("extraction", "does not extract hidden states; start it with --enable-scale-out"),
        ("answers", r"include_output_tokens known to this release.*Start it with"),
        ("layers", r"states \[\d+, 3, 128\], expected \[\d+, 4, 128\]"),
        ("ids", r"does not tell token ids \(return_token_ids\)"),
        ("fields", r"does not store the states of its answers \(.*HTTP 400: scripted 400"),
        ("folder", "which is not on this machine; set shared_storage_path"),
    ],
)
def test_a_server_that_lacks_something_is_refused_by_its_name(
    case: Case, lacks: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = case.server
    if lacks == "extraction":
        server.storage = None
    elif lacks == "answers":
        server.whole = False
    elif lacks == "layers":
        server.spoil = lambda ids, states: (ids, states[:, :3])
    elif lacks == "ids":
        server.with_ids = False
    elif lacks == "fields":
        server.failures = [400]
    else:
        monkeypatch.setattr(server, "_store", lambda *_: "/not/there/1.safetensors")
    with pytest.raises(RefusedError, match=said):
        case.run(DATA)
    assert case.kept == []
    if server.storage is not None:
        assert case.stored == []


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        ("hot", r"at temperature 0\.01 100% of its answers are not the greedy ones .*issue 55005.*temperature = 0"),
        ("cold", "at temperature 2 100% of its answers are the same for two seeds"),
    ],
)
def test_a_server_that_samples_otherwise_while_it_extracts_is_refused(case: Case, sampler: str, said: str) -> None:
    case.server.sampler = sampler
    with pytest.raises(RefusedError, match=said):
        case.run(DATA)
    assert case.kept == case.stored == []
    case.run(DATA, temperature=0.0)
    assert len(case.kept) == TALKS


def test_states_of_a_server_and_transformers_are_not_mixed(case: Case) -> None:
    with pytest.raises(UsageError, match=r'recipe\.toml.*states of a server want states\.way = "vllm"'):
        case.run(DATA, states='way = "transformers"')
