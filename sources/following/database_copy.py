"""Copies SQLite databases that other programs have open, in a process of its own."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from config.errors import InvalidParams
from sources.following.changed_rows import DatabasePosition
from sources.following.copy_process import CopyRequest, DatabaseCopy
from sources.following.state import DatabaseState
from sources.importers.engine.confined_files import real_path
from sources.importers.engine.table_reader import FollowedDatabase
from sources.importers.registry import all_importers
from sources.importers.sandbox import child_environment

# Until then only the rows are read whose change tldw records, and some changes it does not record.
FOLLOW_DATABASE_SCAN_S = 3600.0

_PROBLEM_CHARS = 200
# An answer has the positions of a few tables.
_LINE_MAX_BYTES = 1 << 20


class DatabaseCopier:
    """Copies databases one after the other. The process is started for the first one, and again if it was ended."""

    def __init__(self, max_bytes: int, deadline_s: float) -> None:
        self._max_bytes = max_bytes
        self._deadline_s = deadline_s
        self._process: asyncio.subprocess.Process | None = None

    async def copy(
        self,
        source: Path,
        target: Path,
        databases: tuple[FollowedDatabase, ...] = (),
        since: DatabasePosition | None = None,
    ) -> DatabaseCopy:
        """Raises InvalidParams if the database cannot be copied in time."""
        request = CopyRequest(source=os.fsencode(source), target=os.fsencode(target), databases=databases, since=since)
        try:
            async with asyncio.timeout(self._deadline_s):
                line = msgspec.json.encode(request) + b"\n"
                if self._process is None:
                    self._process = await asyncio.create_subprocess_exec(
                        *(sys.executable, "-P", "-m", "sources.following.copy_process", str(self._max_bytes)),
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                        env=child_environment(),
                        limit=_LINE_MAX_BYTES,
                    )
                process = self._process
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(line)
                await process.stdin.drain()
                answer = msgspec.json.decode(await process.stdout.readline(), type=DatabaseCopy)
        except TimeoutError:
            await self.close()
            raise InvalidParams(f"database: copying it took longer than {self._deadline_s:g} s") from None
        except (OSError, ValueError, msgspec.MsgspecError):
            await self.close()
            raise InvalidParams("database: cannot be copied: the process that copies it ended") from None
        except asyncio.CancelledError:
            # Its answer would be read as that to the next request.
            await self.close()
            raise
        if answer.problem:
            raise InvalidParams(f"database: cannot be copied: {answer.problem[:_PROBLEM_CHARS]}")
        return answer

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def open_database_copier(max_bytes: int, deadline_s: float) -> AsyncIterator[DatabaseCopier]:
    copier = DatabaseCopier(max_bytes, deadline_s)
    try:
        yield copier
    finally:
        await copier.close()


# -- database reader ---------------------------------------------------------------------------------------------------
# Copies a followed database for reading: all of it, or what changed since it was last read.

# How long a database whose changes were all in other tables is not read completely again. The pause doubles.
_FIRST_PAUSE_S = 10.0


class DatabaseReader:
    """Reads a copy, because the owner may write at any time. `copy_path` is the same each time: importers derive ids
    from it."""

    def __init__(self, copier: DatabaseCopier, work_folder: Path, path: Path) -> None:
        self._copier = copier
        self._path = path
        folder = work_folder / blake2b(os.fsencode(path), digest_size=8).hexdigest()
        self.copy_path = folder / path.name

    def is_part_enough(self, state: DatabaseState) -> bool:
        """A program may change a database undetected, so all of it is read now and then."""
        return time.time() - state.complete_at < FOLLOW_DATABASE_SCAN_S

    @asynccontextmanager
    async def copy(self, since: DatabaseState | None = None) -> AsyncIterator[DatabaseCopy]:
        """Raises InvalidParams if the database cannot be copied."""
        folder = self.copy_path.parent
        position = None if since is None else since.position
        try:
            await asyncio.to_thread(folder.mkdir)
            try:
                # The process that copies the database follows no links, so one that leads to it is resolved here.
                source = Path(await asyncio.to_thread(real_path, self._path))
            except PermissionError as error:
                raise InvalidParams(f"database: cannot be copied: {error.strerror}") from error
            yield await self._copier.copy(source, self.copy_path, _followed_databases(), position)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def remaining_pause_s(state: DatabaseState) -> float:
    """Returns how long a change that left no trace is not yet a reason to read everything."""
    return max(0.0, state.complete_at + state.pause_s - time.time())


def after_complete_read(
    position: DatabasePosition, before: DatabaseState | None, *, has_changes: bool
) -> DatabaseState:
    """Returns the new state. If nothing was found, the program writes other tables, and reading everything each time
    would be in vain: the pause before the next complete read doubles."""
    pause_s = 0.0
    if before is not None and not has_changes:
        pause_s = min(max(_FIRST_PAUSE_S, 2 * before.pause_s), FOLLOW_DATABASE_SCAN_S)
    return DatabaseState(position=position, complete_at=time.time(), pause_s=pause_s)


@cache
def _followed_databases() -> tuple[FollowedDatabase, ...]:
    return tuple(database for importer in all_importers() for database in importer.followed_databases)
