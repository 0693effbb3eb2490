"""Where a server is: its URL taken apart, and what a connection to it needs."""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from draftworth import __version__
from draftworth.bench.base import Access
from draftworth.errors import UsageError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server's URL in parts.

    Attributes:
        tls: whether it is https.
        host: a name or an address, an IPv6 one without brackets.
        port: its port.
        authority: what the Host header says.
        path: what comes before `/v1`, "" for nothing.
    """

    tls: bool
    host: str
    port: int
    authority: str
    path: str


def clean_url(text: str) -> str:
    """Return a base URL as the rest of the code expects it: without `/v1` and slashes at its end.

    Raises:
        UsageError: it is no http(s) URL of a server.
    """
    url = text.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    address_of(url)
    return url


def address_of(base_url: str) -> Address:
    """Take a base URL apart.

    Raises:
        UsageError: it is no http(s) URL of a server.
    """
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{base_url!r} is no URL: {error}") from None
    host = parts.hostname
    if parts.scheme not in _PORTS or not host or any(character.isspace() for character in base_url):
        raise UsageError(
            f"{base_url!r} is no URL of a server: write it whole, for example http://127.0.0.1:8000 or "
            "https://gateway.example/team-a"
        )
    if parts.username is not None:
        raise UsageError(f"the URL of {host} has a user in it: give keys by service.api_key_env (or --api-key-env)")
    if parts.query or parts.fragment:
        raise UsageError(f"{base_url!r}: a server's URL has no part behind ? or #")
    name = f"[{host}]" if ":" in host else host
    authority = name if port in (None, _PORTS[parts.scheme]) else f"{name}:{port}"
    return Address(
        tls=parts.scheme == "https",
        host=host,
        port=port or _PORTS[parts.scheme],
        authority=authority,
        path=parts.path.rstrip("/"),
    )


def tls_context(access: Access) -> ssl.SSLContext:
    """Return whom to believe: the system's authorities, or those of the access's file alone.

    Raises:
        UsageError: the file cannot be read or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=access.ca_file)
    except OSError as error:  # an ssl.SSLError is one
        why = error.strerror if not isinstance(error, ssl.SSLError) else "no certificate in PEM form is in it"
        raise UsageError(f"{access.ca_file}: not a file of authorities: {why}") from None


def head_of(address: Address, access: Access) -> bytes:
    """Return the header lines that every request to a server carries, each with its line end.

    Raises:
        UsageError: a header has a line break in it.
    """
    fields = {
        "Host": address.authority,
        "User-Agent": f"draftworth/{__version__}",
        "Accept": "*/*",
        # A proxy that compresses a stream would hold chunks back.
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
    }
    given = {name.lower() for name in access.headers}
    lines = {name: value for name, value in fields.items() if name.lower() not in given} | dict(access.headers)
    for name, value in lines.items():
        if any(character in name + value for character in "\r\n\0"):
            raise UsageError(f"header {name!r}: a line break cannot be sent")
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("latin-1", "replace")
