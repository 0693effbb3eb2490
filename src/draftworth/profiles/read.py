"""Profiles out of files: formats told by their first bytes, one rank a file or a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftworth.errors import UsageError
from draftworth.profiles.account import Accounted, on_device, on_host
from draftworth.profiles.base import Profile
from draftworth.profiles.chrome import read_chrome
from draftworth.profiles.events import Recorded
from draftworth.profiles.folder import chosen, rank_of
from draftworth.profiles.kernels import Table, load_table
from draftworth.profiles.nsys import SQLITE, read_nsys
from draftworth.profiles.ranks import File, check_one_run, described, slowest, waiting
from draftworth.profiles.spread import few_steps
from draftworth.profiles.steps import Decode, decode_on_device, decode_on_host
from draftworth.profiles.tokens import check_tokens, emitted

_OVERLAP = 0.02
"""Share of the span from which on overlapping kernels are worth a note."""
_UNKNOWN = 0.05
"""Share of the span from which on unknown names are worth a note."""


@dataclass(frozen=True)
class Stated:
    """What a person knows of a profile that it may not tell itself."""

    steps: int | None = None
    tokens: float | None = None
    strict: bool = False


def read_profile(
    paths: Sequence[Path],
    *,
    kernels: Path | None = None,
    steps: int | None = None,
    tokens: float | None = None,
    strict: bool = False,
) -> Profile:
    """Return the decode time of a profile by class.

    Args:
        paths: trace files, plain or gzip, or nsys exports; several are ranks of one run. A folder stands for the
            newest run of traces in it.
        kernels: a table of patterns put ahead of the one that comes with Draftworth.
        steps: decode steps in the span, where the trace does not tell them.
        tokens: output tokens of the whole profile less one for each request (its first comes from its prefill). Where
            the trace tells its steps, the part that falls on the span is taken.
        strict: whether tokens that the steps cannot have emitted are an error; else they are left out with a note.

    Returns:
        The slowest rank's profile, with all in `ranks` where there are several: the rank that is busy longest outside
        of collectives, for which the others wait within theirs.

    Raises:
        UsageError: a file is no profile, is empty, or holds no decode step; several are not ranks of one run.
    """
    table, stated = load_table(kernels), Stated(steps, tokens, strict)
    picked = [chosen(path) for path in paths]
    if not picked:
        raise UsageError("which profile? name a trace of vLLM's profiler or an nsys export")
    ranks: list[Profile] = []
    files: list[File] = []
    for path in (file for one in picked for file in one.files):
        profiles, file = _profiles(path, table, stated)
        ranks += profiles
        files.append(file)
    warnings = [one.warning for one in picked if one.warning] + check_one_run(files)
    if len(ranks) == 1:
        return ranks[0].model_copy(update={"warnings": (*warnings, *ranks[0].warnings)})
    ranks.sort(key=lambda one: (one.rank is None, one.rank or 0, one.source, one.device))
    told = slowest(ranks)
    update = {
        "ranks": tuple(ranks),
        "warnings": (*warnings, *told.warnings),
        "notes": (*told.notes, *waiting(ranks)),
    }
    return told.model_copy(update=update)


def _profiles(path: Path, table: Table, stated: Stated) -> tuple[list[Profile], File]:
    with path.open("rb") as file:
        start = file.read(64)
    if start.startswith(SQLITE):
        found = read_nsys(path)
    elif path.name.endswith((".nsys-rep", ".qdrep")):
        raise UsageError(f"{path}: export it first: nsys export --type sqlite {path.name}")
    elif path.name.endswith(".ncu-rep"):
        raise UsageError(f"{path}: of Nsight Compute, which stops between kernels; record with nsys or vLLM's profiler")
    else:
        found = read_chrome(path)
    if found.graphs_whole:
        found.notes.append(
            f"{found.graphs_whole:,} CUDA graphs were recorded as one piece each and count as not recognised; "
            "record with `nsys profile --cuda-graph-trace=node`"
        )
    if not found.devices and not len(found.ops):
        raise UsageError(f"{path}: a trace without GPU kernels and without operations of a CPU: nothing to tell apart")
    if not found.devices and (len(found.calls) or found.meta.get("deviceProperties")):
        why = found.notes[0] if not found.complete else "record its activities too (`torch_profiler_activities`)"
        raise UsageError(f"{path}: of a process that uses a GPU, but without GPU kernels; {why}")
    if not found.devices:
        decode = _checked(found, decode_on_host(found))
        profiles = [_profile(found, None, (decode, on_host(found, decode, table)), stated)]
        return profiles, described(found, profiles)
    profiles = []
    for device in sorted(found.devices):
        decode = _checked(found, decode_on_device(found, device))
        profiles.append(_profile(found, device, (decode, on_device(found, device, decode, table)), stated))
    return profiles, described(found, profiles)


def _checked(found: Recorded, decode: Decode) -> Decode:
    if not len(decode.windows[0]):
        kinds = f" (it has {decode.found})" if decode.found else ""
        cut = "" if found.complete else f"; {found.notes[0]}"
        raise UsageError(
            f"{found.source}: no decode step that another follows{kinds}: profile while requests generate{cut}"
        )
    return decode


def _profile(found: Recorded, device: int | None, told: tuple[Decode, Accounted], stated: Stated) -> Profile:
    decode, account = told
    notes = list(found.notes)
    known = decode.steps
    if stated.steps is not None:
        differs = known not in {None, stated.steps}
        notes += [f"{known} steps were told in the trace, {stated.steps} were stated"] if differs else []
        known = stated.steps if known is None else known
    output = emitted(decode, stated.tokens, complete=found.complete, steps=stated.steps)
    if stated.strict:
        check_tokens(found.source, output)
    notes += output.notes
    notes += _remarks(found, device, account)
    name = _device_name(found, device)
    return Profile(
        source=found.source,
        engine=_engine(found, decode),
        rank=_rank(found, device),
        device=name,
        span_ms=account.span_ms,
        steps=known,
        tokens=output.tokens,
        carried=decode.carried,
        request_steps=decode.request_steps,
        per_step=account.steps,
        told_by=decode.told_by,
        whole_ms=max(found.last - found.first, 0.0) / 1e3,
        classes=account.classes,
        idle_ms=account.idle_ms,
        host_ms=account.host_ms,
        scopes=account.scopes,
        unknown=account.unknown,
        complete=found.complete,
        warnings=tuple(few_steps(known, account.steps)),
        notes=tuple(notes),
    )


def _remarks(found: Recorded, device: int | None, account: Accounted) -> list[str]:
    notes = []
    span = account.span_ms or 1.0
    unknown = sum(one.ms for one in account.unknown)
    if unknown / span > _UNKNOWN:
        notes.append(
            f"{unknown / span:.0%} of the span has names that are not recognised; --kernels FILE adds patterns"
        )
    if account.overlap_ms / span > _OVERLAP:
        notes.append(
            f"kernels overlapped for {account.overlap_ms:.2f} ms, which was split evenly between those that ran at once"
        )
    if device is None and not any("gpu_model_runner: " in text for text in found.names.texts):
        notes.append("Python outside of the engine's marks counts as idle; VLLM_CUSTOM_SCOPES_FOR_PROFILING=1 marks it")
    if device is not None and account.host_ms is not None and not len(found.ops):
        notes.append("the host's time is that of CUDA calls and marked ranges: the trace has no operations of the CPU")
    return notes


def _engine(found: Recorded, decode: Decode) -> str:
    if version := found.meta.get("vllm_version"):
        return f"vllm {version}"
    processes = " ".join(str(one) for one in found.meta.get("processes", ()))
    for name, sign in (("vllm", "vllm"), ("sglang", "sglang"), ("vllm", "vLLM's marks"), ("sglang", "SGLang's marks")):
        if sign.casefold() in processes.casefold() or decode.told_by.startswith(sign):
            return name
    texts = found.names.texts
    for name, sign in (("vllm", "vllm::unified_"), ("sglang", "sgl_kernel"), ("llama.cpp", "ggml_type)")):
        if any(sign in text for text in texts):
            return name
    return ""


def _rank(found: Recorded, device: int | None) -> int | None:
    told = found.meta.get("distributedInfo")
    if isinstance(told, dict) and isinstance(told.get("rank"), int):
        return int(told["rank"])
    return device if len(found.devices) > 1 else rank_of(found.source)


def _device_name(found: Recorded, device: int | None) -> str:
    if device is None:
        return "cpu"
    told: Any = found.meta.get("deviceProperties")
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict) and one.get("id") == device and one.get("name"):
            return f"gpu {device}: {one['name']}"
    return f"gpu {device}"
