"""`draftworth train install`: the environment that trains."""

import json
import sys
from functools import partial
from typing import Annotated

from cyclopts import Parameter

from draftworth.cli.train_words import Json, shown
from draftworth.errors import EXIT_DONE

_tell = partial(print, flush=True, file=sys.stderr)


def install(
    *,
    torch_index: Annotated[
        str | None, Parameter(help="A wheel index to take torch from, where pip itself finds only another build.")
    ] = None,
    gpu: Annotated[
        bool | None, Parameter(help="Whether torch is to be built for CUDA; default: where this machine has a GPU.")
    ] = None,
    force: Annotated[bool, Parameter(negative="", help="Remove an installed one and make it anew.")] = False,
    as_json: Json = False,
) -> int:
    """Make the environment that trains: speculators, torch and transformers, pinned together, apart from Draftworth's.

    Tells what comes before anything is downloaded, and checks what the environment can do, not its numbers: a module,
    function or flag that is missing is named. What is installed already is reused at once. An environment of your own
    is used instead where DRAFTWORTH_TRAIN_PYTHON names its interpreter.

    Exits 0 when it is there, 1 for a platform it is not made for, 2 where there is no room, pip failed, or what came
    out cannot train.
    """
    from draftworth.training.environment import install as make  # noqa: PLC0415 - lazy
    from draftworth.training.environment import lacking  # noqa: PLC0415 - lazy

    found = make(torch_index=torch_index, force=force, gpu=gpu, tell=_tell)
    versions = lacking(found)
    document = {"schema_version": 1, "python": str(found.python), "versions": versions}
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    shown(json.dumps(document, indent=1) if as_json else f"{found.python}: {told}")
    return EXIT_DONE
