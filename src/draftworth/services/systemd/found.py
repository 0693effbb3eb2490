"""What a trial on a unit has found before it changes anything."""

from typing import Literal

from draftworth.gpus.base import Gpus
from draftworth.models import Frozen
from draftworth.services.systemd.snapshot import UnitSnapshot

Way = Literal["parallel", "drop-in"]


class UnitFound(Frozen):
    """The unit, and everything around it that a restore needs."""

    snapshot: UnitSnapshot
    way: Way
    """How a variant is run."""
    why: str
    """By which rule."""
    systemd: int
    """systemd's version, 0 where it is not told."""
    gpus: Gpus
    """What the GPUs held while the original served."""
    pids: tuple[int, ...] = ()
    """The original's processes then."""
    shm: tuple[str, ...] = ()
    """Names in /dev/shm then."""
    shm_ours: tuple[str, ...] = ()
    """Those that a process of the original mapped or had open."""
    model: str | None = None
    """A name it serves."""
    lasting: bool = False
    """Whether it runs without being enabled: then a unit in /etc starts it after a reboot in mid-trial."""

    @property
    def triggers(self) -> tuple[str, ...]:
        """What was active and starts the original: stopped while a variant runs."""
        return tuple(unit.name for unit in self.snapshot.triggers if unit.active in {"active", "reloading"})

    @property
    def dependents(self) -> tuple[str, ...]:
        """What was active and stops with the original, in the order it is started again."""
        return tuple(
            dict.fromkeys(unit.name for unit in self.snapshot.dependents if unit.active in {"active", "reloading"})
        )
