"""Finding out what a running server is, before anything is measured."""

import json
from dataclasses import dataclass

from draftworth.bench.base import Access, Target
from draftworth.bench.probes import choose_model, fetch_text_sync, identify_sync
from draftworth.errors import MeasureError


@dataclass(frozen=True, slots=True)
class Found:
    """A server that runs.

    Attributes:
        target: where and how it is asked.
        version: what it says its version is (`/version` of vLLM), None where it does not tell.
    """

    target: Target
    version: str | None


def look_at(url: str, *, access: Access, model: str | None, token_timeout_s: float) -> Found:
    """Ask a server what it serves.

    Args:
        url: as a person wrote it, with or without `/v1`.
        access: what lets the client in.
        model: the served name, None for the first there is.
        token_timeout_s: seconds without any event after which a request has failed.

    Raises:
        UsageError: the URL leads to no such server, or the model is not served.
    """
    base, names = identify_sync(url, access=access)
    target = Target(base, choose_model(names, model), token_timeout_s, access)
    return Found(target, _version(base, access))


def _version(base: str, access: Access) -> str | None:
    try:
        told = json.loads(fetch_text_sync(base, "/version", access=access))
    except (MeasureError, ValueError):
        return None
    version = told.get("version") if isinstance(told, dict) else None
    return version if isinstance(version, str) else None
