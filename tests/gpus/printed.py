"""Hosts on which GPU tools print what a test says."""

from collections.abc import Sequence
from pathlib import Path

from draftworth.hosts.base import CommandResult, HostError

DATA = Path(__file__).parent / "data"


class PrintingHost:
    """A host that knows commands by the beginning of their second word: `nvidia-smi --query-gpu…`."""

    name = "test"

    def __init__(self, answers: dict[str, bytes | tuple[int, bytes] | HostError]) -> None:
        self._answers = answers

    def run(self, argv: Sequence[str], *, stdin: bytes | None = None, timeout_s: float = 60.0) -> CommandResult:
        for start, answer in self._answers.items():
            if " ".join(argv[:2]).startswith(start):
                if isinstance(answer, HostError):
                    raise answer
                code, out = (0, answer) if isinstance(answer, bytes) else answer
                return CommandResult(tuple(argv), code, out, b"")
        return CommandResult(tuple(argv), 127, b"", f"sh: 1: {argv[0]}: not found".encode())

    def read(self, path: str) -> bytes | None:
        raise NotImplementedError

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        raise NotImplementedError

    def remove(self, path: str) -> bool:
        raise NotImplementedError


def nvidia(case: str) -> PrintingHost:
    """Return a host whose `nvidia-smi` prints a case of the data."""
    files = {
        "nvidia-smi --query-gpu": f"{case}-gpus.txt",
        "nvidia-smi --query-compute-apps": f"{case}-processes.txt",
        "nvidia-smi -q": f"{case}-log.xml",
        "nvidia-smi -L": f"{case}-list.txt",
    }
    return PrintingHost({start: (DATA / name).read_bytes() for start, name in files.items() if (DATA / name).exists()})


def rocm() -> PrintingHost:
    """Return a host whose `rocm-smi` prints the data's case."""
    return PrintingHost(
        {
            "rocm-smi --showmeminfo": (DATA / "rocm-all.json").read_bytes(),
            "rocm-smi --showpidgpus": (DATA / "rocm-pidgpus.txt").read_bytes(),
        }
    )
