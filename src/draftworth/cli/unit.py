"""`draftworth trial` on a systemd unit: plan, run, status, attach, end, release; here or on another machine."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from draftworth.errors import EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, NotRestoredError, RefusedError, UsageError

if TYPE_CHECKING:
    from draftworth.trials.config import SystemdTrial
    from draftworth.trials.driver.station import Station

_DETACHED = 130
"""Exit code of a watching that Ctrl-C has ended; the trial goes on."""


def plan_unit(config: "SystemdTrial", *, files: bool, as_json: bool) -> int:
    """Print the plan of a trial on a unit, made on the machine that serves."""
    shown = _station(config).plan(config, files=files)
    print(json.dumps(shown.data, indent=1, default=str) if as_json else "\n".join(shown.lines))
    return EXIT_DONE


def run_unit(config: "SystemdTrial", *, yes: bool, detach: bool, as_json: bool) -> int:
    """Show the plan, ask, start the driver, follow it to its end."""
    if not yes and not sys.stdin.isatty():
        raise UsageError("nobody can be asked here whether to stop the service: look at `trial plan`, then add --yes")
    station = _station(config)
    shown = station.plan(config)
    if not yes:
        print("\n".join([*shown.lines, ""]), file=sys.stderr)
        print(
            f"This stops {config.service.unit} and starts it again. Run it on {station.name}? [y/N] ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise RefusedError("not run; nothing was changed")
    trial = station.start(config, shown)
    where = "" if not config.service.host else f" --host {config.service.host}"
    print(
        f"Trial {trial} is driven on {station.name}; it goes on without this terminal: "
        f"`draftworth trial attach {trial}{where}`",
        file=sys.stderr,
    )
    if detach:
        print(json.dumps({"schema_version": 1, "id": trial, "host": config.service.host or None}) if as_json else trial)
        return EXIT_DONE
    return _follow(station, trial, as_json=as_json, on_interrupt=lambda: station.end(trial), where=where)


def attach(station: "Station", trial: str, *, where: str, as_json: bool) -> int:
    """Follow a trial that is at work, or tell how it ended. Ctrl-C ends the watching alone."""
    return _follow(station, trial, as_json=as_json, on_interrupt=None, where=where)


def _follow(
    station: "Station", trial: str, *, as_json: bool, on_interrupt: Callable[[], object] | None, where: str
) -> int:
    watch = _Watch(station, trial)
    end: dict[str, Any] | None = None
    try:
        while end is None:
            try:
                end = watch.to_end()
            except KeyboardInterrupt:
                if on_interrupt is None:
                    watch.say(f"No longer watching; the trial goes on: `draftworth trial attach {watch.trial}{where}`")
                    return _DETACHED
                watch.say("Ctrl-C: ending the trial; the service is put back first (again: stop watching)")
                end_it, on_interrupt = on_interrupt, None
                with suppress(KeyboardInterrupt):  # a second one while it is asked: it is not watched any longer
                    end_it()
                    continue
                watch.say(f"No longer watching: `draftworth trial attach {watch.trial}{where}`")
                return _DETACHED
    finally:
        watch.close()
    return _told(station, watch.trial, end, as_json=as_json)


class _Watch:
    """Shows a trial's events, each once, also where the watching was interrupted and goes on."""

    def __init__(self, station: "Station", trial: str) -> None:
        from draftworth.trials.driver.events import Shown  # noqa: PLC0415 - lazy

        self.trial = trial
        self._station = station
        self._shown = Shown(sys.stderr)
        self._at = 0

    def to_end(self) -> dict[str, Any]:
        """Show what is said until the end, from where it was, and return how it ended."""
        for event in self._station.events(self.trial, self._at):
            match event.get("kind"):
                case "end":
                    return event
                case "trial":
                    self.trial = str(event["id"])
            self._shown.show(event)
            self._at = int(event.get("at", self._at))
        raise UsageError("the trial's events ended without saying how it ended; `draftworth trial status` tells more")

    def say(self, text: str) -> None:
        self._shown.line(text)

    def close(self) -> None:
        self._shown.close()


