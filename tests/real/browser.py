"""Headless Chromium, driven over the pipe of its DevTools protocol: nothing but the standard library.

The protocol (chromedevtools.github.io/devtools-protocol): JSON messages ended by a zero byte, requests on file
descriptor 3 of the browser, answers and events on 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "apt-get install -y --no-install-recommends chromium fonts-dejavu-core"
_ANSWER_S = 30.0
_SHIM = """import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Gives the pipe's ends the numbers that the browser expects; in this process they may be taken."""


def chromium() -> str:
    """Return the browser's path. Fails with the command that installs it where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise AssertionError(f"the pages are checked in Chromium, which is not installed: {INSTALL}")
    return found


@dataclass
class Tab:
    """One page, with everything it has said on its console."""

    browser: "Browser"
    session: str
    target: str
    said: list[str] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def look(self, width: int, height: int, *, dark: bool = False, media: str = "") -> None:
        """Set the window's size, the reader's colour scheme and the medium."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,  # as a phone, it would make the window as wide as what is in it
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write what is seen, or the whole page, as PNG."""
        found = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole=whole)
        )
        path.write_bytes(base64.b64decode(found["data"]))

    def _clip(self, *, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def pdf(self, path: Path) -> None:
        """Print the page, with the sizes its own CSS asks for."""
        found = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        path.write_bytes(base64.b64decode(found["data"]))


class Browser:
    """One browser process with a profile of its own."""

    def __init__(self) -> None:
        path = chromium()
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        asked, self._write = os.pipe()
        self._read, told = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        flags += ["--no-first-run", "--disable-background-networking", "--disable-extensions", "--disable-sync"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={self._profile.name}"]
        words = [path, *flags, "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SHIM, str(asked), str(told), *words],
            pass_fds=(asked, told),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(asked)
        os.close(told)
        self._number = 0
        self._buffer = b""
        self._tabs: dict[str, Tab] = {}
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(Exception):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def open(self, path: Path, width: int = 1280, height: int = 800, *, dark: bool = False) -> Tab:
        """Open a file in a tab of its own and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.look(width, height, dark=dark)
        self._events.clear()
        found = tab.call("Page.navigate", url=path.resolve().as_uri())
        assert "errorText" not in found, found
        end = time.monotonic() + _ANSWER_S
        while not any(
            one["method"] == "Page.loadEventFired" and one.get("sessionId") == session for one in self._events
        ):
            assert time.monotonic() < end, f"{path} did not load"
            self._event(self._message(end))
        return tab

    def close(self, tab: Tab) -> None:
        """Close a tab."""
        self._tabs.pop(tab.session, None)
        self.call("Target.closeTarget", targetId=tab.target)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask the browser and return its answer."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            asked["sessionId"] = session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        end = time.monotonic() + _ANSWER_S
        while True:
            found = self._message(end)
            if found.get("id") == asked["id"]:
                assert "error" not in found, (method, found["error"])
                return dict(found["result"])
            self._event(found)

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def _event(self, found: dict[str, Any]) -> None:
        if "method" not in found:
            return
        self._events.append(found)
        tab = self._tabs.get(found.get("sessionId", ""))
        if tab is None:
            return
        params = found["params"]
        match found["method"]:
            case "Runtime.consoleAPICalled":
                tab.said.append(f"{params['type']}: {params['args']}")
            case "Runtime.exceptionThrown":
                tab.said.append(f"exception: {params['exceptionDetails']['text']}")
            case "Log.entryAdded":
                tab.said.append(f"{params['entry']['level']}: {params['entry']['text']}")
            case "Network.requestWillBeSent":
                if not params["request"]["url"].startswith(("file:", "data:", "about:")):
                    tab.said.append(f"request: {params['request']['url']}")
