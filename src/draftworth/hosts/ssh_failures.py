"""What the ssh client's own failures mean, and what to do about each: one line for a person.

The texts are those of OpenSSH's client and of the C library's errors; the first that matches wins.
"""

import re

_CLOSED = "kex_exchange_identification|Connection reset|Connection closed|closed by remote host|Broken pipe"
_CAUSES = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": (
        "its host key is not the known one: if the machine was reinstalled, remove the old key (ssh-keygen -R HOST) "
        "and log in once by hand (ssh {alias}); if not, somebody may stand between you and it"
    ),
    "Host key verification failed": ("its host key is not known yet: log in once by hand (ssh {alias}) and confirm it"),
    r"Permission denied \(|Too many authentication failures": (
        "it refuses the login: no key in the agent or the configuration is accepted, and nothing can be typed here; "
        "add the key (ssh-add) until `ssh -o BatchMode=yes {alias} true` works"
    ),
    "Could not resolve hostname": (
        "no such host: neither an alias of ~/.ssh/config nor a name that resolves; correct it, or add a Host entry"
    ),
    "[Cc]onnection refused": (
        "connection refused: no SSH server listens there; check that it runs, and HostName and Port of the alias"
    ),
    "timed out|[Tt]imeout": (
        "timed out: the machine is off, unreachable from here, or a firewall drops the connection; try `ssh {alias}`"
    ),
    "No route to host|[Nn]etwork is unreachable": (
        "not reachable from this network: check the route, the VPN, or ProxyJump of the alias"
    ),
    _CLOSED: "the other side closed the connection: it is going down or takes no logins now; try `ssh {alias}`",
    "account is currently not available": "its user may not run commands there: it has no login shell",
}


def explain(alias: str, stderr: str) -> str:
    """Return why ssh could not reach a host, and what to do, in one line.

    Args:
        alias: the host as it was asked for.
        stderr: what the ssh client printed.
    """
    lines = [" ".join(line.split()) for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "ssh failed and does not say why; try `ssh -v {alias} true`"
    for pattern, text in _CAUSES.items():
        if re.search(pattern, stderr):
            return f"ssh {alias}: {text.replace('{alias}', alias)}"
    return f"ssh {alias}: {last.replace('{alias}', alias)}"
