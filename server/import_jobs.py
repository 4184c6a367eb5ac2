"""Imports that continue after the request that uploaded the file. Their owner can inspect, follow and cancel them.

Jobs run in this process. If the process ends first, another one of the deployment continues the job; without one,
import the same file again to complete it. Jobs that have ended are kept in the history of their owner.
"""

import asyncio
import errno
import re
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from loguru import logger
from msgspec import Struct, structs

from auth.context import ROLE_SCOPES, WRITE, RequestContext, build_context
from auth.library_files import NO_OWNER
from auth.registry import Registry
from auth.sharing import RoleNeeded, Sharing
from config import errors
from config.paths import DataRoot, UserId
from config.settings import Settings
from config.times import format_time_seconds
from server import import_board
from sources.importers.engine.discovery import DiscoveredFile, discover
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.reader_process import find_files
from sources.importers.engine.summary import ImportSummary
from sources.importers.registry import importer_by_name, is_registered
from sources.storage.contract import Libraries
from sources.storage.job_queue import background_jobs

# Time limit for an import. Running the same import again continues it.
IMPORT_DEADLINE_S = 3600.0

# REST imports of one user that run or wait: a second one would wait for the same library.
IMPORT_JOBS_MAX_PER_USER = 1

# -- import slots ------------------------------------------------------------------------------------------------------
# Slots for imports. An import that has had its turn passes its slot on while others wait, so that none waits for the
# end of another user's import.


