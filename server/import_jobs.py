"""Imports that go on after the request that brought the file: who started one may look at it, and stop it.

They live in this process. One that ends with it is completed by the next import of the same file.
"""

import asyncio
import errno
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Literal

from msgspec import Struct
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import DiskFull, FlorilegiumError, NotFound, StorageError, Unavailable
from config.paths import DataRoot, UserId
from config.settings import Settings
from sources.importers.engine.discovery import find
from sources.importers.engine.import_runner import DiscoveryResult, ImportProgress, ImportSummary, limits_of, run_import
from sources.importers.engine.importer import DiscoveredFile, Importer
from sources.storage.contract import Libraries

State = Literal["running", "done", "cancelled", "failed"]

_FOLDER = "uploads"
_RETRY_AFTER_S = 5.0
_ABANDONED_AFTER_S = 86_400
_UNFIT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._ -]+")
_NAME_MAX_CHARS = 100


class ImportJob(Struct, frozen=True, kw_only=True):
    """How far an import has come. `summary` is there when it has read to its end; `problem` where it failed as a whole,
    also because nothing could be read."""

    id: str
    state: State
    name: str
    bytes_read: int
    bytes_total: int
    items: int
    summary: ImportSummary | None = None
    problem: str = ""


class _Job:
    def __init__(self, owner: UserId, name: str) -> None:
        self.id = secrets.token_hex(8)
        self.owner = owner
        self.name = name
        self.meter = ImportProgress()
        self.state: State = "running"
        self.summary: ImportSummary | None = None
        self.problem = ""
        self.work: asyncio.Task[None] | None = None

    def shown(self) -> ImportJob:
        return ImportJob(
            id=self.id,
            state=self.state,
            name=self.name,
            bytes_read=self.meter.bytes_read,
            bytes_total=self.meter.bytes_total,
            items=self.meter.items,
            summary=self.summary,
            problem=self.problem,
        )