def _told(station: "Station", trial: str, end: dict[str, Any], *, as_json: bool) -> int:
    from draftworth.cli.show import kept_lines, program, verdict_lines  # noqa: PLC0415 - lazy
    from draftworth.trials.record import NAME, read  # noqa: PLC0415 - lazy

    code, text = int(end["exit"]), str(end.get("text") or "")
    if code in {EXIT_USAGE, EXIT_REFUSED}:  # it never began: there is nothing to fetch
        print(f"draftworth: {text}", file=sys.stderr)
        return code
    folder = station.fetch(trial)
    for remark in station.remarks:
        print(f"draftworth: {remark}", file=sys.stderr)
    if (folder / NAME).is_file():
        found = read(folder)
        with suppress(BrokenPipeError):
            if as_json:
                print(found.model_dump_json(indent=1))
            else:
                print("\n".join(verdict_lines(found)))
                print("\n".join(kept_lines(found, folder, program())))
            sys.stdout.flush()
        code = found.exit_code if code in {0, found.exit_code} else code
        if code == NotRestoredError.exit_code and not as_json:
            # The commands stand above, with the record.
            print("draftworth: the service is NOT restored; the host goes on trying", file=sys.stderr)
            return code
    if code == NotRestoredError.exit_code:
        raise NotRestoredError(
            text or "the service is NOT restored; the host goes on trying", end.get("commands") or ()
        )
    if text:
        print(f"draftworth: {text}", file=sys.stderr)
    return code


def _station(config: "SystemdTrial") -> "Station":
    service = config.service
    return station_for(service.host, program=service.draftworth, sudo=service.sudo)


def station_for(host: str, *, program: str = "draftworth", sudo: bool = False, latest: str = "") -> "Station":
    """Return the machine that trials are driven on: an SSH alias, or empty for this one.

    Args:
        host: the alias.
        program: Draftworth there.
        sudo: become root there.
        latest: the trial that `latest` means; empty: the newest there.
    """
    from draftworth.trials.driver.local import LocalStation  # noqa: PLC0415 - lazy

    if not host:
        return LocalStation()
    from draftworth.trials.driver.remote import RemoteStation  # noqa: PLC0415 - lazy

    return RemoteStation(host, program=program, sudo=sudo, latest=latest)


def station_of(trial: str | None, host: str | None, *, program: str | None = None, sudo: bool = False) -> "Station":
    """Return where a trial is driven: as said, else as it was when it was started from here, else this machine.

    Args:
        trial: its id, `latest`, or None: no certain one.
        host: as `ssh` takes it; None: not said.
        program: Draftworth there; None: as when a trial was last started there from here.
        sudo: become root there.
    """
    from draftworth.trials.driver.pointers import Pointer, pointer_to, way_to  # noqa: PLC0415 - lazy

    known = pointer_to(trial, host) if trial else None
    if known is None and host is None:
        if program is not None or sudo:
            raise UsageError("--draftworth and --sudo are for another machine: name it with --host")
        return station_for("")
    way = known or (way_to(host) if host else None) or Pointer(host=host or "")
    latest = known.trial if known else ""
    return station_for(way.host, program=program or way.draftworth, sudo=sudo or way.sudo, latest=latest)


def status_lines(found: dict[str, Any]) -> list[str]:
    """Return where a trial stands, for a person."""
    import time  # noqa: PLC0415 - lazy

    from draftworth.trials.progress import duration  # noqa: PLC0415 - lazy

    state = "at work" if found["running"] else "over" if found["ended"] is not None else "without its driver"
    out = [f"Trial {found['id']}: {state}, in {found['folder']}"]
    if found.get("step"):
        since = duration(max(0.0, time.time() - float(found["since"])))
        out.append(f"  step {found['number']}/{found['steps']}, for {since}: {found['step']}")
    if found.get("now"):
        ago = duration(max(0.0, time.time() - float(found["now_unix"])))
        out.append(f"  {found['now']} ({ago} ago)")
    restore = found["restore"]
    net = "armed, it runs when it is needed" if restore["armed"] else "not armed: nothing was changed, or all is back"
    out.append(f"  way back: {net}; {restore['unit']} is {restore['state']} {restore['progress']}".rstrip())
    if found["deadman"]["state"] == "active":
        out.append(f"  downtime is bounded by {found['deadman']['unit']}")
    return out
