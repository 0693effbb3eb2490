"""Which torch pip would take, found out before anything large is downloaded.

The same version is published as several builds. On Linux x86_64 the package index's plain wheel is the CUDA build
(several GB with its libraries); the CPU build is on PyTorch's own wheel index, or in a folder that pip was told of.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from draftworth.engines.install.children import Runner
from draftworth.errors import RefusedError

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CUDA_PARTS = ("nvidia-", "cuda-", "triton")


@dataclass(frozen=True, slots=True)
class TorchWheel:
    """A torch that pip can install here.

    Attributes:
        requirement: exact, for pip: `torch==2.13.0+cpu`.
        options: pip's options that find it.
        file: the name of the wheel that pip chose.
    """

    requirement: str
    options: tuple[str, ...]
    file: str


def choose(pip: Sequence[str | Path], version: str, torch_index: str | None, runner: Runner) -> TorchWheel:
    """Return the CPU build of torch that pip would install here. Downloads metadata only.

    Args:
        pip: argv that starts pip.
        version: the public version: `2.13.0`.
        torch_index: a wheel index to take the CPU build from; None asks what pip is configured with.
        runner: runs pip.

    Raises:
        RefusedError: pip finds no such torch, or only the CUDA build.
    """
    asked = f"torch=={version}+cpu" if torch_index else f"torch=={version}"
    options = ("--index-url", torch_index) if torch_index else ()
    report = runner.log.with_suffix(".torch.json")
    command = [*pip, "install", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary", ":all:"]
    try:
        runner.run([*command, "--report", report, *options, asked], f"looking for {asked}")
        chosen = json.loads(report.read_text("utf-8"))["install"][0]
    except (OSError, ValueError, LookupError) as error:
        raise RefusedError(f"pip's report on {asked} cannot be read ({error!r}); see {runner.log}") from error
    finally:
        report.unlink(missing_ok=True)
    if not is_cpu_build(chosen["metadata"]):
        raise RefusedError(
            f"this machine's pip finds only the CUDA build of torch {version}: several GB, of no use on a CPU; "
            f"repeat with --torch-index {CPU_INDEX} (PyTorch's own wheel index)"
        )
    file = unquote(chosen["download_info"]["url"]).rsplit("/", 1)[-1]
    return TorchWheel(f"torch=={chosen['metadata']['version']}", options, file)


def is_cpu_build(metadata: Mapping[str, Any]) -> bool:
    """Tell from a wheel's metadata whether it is a CPU build: its local version says so, or it needs no CUDA parts.

    Args:
        metadata: what pip's installation report gives: `version`, and `requires_dist` where there are requirements.
    """
    _, _, local = str(metadata["version"]).partition("+")
    if local:
        return local.startswith("cpu")
    return not any(
        need.lower().startswith(CUDA_PARTS) and "extra ==" not in need for need in metadata.get("requires_dist", ())
    )
