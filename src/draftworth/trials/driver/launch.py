"""Starting a trial's driver as a transient unit of the machine that serves."""

import json
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from draftworth.errors import RefusedError
from draftworth.hosts.base import Host
from draftworth.services.systemd.names import Names
from draftworth.services.systemd.net import after_death
from draftworth.services.systemd.scene import TAG
from draftworth.trials.config import SystemdTrial
from draftworth.trials.driver.drive import REQUEST
from draftworth.trials.home import new_trial

_PASSED_ON = frozenset({"PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL"})
_LEAST_FREE = 64 * 2**20
_OWN = ("DRAFTWORTH_", "HF_", "TRANSFORMERS_", "SSL_CERT_")


@dataclass(frozen=True, slots=True)
class Launched:
    """A trial whose driver was started.

    Attributes:
        folder: the trial's.
        unit: the unit that drives it.
    """

    folder: Path
    unit: str


def launch(host: Host, config: SystemdTrial, *, port: int, plan: str | None, variables: Mapping[str, str]) -> Launched:
    """Start the driver of a trial; it goes on whatever becomes of this process.

    Args:
        host: this machine.
        config: the trial's file, as it was read.
        port: the service's, from the plan.
        plan: the fingerprint of the plan that was shown; None: whatever it is.
        variables: values of the environment variables that the file names: keys. They lie in a file of /run that only
            root can read, and are in no unit's properties.

    Raises:
        RefusedError: systemd does not start it; nothing was changed.
        UsageError: the trial's folder cannot be made.
    """
    folder = new_trial()
    _check_space(folder)
    names = Names(f"{folder.name}-{secrets.token_hex(3)}")
    (folder / TAG).write_text(names.tag, encoding="ascii")
    request = {"config": config.model_dump(mode="json", exclude_unset=True), "port": port, "plan": plan}
    (folder / REQUEST).write_text(json.dumps(request, indent=1), encoding="utf-8")
    environment = f"{names.folder}/environment"
    kept = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_OWN)}
    text = "".join(f"{name}={_quoted(value)}\n" for name, value in {**variables, **kept}.items())
    host.write(environment, text.encode(), 0o600)
    host.write(names.after, after_death(names).encode(), 0o755)
    host.write(names.home, str(folder).encode())
    stop_s = int(config.limits.start_timeout_s + config.limits.free_timeout_s + 600)
    properties = {
        "Description": f"Draftworth: trial {folder.name} on {config.service.unit}",
        "EnvironmentFile": f"-{environment}",
        "WorkingDirectory": str(Path.cwd()),
        "Type": "exec",
        # The first signal goes to the driver alone, which ends the trial and puts the service back.
        "KillMode": "mixed",
        "TimeoutStopSec": f"{stop_s}s",
        "ExecStopPost": f"/bin/sh -c '[ ! -e {names.after} ] || exec /bin/sh {names.after}'",
        "OOMScoreAdjust": "-500",
        "SyslogIdentifier": "draftworth-trial",
    }
    argv = ["systemd-run", "--quiet", "--collect", f"--unit={names.trial}"]
    argv += [f"--property={name}={value}" for name, value in properties.items()]
    argv += ["--", sys.executable, "-P", "-m", "draftworth.trials.driver.drive", str(folder)]
    done = host.run(argv)
    if not done.ok:
        host.run(["rm", "-rf", names.folder])
        shutil.rmtree(folder, ignore_errors=True)
        raise RefusedError(f"the trial's driver cannot be started as a unit: {done.why}")
    return Launched(folder, names.trial)


def _check_space(folder: Path) -> None:
    """Refuse where the record would not fit: a full disk ends a trial in its middle."""
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE:
        shutil.rmtree(folder, ignore_errors=True)
        raise RefusedError(
            f"{folder.parent}: {free / 2**20:.1f} MiB are free there, and a record may take {_LEAST_FREE >> 20}: make "
            "room, or set DRAFTWORTH_HOME"
        )


def _quoted(value: str) -> str:
    """Return a value for an EnvironmentFile= (systemd.exec(5)): in double quotes, what ends them escaped."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`") + '"'
