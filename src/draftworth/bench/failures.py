"""What goes wrong between a client and a server, in one line for a person."""

import json
import re
import ssl
from typing import Any

_MARKUP = re.compile(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>")
_PAGE = 20_000
_MESSAGE_LENGTH = 200
_UNAUTHORIZED = 401
_FORBIDDEN = 403
CLOSED = "the server closed the connection before the answer was complete"


def one_line(text: str) -> str:
    """Return a text as one line of at most 200 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_LENGTH else line[: _MESSAGE_LENGTH - 1] + "…"


def server_message(body: str) -> str:
    """Return what an error body says, in one line: OpenAI's `error.message`, `message`, `detail`, or the text."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        if body.lstrip()[:1] != "<":
            return one_line(body)
        return one_line(f"an HTML page: {_MARKUP.sub(' ', body[:_PAGE])}")
    return one_line(error_text(value))


def error_text(value: Any) -> str:
    """Return the message in a decoded error object."""
    while isinstance(value, dict):
        inner = next((value[k] for k in ("error", "message", "detail") if value.get(k)), None)
        if inner is None:
            return json.dumps(value)
        value = inner
    return value if isinstance(value, str) else json.dumps(value)


def status_line(status: int, body: str, *, location: str | None = None, has_key: bool = False) -> str:
    """Return what a response other than 200 means.

    Args:
        status: HTTP's status.
        body: the response's text.
        location: where a redirect points to.
        has_key: whether an Authorization header was sent.
    """
    if location is not None and status // 100 == 3:  # noqa: PLR2004 - HTTP's redirects
        return one_line(f"HTTP {status}: it redirects to {location}, which is not followed; use that address instead")
    line = f"HTTP {status}: {server_message(body)}"
    if status == _UNAUTHORIZED and not has_key:
        return f"{line}; it asks for a key: set service.api_key_env (or --api-key-env) to the variable that holds it"
    if status in (_UNAUTHORIZED, _FORBIDDEN) and has_key:
        return f"{line}; it does not accept the key in the variable named by service.api_key_env (or --api-key-env)"
    return line


def not_connected(error: BaseException, host: str, port: int | None) -> str:
    """Return why a connection to a server could not be made."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(error, ConnectionRefusedError):
        return f"connection refused by {where}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return one_line(
            f"the certificate of {where} is not believed ({error.verify_message}); for a private authority set "
            "service.ca_file (or --ca-file) to its PEM file"
        )
    if isinstance(error, ssl.SSLError):
        return one_line(f"no TLS with {where} ({error.reason or error}); does it listen for https there?")
    if isinstance(error, TimeoutError):
        return f"cannot connect to {where}: no answer in time"
    strerror = getattr(error, "strerror", None)
    return one_line(f"cannot connect to {where}: {strerror or error or 'the connection was closed'}")
