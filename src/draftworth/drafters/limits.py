"""How large a replay may be asked for: bounds on k, settings and concurrency, so that memory and time have one too.

Engines have no bound on k (vLLM), or a looser one. A draft may reach beyond the end of a recorded answer, and an engine
verifies such tokens too, so k is not cut to the longest answer: what a step costs would be told too low. It is bounded
instead: a replay counts steps by drafted and accepted tokens, in a table of (k + 1) x (k + 1) a setting.
"""

from collections.abc import Iterable, Sequence

from draftworth.drafters.base import Setting
from draftworth.errors import UsageError

MOST_K = 1024
"""Most tokens drafted a step, of every drafter; what llama.cpp's flags take at most too."""
MOST_CELLS = 1 << 23
"""Cells of the tables of all settings together: 64 MiB for each category and phase of a trace."""
MOST_TABLES = 1 << 25
"""Cells of the tables of all settings, categories and phases: 256 MiB, and as much again while a batch is counted."""
MOST_CATEGORIES = 100
"""Categories counted one by one; further ones are counted together."""
PHASES = 4
"""Tables a category has at most: thinking, answers, requests that only think, and those that do not say."""
MOST_AT_A_TIME = 4096
"""Requests decoded at a time, as the traffic generator sends them at most."""


def check_k(name: str, values: Iterable[int]) -> None:
    """Check values of k.

    Args:
        name: the parameter, by the engine's name.
        values: of k.

    Raises:
        UsageError: one is below 1 or above what is replayed.
    """
    for value in values:
        if not 1 <= value <= MOST_K:
            raise UsageError(f"{name}={value} must be 1 to {MOST_K:,}: longer drafts are not replayed")


def check_size(settings: Sequence[Setting]) -> None:
    """Check that the tables of all settings fit.

    Raises:
        UsageError: they would not; says how many settings of the largest k would.
    """
    longest = max((one.k for one in settings), default=0)
    fit = MOST_CELLS // (longest + 1) ** 2
    if len(settings) > fit:
        raise UsageError(
            f"{len(settings):,} settings with k up to {longest:,} are too many for one pass: with a k of {longest:,} "
            f"at most {fit:,}; replay the large k apart, or fewer settings"
        )


def categories_that_fit(settings: Sequence[Setting]) -> int:
    """Return how many categories are counted one by one, so that all tables fit, beside that of all others."""
    cells = len(settings) * (max((one.k for one in settings), default=0) + 1) ** 2
    return max(0, min(MOST_CATEGORIES, MOST_TABLES // (PHASES * max(1, cells)) - 1))


def check_at_a_time(loads: Iterable[int]) -> None:
    """Check numbers of requests decoded at a time.

    Raises:
        UsageError: one is above what is replayed and predicted.
    """
    for load in loads:
        if load > MOST_AT_A_TIME:
            raise UsageError(f"--concurrency: must be at most {MOST_AT_A_TIME:,} requests at a time, not {load:,}")
