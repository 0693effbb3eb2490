"""Ctrl-C, SIGTERM and a closed terminal: the first ends the measuring, none ends the restore."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt(KeyboardInterrupt):
    """Raised in the main thread by the first signal. A KeyboardInterrupt, so that asyncio lets it through."""


class Interrupts:
    """Turns signals into one `Interrupt`, and into a remark once the restore began.

    Attributes:
        received: the name of the first signal, or None.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        *,
        held: bool = False,
        first: str = "the service is put back first",
        what: str = "the trial",
    ) -> None:
        """Make one.

        Args:
            tell: takes a remark.
            held: whether signals are only remarked on from the start.
            first: what happens before the end, for the remark.
            what: what is ended, for the remark.
        """
        self.tell = tell
        self._first = first
        self._what = what
        self._held = held
        self.received: str | None = None

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._held or self.received is not None:
            self.tell(f"{name}: {self._first.replace(' is ', ' is being ', 1)}; this cannot be skipped")
            return
        self.received = name
        self.tell(f"{name}: ending {self._what}; {self._first}")
        raise Interrupt(name)

    def check(self) -> None:
        """Raise the interrupt again where a signal came and its exception was lost (in a destructor, a callback)."""
        if self.received is not None and not self._held:
            raise Interrupt(self.received)

    def hold(self) -> None:
        """From now on a signal is only remarked on."""
        self._held = True

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle signals within the block; the handlers before are put back after it. Ctrl-Z is ignored in it."""
        # What the caller ignores stays ignored: `nohup` means it.
        mine = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in mine}
        # A stopped tool would keep the service away without a limit.
        before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        try:
            yield
        finally:
            for number, handler in before.items():
                # After an interruption the process only tells how it ended: another signal must not cut that short.
                signal.signal(number, signal.SIG_IGN if self.received and number in mine else handler)