class ImportSlots:
    """A limited number of imports that run at the same time. The next slot goes to the user with the fewest running
    imports; among those, to the import that has waited longest."""

    def __init__(self, slots_max: int, turn_s: float) -> None:
        self._slots_max = slots_max
        self._turn_s = turn_s
        self._running: Counter[UserId] = Counter()
        self._waiting: list[tuple[UserId, asyncio.Future[None]]] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def turn(self, user_id: UserId) -> "ImportTurn":
        return ImportTurn(self, user_id, self._turn_s)

    async def acquire(self, user_id: UserId) -> None:
        if self._running.total() < self._slots_max:
            self._running[user_id] += 1
            return
        waiter = (user_id, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            await waiter[1]
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:  # the slot was assigned at the moment of the cancellation
                self.release(user_id)
            raise

    def release(self, user_id: UserId) -> None:
        self._running[user_id] -= 1
        # A waiter that was cancelled stays in the list until its task runs.
        if waiting := [waiter for waiter in self._waiting if not waiter[1].done()]:
            waiter = min(waiting, key=lambda one: self._running[one[0]])
            self._waiting.remove(waiter)
            self._running[waiter[0]] += 1
            waiter[1].set_result(None)
        self._running += Counter()  # drops users without a running import


class ImportTurn:
    """One import. In the block it has a slot, except while `pass_on` waits for the next one."""

    def __init__(self, slots: ImportSlots, user_id: UserId, turn_s: float) -> None:
        self._slots = slots
        self._user_id = user_id
        self._turn_s = turn_s
        self._since = 0.0
        self.has_slot = False

    async def __aenter__(self) -> "ImportTurn":
        await self._acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.has_slot:
            self._release()

    async def pass_on(self) -> None:
        """Lets another import go on if this one has had its turn. Called between two batches."""
        if self._slots.waiting and time.monotonic() - self._since >= self._turn_s:
            self._release()
            await self._acquire()

    async def _acquire(self) -> None:
        await self._slots.acquire(self._user_id)
        self._since = time.monotonic()
        self.has_slot = True

    def _release(self) -> None:
        self.has_slot = False
        self._slots.release(self._user_id)


UPLOADS_FOLDER = "uploads"
_RETRY_AFTER_S = 5.0
_ABANDONED_AFTER_S = 86_400
# How long a caller waits for another process to stop a job.
_CANCEL_S = 10.0
_CANCEL_POLL_S = 0.1
_TAKE_OVER = "import-continued"
# Control characters, and those that change the direction of the text after them.
_UNSAFE_IN_NAMES = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
_NAME_MAX_CHARS = 100
# File systems limit names to 255 bytes.
_NAME_MAX_BYTES = 240


class _RunningJob:
    """The mutable side of an `ImportJob`."""

    def __init__(
        self,
        owner: UserId,
        name: str,
        turn: ImportTurn,
        before_batch: Callable[[], Awaitable[None]],
        *,
        is_dry_run: bool,
    ) -> None:
        self.turn = turn
        self.id = secrets.token_hex(8)
        self.owner = owner
        self.name = name
        self.is_dry_run = is_dry_run
        self.progress = ImportProgress(before_batch=before_batch)
        self.started_at = time.time()
        # Set when the import has ended.
        self.outcome: import_board.ImportState | None = None
        self.ended_at: float | None = None
        self.summary: ImportSummary | None = None
        self.problem = ""
        self.task: asyncio.Task[None] | None = None
        # Another process continues the job.
        self.is_handed_over = False

    @property
    def state(self) -> import_board.ImportState:
        return self.outcome or ("running" if self.turn.has_slot else "waiting")

    @property
    def has_ended(self) -> bool:
        return self.outcome is not None

    @property
    def is_left_to_others(self) -> bool:
        return self.is_handed_over and self.outcome == "cancelled"

    def snapshot(self) -> import_board.ImportJob:
        return import_board.ImportJob(
            id=self.id,
            state=self.state,
            name=self.name,
            dry_run=self.is_dry_run,
            started_at=format_time_seconds(self.started_at),
            ended_at=None if self.ended_at is None else format_time_seconds(self.ended_at),
            bytes_read=self.progress.bytes_read,
            bytes_total=self.progress.bytes_total,
            items=self.progress.items,
            summary=self.summary,
            problem=self.problem,
        )


class ImportJobLimits(Struct, frozen=True, kw_only=True):
    # REST imports that may wait for others, for all users together. Their files are on disk.
    queue_max: int = 20
    # While others wait, an import lets the next one go on after each turn.
    turn_s: float = 10.0
    # Finished imports of one user whose results can still be retrieved.
    history_max: int = 100


IMPORT_JOB_LIMITS = ImportJobLimits()


class ImportJobs:
    """The imports of all users. Each user sees only their own."""

    def __init__(
        self,
        settings: Settings,
        data_root: DataRoot,
        libraries: Libraries,
        load_importers: Callable[[], Sequence[Importer]],
        board: import_board.ImportBoard | None = None,
        limits: ImportJobLimits = IMPORT_JOB_LIMITS,
        registry: Registry | None = None,
    ) -> None:
        self._limits = limits
        self._registry = registry
        self._board = board or import_board.NoImportBoard()
        self._board.on_cancel(self._cancel_for_peer)
        self._data_root = data_root
        self._settings = settings
        self._uploads = data_root.root / UPLOADS_FOLDER
        self._libraries = libraries
        self._load_importers = load_importers
        self._jobs: dict[str, _RunningJob] = {}
        self._slots = ImportSlots(settings.import_jobs_max, limits.turn_s)
        self._history = import_board.ImportHistory(libraries, limits.history_max)
        # Imports that ended, by outcome, and the items they read, since the start of the process.
        self.outcomes: Counter[import_board.ImportState] = Counter()
        self.items_total = 0

    async def start(
        self,
        context: RequestContext,
        file: IO[bytes],
        name: str,
        format_name: str | None,
        *,
        is_dry_run: bool,
        manager_id: UserId | None = None,
    ) -> import_board.ImportJob:
        """Starts a job on a copy of the file; the caller may close the file afterwards. A job fails as soon as the
        person who started it has lost the role for it, also if that happened during the upload."""
        await self._require_access(context.user_id, manager_id)
        self._require_capacity(context.user_id)
        if await self._board.count_running(context.user_id) >= IMPORT_JOBS_MAX_PER_USER:
            retry = f"try again in {_RETRY_AFTER_S:.0f} s"
            raise errors.Unavailable(f"another import of this user is running; {retry}", _RETRY_AFTER_S)
        if not is_dry_run:
            async with self._libraries.library(context) as library:
                await library.require_room()
            self._require_capacity(context.user_id)  # another call may have started an import meanwhile
        job = self._new_job(context.user_id, safe_name(name), manager_id, is_dry_run=is_dry_run)
        self._jobs[job.id] = job
        # Forgets the oldest jobs of the user that have ended; the history of the library keeps them.
        ended = [old.id for old in self._jobs.values() if old.has_ended and old.owner == job.owner]
        for job_id in ended[: max(0, len(ended) - self._limits.history_max)]:
            del self._jobs[job_id]
        try:
            folder = await asyncio.to_thread(self._store_upload, file, job.name)
        except BaseException:
            self._jobs.pop(job.id, None)
            raise
        if job.id not in self._jobs:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise errors.Conflict("the library was deleted during the upload")
        posted = import_board.PostedImport(job.snapshot(), context.principal, str(folder), format_name, manager_id)
        await self._board.post(posted)
        job.task = asyncio.create_task(self._run_posted(job, context, posted))
        await asyncio.sleep(0)  # it takes a slot at once if one is free
        return job.snapshot()

    async def formats(self) -> Sequence[Importer]:
        """Returns the formats that can be read. Loading them for the first time takes a moment."""
        return await asyncio.to_thread(self._load_importers)

    async def get(self, context: RequestContext, job_id: str) -> import_board.ImportJob:
        job = self._owned_job(context, job_id)
        return job.snapshot() if job is not None else await self._earlier_job(context, job_id)

    async def list(self, context: RequestContext) -> Sequence[import_board.ImportJob]:
        """Returns the newest job first: those of this process, of others, and those that were kept before."""
        jobs = [job.snapshot() for job in reversed(self._jobs.values()) if job.owner == context.user_id]
        known = {job.id for job in jobs}
        with suppress(errors.SharedStateUnavailable):
            jobs += [job for job in await self._list_posted(context) if job.id not in known]
        known = {job.id for job in jobs}
        earlier = [job for job in await self._history.list(context) if job.id not in known]
        return [*jobs, *earlier][: max(self._limits.history_max, len(jobs))]

    def count_active(self, context: RequestContext) -> int:
        """Returns how many imports of the user run or wait."""
        return sum(job.owner == context.user_id and not job.has_ended for job in self._jobs.values())

    async def cancel(self, context: RequestContext, job_id: str) -> import_board.ImportJob:
        """Stops a running job. Items that were already written are kept."""
        job = self._owned_job(context, job_id)
        if job is None:
            return await self._cancel_elsewhere(context, job_id)
        await _stop(job)
        return job.snapshot()

    async def forget(self, context: RequestContext) -> None:
        """Stops all running jobs of the user, and forgets what they imported."""
        for posted in await self._board.list(context.user_id):
            if posted.job.id not in self._jobs:
                await self._cancel_elsewhere(context, posted.job.id)
                await self._board.remove(posted)
        jobs = [job for job in self._jobs.values() if job.owner == context.user_id]
        await asyncio.gather(*(_stop(job) for job in jobs))
        for job in jobs:
            self._jobs.pop(job.id, None)

    async def watch(
        self, context: RequestContext, job_id: str, interval_s: float
    ) -> AsyncIterator[import_board.ImportJob]:
        """Yields the current state, then every change, until the job has ended."""
        job = self._owned_job(context, job_id)
        last = job.snapshot() if job is not None else await self._earlier_job(context, job_id)
        yield last
        while last.state in ("waiting", "running"):
            if job is None:  # another process runs it
                await asyncio.sleep(interval_s)
                current = await self._earlier_job(context, job_id)
            elif job.task is not None:
                await asyncio.wait([job.task], timeout=interval_s)
                current = job.snapshot()
            else:  # its file is still being stored
                return
            if current != last:
                last = current
                yield last

    @property
    def running(self) -> int:
        """How many imports of all users have not ended."""
        return sum(not job.has_ended for job in self._jobs.values())

    @property
    def waiting(self) -> int:
        """How many of them wait for a slot."""
        return self._slots.waiting

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Takes over the imports of processes that end, until the block ends."""

        async def take_over_periodically() -> None:
            while True:
                await asyncio.sleep(import_board.POST_INTERVAL_S)
                await self.take_over()

        taking_over = asyncio.create_task(take_over_periodically()) if self._board.is_shared else None
        try:
            yield self
        finally:
            if taking_over is not None:
                taking_over.cancel()
                await asyncio.gather(taking_over, return_exceptions=True)
            await self.close()

    async def close(self) -> None:
        """Stops all jobs. Those that another process can see are continued there."""
        for job in self._jobs.values():
            job.is_handed_over = self._board.is_shared
        await asyncio.gather(*(_stop(job) for job in self._jobs.values()))

    # -- other processes -----------------------------------------------------------------------------------------------

    async def take_over(self) -> None:
        """Continues jobs of processes that have ended. One that this process runs is not started again: it could not be
        posted while Redis did not answer."""
        for posted in await self._board.claim_abandoned():
            own = self._jobs.get(posted.job.id)
            if own is not None and own.task is not None and not own.task.done():
                continue
            logger.info("continuing import {} of a process that has ended", posted.job.id)
            context = build_context(posted.principal, self._data_root, _TAKE_OVER, is_agent=False)
            job = self._new_job(posted.owner, posted.job.name, posted.manager_id, is_dry_run=posted.job.dry_run)
            job.id = posted.job.id
            self._jobs[job.id] = job
            job.task = asyncio.create_task(self._run_posted(job, context, posted))

    async def _run_posted(self, job: _RunningJob, context: RequestContext, posted: import_board.PostedImport) -> None:
        posting = asyncio.create_task(self._keep_posting(job, posted))
        try:
            await self._run(job, context, Path(posted.folder), posted.format_name)
        finally:
            posting.cancel()
            posted = structs.replace(posted, job=job.snapshot())
            if job.is_left_to_others:
                self._jobs.pop(job.id, None)
                await self._board.release(posted)
            elif job.is_dry_run:
                await self._board.post(posted)
            else:
                await self._board.remove(posted)

    async def _keep_posting(self, job: _RunningJob, posted: import_board.PostedImport) -> None:
        while self._board.is_shared:
            if not await self._board.post(structs.replace(posted, job=job.snapshot())):
                logger.warning("import {} is continued by another process", job.id)
                if not job.has_ended and job.task is not None:
                    job.is_handed_over = True
                    job.task.cancel()
            await asyncio.sleep(import_board.POST_INTERVAL_S)

    async def _cancel_elsewhere(self, context: RequestContext, job_id: str) -> import_board.ImportJob:
        """Asks the process that runs the job, and waits until it has ended."""
        last = await self._earlier_job(context, job_id)
        if last.state in ("waiting", "running"):
            self._board.request_cancel(job_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                while last.state in ("waiting", "running"):
                    await asyncio.sleep(_CANCEL_POLL_S)
                    last = await self._earlier_job(context, job_id)
        return last

    def _cancel_for_peer(self, job_id: str) -> None:
        """The other process has checked that the job belongs to its caller. The result of a job that has ended is being
        kept."""
        job = self._jobs.get(job_id)
        if job is not None and job.task is not None and not job.has_ended:
            job.task.cancel()

    def _new_job(self, owner: UserId, name: str, manager_id: UserId | None, *, is_dry_run: bool) -> _RunningJob:
        turn = self._slots.turn(owner)

        async def before_batch() -> None:
            await turn.pass_on()
            await self._require_access(owner, manager_id)

        return _RunningJob(owner, name, turn, before_batch, is_dry_run=is_dry_run)

    async def _require_access(self, owner: UserId, manager_id: UserId | None) -> None:
        """Raises if the person who imports has lost access since the import was started."""
        if self._registry is None:
            return
        person = await self._registry.user_by_id(manager_id or owner)
        if person is None or person.is_disabled:
            raise errors.Conflict(NO_OWNER)
        if WRITE not in ROLE_SCOPES[person.role]:
            raise errors.Forbidden(WRITE)
        if manager_id is not None:
            libraries = await Sharing(self._registry.database).libraries_of(manager_id)
            if not any(access.owner_id == owner and access.role == "manager" for access in libraries):
                raise RoleNeeded

    # -- running a job -------------------------------------------------------------------------------------------------

    async def _run(self, job: _RunningJob, context: RequestContext, folder: Path, format_name: str | None) -> None:
        try:
            async with job.turn:
                job.summary = await self._import(job, context, folder / job.name, format_name)
            if job.summary.is_failed:
                # The first problem is the reason why nothing was imported.
                first = next(iter(job.summary.problems), None)
                nothing = "the file contains nothing that can be imported"
                reason = ": ".join(filter(None, (first.location, first.problem))) if first is not None else nothing
                job.outcome, job.problem = "failed", reason
            else:
                job.outcome = "done"
        except errors.FlorilegiumError as error:
            job.outcome, job.problem = "failed", error.message
        except asyncio.CancelledError:
            job.outcome = "cancelled"
        finally:
            if not job.has_ended:
                job.outcome, job.problem = "failed", "internal error; see the server log"
            job.ended_at = time.time()
            # The file is left for the process that continues the job.
            if not job.is_left_to_others:
                if job.outcome is not None and not job.is_dry_run:
                    self.outcomes[job.outcome] += 1
                    self.items_total += job.progress.items
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                if not job.is_dry_run:
                    await self._history.add(context, job.snapshot())

    async def _import(
        self, job: _RunningJob, context: RequestContext, path: Path, format_name: str | None
    ) -> ImportSummary:
        # An upload is opened only in the process that also reads it.
        limits, importers = import_limits(self._settings), await self.formats()
        if format_name is not None:
            importer_by_name(format_name, importers)
        if all(map(is_registered, importers)):
            discovered = await find_files([path], limits, format_name)
        else:
            discovered = await asyncio.to_thread(lambda: list(discover([path], limits, importers, format_name)))
        # The next upload of the same file will have another path.
        results = [
            structs.replace(result, has_stable_path=False) if isinstance(result, DiscoveredFile) else result
            for result in discovered
        ]
        if job.is_dry_run:
            return await run_import(None, results, self._settings, job.progress)
        with background_jobs():
            async with self._libraries.library(context) as library:
                return await run_import(library, results, self._settings, job.progress)

    # -- uploads and capacity ------------------------------------------------------------------------------------------

    def _store_upload(self, file: IO[bytes], name: str) -> Path:
        """Copies the file into a new folder in the data directory, which is private and has the space that the import
        needs."""
        try:
            self._uploads.mkdir(0o700, exist_ok=True)
            # A killed process leaves its folders behind. A job that ends at this moment removes its own.
            for left in self._uploads.iterdir():
                with suppress(FileNotFoundError):
                    if left.stat().st_mtime < time.time() - _ABANDONED_AFTER_S:
                        shutil.rmtree(left, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(dir=self._uploads))
            try:
                with (folder / name).open("wb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)
            except BaseException:
                # On a full disk, a part of the upload would keep it full.
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise errors.DiskFull from error
            raise errors.StorageError("the upload could not be stored") from error
        return folder

    def _require_capacity(self, owner: UserId) -> None:
        active = [job.owner for job in self._jobs.values() if not job.has_ended]
        retry = f"try again in {_RETRY_AFTER_S:.0f} s"
        if active.count(owner) >= IMPORT_JOBS_MAX_PER_USER:
            raise errors.Unavailable(f"another import of this user is running; {retry}", _RETRY_AFTER_S)
        if len(active) >= self._settings.import_jobs_max + self._limits.queue_max:
            raise errors.Unavailable(f"too many imports are running; {retry}", _RETRY_AFTER_S)

    def _owned_job(self, context: RequestContext, job_id: str) -> _RunningJob | None:
        job = self._jobs.get(job_id)
        return job if job is not None and job.owner == context.user_id else None

    async def _earlier_job(self, context: RequestContext, job_id: str) -> import_board.ImportJob:
        """An import that ends meanwhile enters the history before it leaves the board, so the history is read again."""
        for list_jobs in (self._history.list, self._list_posted, self._history.list):
            for job in await list_jobs(context):
                if job.id == job_id:
                    return job
        raise errors.NotFound("import", job_id)

    async def _list_posted(self, context: RequestContext) -> Sequence[import_board.ImportJob]:
        return [posted.job for posted in await self._board.list(context.user_id)]


def safe_name(name: str) -> str:
    """Returns the file name without folders and control characters. The rest is kept: the title of a note can come from
    the name of its file, and some formats are recognized by the suffix."""
    base_name = name.replace("\\", "/").rpartition("/")[2]
    short_name = _UNSAFE_IN_NAMES.sub("_", base_name)[-_NAME_MAX_CHARS:].encode()[-_NAME_MAX_BYTES:]
    return short_name.decode(errors="ignore").lstrip(".").strip() or "upload"


async def _stop(job: _RunningJob) -> None:
    """A job that has ended is not cancelled: its result is being kept."""
    if job.task is not None and not job.task.done():
        if not job.has_ended:
            job.task.cancel()
        await asyncio.wait([job.task])
