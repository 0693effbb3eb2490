"""Writes the example in docs/service-new.md from the code: `python -m tests.services.newunit.docs_example`."""

import re
import tempfile
from pathlib import Path

from tests.services.newunit.engine import DATA, gpu

from draftworth import __version__
from draftworth.services.newunit.base import Account, Asked, Machine
from draftworth.services.newunit.make import make

PAGE = Path(__file__).parents[3] / "docs" / "service-new.md"
_BLOCK = re.compile(r"```ini\n.*?```", re.DOTALL)


def example() -> str:
    """The unit for Kimi-K2.5 on eight GPUs joined by PCIe, with the program where the page says it is."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "vllm"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        asked = Asked(
            command=(
                *(str(program), "serve", "moonshotai/Kimi-K2.5", "--tensor-parallel-size", "8", "--trust-remote-code"),
                *("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'),
            ),
            user="llm",
            env_files=("/etc/kimi-k2.5.env",),
        )
        machine = Machine(
            account=Account(name="llm", uid=990, groups=(990,), home="/home/llm"),
            nvidia_smi="/usr/bin/nvidia-smi",
            gpus=tuple(gpu(index) for index in range(8)),
            topology=(DATA / "topo_pcie_8.txt").read_text(encoding="utf-8"),
            curl="/usr/bin/curl",
            cuda_bin="/usr/local/cuda/bin",
        )
        text = make(asked, machine).text
    return text.replace(folder, "/opt/vllm/bin").replace(f"draftworth {__version__}", "draftworth")


def page() -> str:
    """The page with the example as the code makes it now."""
    block = f"```ini\n{example()}```"
    return _BLOCK.sub(lambda _: block, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