class ImportJobs:
    """All users' imports, of which each sees their own."""

    def __init__(
        self,
        settings: Settings,
        data_root: DataRoot,
        libraries: Libraries,
        offered: Callable[[], Sequence[Importer]],
    ) -> None:
        self._settings = settings
        self._uploads = data_root.root / _FOLDER
        self._libraries = libraries
        self._offered = offered
        self._jobs: dict[str, _Job] = {}

    async def start(
        self, context: RequestContext, file: IO[bytes], name: str, format_name: str | None, *, is_rehearsal: bool
    ) -> ImportJob:
        """Takes the file over: the caller's own may go when this returns."""
        self._require_room(context.user_id)
        job = _Job(context.user_id, safe_name(name))
        self._jobs[job.id] = job
        self._forget_old()
        try:
            folder = await asyncio.to_thread(self._keep, file, job.name)
        except BaseException:
            del self._jobs[job.id]
            raise
        job.work = asyncio.create_task(self._run(job, context, folder, format_name, is_rehearsal))
        return job.shown()

    def get(self, context: RequestContext, job_id: str) -> ImportJob:
        return self._own(context, job_id).shown()

    def list(self, context: RequestContext) -> Sequence[ImportJob]:
        """Newest first."""
        return [job.shown() for job in reversed(self._jobs.values()) if job.owner == context.user_id]

    async def cancel(self, context: RequestContext, job_id: str) -> ImportJob:
        """What was written stays. One that is over stays as it is."""
        job = self._own(context, job_id)
        await _stop(job)
        return job.shown()

    async def watch(self, context: RequestContext, job_id: str, every_s: float) -> AsyncIterator[ImportJob]:
        """As it is now, whenever it has moved, and last as it ended."""
        job = self._own(context, job_id)
        told = job.shown()
        yield told
        while job.work is not None and told.state == "running":
            await asyncio.wait([job.work], timeout=every_s)
            if (now := job.shown()) != told:
                told = now
                yield told

    async def close(self) -> None:
        for job in list(self._jobs.values()):
            await _stop(job)

    # Within one import

    async def _run(
        self, job: _Job, context: RequestContext, folder: Path, format_name: str | None, is_rehearsal: bool
    ) -> None:
        try:
            job.summary = await self._import(job, context, folder / job.name, format_name, is_rehearsal)
            job.state, job.problem = ("failed", _sentence(job.summary)) if job.summary.is_in_vain else ("done", "")
        except FlorilegiumError as error:
            job.state, job.problem = "failed", error.message
        except asyncio.CancelledError:
            job.state = "cancelled"
        finally:
            if job.state == "running":
                job.state, job.problem = "failed", "it ended unexpectedly; the log says more"
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _import(
        self, job: _Job, context: RequestContext, path: Path, format_name: str | None, is_rehearsal: bool
    ) -> ImportSummary:
        found = await asyncio.to_thread(self._find, path, format_name)
        if is_rehearsal:
            return await run_import(None, found, self._settings, job.meter)
        async with self._libraries.library(context) as library:
            return await run_import(library, found, self._settings, job.meter)

    def _find(self, path: Path, format_name: str | None) -> Sequence[DiscoveryResult]:
        found = find([path], limits_of(self._settings), self._offered(), format_name)
        # Where it lies says nothing of it: the next upload of the same file lies elsewhere.
        return [replace(one, has_place=False) if isinstance(one, DiscoveredFile) else one for one in found]

    # The files, and how many there may be

    def _keep(self, file: IO[bytes], name: str) -> Path:
        """In a folder of its own below the data directory, which is private and has room for what will become of it."""
        try:
            self._uploads.mkdir(0o700, exist_ok=True)
            self._sweep()
            folder = Path(tempfile.mkdtemp(dir=self._uploads))
            with (folder / name).open("wb") as kept:
                shutil.copyfileobj(file, kept, 1 << 20)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull from error
            raise StorageError("the upload could not be kept") from error
        return folder

    def _sweep(self) -> None:
        """What a process that was killed left behind."""
        for folder in self._uploads.iterdir():
            if folder.stat().st_mtime < time.time() - _ABANDONED_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)

    def _require_room(self, owner: UserId) -> None:
        running = [job for job in self._jobs.values() if job.state == "running"]
        if any(job.owner == owner for job in running):
            raise Unavailable("an import of this user is at work", _RETRY_AFTER_S)
        if len(running) >= self._settings.import_jobs_max:
            raise Unavailable("as many imports as may are at work; try again in a moment", _RETRY_AFTER_S)

    def _forget_old(self) -> None:
        over = [job.id for job in self._jobs.values() if job.state != "running"]
        for job_id in over[: max(0, len(over) - self._settings.import_history_max)]:
            del self._jobs[job_id]

    def _own(self, context: RequestContext, job_id: str) -> _Job:
        job = self._jobs.get(job_id)
        if job is None or job.owner != context.user_id:
            raise NotFound("import", job_id)
        return job


@asynccontextmanager
async def open_jobs(
    settings: Settings, data_root: DataRoot, libraries: Libraries, offered: Callable[[], Sequence[Importer]]
) -> AsyncIterator[ImportJobs]:
    jobs = ImportJobs(settings, data_root, libraries, offered)
    try:
        yield jobs
    finally:
        await jobs.close()


def safe_name(name: str) -> str:
    """What a file was called, without what leads elsewhere; its ending tells some formats apart."""
    last = _UNFIT_IN_A_NAME.sub("_", name.replace("\\", "/").rpartition("/")[2])[-_NAME_MAX_CHARS:].lstrip(".")
    return last.strip() or "upload"


def _sentence(summary: ImportSummary) -> str:
    """Why nothing came: the first problem speaks for all."""
    first = next(iter(summary.problems), None)
    return "nothing could be read" if first is None else ": ".join(filter(None, (first.place, first.problem)))


async def _stop(job: _Job) -> None:
    if job.work is not None and not job.work.done():
        job.work.cancel()
        await asyncio.wait([job.work])
