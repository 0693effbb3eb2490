"""Keeping secrets out of records, plans and reports."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftworth.trials.config import TrialConfig

HIDDEN = "(hidden)"

_SECRET = re.compile(r"(?i)(key|token(?!s|ize)|secret|passw|auth|cred|cookie)")
_URL_SECRET = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s:@]*:[^/\s@]+@")


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables with the values of those that may be secrets hidden."""
    return {
        name: HIDDEN if _SECRET.search(name) else _URL_SECRET.sub(r"\1" + HIDDEN + "@", v) for name, v in env.items()
    }


def command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return an argv with the values of secret flags hidden (`--api-key X`, `--hf-token=X`)."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        if hide_next and not word.startswith("-"):
            shown.append(HIDDEN)
            hide_next = False
            continue
        hide_next = False
        flag, equals, _ = word.partition("=")
        if flag.startswith("-") and _SECRET.search(flag) and not re.search(r"(?i)tokenizer|max|num|per", flag):
            shown.append(f"{flag}={HIDDEN}" if equals else word)
            hide_next = not equals
        elif re.match(r"^[A-Z_][A-Z0-9_]*=", word) and _SECRET.search(flag):
            shown.append(f"{flag}={HIDDEN}")
        else:
            shown.append(_URL_SECRET.sub(r"\1" + HIDDEN + "@", word))
    return tuple(shown)


def config(trial: "TrialConfig") -> dict[str, Any]:
    """Return a trial's file with the values of secret variables hidden."""
    data: dict[str, Any] = trial.model_dump(mode="json")
    data["service"]["env"] = environment(trial.service.env)
    data["service"]["command"] = list(command(trial.service.command))
    for arm, shown in zip(trial.arms, data["arms"], strict=True):
        shown["env"] = environment(arm.env)
        shown["args"] = list(command(arm.args))
    return data
