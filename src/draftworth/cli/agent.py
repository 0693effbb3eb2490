"""`draftworth agent`: what the tool itself runs over SSH on the machine that serves; for nobody's hands."""

import json
import sys

from draftworth.errors import UsageError


def agent(verb: str, /) -> int:
    """Answer one request of a trial that is driven from another machine: JSON in, lines of JSON out.

    Args:
        verb: what is asked for.
    """
    from draftworth.trials.driver.agent import serve  # noqa: PLC0415 - lazy

    try:
        asked = json.loads(sys.stdin.buffer.read() or b"{}")
    except ValueError:  # also where the connection was lost before all of it was here
        asked = None
    if not isinstance(asked, dict):
        raise UsageError("`draftworth agent` is run by draftworth itself, with one JSON object on standard input")
    return serve(verb, asked)
