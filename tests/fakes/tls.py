"""A certificate of a private authority for 127.0.0.1, localhost and ::1, made when a test needs one."""

import ssl
from pathlib import Path

import trustme


def private_authority(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the authority's PEM file, and what a server with a certificate of its needs."""
    authority = trustme.CA()
    path = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "::1", "localhost").configure_cert(context)
    return path, context
