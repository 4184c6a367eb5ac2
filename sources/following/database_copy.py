"""Copies an SQLite database that another program has open: `python -m sources.following.database_copy SOURCE TARGET`.

The copy has everything that is committed, also what is still in the write-ahead log. The owner can write meanwhile: in
WAL mode a reader blocks nobody, otherwise the lock is held for one part of the file at a time. Nothing is written next
to the database. A process of its own, because POSIX locks belong to a process: reading a file that this server itself
has open would drop SQLite's locks on it.
"""

import asyncio
import os
import resource
import shutil
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.sandbox.report import child_environment

_MODULE = "sources.following.database_copy"
_BUSY_TIMEOUT_S = 2.0
# Pages that are copied before the lock is released: 8 MiB of the usual size, which take about ten milliseconds. If the
# database changes between two steps, SQLite starts the copy again, so that smaller steps would never end.
_PAGES_PER_STEP = 2048
_STEP_PAUSE_S = 0.001
# The byte of the header with the version that is needed to write; 2 means a write-ahead log.
_WRITE_VERSION_AT = 18
_WAL = 2
_ATTEMPTS = 3
_MEMORY_MAX_BYTES = 1 << 30
_CHANGED = 3


async def copy_database(source: Path, target: Path, max_bytes: int, deadline_s: float) -> None:
    """Raises InvalidParams if the database cannot be copied in time."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _MODULE, os.fsencode(source), os.fsencode(target), str(max_bytes)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=child_environment(),
    )
    try:
        async with asyncio.timeout(deadline_s):
            _, errors = await process.communicate()
    except TimeoutError:
        raise InvalidParams(f"database: copying it took longer than {deadline_s:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == _CHANGED:
        raise InvalidParams("database: it changed while it was copied")
    if process.returncode:
        cause = errors.decode(errors="replace").strip().rpartition("\n")[2] or f"exit code {process.returncode}"
        raise InvalidParams(f"database: cannot be copied: {cause[:200]}")


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as file:
        file.seek(_WRITE_VERSION_AT)
        is_wal = file.read(1) == bytes([_WAL])
    if is_wal and _companion(source, "-wal").exists() and not _companion(source, "-shm").exists():
        # No program has it open. SQLite would have to create a file next to it.
        _copy_closed(source, target)
    else:
        uri = f"{source.resolve().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S)) as original,
            closing(sqlite3.connect(target)) as copy,
        ):
            original.backup(copy, pages=-1 if is_wal else _PAGES_PER_STEP, sleep=_STEP_PAUSE_S)
    with closing(sqlite3.connect(target)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()


def _copy_closed(source: Path, target: Path) -> None:
    for _ in range(_ATTEMPTS):
        before = _state(source)
        for suffix in ("", "-wal"):
            shutil.copyfile(_companion(source, suffix), _companion(target, suffix))
        if _state(source) == before:
            return
    sys.exit(_CHANGED)


def _state(source: Path) -> list[tuple[int, int]]:
    statuses = [_companion(source, suffix).stat() for suffix in ("", "-wal")]
    return [(status.st_size, status.st_mtime_ns) for status in statuses]


def _companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _main(source: Path, target: Path, max_bytes: int) -> None:
    for kind, value in ((resource.RLIMIT_AS, _MEMORY_MAX_BYTES), (resource.RLIMIT_FSIZE, max_bytes)):
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
    try:
        _copy(source, target)
    except (sqlite3.Error, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
