"""Which of a trial's accounts says what: the one the verdict is about, what is told of an arm, what beats it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.explain.base import Account, Change, Explained
    from draftworth.reports.trial.base import Subject

_SPECULATION = "--speculative-config"


def account_of(folder: Path) -> "tuple[Explained | None, str]":
    """Return the account in a trial's folder, and what is wrong with it where it cannot be read."""
    from draftworth.explain.kept import load  # noqa: PLC0415 - lazy

    try:
        return load(folder), ""
    except UsageError as error:
        return None, str(error)


def told_of(explained: "Explained | None", arm: str) -> list[str]:
    """Return why an arm has no account, or what was assumed of it, as the account tells."""
    lines = explained.left_out if explained else ()
    return [line for line in lines if line.startswith((f"{arm} at ", f"{arm}: ", f"{arm}, "))]


def load_of(account: "Account") -> str:
    """Return the load of an account, for a person."""
    return account.point or f"{account.concurrency} at a time"


def foremost(accounts: "Sequence[Account]", *, slower: bool | None = None) -> "Account | None":
    """Return the account at the load where an arm differs most; see `explain.words.foremost`."""
    from draftworth.explain import words  # noqa: PLC0415 - lazy

    return words.foremost(accounts, slower=slower)


def told_account(subject: "Subject", name: str) -> "Account | None":
    """Return the account that tells an arm's cause; None where it has none.

    Of several loads it is one at which the arm did what its verdict says, that where it differs most.
    """
    from draftworth.explain.words import says_slower  # noqa: PLC0415 - lazy

    return foremost(subject.accounts(name), slower=says_slower(subject.comparison(name)))


def measured(account: "Account") -> float:
    """Return the speed-up over the baseline that an account's arm had."""
    return account.baseline_ms / account.arm_ms


def beats(change: "Change", account: "Account", *others: "Account") -> bool:
    """Whether a change is worth telling: its best value is above what the arm, and others at this load, had already.

    What has no prediction, and what is no setting, is always told.
    """
    if change.kind != "setting" or change.speed_up is None:
        return True
    return change.speed_up.value > max(1.0, *(measured(one) for one in (account, *others)))


def configured(change: "Change") -> dict[str, Any] | None:
    """Return the speculative configuration that a change starts an engine with; None where it is no JSON of one."""
    words = list(change.arguments)
    if _SPECULATION not in words[:-1]:
        return None
    try:
        found = json.loads(words[words.index(_SPECULATION) + 1])
    except ValueError:
        return None
    return plain(found) or None if isinstance(found, dict) else None


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without what is not set."""
    return {name: value for name, value in config.items() if value is not None}


def already(change: "Change", configs: Iterable[dict[str, Any] | None]) -> bool:
    """Whether a setting is one that was measured: it is not to be tried again."""
    asked = configured(change)
    return asked is not None and any(config is not None and plain(config) == asked for config in configs)
