"""From what a person wrote to what is sent: keys come from the environment and go nowhere else."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from draftworth.bench.base import Access
from draftworth.errors import UsageError

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_OURS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"})


def access(
    *,
    api_key_env: str | None = None,
    headers: Mapping[str, str] | None = None,
    headers_env: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
    key_name: str = "api_key_env",
) -> Access:
    """Return what lets a client in.

    Args:
        api_key_env: the variable that holds the key, sent as a bearer token.
        headers: header to value.
        headers_env: header to the variable that holds its value.
        ca_file: authorities to believe, PEM.
        key_name: what the first is called where the person wrote it, for errors.

    Raises:
        UsageError: a variable is not set, a header is none, or there is no such file.
    """
    found = dict(headers or {})
    for header, variable in (headers_env or {}).items():
        found[header] = _value(variable, f"headers_env: {header}")
    if api_key_env:
        found["Authorization"] = f"Bearer {_value(api_key_env, key_name)}"
    for header, value in found.items():
        if not _NAME.fullmatch(header):
            raise UsageError(f"header {header!r}: a name has letters, digits and dashes only")
        if header.lower() in _OURS:
            raise UsageError(f"header {header!r} is set by the client itself; leave it out")
        if not value.isprintable() or not value.isascii():
            raise UsageError(f"header {header!r}: its value must be printable ASCII on one line")
    if ca_file is not None and not ca_file.is_file():
        raise UsageError(f"{ca_file}: no such file; name a PEM file with the authorities to believe")
    return Access(headers=found, ca_file=ca_file)


def _value(variable: str, what: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        # Somebody may have given the key itself: it is not shown then.
        name = variable if _VARIABLE.fullmatch(variable) else "it names"
        raise UsageError(f"{what}: the environment variable {name} is not set; name the variable, not the key")
    return value
