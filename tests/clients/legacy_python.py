"""A second virtual environment for mcp 1.x: the last official Python client that speaks WebSocket.

It cannot share ours, which has mcp 2.x. It is made on demand beside it, with uv if that is there.
"""

import os
import shutil
import sys
from functools import cache
from pathlib import Path

from tests.clients.provisioning import digest, exclusively, install, is_installed, mark_installed

DIRECTORY = Path(__file__).parent / "legacy_ws"
SCRIPT = DIRECTORY / "visit.py"
_REQUIREMENTS = DIRECTORY / "requirements.txt"
_ENVIRONMENT = Path(__file__).parents[2] / ".venv-legacy-ws"


@cache
def interpreter() -> str:
    """The Python of that environment, with exactly the locked packages."""
    wanted = f"{digest(_REQUIREMENTS)} {sys.version}"
    python = _ENVIRONMENT / "bin" / "python"
    with exclusively(DIRECTORY):
        if not is_installed(_ENVIRONMENT, wanted):
            for command in _commands(shutil.which("uv"), str(python)):
                install(command, DIRECTORY, os.environ)
            mark_installed(_ENVIRONMENT, wanted)
    return str(python)


def _commands(uv: str | None, python: str) -> list[list[str]]:
    hashed = ["--quiet", "--require-hashes", "-r", str(_REQUIREMENTS)]
    if uv is not None:
        return [
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(_ENVIRONMENT)],
            [uv, "pip", "install", "--python", python, *hashed],
        ]
    return [
        [sys.executable, "-m", "venv", "--clear", str(_ENVIRONMENT)],
        [python, "-m", "pip", "install", "--disable-pip-version-check", *hashed],
    ]
