"""A real browser for tests, if one is installed: opens a page and evaluates expressions in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", "about:blank")
_AS_THREE_AND_FOUR = """\
import fcntl, os, sys
ends = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 100) for each in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads from descriptor 3 and writes to descriptor 4."""
_SECONDS = 60.0


class Browser:
    """A headless browser, controlled by the DevTools protocol over two pipes."""

    def __init__(self, folder: Path) -> None:
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            pytest.skip(f"no browser: install one of {', '.join(PROGRAMS)}")
        reading, theirs = os.pipe()
        ours, writing = os.pipe()
        self._out, self._in = os.fdopen(writing, "wb", 0), os.fdopen(reading, "rb")
        browser = [program, f"--user-data-dir={folder}", *_FLAGS]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _AS_THREE_AND_FOUR, str(ours), str(theirs), *browser],
            pass_fds=[ours, theirs],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(ours)
        os.close(theirs)
        self._number = 0
        self._session = ""

    def __enter__(self) -> Browser:
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # its helpers too
        self._process.wait()
        self._out.close()
        self._in.close()

    def call(self, method: str, **parameters: object) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self._number:
                return answer["result"]

    def _message(self) -> bytes:
        text = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        return bytes(text)

    def open(self, url: str, width: int = 1280, is_dark: bool = False) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str, expected: object) -> None:
        """Wait until an expression has the expected value; fail with its last value."""
        ends_at = time.monotonic() + _SECONDS
        while (found := self.value(expression)) != expected:
            assert time.monotonic() < ends_at, f"{expression} is {found!r}"
            time.sleep(0.05)
