"""Runs one worker in an environment in which Draftworth is not installed: `python boot.py MODULE REQUEST.json`.

Only Draftworth's own modules are made importable, by a package made here: with the folder above on the path, whatever
is installed beside Draftworth (another numpy, another pydantic) would come before the environment's own packages.
A worker ends when its parent does, also where that was killed: a training that nobody watches holds the GPU.
"""

import ctypes
import importlib
import importlib.util
import signal
import sys
from pathlib import Path

_HERE = Path(__file__).resolve()
_PR_SET_PDEATHSIG = 1


def _make_importable() -> None:
    if "draftworth" in sys.modules:
        return
    root = _HERE.parents[2]
    sys.path[:] = [one for one in sys.path if Path(one or ".").resolve() != _HERE.parent]
    spec = importlib.util.spec_from_file_location(
        "draftworth", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["draftworth"] = package
    spec.loader.exec_module(package)


# Also in the processes that a data loader spawns, which import this file under another name.
_make_importable()

if __name__ == "__main__":
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    channel = importlib.import_module("draftworth.training.workers.channel")
    sys.exit(channel.serve(sys.argv[1], sys.argv[2]))
