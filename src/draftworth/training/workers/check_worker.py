"""Tells what an environment lacks to train with, by trying it: `python check_worker.py [PACKAGE_THAT_MUST_IMPORT…]`.

Runs alone, beside nothing of Draftworth. Prints one JSON object: `missing`, a sentence each, and `versions`.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from typing import Any

FLAGS = (
    *("speculator_type", "verifier_name_or_path", "data_path", "hidden_states_backend", "save_path", "log_dir"),
    *("d2t_path", "t2d_path", "draft_vocab_size", "mask_token_id", "on_missing", "train_data_ratio", "epochs"),
    *("total_seq_len", "num_workers", "lr", "optimizer", "scheduler_warmup_ratio", "ttt_steps", "sliding_window"),
    *("seed", "hidden_states_dtype", "draft_attn_impl", "loss_implementation", "log_freq", "norm_before_residual"),
    "target_layer_ids",
)
"""Fields of speculators' training configuration that are set."""
NEEDED = {
    "torch": ("accelerator", "float8_e4m3fn"),
    "transformers": ("AutoModelForCausalLM", "AutoConfig"),
    "transformers.modeling_rope_utils": ("ROPE_INIT_FUNCTIONS",),
    "safetensors.torch": ("load_file", "save_file"),
    "datasets": ("Dataset", "Features", "Sequence", "Value"),
    "pyarrow.parquet": ("read_table",),
    "speculators.train.config": ("TrainConfig",),
    "speculators.train.cli": ("main", "Trainer", "maybe_destroy_distributed"),
    "speculators.train.trainer": ("Trainer", "metric_logger", "get_local_rank", "get_rank", "is_distributed"),
    "speculators.train.checkpointer": ("get_current_device",),
    "speculators.models.eagle3": ("Eagle3SpeculatorConfig",),
}
METHODS = ("run_training", "train_epoch", "maybe_save_checkpoint", "maybe_update_best")
"""Methods of speculators' trainer that are overridden."""


def missing(must_import: tuple[str, ...]) -> list[str]:
    """Return what the environment lacks."""
    # Absent is fine; there and broken (a CUDA build beside torch for CPU) breaks transformers.
    found = [
        f"{package} is there and cannot be imported ({why}); remove it, or install its build for this torch"
        for package in must_import
        if importlib.util.find_spec(package) is not None and (why := _failure(package))
    ]
    modules: dict[str, Any] = {}
    for name, attributes in NEEDED.items():
        if why := _failure(name):
            found.append(f"module {name} cannot be imported ({why})")
            continue
        modules[name] = importlib.import_module(name)
        found += [f"{name} has no {one}" for one in attributes if not hasattr(modules[name], one)]
    config = getattr(modules.get("speculators.train.config"), "TrainConfig", None)
    if config is not None:
        flat = config().flatten()
        flags = [f"--{one.replace('_', '-')}" for one in FLAGS if one not in flat]
        found += [f"speculators train has no {one}" for one in flags]
    trainer = getattr(modules.get("speculators.train.trainer"), "Trainer", None)
    if trainer is not None:
        found += [f"speculators' Trainer has no {one}" for one in METHODS if not hasattr(trainer, one)]
    return found


def _failure(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - a broken package fails in any way
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return ""


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter."""
    found = {}
    for name in ("speculators", "torch", "transformers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


if __name__ == "__main__":
    lacking = missing(tuple(sys.argv[1:]))
    sys.stdout.write("\n" + json.dumps({"missing": lacking, "versions": versions()}) + "\n")
