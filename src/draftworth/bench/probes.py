"""Small questions to a server: is it one, is it healthy, what does it serve, what does a page say."""

import asyncio
import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from draftworth import redact
from draftworth.bench.address import clean_url, tls_context
from draftworth.bench.base import Access
from draftworth.bench.failures import CLOSED, error_text, not_connected, one_line, server_message, status_line
from draftworth.errors import MeasureError, UsageError

if TYPE_CHECKING:
    import aiohttp

__all__ = [
    "choose_model",
    "error_text",
    "failure",
    "fetch_text",
    "fetch_text_sync",
    "healthy",
    "healthy_sync",
    "identify",
    "identify_sync",
    "new_session",
    "one_line",
    "post_json",
    "probe",
    "probe_sync",
    "served_models",
    "served_models_sync",
    "server_message",
]

_OK = 200
_NOBODY = Access()


def new_session(total: float | None = None, access: Access = _NOBODY) -> "aiohttp.ClientSession":
    """Return a session without a limit on connections.

    Args:
        total: bounds each request, in seconds; None for no bound.
        access: headers and certificates.

    Raises:
        UsageError: the access's file of authorities cannot be used.
    """
    import aiohttp  # noqa: PLC0415 - lazy: `draftworth --help` must not load it

    # A limit would queue requests inside the client and call the wait the server's.
    tls = True if access.ca_file is None else tls_context(access)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls),
        timeout=aiohttp.ClientTimeout(total=total),
        headers={"Accept-Encoding": "identity", **access.headers},
    )


def failure(error: BaseException) -> str:
    """Return what a failed request means, in one line for a person."""
    import aiohttp  # noqa: PLC0415 - lazy: as above

    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return not_connected(error.certificate_error, error.host, error.port)
    if isinstance(error, aiohttp.ClientConnectorError):
        return not_connected(error.os_error, error.host, error.port)
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError | aiohttp.ClientPayloadError):
        return CLOSED
    if isinstance(error, aiohttp.ClientOSError):
        return one_line(f"connection failed: {error.strerror or error}")
    return one_line(f"{type(error).__name__}: {error}")


def _has_key(headers: Any) -> bool:
    return any(name.lower() == "authorization" for name in headers)


async def fetch_text(
    base_url: str,
    path: str,
    *,
    timeout: float = 10.0,  # noqa: ASYNC109 - the whole request's
    access: Access = _NOBODY,
) -> str:
    """GET a page (`/metrics`, `/version`) and return its text.

    Raises:
        MeasureError: it could not be fetched, or its status is not 200.
    """
    import aiohttp  # noqa: PLC0415 - lazy: as above

    url = base_url + path
    try:
        async with new_session(timeout, access) as session, session.get(url, allow_redirects=False) as response:
            body = await response.text(errors="replace")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise MeasureError(f"GET {url}: {failure(error)}") from error
    if response.status != _OK:
        location = response.headers.get("location")
        why = status_line(response.status, body, location=location, has_key=_has_key(access.headers))
        raise MeasureError(redact.values(f"GET {url}: {why}", access.headers))
    return body


async def served_models(
    base_url: str,
    *,
    timeout: float = 10.0,  # noqa: ASYNC109 - as above
    access: Access = _NOBODY,
) -> tuple[str, ...]:
    """Return the names of the models a server serves, in its order.

    Raises:
        MeasureError: `/v1/models` could not be read.
    """
    text = await fetch_text(base_url, "/v1/models", timeout=timeout, access=access)
    try:
        return tuple(str(entry["id"]) for entry in json.loads(text)["data"])
    except (ValueError, KeyError, TypeError) as error:
        said = redact.values(server_message(text), access.headers)
        raise MeasureError(f"GET {base_url}/v1/models: not a list of models: {said}") from error


async def identify(
    base_url: str,
    *,
    timeout: float = 10.0,  # noqa: ASYNC109 - as above
    access: Access = _NOBODY,
) -> tuple[str, tuple[str, ...]]:
    """Find out whether a URL, as a person wrote it, is an OpenAI-compatible server's.

    Returns:
        The base URL, without `/v1` and slashes at its end, and the names of the models it serves.

    Raises:
        UsageError: it is not, or nobody answers there.
    """
    base_url = clean_url(base_url)
    try:
        names = await served_models(base_url, timeout=timeout, access=access)
    except MeasureError as error:
        said = str(error)
        said = said.removeprefix(f"GET {base_url}/v1/models: ")
        if said.startswith(("HTTP 401", "HTTP 403")):
            raise UsageError(f"{base_url}: {said}") from None
        if said.startswith(("HTTP ", "not a list of models")):
            raise UsageError(
                f"{base_url} is not an OpenAI-compatible server: GET {base_url}/v1/models said {said}"
            ) from None
        raise UsageError(f"{base_url} does not answer: {said}") from None
    if not names:
        raise UsageError(f"{base_url} serves no model")
    return base_url, names


