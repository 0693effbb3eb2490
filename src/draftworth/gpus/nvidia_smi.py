"""NVIDIA's GPUs of any machine through `nvidia-smi`.

GPUs and processes are asked for as CSV without units, in which memory is MiB (2**20 bytes) and what is not told stands
in words: `[N/A]`, `N/A`, `[Not Supported]`, `[Insufficient Permissions]`, `[Unknown Error]`. CSV has no MIG instances:
their memory is taken from the XML of `nvidia-smi -q -x` (`mig_device`: index, fb_memory_usage; the processes name the
GPU and compute instance they are on), their UUIDs from `nvidia-smi -L`, in which they follow their GPU.
"""

import csv
import re
import xml.etree.ElementTree as ET  # the text is the driver's own tool's
from collections.abc import Iterator, Mapping

from draftworth.gpus.base import Gpu, GpuProcess, Gpus
from draftworth.gpus.hidden import number, told
from draftworth.hosts.base import CommandResult, Host, HostError

_MIB = 2**20
_FIELDS = "index,uuid,name,memory.total,memory.used,mig.mode.current"
_TIMEOUT_S = 30.0
_NOT_FOUND = 127
_LISTED = re.compile(r"GPU (?P<gpu>[0-9]{1,9}):|\s+MIG (?P<profile>\S+)\s+Device\s+(?P<mig>[0-9]{1,9}):")
_UUID = re.compile(r"\(UUID: (?P<uuid>[^)]+)\)")


class NvidiaSmiReader:
    """Reads GPUs and MIG instances through `nvidia-smi` on a host. See `GpuReader`."""

    name = "nvidia-smi"

    def __init__(self, host: Host) -> None:
        """Make a reader.

        Args:
            host: the machine.
        """
        self._host = host

    def read(self) -> Gpus:
        """Return what the GPUs hold now."""
        try:
            return self._read()
        except (HostError, _Failed, csv.Error) as error:
            return Gpus(source=self.name, gpus=(), why=f"nvidia-smi: {error}")

    def _read(self) -> Gpus:
        lost: list[str] = []
        rows = list(_rows(self._ask(f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits")))
        gpus = [gpu for row in rows if (gpu := _gpu(row, lost))]
        if not gpus and not lost:
            lost.append("nvidia-smi: no GPU")
        processes = self._processes(lost) if gpus else None
        if processes is not None:
            gpus = [gpu.model_copy(update={"processes": tuple(processes.get(gpu.uuid, ()))}) for gpu in gpus]
        if any(len(row) == len(_FIELDS.split(",")) and row[-1] == "Enabled" for row in rows):
            gpus = self._with_instances(gpus, processes or {}, lost)
        return told(self.name, gpus, lost)

    def _ask(self, *words: str) -> str:
        result = self._host.run(["nvidia-smi", *words], timeout_s=_TIMEOUT_S)
        if not result.ok:
            raise _Failed(_why(result))
        return result.text

    def _processes(self, lost: list[str]) -> Mapping[str, list[GpuProcess]] | None:
        try:
            text = self._ask("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
        except (HostError, _Failed) as error:
            lost.append(f"processes: {error}")
            return None
        found: dict[str, list[GpuProcess]] = {}
        for row in _rows(text):
            if len(row) != 3 or (pid := number(row[1])) is None:  # noqa: PLR2004 - the columns asked for
                lost.append(f"processes: {','.join(row)[:80]!r} is not understood")
                return None
            found.setdefault(row[0], []).append(GpuProcess(pid=pid, used_bytes=_mib(row[2])))
        return found

    def _with_instances(self, gpus: list[Gpu], processes: Mapping[str, list[GpuProcess]], lost: list[str]) -> list[Gpu]:
        """Return the GPUs, each followed by its MIG instances."""
        try:
            log = ET.fromstring(self._ask("-q", "-x"))  # noqa: S314 - the driver's own tool's, no entities
            listed = _listed(self._ask("-L"))
        except (HostError, _Failed, ET.ParseError) as error:
            lost.append(f"MIG instances: {error}")
            return gpus
        elements = {element.findtext("uuid", ""): element for element in log.iter("gpu")}
        shown: list[Gpu] = []
        for gpu in gpus:
            shown.append(gpu)
            if gpu.uuid in elements:
                shown += _instances(gpu, elements[gpu.uuid], listed, processes)
        return shown


class _Failed(Exception):  # noqa: N818 - a reason on its way to `why`
    """`nvidia-smi` did not answer; the text says why."""


def _why(result: CommandResult) -> str:
    # It tells what is wrong on standard output, in one or two lines, and gives the same code for much.
    text = " ".join((result.text or result.err.decode(errors="replace")).split())
    if result.code == _NOT_FOUND:
        return "not installed"
    return text[:200] or result.why


def _rows(text: str) -> Iterator[list[str]]:
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        cells = [cell.strip() for cell in row]
        if any(cells):
            yield cells


def _mib(cell: str) -> int | None:
    mebibytes = number(cell.removesuffix("MiB").strip())
    return None if mebibytes is None else mebibytes * _MIB


def _gpu(row: list[str], lost: list[str]) -> Gpu | None:
    if len(row) != len(_FIELDS.split(",")) or (index := number(row[0])) is None:
        lost.append(f"nvidia-smi: {' '.join(','.join(row).split())[:120]!r} is not understood")
        return None
    total = _mib(row[3])
    return Gpu(
        index=index,
        uuid=row[1],
        name=row[2],
        total_bytes=total or None,
        used_bytes=_mib(row[4]) if total != 0 else None,
        processes=None,
    )


def _listed(text: str) -> dict[tuple[int, int], tuple[str, str]]:
    """Return the profile and UUID of every MIG instance by its GPU's index and its own."""
    found: dict[tuple[int, int], tuple[str, str]] = {}
    gpu = -1
    for line in text.splitlines():
        match, uuid = _LISTED.match(line), _UUID.search(line)
        if match and match["gpu"]:
            gpu = int(match["gpu"])
        elif match and uuid:
            found[gpu, int(match["mig"])] = (match["profile"], uuid["uuid"])
    return found


def _instances(
    gpu: Gpu,
    element: ET.Element,
    listed: Mapping[tuple[int, int], tuple[str, str]],
    processes: Mapping[str, list[GpuProcess]],
) -> Iterator[Gpu]:
    running: dict[tuple[str, str], list[GpuProcess]] = {}
    for one in element.iter("process_info"):
        pid = number(one.findtext("pid", ""))
        if pid is not None:
            place = (one.findtext("gpu_instance_id", "").strip(), one.findtext("compute_instance_id", "").strip())
            running.setdefault(place, []).append(GpuProcess(pid=pid, used_bytes=_mib(one.findtext("used_memory", ""))))
    for one in element.iter("mig_device"):
        position = number(one.findtext("index", "")) or 0
        place = (one.findtext("gpu_instance_id", "").strip(), one.findtext("compute_instance_id", "").strip())
        profile, uuid = listed.get((gpu.index, position), ("", f"{gpu.uuid}/{place[0]}/{place[1]}"))
        yield Gpu(
            index=position,
            uuid=uuid,
            name=f"{gpu.name} MIG {profile}".strip(),
            total_bytes=_mib(one.findtext("fb_memory_usage/total", "")),
            used_bytes=_mib(one.findtext("fb_memory_usage/used", "")),
            processes=tuple(running.get(place) or processes.get(uuid) or ()),
            parent=gpu.uuid,
        )
