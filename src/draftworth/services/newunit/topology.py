"""How the GPUs of a machine are joined, from the matrix that `nvidia-smi topo -m` prints."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

Kind = Literal["nvlink", "pcie", "single", "unknown"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_DEVICE = re.compile(r"(?:GPU|NIC)\d+|(?:mlx|bnxt|ib|hfi|irdma)\w*_?\d+", re.IGNORECASE)
_GPU = re.compile(r"GPU(\d+)")
_NVLINK = re.compile(r"NV\d+")
_NEAR_TO_FAR = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True, slots=True)
class Topology:
    """The links between GPUs.

    Attributes:
        links: unordered pair of indices, the lower one first, to what the matrix says: `NV18`, `PIX`, `SYS`.
        gpus: indices of the GPUs it is about.
    """

    links: dict[tuple[int, int], str]
    gpus: tuple[int, ...]

    def among(self, indices: Collection[int]) -> "Topology":
        """Return the part of it between some of the GPUs."""
        kept = {pair: link for pair, link in self.links.items() if pair[0] in indices and pair[1] in indices}
        return Topology(kept, tuple(gpu for gpu in self.gpus if gpu in indices))

    @property
    def kind(self) -> Kind:
        """How they are joined: `nvlink` where any pair is, `pcie` where every pair is known and none is."""
        if len(self.gpus) == 1:
            return "single"
        if any(_NVLINK.fullmatch(link) for link in self.links.values()):
            return "nvlink"
        known = all(self.links.get(pair) in _NEAR_TO_FAR for pair in combinations(sorted(self.gpus), 2))
        return "pcie" if self.gpus and known else "unknown"

    @property
    def farthest(self) -> str | None:
        """The longest path between two of them on PCIe, `PIX` to `SYS`; None where a pair is joined otherwise."""
        if self.kind != "pcie":
            return None
        return max(self.links.values(), key=_NEAR_TO_FAR.index)


def parse(text: str) -> Topology:
    """Read the matrix. What is none, or has a row that does not fit, gives a topology of kind `unknown`."""
    lines = [_COLOURS.sub("", line).split() for line in text.splitlines()]
    start = next((at for at, words in enumerate(lines) if words and _GPU.fullmatch(words[0])), None)
    if start is None:
        return Topology({}, ())
    columns = []
    for word in lines[start]:
        # The header goes on with words such as `CPU Affinity` behind the devices.
        if not _DEVICE.fullmatch(word):
            break
        columns.append(word)
    links: dict[tuple[int, int], str] = {}
    gpus = [int(match[1]) for word in columns if (match := _GPU.fullmatch(word))]
    for words in lines[start + 1 :]:
        row = _GPU.fullmatch(words[0]) if words else None
        if row is None:
            continue
        cells = words[1 : 1 + len(columns)]
        if len(cells) < len(columns):
            return Topology({}, tuple(gpus))
        for column, cell in zip(columns, cells, strict=True):
            other = _GPU.fullmatch(column)
            one = int(row[1])
            if other and int(other[1]) != one:
                pair = (min(one, int(other[1])), max(one, int(other[1])))
                if links.setdefault(pair, cell) != cell:
                    return Topology({}, tuple(gpus))  # the two halves contradict each other
    return Topology(links, tuple(gpus))
