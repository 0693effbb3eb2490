"""Makes the pinned list of the training environment. For maintainers; no part of an installation.

    python -m draftworth.training.pin

As `draftworth.engines.install.pin`, of which it uses the parts: pip resolves speculators' requirements less those that
do not fit a CPU's torch, with the transformers of the vLLM engine's list: a head is trained with what serves it.
"""

import sys
from typing import Any

from draftworth.engines.install import pin as engine_pin
from draftworth.engines.install.machine import GLIBC, supported_pythons
from draftworth.engines.install.vllm_cpu import REQUIREMENTS as ENGINE_LIST
from draftworth.engines.install.vllm_cpu import TORCH_VERSION
from draftworth.training.requirements import REQUIREMENTS, SPECULATORS_VERSION

ROOTS = (f"speculators=={SPECULATORS_VERSION}", f"hs-connectors=={SPECULATORS_VERSION}", "accelerate==1.15.0")
SAME = ("transformers", "tokenizers", "safetensors", "huggingface-hub", "accelerate", "networkx", "numpy")
"""Held to the engine's versions; datasets wants an older fsspec, so not all are."""
HEADER = f"""\
# What the training environment is made of, besides torch: exact versions and the SHA-256 of each wheel.
# Made by `python -m draftworth.training.pin`, for CPython {", ".join(supported_pythons())}
# on Linux x86_64, glibc {GLIBC[0]}.{GLIBC[1]} or later.
# Installed with `pip install --no-deps --require-hashes`, so nothing else comes along.
"""


def pins() -> dict[str, tuple[str, set[str]]]:
    """Return the list: name to (version, SHA-256 of the wheels for the supported Pythons)."""
    held = [line.split(" ")[0] for line in ENGINE_LIST.read_text("utf-8").splitlines() if "==" in line]
    constraints = "\n".join(one for one in held if one.partition("==")[0] in SAME)
    own = engine_pin.resolve(ROOTS, supported_pythons()[0], deps=False)
    needs = [text for name in own for text in own[name]["metadata"].get("requires_dist", ()) if "extra ==" not in text]
    asked = [one for one in needs if not engine_pin.dropped(engine_pin.name_of(one))]
    asked = [one for one in asked if engine_pin.name_of(one) not in {"torch", *own}]
    versions: dict[str, str] = {}
    for python in supported_pythons():
        while True:
            wanted = [*asked, f"torch=={TORCH_VERSION}"]
            report: dict[str, Any] = {**engine_pin.resolve(wanted, python, constraints=constraints), **own}
            found, missing = engine_pin.walk(report, list(own), python)
            if not missing:
                break
            asked += sorted(missing)  # pip judged their markers by the Python that runs it
        for name in found - {"torch"}:
            version = report[name]["metadata"]["version"]
            if versions.setdefault(name, version) != version:
                raise SystemExit(f"{name} resolves to {versions[name]} and, on Python {python}, to {version}: pin it")
    exact = [f"{name}=={versions[name]}" for name in sorted(versions)]
    result: dict[str, tuple[str, set[str]]] = {name: (versions[name], set()) for name in sorted(versions)}
    for python in supported_pythons():
        for name, entry in engine_pin.resolve(exact, python, deps=False).items():
            result[name][1].add(entry["download_info"]["archive_info"]["hashes"]["sha256"])
    return result


def main() -> None:
    """Write the list beside this file."""
    made = pins()
    lines = [
        " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in sorted(hashes))])
        for name, (version, hashes) in made.items()
    ]
    REQUIREMENTS.write_text(HEADER + "\n".join(lines) + "\n", "utf-8")
    sys.stdout.write(f"{len(made)} packages in {REQUIREMENTS}\n")


if __name__ == "__main__":
    main()
