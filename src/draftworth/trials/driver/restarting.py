"""Restarting a unit and waiting until it has generated a token: after an adoption, and after one was taken back."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from draftworth.bench.base import Access
from draftworth.errors import ServerStartError, TrialError
from draftworth.hosts.base import Host
from draftworth.services.base import Observed, Running
from draftworth.services.processes import identify
from draftworth.services.systemd import control
from draftworth.services.systemd.freeing import drain
from draftworth.services.systemd.logs import Logs
from draftworth.services.systemd.service import SystemdService
from draftworth.trials.driver.busy import requests_at_hand
from draftworth.trials.ready import LogFollower, wait_ready

if TYPE_CHECKING:
    from draftworth.engines.base import Engine
    from draftworth.services.systemd.found import UnitFound
    from draftworth.services.systemd.snapshot import UnitSnapshot
    from draftworth.trials.config import SystemdTrial

_POLL_S = 0.1
_GONE_S = 10.0
"""Seconds after which a unit that is down and not started again will not be."""


class Restarter:
    """Restarts one unit. systemd does it as one job, so that the unit is started again whatever becomes of us.

    Attributes:
        ordered: whether a restart was asked for; before that nothing of the running service was touched.
    """

    def __init__(
        self,
        host: Host,
        folder: Path,
        *,
        config: "SystemdTrial",
        engine: "Engine",
        observed: Observed,
        access: Access,
        say: Callable[[str], None],
    ) -> None:
        """Make one; changes nothing.

        Args:
            host: this machine.
            folder: the trial's; logs of the starts are kept in it.
            config: its file, with unit and port filled in.
            engine: reads the log, and tells of requests at hand.
            observed: what the trial found.
            access: what lets the question for a token in.
            say: takes what is happening.
        """
        assert observed.unit is not None, "a unit was not observed"
        self._host, self._folder, self._config = host, folder, config
        self._engine, self._access, self._say = engine, access, say
        self._found: UnitFound = observed.unit
        self._service = SystemdService(config, host)
        self._service.join(folder, observed)
        self.ordered = False

    def drain(self) -> list[str]:
        """Wait until requests of others are answered. Returns a remark where that took longer than it may."""
        return drain(self._at_hand, self._config.limits.drain_s, self._say)

    def _at_hand(self) -> int | None:
        return requests_at_hand(self._config.url, self._engine, self._access)

    def restart(self, before: "UnitSnapshot", name: str) -> str:
        """Restart the unit and wait until it has generated a token. Returns what was verified.

        Args:
            before: the unit before it: what was active and stopped with it, or starts it, is active after it.
            name: of the log.

        Raises:
            ServerStartError: it did not generate in limits.start_timeout_s.
            TrialError: systemd did not take the order.
            HostError: systemd does not answer.
        """
        unit = self._found.snapshot.unit
        old = control.now(self._host, unit).invocation
        self._say(f"restarting {unit}")
        self._host.run(["systemctl", "reset-failed", "--", unit])  # a limit of starts that others have used up
        self.ordered = True
        control.order(self._host, "restart", "--no-block", "--", unit)
        state, began = self._started(unit, old)
        leader = identify(state.pid)
        if leader is None:
            raise ServerStartError(f"{unit} has no main process: it is {state.words}")
        logs = Logs(self._host)
        logs.folder = self._folder / "logs"
        try:
            log = logs.begin(self._found, unit, state.invocation, name)
            running = Running(leader=leader, session=0, mark="", log=log, unit=unit, invocation=state.invocation)
            model, running = wait_ready(
                self._service,
                running,
                LogFollower(log, self._engine.log_reader()),
                url=self._config.url,
                access=self._access,
                model=self._config.service.model,
                deadline=began + self._config.limits.start_timeout_s,
                say=self._say,
                hint=self._engine.failure_hint,
            )
        finally:
            logs.stop()
        self._bring_back(before)
        return f"{unit} runs, pid {running.leader.pid}, and has generated a token with {model}"

    def _started(self, unit: str, old: str) -> tuple[control.Now, float]:
        """Wait for the main process of a new start. Returns the state, and when the start began."""
        stop_s = self._found.snapshot.timeout_stop_s
        until = time.monotonic() + 2 * (600.0 if stop_s is None else stop_s) + 60.0
        began = down = 0.0
        while True:
            state, now = control.now(self._host, unit), time.monotonic()
            if state.invocation and state.invocation != old:
                began = began or now
                until = began + self._config.limits.start_timeout_s
                if state.pid:
                    return state, began
                if not state.up:
                    raise ServerStartError(f"{unit} did not start: it is {state.words}")
            down = (down or now) if state.active in {"inactive", "failed"} else 0.0
            if now > until or (down and now - down > _GONE_S):
                raise ServerStartError(f"{unit} was not started again: it is {state.words}")
            self._say(f"{unit} is {state.words}")
            time.sleep(_POLL_S)

    def _bring_back(self, before: "UnitSnapshot") -> None:
        """Start what was active before, where it did not come back by itself."""
        wanted = [one.name for one in (*before.dependents, *before.triggers) if one.active in control.UP]
        for name in dict.fromkeys(wanted):
            if not control.now(self._host, name).up:
                self._say(f"starting {name}, which was active before")
                control.order(self._host, "start", "--", name)
            if not control.now(self._host, name).up:
                raise TrialError(f"{name} was active before and is not back")
