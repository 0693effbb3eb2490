"""`adopt.conf` of a search on a unit: the drop-in that makes its best setting the unit's own, to look at."""

from contextlib import suppress
from pathlib import Path

from draftworth.errors import DraftworthError
from draftworth.trials.record import TrialRecord, write_text

NAME = "adopt.conf"


def write_drop_in(record: TrialRecord, folder: Path) -> None:
    """Write what `draftworth trial adopt` would put there. Nothing where it would refuse: it says why when it is asked.

    Args:
        record: the trial's, written already.
        folder: its folder.
    """
    search = record.search
    winner = None if search is None else search.winner
    if search is None or not search.found or winner is None:
        return
    from draftworth.services.systemd.adoption import text_of  # noqa: PLC0415 - lazy
    from draftworth.trials.adopted import chosen, command_for, read_trial  # noqa: PLC0415 - lazy

    with suppress(DraftworthError, OSError):
        found, comparison = chosen(folder, winner.arm)
        command = command_for(read_trial(folder), found, comparison.arm)
        path = folder / NAME
        path.touch(mode=0o600)
        write_text(path, text_of(record.id, command, [f"arm {comparison.arm}: {comparison.reason}"]))
        path.chmod(0o600)