def choose_model(names: Sequence[str], wanted: str | None) -> str:
    """Return the model to measure: the wanted one, or the first.

    Raises:
        UsageError: it is not served; the text lists the served ones, the most similar first.
    """
    if wanted is None and names:
        return names[0]
    if wanted is not None and wanted in names:
        return wanted
    if not names:
        raise UsageError("the server serves no model")

    def likeness(name: str) -> float:
        return SequenceMatcher(None, name.lower(), str(wanted).lower()).ratio()

    listed = ", ".join(sorted(names, key=likeness, reverse=True))
    raise UsageError(f"the model {wanted!r} is not served; the server has: {listed}")


async def healthy(
    base_url: str,
    *,
    timeout: float = 2.0,  # noqa: ASYNC109 - as above
    access: Access = _NOBODY,
) -> bool:
    """Whether GET /health answers 200 within `timeout` seconds. Healthy does not mean it can generate: see `probe`."""
    try:
        await fetch_text(base_url, "/health", timeout=timeout, access=access)
    except MeasureError:
        return False
    return True


async def probe(
    base_url: str,
    *,
    model: str | None = None,
    timeout: float = 60.0,  # noqa: ASYNC109 - as above
    access: Access = _NOBODY,
) -> str:
    """Generate one token, which proves that the server can.

    Args:
        base_url: where it listens, without `/v1`.
        model: the model to ask; None for the first one it serves.
        timeout: seconds for each of the (at most two) requests.
        access: headers and certificates.

    Returns:
        The model's name.

    Raises:
        MeasureError: it serves no model, could not be reached, or did not generate.
    """
    if model is None:
        names = await served_models(base_url, timeout=timeout, access=access)
        if not names:
            raise MeasureError(f"{base_url} serves no model")
        model = names[0]
    body = {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
    async with new_session(timeout, access) as session:
        answer = await post_json(session, base_url + "/v1/completions", body)
    if not isinstance(answer.get("choices"), list) or not answer["choices"]:
        said = redact.values(one_line(json.dumps(answer)), access.headers)
        raise MeasureError(f"{base_url} answered, but generated nothing: {said}")
    return model


async def post_json(session: "aiohttp.ClientSession", url: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST a JSON body and return the decoded JSON object of the answer.

    Raises:
        MeasureError: no answer, a status other than 200 (with the server's message), or no JSON object.
    """
    import aiohttp  # noqa: PLC0415 - lazy: as above

    try:
        async with session.post(url, json=body, allow_redirects=False) as response:
            text = await response.text(errors="replace")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise MeasureError(f"POST {url}: {failure(error)}") from error
    if response.status != _OK:
        location = response.headers.get("location")
        why = status_line(response.status, text, location=location, has_key=_has_key(session.headers))
        raise MeasureError(f"POST {url}: {redact.values(why, session.headers)}")
    try:
        value = json.loads(text)
    except ValueError as error:
        said = redact.values(one_line(text), session.headers)
        raise MeasureError(f"POST {url}: the answer is no JSON: {said}") from error
    if not isinstance(value, dict):
        said = redact.values(one_line(text), session.headers)
        raise MeasureError(f"POST {url}: the answer is no JSON object: {said}")
    return value


# For synchronous callers.


def probe_sync(base_url: str, *, model: str | None = None, timeout: float = 60.0, access: Access = _NOBODY) -> str:
    """Do what `probe` does."""
    return asyncio.run(probe(base_url, model=model, timeout=timeout, access=access))


def served_models_sync(base_url: str, *, timeout: float = 10.0, access: Access = _NOBODY) -> tuple[str, ...]:
    """Do what `served_models` does."""
    return asyncio.run(served_models(base_url, timeout=timeout, access=access))


def identify_sync(base_url: str, *, timeout: float = 10.0, access: Access = _NOBODY) -> tuple[str, tuple[str, ...]]:
    """Do what `identify` does."""
    return asyncio.run(identify(base_url, timeout=timeout, access=access))


def fetch_text_sync(base_url: str, path: str, *, timeout: float = 10.0, access: Access = _NOBODY) -> str:
    """Do what `fetch_text` does."""
    return asyncio.run(fetch_text(base_url, path, timeout=timeout, access=access))


def healthy_sync(base_url: str, *, timeout: float = 2.0, access: Access = _NOBODY) -> bool:
    """Do what `healthy` does."""
    return asyncio.run(healthy(base_url, timeout=timeout, access=access))
