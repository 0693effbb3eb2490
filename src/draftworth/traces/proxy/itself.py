"""Whether a proxy would have itself as its server: each request would then come back to it without end."""

import ipaddress
import socket

from draftworth.bench.address import Address

_LOOPBACK = {4: "127.0.0.1", 6: "::1"}

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def leads_to_itself(upstream: Address, host: str, port: int) -> bool:
    """Return whether connections to a server would reach who listens at an address of this machine.

    Names are looked up, so that `localhost`, `0.0.0.0`, `::1` and the machine's own names and addresses are known.

    Args:
        upstream: the server.
        host: the name or address that is listened on; `0.0.0.0` and `::` are all of the machine's.
        port: the port that is listened on; 0 for a free one.
    """
    if port == 0 or upstream.port != port:
        return False
    listened = _addresses(host)
    # Whoever connects to no address in particular reaches the machine itself.
    reached = {
        ipaddress.ip_address(_LOOPBACK[one.version]) if one.is_unspecified else one for one in _addresses(upstream.host)
    }
    if reached & listened:
        return True
    everywhere = {one.version for one in listened if one.is_unspecified}
    return any(one.version in everywhere and _is_of_this_machine(one) for one in reached)


def _addresses(host: str) -> set[_Ip]:
    """Return the addresses of a name; none where it is not known, which is said where it is connected to."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {_plain(str(entry[4][0])) for entry in found}


def _plain(text: str) -> _Ip:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_of_this_machine(address: _Ip) -> bool:
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET  # noqa: PLR2004 - IPv6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as tried:
            tried.bind((str(address), 0))
    except OSError:
        return False
    return True
