"""Small questions to a server: is it healthy, what does it serve, what does a page say; and its errors in one line."""

import json
from typing import TYPE_CHECKING, Any

from draftworth.errors import MeasureError

if TYPE_CHECKING:
    import aiohttp

_MESSAGE_LENGTH = 200


def new_session(total: float | None = None) -> "aiohttp.ClientSession":
    """Return a session without a limit on connections; `total` bounds each request in seconds."""
    import aiohttp  # noqa: PLC0415 - lazy: `draftworth --help` must not load it

    # A limit would queue requests inside the client and call the wait the server's.
    connector = aiohttp.TCPConnector(limit=0)
    # A proxy that compresses a stream would hold chunks back.
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=total),
        headers={"Accept-Encoding": "identity"},
    )


def one_line(text: str) -> str:
    """Return a text as one line of at most 200 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_LENGTH else line[: _MESSAGE_LENGTH - 1] + "…"


def server_message(body: str) -> str:
    """Return what an error body says, in one line: OpenAI's `error.message`, `message`, `detail`, or the text."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return one_line(body)
    return one_line(error_text(value))


def error_text(value: Any) -> str:
    """Return the message in a decoded error object."""
    while isinstance(value, dict):
        inner = next((value[k] for k in ("error", "message", "detail") if value.get(k)), None)
        if inner is None:
            return json.dumps(value)
        value = inner
    return value if isinstance(value, str) else json.dumps(value)


def failure(error: BaseException) -> str:
    """Return what a failed connection means, in one line for a person."""
    import aiohttp  # noqa: PLC0415 - lazy: as above

    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ConnectionRefusedError):
            return f"connection refused by {error.host}:{error.port}"
        return one_line(f"cannot connect to {error.host}:{error.port}: {cause.strerror or cause}")
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError | aiohttp.ClientPayloadError):
        return "the server closed the connection before the answer was complete"
    if isinstance(error, aiohttp.ClientOSError):
        return one_line(f"connection failed: {error.strerror or error}")
    return one_line(f"{type(error).__name__}: {error}")


async def fetch_text(base_url: str, path: str, *, timeout: float = 10.0) -> str:  # noqa: ASYNC109 - the whole request's
    """GET a page (`/metrics`, `/version`) and return its text.

    Raises:
        MeasureError: it could not be fetched, or its status is not 200.
    """
    import aiohttp  # noqa: PLC0415 - lazy: as above

    url = base_url + path
    try:
        async with new_session(timeout) as session, session.get(url) as response:
            body = await response.text(errors="replace")
            if response.status != 200:  # noqa: PLR2004 - HTTP's own number
                raise MeasureError(f"GET {url}: HTTP {response.status}: {server_message(body)}")
            return body
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise MeasureError(f"GET {url}: {failure(error)}") from error


async def served_models(base_url: str, *, timeout: float = 10.0) -> tuple[str, ...]:  # noqa: ASYNC109 - as above
    """Return the names of the models a server serves, in its order.

    Raises:
        MeasureError: `/v1/models` could not be read.
    """
    text = await fetch_text(base_url, "/v1/models", timeout=timeout)
    try:
        return tuple(str(entry["id"]) for entry in json.loads(text)["data"])
    except (ValueError, KeyError, TypeError) as error:
        raise MeasureError(f"GET {base_url}/v1/models: not a list of models: {one_line(text)}") from error


async def healthy(base_url: str, *, timeout: float = 2.0) -> bool:  # noqa: ASYNC109 - as above
    """Whether GET /health answers 200 within `timeout` seconds. Healthy does not mean it can generate: see `probe`."""
    try:
        await fetch_text(base_url, "/health", timeout=timeout)
    except MeasureError:
        return False
    return True


async def probe(base_url: str, *, model: str | None = None, timeout: float = 60.0) -> str:  # noqa: ASYNC109 - as above
    """Generate one token, which proves that the server can.

    Args:
        base_url: where it listens, without `/v1`.
        model: the model to ask; None for the first one it serves.
        timeout: seconds for each of the (at most two) requests.

    Returns:
        The model's name.

    Raises:
        MeasureError: it serves no model, could not be reached, or did not generate.
    """
    if model is None:
        names = await served_models(base_url, timeout=timeout)
        if not names:
            raise MeasureError(f"{base_url} serves no model")
        model = names[0]
    body = {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
    async with new_session(timeout) as session:
        answer = await post_json(session, base_url + "/v1/completions", body)
    if not isinstance(answer.get("choices"), list) or not answer["choices"]:
        raise MeasureError(f"{base_url} answered, but generated nothing: {one_line(json.dumps(answer))}")
    return model


async def post_json(session: "aiohttp.ClientSession", url: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST a JSON body and return the decoded JSON object of the answer.

    Raises:
        MeasureError: no answer, a status other than 200 (with the server's message), or no JSON object.
    """
    import aiohttp  # noqa: PLC0415 - lazy: as above

    try:
        async with session.post(url, json=body) as response:
            text = await response.text(errors="replace")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise MeasureError(f"POST {url}: {failure(error)}") from error
    if response.status != 200:  # noqa: PLR2004 - HTTP's own number
        raise MeasureError(f"POST {url}: HTTP {response.status}: {server_message(text)}")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise MeasureError(f"POST {url}: the answer is no JSON: {one_line(text)}") from error
    if not isinstance(value, dict):
        raise MeasureError(f"POST {url}: the answer is no JSON object: {one_line(text)}")
    return value
