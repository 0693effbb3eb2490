"""Having something done on another machine that may take long, told of line by line while it is done there."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from draftworth.errors import InterruptedTrial, TrialError
from draftworth.hosts.base import HostError
from draftworth.hosts.ssh import SshHost
from draftworth.trials.driver.messages import document, raised, read
from draftworth.trials.driver.pointers import Pointer
from draftworth.trials.driver.reach import check_answer

_GOES_ON = "what was begun there is finished there: run the same command again, and it says how it ended"


def act(
    host: SshHost, argv: Sequence[str], asked: Mapping[str, Any], *, pointer: Pointer, say: Callable[[str], None]
) -> dict[str, Any]:
    """Have the agent do something, and return what it tells at last. The act goes on without the connection.

    Args:
        host: the connection.
        argv: the agent's command.
        asked: the request.
        pointer: who is asked.
        say: takes what is happening there.

    Raises:
        DraftworthError: what was raised there.
        TrialError: the connection was lost, or nothing was answered.
        InterruptedTrial: Ctrl-C here.
    """
    try:
        with host.stream(argv, stdin=document(asked)) as lines:
            for line in lines:
                answer = read(line) or {}
                if "error" in answer:
                    raise raised(answer["error"], host.name)
                if "told" in answer:
                    told: dict[str, Any] = answer["told"]
                    return told
                if answer.get("kind") == "line":
                    say(str(answer.get("text", "")))
        said = lines.err.decode(errors="replace")
        check_answer(pointer, int(lines.code or 0), said)
    except HostError as error:
        raise TrialError(f"{error}; {_GOES_ON}") from None
    except KeyboardInterrupt:
        raise InterruptedTrial(f"{host.name}: no longer watched; {_GOES_ON}") from None
    raise TrialError(f"{host.name}: no answer: {' '.join(said.split())[-200:] or 'it ended without a word'}")


def variables_of(folder: Path) -> dict[str, str]:
    """Return the values of the environment variables that a trial's file names: keys; those set here alone."""
    from draftworth.trials.driver.drive import REQUEST  # noqa: PLC0415 - lazy

    try:
        service = json.loads((folder / REQUEST).read_text(encoding="utf-8"))["config"]["service"]
        names = [service.get("api_key_env"), *dict(service.get("headers_env") or {}).values()]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {name: os.environ[name] for name in names if name and name in os.environ}
