"""How many requests a service has at hand, so that it is not stopped in the middle of an answer."""

from typing import TYPE_CHECKING

from draftworth.bench.base import Access
from draftworth.errors import MeasureError

if TYPE_CHECKING:
    from draftworth.engines.base import Engine


def requests_at_hand(url: str, engine: "Engine", access: Access) -> int | None:
    """Return the requests that a server is answering or has waiting; None where it does not tell."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - lazy

    from draftworth.bench.probes import fetch_text_sync  # noqa: PLC0415 - lazy: aiohttp

    if not engine.at_hand:
        return None
    try:
        text = fetch_text_sync(url, engine.metrics_path, timeout=5.0, access=access)
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    except (MeasureError, ValueError):
        return None
    found = [one.value for one in samples if one.name in engine.at_hand]
    return int(sum(found)) if found else None
