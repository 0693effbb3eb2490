"""Plain HTTP questions to a server: JSON out, JSON back, and what is wrong in one line."""

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from draftworth.errors import MeasureError, UsageError

_READ = 600


class StatusError(Exception):
    """The server answered with another status than 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status
        self.text = text


def ask(url: str, path: str, body: Any = None, *, timeout: float = 60.0) -> Any:
    """Return what a server answers.

    Args:
        url: the server's, without `/v1`.
        path: behind it.
        body: what is posted; None asks with GET.
        timeout: seconds.

    Raises:
        StatusError: it answered with another status.
        MeasureError: it did not answer, or not with JSON.
        UsageError: the URL cannot be used.
    """
    data = None if body is None else json.dumps(body).encode()
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"states.url: {url!r}: a URL begins with http:// or https://")
    request = urllib.request.Request(  # noqa: S310 - checked above
        f"{url}{path}", data=data, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 - as above
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = " ".join(error.read(_READ).decode("utf-8", "replace").split())
        raise StatusError(error.code, text) from None
    except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise MeasureError(f"{url}{path}: no answer ({getattr(error, 'reason', None) or error})") from None
    except ValueError as error:
        raise MeasureError(f"{url}{path}: no JSON ({error})") from None


def base_url(url: str) -> str:
    """Return a server's URL without `/v1` and slashes at its end."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")
