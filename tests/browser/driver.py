"""Runs steps of `tests/browser/steps` in a browser that all tests of a worker share."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.browser.provisioning import OPTIONS, find_chromium
from tests.clients.node_tools import node, packages

_DRIVER = Path(__file__).with_name("driver.mjs")


class StepFailed(AssertionError):
    """A step did not find what it expected on the page."""


class BrowserDriver:
    """A Node process with a browser. It is started when the first test needs it."""

    def __init__(self) -> None:
        chromium = find_chromium()
        start = {"packages": str(packages()), "path": chromium.path, "args": list(OPTIONS)}
        self._process = subprocess.Popen(
            [node(), str(_DRIVER), json.dumps(start)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=chromium.environment(),
            text=True,
        )

    def run(
        self,
        file: str,
        step: str,
        *,
        url: str,
        cookie: Mapping[str, str] | None = None,
        values: Any = None,
        **options: Any,
    ) -> Any:
        """Runs a step and returns its result. `options` are those of a browser context, such as `colorScheme`. Fails if
        a page reports an error, opens a dialog, or requests anything of another host."""
        request = {"file": file, "step": step, "url": url, "cookie": cookie, "values": values, "options": options}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise StepFailed(f"the browser ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise StepFailed(answer["error"])
        assert answer["problems"] == []
        return answer["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
