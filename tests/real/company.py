"""A unit that is not alone: a socket starts it, and a gateway needs it and its answers."""

from tests.helpers import free_port
from tests.real.unit_case import QUICK, UnitCase


def company(case: UnitCase, *, patient: bool = False) -> UnitCase:
    """Serve with a socket that triggers the unit, and a gateway that starts only where the model answers.

    A patient gateway is enabled and tries again by itself, as one that has to come up at boot.
    """
    systemd = case.systemd
    socket = (
        f"[Socket]\nListenStream=127.0.0.1:{free_port()}\nService={case.unit}\n[Install]\nWantedBy=sockets.target\n"
    )
    systemd.write_unit("llm.socket", socket)
    asks = f"/usr/bin/curl -fsS http://127.0.0.1:{case.port}/v1/models"
    gateway = f"[Unit]\nRequires={case.unit}\nAfter={case.unit}\n[Service]\nExecStartPre={asks}\n"
    gateway += "Restart=on-failure\nRestartSec=1\n" if patient else ""
    gateway += "ExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
    systemd.write_unit("gateway.service", gateway)
    case.serve({**QUICK, "load_seconds": 0.5}, start=False)
    systemd.systemctl("enable", "llm.socket", *(["gateway.service"] if patient else []))
    systemd.systemctl("start", "llm.socket", case.unit)
    case.wait_serving()
    systemd.systemctl("start", "gateway.service")
    return case


def active(case: UnitCase) -> dict[str, str]:
    """Return the states of its company."""
    return {unit: case.state(unit) for unit in ("llm.socket", "gateway.service")}
