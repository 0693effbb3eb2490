"""Python code that runs first in a trial's driver, so that what it stands on fails as a test says."""

import os
import textwrap
from pathlib import Path

_HEAD = """\
import sys
from pathlib import Path
words = getattr(sys, "orig_argv", ())
if any("draftworth.trials.driver.drive" in word for word in words) and "--record" not in words:
    now = Path(__file__).with_name("now").exists
"""


class DriverPatch:
    """A `sitecustomize` for drivers only."""

    def __init__(self, folder: Path, code: str) -> None:
        """Write it.

        Args:
            folder: a new one, for it alone.
            code: in it, `now()` tells whether `begin` was called.
        """
        folder.mkdir()
        self._now = folder / "now"
        text = _HEAD + textwrap.indent(textwrap.dedent(code), "    ")
        (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
        self.env = {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}

    def begin(self) -> None:
        """Let it fail from now on."""
        self._now.touch()


def systemctl_fails(word: str) -> str:
    """Return code that makes every `systemctl` command of a driver with a word in it end in an error, as a hung one."""
    return f"""\
    from draftworth.hosts.base import HostError
    from draftworth.hosts.local import LocalHost
    run = LocalHost.run
    def failing(self, argv, **more):
        if now() and argv[0] == "systemctl" and {word!r} in " ".join(argv):
            raise HostError(" ".join(argv) + ": did not end within 90 s")
        return run(self, argv, **more)
    LocalHost.run = failing
    """
