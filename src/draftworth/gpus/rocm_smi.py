"""AMD's GPUs of any machine through `rocm-smi`.

The format is that of python_smi_tools/rocm_smi.py in github.com/ROCm/rocm_smi_lib (read at a1295714f2, ROCm 6.3):

- One JSON object; a key `card<index>` a GPU with `VRAM Total Memory (B)`, `VRAM Total Used Memory (B)`, `Unique ID`
  and `Card Series`, or `Card series`, all texts; what is not told is `None` or `N/A`.
- `system` has a key `PID<pid>` a process: its name, how many GPUs it uses, bytes of VRAM on all of them together,
  bytes of SDMA, and CU occupancy, joined by `, `, in small letters, with `unknown` for what is not told. The name's own
  blanks are `, ` as well, so it is read from the right. No process: no such key.
- Which GPUs a process uses is not in the JSON. `--showpidgpus` has it as text: `PID 12 is using 2 DRM device(s):` and
  their indices in the next lines.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from draftworth.gpus.base import Gpu, GpuProcess, Gpus
from draftworth.gpus.hidden import number, told
from draftworth.hosts.base import CommandResult, Host, HostError

_TIMEOUT_S = 30.0
_NOT_FOUND = 127
_QUESTION = ("--showmeminfo", "vram", "--showuniqueid", "--showproductname", "--showpids", "--json")
_USES = re.compile(r"PID ([0-9]{1,9}) is using [0-9]+ DRM device")


class RocmSmiReader:
    """Reads AMD's GPUs through `rocm-smi` on a host. See `GpuReader`."""

    name = "rocm-smi"

    def __init__(self, host: Host) -> None:
        """Make a reader.

        Args:
            host: the machine.
        """
        self._host = host

    def read(self) -> Gpus:
        """Return what the GPUs hold now."""
        try:
            result = self._host.run(["rocm-smi", *_QUESTION], timeout_s=_TIMEOUT_S)
            data = _json(result)
            processes = dict(_processes(data.get("system")))
            uses = self._uses() if processes else {}
        except (HostError, ValueError) as error:
            return Gpus(source=self.name, gpus=(), why=f"rocm-smi: {error}")
        cards = sorted(
            ((int(key[4:]), card) for key, card in data.items() if _is_card(key, card)), key=lambda pair: pair[0]
        )
        if not cards:
            return Gpus(source=self.name, gpus=(), why="rocm-smi: no GPU")
        lost: list[str] = []
        if uses is None:
            if len(cards) == 1:
                uses = dict.fromkeys(processes, frozenset({cards[0][0]}))
            else:
                lost.append("rocm-smi does not tell which GPUs a process is on")
        gpus = [_gpu(index, card, _on(index, processes, uses)) for index, card in cards]
        return told(self.name, gpus, lost)

    def _uses(self) -> Mapping[int, frozenset[int]] | None:
        """Return the indices of each process's GPUs, or None where that is not told."""
        result = self._host.run(["rocm-smi", "--showpidgpus"], timeout_s=_TIMEOUT_S)
        if not result.ok:
            return None
        found: dict[int, frozenset[int]] = {}
        pid: int | None = None
        for line in result.text.splitlines():
            match = _USES.search(line)
            words = line.split()
            if match:
                pid = int(match[1])
                found[pid] = frozenset()
            elif pid is not None and words and all(number(word) is not None for word in words):
                found[pid] |= frozenset(map(int, words))
            else:
                pid = None
        return found or None


def _is_card(key: str, card: Any) -> bool:
    return re.fullmatch(r"card[0-9]{1,9}", key) is not None and isinstance(card, dict)


def _json(result: CommandResult) -> dict[str, Any]:
    if result.code == _NOT_FOUND:
        raise ValueError("not installed")
    text = result.text
    # Warnings may stand before the object.
    start = text.find("{")
    if start < 0:
        words = " ".join((text or result.err.decode(errors="replace")).split())
        raise ValueError(words[:200] or result.why)
    try:
        data, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        raise ValueError(f"its answer is no JSON: {' '.join(text.split())[:120]!r}") from None
    return data if isinstance(data, dict) else {}


def _processes(system: Any) -> Iterator[tuple[int, int | None]]:
    """Yield each process and the bytes it holds on all its GPUs together."""
    for key, value in (system if isinstance(system, dict) else {}).items():
        match = re.fullmatch(r"PID([0-9]{1,9})", key)
        if match:
            fields = str(value).rsplit(", ", 4)
            yield int(match[1]), _number(fields[2]) if len(fields) == 5 else None  # noqa: PLR2004 - see above


def _on(
    index: int, processes: Mapping[int, int | None], uses: Mapping[int, frozenset[int]] | None
) -> tuple[GpuProcess, ...] | None:
    """Return the processes on one GPU; how they spread their bytes over several GPUs is not told."""
    if uses is None:
        return None
    return tuple(
        GpuProcess(pid=pid, used_bytes=used if len(uses[pid]) == 1 else None)
        for pid, used in sorted(processes.items())
        if index in uses.get(pid, ())
    )


def _gpu(index: int, card: Mapping[str, Any], processes: tuple[GpuProcess, ...] | None) -> Gpu:
    unique = str(card.get("Unique ID", "N/A"))
    total = _number(card.get("VRAM Total Memory (B)"))
    return Gpu(
        index=index,
        uuid=unique if unique not in {"N/A", "0x0", ""} else f"card{index}",
        name=str(card.get("Card Series") or card.get("Card series") or "AMD GPU"),
        total_bytes=total or None,
        used_bytes=_number(card.get("VRAM Total Used Memory (B)")),
        processes=processes,
    )


def _number(value: Any) -> int | None:
    return number(str(value).strip())
