"""Copies SQLite databases that other programs have open, in a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from config.errors import InvalidParams
from sources.following.changed_rows import DatabasePosition
from sources.following.copy_process import CopyRequest, DatabaseCopy
from sources.importers.engine.followed_tables import FollowedDatabase
from sources.importers.sandbox.report import child_environment

_MODULE = "sources.following.copy_process"
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
                answer = await self._request(msgspec.json.encode(request) + b"\n")
        except TimeoutError:
            await self.close()
            raise InvalidParams(f"database: copying it took longer than {self._deadline_s:g} s") from None
        except (OSError, ValueError, msgspec.MsgspecError):
            await self.close()
            raise InvalidParams("database: cannot be copied: the process that copies it ended") from None
        except asyncio.CancelledError:
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

    async def _request(self, line: bytes) -> DatabaseCopy:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _MODULE, str(self._max_bytes)),
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
        return msgspec.json.decode(await process.stdout.readline(), type=DatabaseCopy)


@asynccontextmanager
async def open_database_copier(max_bytes: int, deadline_s: float) -> AsyncIterator[DatabaseCopier]:
    copier = DatabaseCopier(max_bytes, deadline_s)
    try:
        yield copier
    finally:
        await copier.close()
