"""The standard output of a command that runs on another machine, line by line."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

from draftworth.hosts.base import HostError
from draftworth.hosts.children import close, ended, kill
from draftworth.hosts.shell import without_marks

_KEPT = 65536
_PATIENCE_S = 1.0


class Stream:
    """Lines of a running command's standard output. Made by `SshHost.stream`; read by one thread.

    Attributes:
        code: the command's exit code once its lines are at an end; None before.
        err: its standard error (the last part of it) once its lines are at an end.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: str,
        stdin: bytes | None,
        failure: Callable[[bytes, bool], HostError],
    ) -> None:
        self.code: int | None = None
        self.err = b""
        self._process = process
        self._mark = mark
        self._failure = failure
        self._feeds = stdin is not None
        self._helpers = [threading.Thread(target=self._drain, daemon=True)]
        if stdin is not None:
            self._helpers.append(threading.Thread(target=self._feed, args=(stdin,), daemon=True))
        for helper in self._helpers:
            helper.start()

    def __iter__(self) -> Iterator[str]:
        """Give the lines as they come, without their ends; bytes that are not UTF-8 are replaced.

        Raises:
            HostError: the connection could not be made, or was lost.
        """
        began = False
        sign = self._mark.encode() + b"\n"
        for raw in self._raw_lines():
            if began:
                yield raw.decode(errors="replace").removesuffix("\n")
            else:
                began = raw.endswith(sign)
        while (code := ended(self._process)) is None:
            time.sleep(0.005)
        for helper in self._helpers:
            helper.join(1)
        _, self.err, _, own = without_marks(b"", self.err, code, self._mark)
        if not own or not began:
            raise self._failure(self.err, began)
        self.code = code

    def _raw_lines(self) -> Iterator[bytes]:
        pipe = self._process.stdout
        assert pipe is not None
        rest = b""
        while piece := os.read(pipe.fileno(), _KEPT):
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line + b"\n"
        if rest:
            yield rest

    def close(self) -> None:
        """End the command: its standard input first, by which the far side notices; then ssh itself."""
        pipe = self._process.stdin
        assert pipe is not None
        if not self._feeds:
            pipe.close()
            deadline = time.monotonic() + _PATIENCE_S
            while ended(self._process) is None and time.monotonic() < deadline:
                time.sleep(0.005)
        kill(self._process)
        for helper in self._helpers:
            helper.join(1)
        close(self._process)

    def _drain(self) -> None:
        pipe = self._process.stderr
        assert pipe is not None
        with contextlib.suppress(OSError, ValueError):
            while piece := os.read(pipe.fileno(), _KEPT):
                self.err = (self.err + piece)[-_KEPT:]

    def _feed(self, stdin: bytes) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        left = memoryview(stdin)
        with contextlib.suppress(OSError, ValueError):
            while left:
                left = left[os.write(pipe.fileno(), left[:_KEPT]) :]
        pipe.close()
