"""Checkpoints that a kill cannot leave half-written: put in place by renaming, recovered before anything is resumed."""

import contextlib
import json
import shutil
import zipfile
from pathlib import Path

LAYER_CONFIG = "layer_config.json"
"""Beside each checkpoint: the decoder's config with every default, which speculators leaves out."""


def replace_checkpoint(new: Path, final: Path) -> None:
    """Put a finished checkpoint in the place of the one with its number."""
    old = final.with_name(f"{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    new.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def recover(checkpoints: Path) -> None:
    """Remove what a killed run left half-written; put back what it was replacing."""
    for old in checkpoints.glob("*.old"):
        final = old.with_suffix("")
        if is_whole(final):
            shutil.rmtree(old)
        else:
            shutil.rmtree(final, ignore_errors=True)
            old.rename(final)
    for folder in checkpoints.iterdir():
        if folder.is_symlink():
            folder.unlink()
        elif folder.is_dir() and not (folder.name.isdigit() and is_whole(folder)):
            shutil.rmtree(folder)


def is_whole(checkpoint: Path) -> bool:
    """Tell whether a checkpoint is whole: its last file is there, and the large ones are not cut short."""
    from safetensors import safe_open  # type: ignore[import-not-found]  # noqa: PLC0415 - as above

    with contextlib.suppress(Exception):
        json.loads((checkpoint / "training_state.json").read_text("utf-8"))
        json.loads((checkpoint / LAYER_CONFIG).read_text("utf-8"))
        with safe_open(checkpoint / "model.safetensors", framework="pt") as file:
            return bool(file.keys()) and zipfile.is_zipfile(checkpoint / "optimizer_state_dict.pt")
    return False


def link_to(link: Path, to: Path) -> None:
    """Let a link lead elsewhere, in one step."""
    beside = link.with_name(f".{link.name}.new")
    beside.unlink(missing_ok=True)
    beside.symlink_to(to)
    beside.replace(link)
