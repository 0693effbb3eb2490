"""One GPU that a test controls: an `nvidia-smi` inside a private manager, first on every PATH there."""

import textwrap
from pathlib import Path

from tests.real.private_systemd import PrivateSystemd

OWN_MIB = 40000
"""What the service's main process holds while it runs."""

_SCRIPT = """\
    #!/bin/sh
    # Prints what the columns of nvidia-smi's CSV would be, without units.
    . {numbers}
    [ -z "${{broken:-}}" ] || {{ echo "$broken"; exit 9; }}
    held=0
    apps=
    for name in {unit} $(ls /run/systemd/system 2>/dev/null | grep '^draftworth-2.*[.]service$'); do
      pid=$(systemctl show -p MainPID --value "$name")
      [ "${{pid:-0}}" = 0 ] || {{ held=$((held + {own})); apps="$apps${{apps:+ }}GPU-1,$pid,{own}"; }}
    done
    for pid in ${{neighbour:-}}; do apps="$apps${{apps:+ }}GPU-1,$pid,${{other:-0}}"; done
    case "$*" in
      *compute-apps*) for row in $apps; do echo "$row"; done ;;
      *query-gpu=uuid*) echo "GPU-1, $((held + ${{stuck:-0}} + ${{other:-0}}))" ;;
      *query-gpu*) echo "0, GPU-1, Test GPU, 81920, $((held + ${{stuck:-0}} + ${{other:-0}})), Disabled" ;;
    esac
"""


class TestGpu:
    """See the module. Numbers are MiB: `stuck` is in use by nobody that can be seen, `other` by a neighbour."""

    __test__ = False

    def __init__(self, systemd: PrivateSystemd, folder: Path, unit: str) -> None:
        """Put it in place; it goes with the manager, or with `remove`."""
        self._systemd = systemd
        self._numbers = folder / "gpu"
        self.tell()
        programs = folder / "sbin"
        programs.mkdir()
        program = programs / "nvidia-smi"
        program.write_text(
            textwrap.dedent(_SCRIPT).format(numbers=self._numbers, unit=unit, own=OWN_MIB), encoding="ascii"
        )
        program.chmod(0o755)
        systemd.run(["mount", "--bind", str(programs), "/usr/local/sbin"])

    def tell(self, *, stuck: int = 0, other: int = 0, neighbour: int | None = None, broken: str = "") -> None:
        """Set what it tells from now on; `broken`: it fails with that line."""
        lines = [f"stuck={stuck}", f"other={other}", f"neighbour={neighbour or ''}", f"broken='{broken}'"]
        beside = self._numbers.with_suffix(".new")
        beside.write_text("\n".join(lines) + "\n", encoding="ascii")
        beside.replace(self._numbers)

    def remove(self) -> None:
        """Take it out again."""
        self._systemd.run(["umount", "/usr/local/sbin"])
