"""A page in headless Chromium, driven over its debugging pipe: no network, and no package to install."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
]


class Page:
    """An open page.

    Attributes:
        complaints: Every error and every violation of the page's policy so far, as text.
        asked_for: Every address that the page asked for.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self.complaints: list[str] = []
        self.asked_for: list[str] = []
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._numbers = itertools.count(1)
        self._session = ""
        self._saved = Path()
        self._loaded = False
        self._pending = b""

    def open(self, path: Path, width: int = 1280, height: int = 900, fragment: str = "") -> None:
        """Open a file, at a ``#fragment``, and wait until it and all its pictures are there."""
        if not self._session:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self._call(f"{domain}.enable")
        self.resize(width, height)
        self._loaded = False
        self._call("Page.navigate", url=path.resolve().as_uri() + fragment)
        while not self._loaded:
            self._read()

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def save_into(self, folder: Path) -> None:
        """Let the page save files into a folder."""
        folder.mkdir()
        self._saved = folder
        self._call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def saved_file(self, name: str) -> Path:
        """Return a file that the page saves, once it is whole."""
        path = self._saved / name
        end = time.monotonic() + 60
        while not path.is_file():
            assert time.monotonic() < end, f"{name} was not saved"
            time.sleep(0.05)
        return path

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, awaited, as plain data."""
        done = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Move, press, release or turn the wheel at a place of the window, by the name of the event."""
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """Press and release the left button."""
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            pass
        assert "error" not in answer, answer["error"]
        return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            some = self._answers.read1(1 << 20)
            assert some, "the browser has ended"
            self._pending += some
        text, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(params["entry"]))
        elif method == "Network.requestWillBeSent":
            self.asked_for.append(params["request"]["url"])


@contextmanager
def chromium() -> Iterator[Page]:
    """Give a page of a browser of its own, which ends with it."""
    assert CHROMIUM is not None
    reads_commands, commands = os.pipe()
    answers, writes_answers = os.pipe()

    def pass_pipes() -> None:
        kept = os.dup(reads_commands), os.dup(writes_answers)  # neither of these is 3 or 4 for certain
        os.dup2(kept[0], 3)
        os.dup2(kept[1], 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=pass_pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads_commands)
        os.close(writes_answers)
        page = Page(commands, answers)
        try:
            yield page
        finally:
            browser.terminate()
            browser.wait(timeout=20)
