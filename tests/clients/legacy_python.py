"""A second virtual environment for mcp 1.x, the last official Python client with a WebSocket transport.

The project's own environment has mcp 2.x. This one is created on demand, with uv if it is installed.
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
    """Returns the environment's Python, with exactly the locked packages."""
    version = f"{digest(_REQUIREMENTS)} {sys.version}"
    python = _ENVIRONMENT / "bin" / "python"
    with exclusively(DIRECTORY):
        if not is_installed(_ENVIRONMENT, version):
            for command in _commands(shutil.which("uv"), str(python)):
                install(command, DIRECTORY, os.environ)
            mark_installed(_ENVIRONMENT, version)
    return str(python)


def _commands(uv: str | None, python: str) -> list[list[str]]:
    options = ["--quiet", "--no-deps", "--require-hashes", "-r", str(_REQUIREMENTS)]
    if uv is not None:
        return [
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(_ENVIRONMENT)],
            [uv, "pip", "install", "--python", python, *options],
        ]
    return [
        [sys.executable, "-m", "venv", "--clear", str(_ENVIRONMENT)],
        [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile", *options],
    ]
