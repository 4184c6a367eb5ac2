"""Installs what the judges need, once: under a lock, and again only when the lock file it came from has changed.

Nothing is ever skipped: what cannot be installed fails the test that needs it, with the installer's own words.
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
_SHOWN_CHARS = 4000


class ProvisioningFailed(RuntimeError):
    """An installer ended badly."""


def digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def is_installed(target: Path, wanted: str) -> bool:
    stamp = target / STAMP
    return stamp.is_file() and stamp.read_text() == wanted


def mark_installed(target: Path, wanted: str) -> None:
    (target / STAMP).write_text(wanted)


@contextmanager
def exclusively(directory: Path) -> Iterator[None]:
    """One process at a time, however many test workers there are. The lock is the directory: no file is left over."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def install(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> None:
    try:
        ended = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProvisioningFailed(f"{command[0]} could not be run: {error}") from error
    if ended.returncode:
        said = (ended.stdout + ended.stderr)[-_SHOWN_CHARS:]
        raise ProvisioningFailed(f"{' '.join(command)} ended with {ended.returncode}:\n{said}")
