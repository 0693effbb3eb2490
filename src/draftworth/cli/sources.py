"""What verbs that read a server or a file have in common."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from draftworth.cli import STDIN
from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.bench.base import Access

ApiKeyEnv = Annotated[str | None, Parameter(help="The variable that holds the API key.")]
Headers = Annotated[
    list[str] | None,
    Parameter(negative="", help="A further header, `Name: value`; `Name: $VARIABLE` keeps a secret out."),
]
CaFile = Annotated[Path | None, Parameter(help="PEM file of a private certificate authority.")]
"""What lets a reader in, the same in every verb that reads a server."""

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_FIRST_SHOWN_S, _EVERY_S = 1.0, 0.5


def is_url(source: str) -> bool:
    """Whether a person meant a server.

    Raises:
        UsageError: it looks like one without `http://`.
    """
    if _URL.match(source):
        return True
    if not Path(source).exists() and re.fullmatch(r"(?:[\w-]+\.)*[\w-]+:\d{2,5}(?:/\S*)?", source):
        raise UsageError(f"{source}: no such file; for a server write http://{source}")
    return False


def file_of(source: str) -> Path | None:
    """Return the file a person named; None for standard input.

    Raises:
        UsageError: there is no such file.
    """
    if source == STDIN:
        return None
    path = Path(source)
    if not path.exists():
        raise UsageError(f"{source}: no such file")
    return path


def headers_of(given: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Take `Name: value` and `Name: $VARIABLE` apart. Returns plain headers, and headers by their variable.

    Raises:
        UsageError: one has no colon.
    """
    plain: dict[str, str] = {}
    variables: dict[str, str] = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header: must be like `Name: value`, not {text!r}")
        value = value.strip()
        if value.startswith("$"):
            variables[name.strip()] = value[1:].strip("{}")
        else:
            plain[name.strip()] = value
    return plain, variables


def access_of(*, api_key_env: str | None, header: Sequence[str] | None, ca_file: Path | None) -> "Access":
    """Return what lets the reader in.

    Raises:
        UsageError: a variable is not set, a header is none, or there is no such file.
    """
    from draftworth.bench.access import access  # noqa: PLC0415 - lazy

    plain, variables = headers_of(header or [])
    return access(
        api_key_env=api_key_env, headers=plain, headers_env=variables, ca_file=ca_file, key_name="--api-key-env"
    )


@contextmanager
def reading_progress(path: Path | None) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how far a long file is read. Yields what takes the bytes read so far."""
    began = time.monotonic()
    shown = 0.0
    total = path.stat().st_size if path is not None and path.is_file() and path.suffix != ".gz" else None
    live = sys.stderr.isatty()

    def on_block(size: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if not live or now - began < _FIRST_SHOWN_S or now - shown < _EVERY_S:
            return
        shown = now
        said = f"{size / 1e6:,.0f} MB read"
        if total:
            left = (now - began) * (total - size) / max(size, 1)
            said = f"{said} of {total / 1e6:,.0f} - about {max(left, 0):.0f} s left"
        print(f"\r\x1b[2K{said}", end="", file=sys.stderr, flush=True)

    try:
        yield on_block
    finally:
        if shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
