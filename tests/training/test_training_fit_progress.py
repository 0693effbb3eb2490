"""The progress file across kills, and which checkpoint layout an export becomes."""

import json
from pathlib import Path

import numpy as np

from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import read
from draftworth.training.export import exported, plain_config
from draftworth.training.tensors import Stored, write_safetensors
from draftworth.training.workers.fit_progress import ProgressFile, read_progress


def step(number: int, epoch: int) -> dict[str, object]:
    return {"kind": "step", "step": number, "epoch": epoch, "loss": 1.0}


def test_lines_behind_the_checkpoint_are_dropped_and_a_torn_one_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    progress = ProgressFile(path)
    for number in range(4):
        progress.add(step(number, number // 2))
        if number == 1:
            progress.add({"kind": "epoch", "step": 2, "epoch": 0, "walk": {"length": 1.5}}, sync=True)
    with path.open("a") as file:
        file.write('{"kind": "step", "st')
    assert len(read_progress(path)) == 5
    again = ProgressFile(path)
    again.resume(3)  # the checkpoint has seen steps 0, 1, 2
    assert [(one["kind"], one["step"]) for one in read_progress(path)] == [
        ("step", 0),
        ("step", 1),
        ("epoch", 2),
        ("step", 2),
    ]
    assert again.walks() == {0: {"length": 1.5}}
    again.resume(0)
    assert read_progress(path) == []


def test_an_export_leaves_the_embedding_out_and_counts_layers_as_each_engine_does(tmp_path: Path) -> None:
    values = np.arange(6, dtype="<f4")
    made = {
        name: Stored("F32", (2, 3), (values.tobytes(),), 24)
        for name in ("embed_tokens.weight", "fc.weight", "layers.0.mlp.up_proj.weight")
    }
    write_safetensors(tmp_path / "trained.safetensors", made)
    np.save(tmp_path / "d2t.npy", np.array([0, 4]))
    np.save(tmp_path / "t2d.npy", np.array([True, False, False, False, False, True]))
    found = exported(read_header(tmp_path / "trained.safetensors"), tmp_path, "bfloat16", pruned=True)
    write_safetensors(tmp_path / "model.safetensors", found)
    header = read_header(tmp_path / "model.safetensors")
    assert sorted(header) == ["d2t", "fc.weight", "midlayer.mlp.up_proj.weight", "t2d"]
    assert read(header["fc.weight"]).tolist() == values.tolist()
    assert read(header["d2t"]).tolist() == [0, 4]
    assert header["t2d"].dtype == "BOOL"

    trained = {"draft_vocab_size": 2, "norm_output": True, "norm_before_fc": True, "norm_before_residual": False}
    layer = {"hidden_size": 3, "vocab_size": 6, "rope_parameters": {"rope_theta": 5e5}, "max_position_embeddings": 99}
    config = plain_config(trained, layer, {"hidden_size": 3, "max_position_embeddings": 4096}, [2, 4, 5], "bfloat16")
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]  # vLLM: layers applied
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 4]  # SGLang adds the one itself
    assert config["max_position_embeddings"] == 4096
    assert config["rope_theta"] == 5e5
    assert (config["norm_output"], config["norm_before_fc"], config["norm_before_residual"]) == (True, True, False)
    assert json.loads(json.dumps(config)) == config
