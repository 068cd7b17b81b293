"""A real browser, driven over its own debugging protocol: Chromium, without a driver in between.

Commands go as JSON through a pipe, each ended by a zero byte; see "--remote-debugging-pipe" in
Chromium, and https://chromedevtools.github.io/devtools-protocol for the methods.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gateway.core.descriptors import wait_readable
from tests.support.run.waiting import PATIENCE, wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ANSWER_S = 30.0 * PATIENCE


def find_browser() -> str | None:
    """The path of a Chromium that is installed; None when there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a headless Chromium.

    Attributes:
        errors: Errors in the page's console.
        requested: Every address that it has asked for.
    """

    def __init__(self, program: str, folder: Path) -> None:
        commands, self._write_fd = os.pipe()
        self._read_fd, answers = os.pipe()
        self._log = (folder / "chromium.log").open("wb")
        # The browser reads commands from 3 and answers on 4: the shell gives them these numbers.
        self._process = subprocess.Popen(
            [
                "/bin/bash",
                "-c",
                f'exec "$@" 3<&{commands} 4>&{answers}',
                "browser",
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--remote-debugging-pipe",
                f"--user-data-dir={folder / 'chromium'}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(commands, answers),
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        self._pending = b""
        self._messages: deque[dict[str, Any]] = deque()
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requested: set[str] = set()
        target = wait_until(self._find_page, 60, "the browser to have a page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        os.close(self._write_fd)  # it ends with the pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read_fd)
        self._log.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method and return its result."""
        self._number += 1
        number = self._number
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._write_fd, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message.get('error')}"
                result = message["result"]
                assert isinstance(result, dict)
                return result

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        assert "errorText" not in self.call("Page.navigate", url=url)
        wait_until(lambda: self._ready(url), 60, f"{url} to be loaded")

    def see_as(self, width: int, height: int, *, scripts: bool = True) -> None:
        """Be a screen of that size, with or without JavaScript of the page's own."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; it runs also when the page's own do not."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self) -> str:
        """Return the text that can be read on the page."""
        return str(self.evaluate("document.body.innerText"))

    def _ready(self, url: str) -> bool:
        state = self.evaluate("document.readyState + ' ' + location.href")
        return bool(state == f"complete {url}")

    def _find_page(self) -> str | None:
        targets = self.call("Target.getTargets")["targetInfos"]
        return next((str(t["targetId"]) for t in targets if t["type"] == "page"), None)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _ANSWER_S
        while b"\0" not in self._pending:
            assert time.monotonic() < deadline, "the browser does not answer"
            if self._read_fd in wait_readable([self._read_fd], 1.0):
                piece = os.read(self._read_fd, 1 << 16)
                assert piece, "the browser has ended"
                self._pending += piece
        line, _, self._pending = self._pending.partition(b"\0")
        message = json.loads(line)
        assert isinstance(message, dict)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] == "error":
                self.errors.append(str(message["params"]["entry"]))
            case "Network.requestWillBeSent":
                self.requested.add(message["params"]["request"]["url"])
