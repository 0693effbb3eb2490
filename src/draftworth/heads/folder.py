"""A model's folder on this machine: its config.json, its weights, its tokenizer, and what it is called."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from draftworth.costs.paper.fields import Fields
from draftworth.errors import UsageError
from draftworth.heads.files.documents import read_object, read_optional
from draftworth.heads.files.weights import Weights, read_weights

_HUB_FOLDER = re.compile(r"models--(?P<owner>.+?)--(?P<name>.+)")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*$", re.DOTALL | re.MULTILINE)
_BASE_MODEL = re.compile(r"^base_model:[ \t]*(?:\n[ \t]*-[ \t]*)?[\"']?([\w./-]+)", re.MULTILINE)
_CARD_READ = 64 * 1024
_OTHER_TOKENIZERS = ("tokenizer.model", "tiktoken.model", "tekken.json", "vocab.json", "spiece.model")


@dataclass(frozen=True)
class Model:
    """A folder that holds a model or a head.

    Attributes:
        path: the folder with config.json.
        config: config.json.
    """

    path: Path
    config: Mapping[str, Any]

    @cached_property
    def text(self) -> Fields:
        """The part of config.json that describes the language model."""
        return Fields.of(self.config, str(self.path / "config.json"))

    @cached_property
    def weights(self) -> Weights:
        """The tensors."""
        return read_weights(self.path)

    @cached_property
    def tokenizer(self) -> Mapping[str, Any] | None:
        """tokenizer.json; none where there is none."""
        return read_optional(self.path / "tokenizer.json")

    @cached_property
    def generation(self) -> Mapping[str, Any]:
        """generation_config.json; empty where there is none."""
        return read_optional(self.path / "generation_config.json") or {}

    @property
    def other_tokenizer(self) -> str | None:
        """The file of a tokenizer in another form than tokenizer.json."""
        return next((name for name in _OTHER_TOKENIZERS if (self.path / name).is_file()), None)

    @property
    def architecture(self) -> str | None:
        """The first of `architectures`."""
        found = self.config.get("architectures")
        return found[0] if isinstance(found, list) and found and isinstance(found[0], str) else None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What it is called: by the hub's cache, by config.json, by its folder."""
        hub = next((match for part in self.path.parts if (match := _HUB_FOLDER.fullmatch(part))), None)
        told = self.config.get("_name_or_path")
        candidates = (
            f"{hub['owner']}/{hub['name']}" if hub else None,
            told if isinstance(told, str) and told not in ("", ".") else None,
            None if hub else self.path.resolve().name,
        )
        return tuple(dict.fromkeys(one for one in candidates if one))

    @cached_property
    def card_base(self) -> str | None:
        """The `base_model` of the front matter of README.md."""
        try:
            with (self.path / "README.md").open(encoding="utf-8", errors="replace") as file:
                head = _FRONT_MATTER.match(file.read(_CARD_READ))
        except OSError:
            return None
        found = _BASE_MODEL.search(head[1]) if head else None
        return found[1] if found else None


def open_model(path: Path, what: str) -> Model:
    """Return the model in a folder; a repository in the hub's cache, or its name, leads to its snapshot.

    Args:
        path: the folder, or the name of a model in the hub's cache of this user.
        what: what it was given as, for errors.

    Raises:
        UsageError: it is no folder, or holds no config.json.
    """
    path = path.expanduser()
    if not path.exists() and _HUB_NAME.fullmatch(str(path)):
        path = _cached(str(path), what)
    if not path.exists():
        raise UsageError(f"{what} {path}: no such folder")
    if not path.is_dir():
        raise UsageError(f"{what} {path}: a folder with config.json and weights is expected, and this is a file")
    if not (path / "config.json").is_file() and (path / "snapshots").is_dir():
        path = _snapshot(path, what)
    if not (path / "config.json").is_file():
        raise UsageError(f"{what} {path}: no config.json in this folder; give the folder that has it")
    return Model(path, read_object(path / "config.json"))


def _cached(name: str, what: str) -> Path:
    """Return the folder of a hub's name in the cache of this user, as huggingface_hub finds it."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    found = cache / f"models--{name.replace('/', '--')}"
    if found.is_dir():
        return found
    raise UsageError(
        f"{what} {name}: no such folder, and no model of this name in {cache}. `hf download {name}` fetches it from "
        "the Hugging Face Hub and prints the folder to give"
    )


def _snapshot(path: Path, what: str) -> Path:
    """Return the snapshot that `main` names, or the only one."""
    main = path / "refs" / "main"
    if main.is_file():
        named = path / "snapshots" / main.read_text(encoding="utf-8", errors="replace").strip()
        if named.is_dir():
            return named
    found = sorted(one for one in (path / "snapshots").iterdir() if one.is_dir())
    if len(found) == 1:
        return found[0]
    raise UsageError(f"{what} {path}: {len(found)} snapshots in it; give the folder of one of them")
