"""A page in headless Chromium, driven by the DevTools protocol over a pipe: what it shows once a condition holds, however slow the machine is.

`--dump-dom` prints a page when it has loaded, which says nothing about what its script has fetched by then.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from timebound.report.png import chromium_command

LIMIT_S = 60
"""Nobody waits longer for a page; no measure of how fast it is."""


class Browser:
    """Chromium with one page. Messages are JSON, each ended by a zero byte, on the browser's descriptors 3 and 4."""

    def __init__(self, program: str, folder: Path, width: int) -> None:
        to_browser, self.sending = os.pipe()
        self.receiving, from_browser = os.pipe()
        options = ("--remote-debugging-pipe", f"--window-size={width},900", "about:blank")
        command = chromium_command(program, str(folder / "profile"), *options)
        # The shell gives the two ends the numbers that Chromium expects, whatever numbers they have here.
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        with (folder / "chromium.log").open("w") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", script, "bash", *command],
                pass_fds=(to_browser, from_browser),
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.number = 0
        self.said: list[str] = []
        """What the page's console and its log of errors said."""
        self.session: str | None = None
        pages = [one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.sending)
        os.close(self.receiving)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command; events that come before it are noted.

        Raises:
            RuntimeError: the browser refuses it, ended, or does not answer.
        """
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.sending, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            if answer.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(answer["params"]))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.receiving], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self.receiving, 1 << 16) if ready else b""
            if not piece:
                raise RuntimeError("Chromium ended" if ready else f"Chromium said nothing for {LIMIT_S} s")
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\0", 1)
        return dict(json.loads(line))

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def show(self, url: str, once: str) -> str:
        """The page's HTML as soon as an expression is true in it.

        Raises:
            AssertionError: it never was.
        """
        self.ask("Page.navigate", url=url)
        deadline = time.monotonic() + LIMIT_S
        while not self.evaluate(f"document.readyState === 'complete' && location.href !== 'about:blank' && ({once})"):
            assert time.monotonic() < deadline, f"never true: {once}; the page said {self.said}"
            time.sleep(0.05)
        return str(self.evaluate("document.documentElement.outerHTML"))
