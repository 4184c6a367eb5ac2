"""Installs the official clients and the conformance suite, once, and again only if the lock file has changed.

Nothing is skipped: if an installation fails, so does the test that needs it, with the installer's output.
"""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

STAMP = ".florilegium-stamp"
INSTALL_TIMEOUT_S = 600
_OUTPUT_MAX_CHARS = 4000


class ProvisioningFailed(RuntimeError):
    """An installer failed."""


def digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def is_installed(target: Path, version: str) -> bool:
    stamp = target / STAMP
    return stamp.is_file() and stamp.read_text() == version


def mark_installed(target: Path, version: str) -> None:
    (target / STAMP).write_text(version)


@contextmanager
def exclusively(directory: Path) -> Iterator[None]:
    """Holds a lock across test workers. The directory itself is locked, so no lock file is left behind."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def install(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
    try:
        result = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProvisioningFailed(f"cannot run {command[0]}: {error}") from error
    if result.returncode:
        output = (result.stdout + result.stderr)[-_OUTPUT_MAX_CHARS:]
        raise ProvisioningFailed(f"{' '.join(command)} exited with {result.returncode}:\n{output}")
