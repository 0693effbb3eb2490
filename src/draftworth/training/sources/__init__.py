"""Where conversations come from: the formats there are, which one a source has, and reading it."""

from draftworth.errors import UsageError
from draftworth.training.recipe import SourceConfig
from draftworth.training.sources.base import Source
from draftworth.training.sources.chat import Chat
from draftworth.training.sources.dataset import Dataset
from draftworth.training.sources.trace import Trace

__all__ = ["SOURCES", "source_of"]

SOURCES: dict[str, Source] = {one.name: one for one in (Trace(), Chat(), Dataset())}
"""The formats by name, in the order in which they are tried: the most particular first."""


def source_of(config: SourceConfig) -> Source:
    """Return the format of a source: the one that is named, else the first that fits.

    Raises:
        UsageError: it is of none.
    """
    if config.format is not None:
        return SOURCES[config.format]
    found = next((one for one in SOURCES.values() if one.fits(config.path)), None)
    if found is None:
        raise UsageError(
            f"{config.path}: neither a trace nor conversations nor a dataset folder; `format` says which it is "
            f"({', '.join(SOURCES)})"
        )
    return found
