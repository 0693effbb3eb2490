"""All tensors of a folder, from the files that vLLM's loader would take.

Which files: `DefaultModelLoader._prepare_weights` and `filter_duplicate_safetensors_files` of vLLM 0.32:
consolidated*.safetensors where there are any, else *.safetensors without those that an index leaves out, else *.bin,
else *.pt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from draftworth.heads.files.documents import read_object
from draftworth.heads.files.safetensors import read_header
from draftworth.heads.files.tensors import Tensor, UnreadableError, UnsupportedError
from draftworth.heads.files.torchzip import read_archive

_CONSOLIDATED = "consolidated"
_NO_MODEL = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
"""What a trainer leaves beside the weights, which the loader leaves out too."""
_DFLASH_MASK = "mask_embedding.pt"


@dataclass(frozen=True)
class Weights:
    """What a folder holds of weights.

    Attributes:
        files: the files that are loaded, sorted.
        tensors: by name.
        problems: what is wrong with the files, a sentence each.
        unread: which files are of a form that is not read here, and why; they may be sound.
        pickled: whether they are files of `torch.save`.
    """

    files: tuple[Path, ...]
    tensors: Mapping[str, Tensor]
    problems: tuple[str, ...]
    unread: tuple[str, ...] = ()
    pickled: bool = False

    @property
    def why_not(self) -> str:
        """Why there are tensors that could not be read."""
        return "; ".join((*self.problems, *self.unread))

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(one.bytes for one in self.tensors.values())


def read_weights(folder: Path) -> Weights:
    """Return the tensors of a folder. Reads headers alone, never values; what is wrong is told, not raised."""
    files, problems, indexed = _chosen(folder)
    if not files and not problems:
        problems = ["no *.safetensors, *.bin or *.pt in it: nothing to load"]
    pickled = bool(files) and files[0].suffix != ".safetensors"
    tensors: dict[str, Tensor] = {}
    unread: list[str] = []
    for path in files:
        try:
            found = read_archive(path) if pickled else read_header(path)
        except UnsupportedError as error:
            unread.append(f"{path.name}: {error}")
            continue
        except UnreadableError as error:
            problems.append(f"{path.name}: {error}")
            continue
        except OSError as error:
            problems.append(f"{path.name} cannot be read: {error.strerror}")
            continue
        twice = sorted(set(found) & set(tensors))
        if twice:
            problems.append(f"{twice[0]} is in {tensors[twice[0]].path.name} and in {path.name}; the later one is used")
        tensors |= found
    missing = sorted(set(indexed) - set(tensors))
    if missing and not problems and not unread:
        problems.append(f"the index names {missing[0]} and {len(missing) - 1} more tensors that no file holds")
    return Weights(tuple(files), tensors, tuple(problems), tuple(unread), pickled)


def _chosen(folder: Path) -> tuple[list[Path], list[str], Mapping[str, str]]:
    """Return which files are loaded, what is wrong with the choice, and the index."""
    safe = sorted(folder.glob("*.safetensors"))
    consolidated = [one for one in safe if one.name.startswith(_CONSOLIDATED)]
    if not safe:
        for suffix in ("bin", "pt"):
            left = {*_NO_MODEL, _DFLASH_MASK}
            if files := sorted(one for one in folder.glob(f"*.{suffix}") if one.name not in left):
                return files, [], {}
        return [], [], {}
    files = consolidated or safe
    index = folder / f"{_CONSOLIDATED if consolidated else 'model'}.safetensors.index.json"
    if not index.is_file():
        return files, _numbered(files), {}
    where = read_object(index).get("weight_map")
    if not isinstance(where, dict) or not all(isinstance(one, str) for one in where.values()):
        return files, [f"{index.name} has no weight_map"], {}
    named = set(where.values())
    absent = sorted(named - {one.name for one in files})
    problems = [f"{index.name} names {', '.join(absent)}, which is not here"] if absent else []
    return [one for one in files if one.name in named], problems, where


def _numbered(files: list[Path]) -> list[str]:
    """Tell of shards that are missing where no index names them: `model-00001-of-00004.safetensors`."""
    problems = []
    for path in files:
        first, _, last = path.stem.rpartition("-of-")
        number = first.rpartition("-")[2]
        if (
            number.isdigit()
            and last.isdigit()
            and len([one for one in files if one.stem.endswith(f"-of-{last}")]) < int(last)
        ):
            problems.append(f"{path.name} is one of {int(last)} files, and not all are here")
            break
    return problems
