"""Every error a user can meet, with the exit code it ends in.

DraftworthError
├── UsageError          1  what was asked for cannot be understood: a file, a field, a flag
├── RefusedError        2  understood, but refused before anything was changed
├── InterruptedTrial    6  a person or the host ended the trial; the service is back
├── TrialError          6  the trial could not be measured; the service is back
│   ├── ServerError        carries the server's own last lines
│   │   ├── ServerStartError   it did not start, or not in time
│   │   └── ServerDiedError    it ended while it was needed
│   └── MeasureError       too many requests failed, or an answer could not be read
├── NotRestoredError    4  the original service is NOT back; carries the commands that bring it back
└── (anything else)     5  a bug in Draftworth
"""

from collections.abc import Sequence

EXIT_DONE = 0
EXIT_USAGE = 1
EXIT_REFUSED = 2
EXIT_INCONCLUSIVE = 3
EXIT_NOT_RESTORED = 4
EXIT_UNEXPECTED = 5
EXIT_NOT_MEASURED = 6
EXIT_CTRL_C = 130
"""128 + SIGINT, what shells expect; what was measured until then is kept."""


class DraftworthError(Exception):
    """An expected failure: its text is enough, in one line that says what, where and what to do."""

    exit_code = EXIT_UNEXPECTED


class UsageError(DraftworthError):
    """What was asked for cannot be understood."""

    exit_code = EXIT_USAGE


class RefusedError(DraftworthError):
    """Refused in preflight; nothing was changed."""

    exit_code = EXIT_REFUSED


class TrialError(DraftworthError):
    """The trial could not be measured."""

    exit_code = EXIT_NOT_MEASURED


class InterruptedTrial(TrialError):  # noqa: N818 - an interruption is not an error of anybody
    """A person or the host ended the trial before it was complete."""


class ServerError(TrialError):
    """A server did not do what was needed of it.

    Attributes:
        tail: the last lines the server itself printed.
    """

    def __init__(self, message: str, tail: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.tail = tuple(tail)


class ServerStartError(ServerError):
    """A server did not start, or not before its deadline."""


class ServerDiedError(ServerError):
    """A server ended while it was needed."""


class MeasureError(TrialError):
    """Too many requests failed, or an answer could not be read."""


class NotRestoredError(DraftworthError):
    """The original service is not back.

    Attributes:
        commands: shell commands that bring it back, in order.
    """

    exit_code = EXIT_NOT_RESTORED

    def __init__(self, message: str, commands: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.commands = tuple(commands)
