"""Whether the unit's user can get at a path; otherwise the start fails with a bare `Permission denied`."""

import os
import stat
from pathlib import Path

from draftworth.services.newunit.base import Account

_BITS = {"x": (stat.S_IXUSR, stat.S_IXGRP, stat.S_IXOTH), "w": (stat.S_IWUSR, stat.S_IWGRP, stat.S_IWOTH)}


def obstacle(path: str, account: Account, mode: str = "x") -> str | None:
    """Return the first part of a path that keeps a user out, or None. Access lists (ACLs) are not read.

    Args:
        path: absolute; must be there.
        account: the user; root is kept out of nothing.
        mode: `x` to run it or go into it, `w` to write into it.
    """
    if account.uid == 0:
        return None
    target = Path(path)
    try:
        for part in [*reversed(target.parents), target]:
            wanted = mode if part == target else "x"
            if not _may(part.stat(), account, wanted):
                return str(part)
    except OSError:
        return None
    return None


def is_folder(path: str) -> bool | None:
    """Return whether there is such a folder; None where the caller may not look."""
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except PermissionError:
        return None
    except (OSError, ValueError):
        return False


def _may(found: os.stat_result, account: Account, mode: str) -> bool:
    owner, group, bits = found.st_uid, found.st_gid, found.st_mode
    user_bit, group_bit, other_bit = _BITS[mode]
    if owner == account.uid:
        return bool(bits & user_bit)
    return bool(bits & (group_bit if group in account.groups else other_bit))
