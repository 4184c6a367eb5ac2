"""Keeps the libraries of all users current with the sources that they follow.

The control database says what is followed, so that other processes can change it at any time. Folders are watched for
events and scanned now and then; files and databases are looked at every `follow_poll_s`. What changed is imported by
the import runner, in the background and a limited number of sources at a time.
"""

# About this package: `service.py` decides when a source is read, and reads it; read it first. `locations.py` says which
# paths and URLs a user may follow, and watches folders. `deployments.py` turns a deployment of tldw into sources of its
# users, and `status.py` describes sources. `server/operations/follows.py` is what users and administrators can do with
# them. How a source is read is in `sources/following`.

import asyncio
import math
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from loguru import logger
from msgspec import Struct
from msgspec.structs import replace

from auth.authenticator import local_principal
from auth.context import RequestContext, build_context
from auth.follows import Deployment, Deployments, FollowRecord, Follows
from auth.registry import Registry, UserRecord
from config.errors import FlorilegiumError, InvalidParams, StorageError
from config.paths import DataRoot, UserId
from config.settings import Settings
from server.following.deployments import DeploymentFolders, list_user_folders
from server.following.locations import FolderWatcher, checked_path
from server.import_jobs import IMPORT_JOB_LIMITS, UPLOADS_FOLDER, ImportSlots
from sources.following.note_files import followed_names
from sources.following.scan import SourceMissing, scan_file, scan_names
from sources.following.state import SourceBusy, SourceState, SyncReport, load_state, run_lease, save_state
from sources.following.sync import SourceSync, UrlSync
from sources.importers.engine.files import printable_name
from sources.importers.engine.limits import ImportProgress
from sources.storage.contract import Libraries, Library
from sources.storage.job_queue import background_jobs

# -- one run -----------------------------------------------------------------------------------------------------------
# Brings a library up to date with one source, and remembers how that went.

_WORK_FOLDER_PREFIX = "follow-"
# All of them: the file to resolve is found by its printed name, which the library does not store.
_CONFLICTS_MAX = 100_000
# How long a caller waits for a run to end. Most runs read a few files; the caller of a longer one gets an error.
_RESOLVE_WAIT_S = 5.0


# The counts of a report that callers see.
REPORT_FIELDS = ("new", "updated", "deleted", "conflicts", "failed", "written")


async def run_source(
    library: Library,
    record: FollowRecord,
    owner: UserRecord,
    settings: Settings,
    *,
    scope: Sequence[bytes] | None = None,
    follows: Sequence[str] | None = None,
    accepts_replacement: bool = False,
    before_batch: Callable[[], Awaitable[None]] | None = None,
) -> SyncReport:
    """Runs once. With `follows`, the ids of all sources that the user follows, what is known about others is removed.
    A source that cannot be read raises an error, which is also remembered; one that another process reads raises
    SourceBusy."""
    async with run_lease(library.bookmarks, record.id):
        if follows is not None:
            await library.followed_files.retain(follows)
        state = await load_state(library, record.id)
        folder = await asyncio.to_thread(_make_work_folder, Path(settings.data_dir), record.id)
        try:
            progress = ImportProgress(before_batch=before_batch)
            if record.is_url:
                fetched = UrlSync(library, record, settings, progress, folder)
                report, new_state = fetched.report, await fetched.run(state)
            else:
                # Each time: the path may be a link to another place by now, or no longer permitted.
                path = await asyncio.to_thread(checked_path, settings, record, owner)
                sync = SourceSync(
                    library,
                    replace(record, location=str(path)),
                    settings,
                    progress,
                    folder,
                    accepts_replacement=accepts_replacement,
                )
                report, new_state = sync.report, await sync.run(state, scope)
        except FlorilegiumError as error:
            await _save(library, record, state, replace(state, problem=error.message))
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        now = time.time()
        changed_at = now if report.changes else state.changed_at
        await _save(library, record, state, replace(new_state, synced_at=now, changed_at=changed_at))
        return report


async def resolve_conflict(
    library: Library, record: FollowRecord, owner: UserRecord, settings: Settings, file: str, *, keep: str
) -> None:
    """Settles the conflicts of a file, which is named as `describe` does. Waits for a run that is about to end."""
    async with run_lease(library.bookmarks, record.id, wait_s=_RESOLVE_WAIT_S):
        conflicts = await library.followed_files.problems(record.id, _CONFLICTS_MAX)
        names = [row.name for row in conflicts if printable_name(os.fsdecode(row.name)) == file and row.conflicts]
        if not names or record.is_url:
            raise InvalidParams(f"file: expected one with a conflict, got {file[:200]!r}")
        folder = await asyncio.to_thread(_make_work_folder, Path(settings.data_dir), record.id)
        try:
            path = await asyncio.to_thread(checked_path, settings, record, owner)
            sync = SourceSync(library, replace(record, location=str(path)), settings, ImportProgress(), folder)
            await sync.resolve(names[0], keeps_library=keep == "library")
            if record.writes_back:
                # The note is written to its file, although it was not modified since.
                state = await load_state(library, record.id)
                await save_state(library, record.id, replace(state, written_until=""))
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _save(library: Library, record: FollowRecord, before: SourceState, after: SourceState) -> None:
    if after != before:
        await save_state(library, record.id, after)


def _make_work_folder(data: Path, follow_id: str) -> Path:
    """Copies of databases are made in the data directory, which is private. What a killed process left behind is
    removed."""
    uploads = data / UPLOADS_FOLDER
    uploads.mkdir(0o700, exist_ok=True)
    folder = uploads / f"{_WORK_FOLDER_PREFIX}{follow_id}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        return Path(tempfile.mkdtemp(dir=uploads))
    return folder.resolve()


# Time between two requests for a followed URL that has no interval of its own.
_FOLLOW_URL_S = 3600.0

# Scans of a watched folder find what events missed, which is rare.
_FOLLOW_SCAN_S = 300.0

# -- schedule ----------------------------------------------------------------------------------------------------------
# When a followed source is read next. No I/O, and time is passed in.

# A scan of a large folder takes at most this share of the time.
_SCAN_SHARE = 1 / 200
# After a long run, such as that of a large database that changes all the time, others have their turn. The first import
# of a folder takes minutes, after which changes must not wait as long.
_SHORT_RUN_S = 1.0
_PAUSE_PER_RUN = 2.0
_PAUSE_MAX_S = 3.0
_RETRY_S = 0.3
# Of more changed files than this, a scan of the whole folder finds all.
_NAMES_MAX = 1_000
# Files that are created in a new folder before it is watched cause no events.
_FOLDER_RETRY_S = 1.0
# The pause after each failure in a row; the last one is repeated.
_FAILURE_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class DueWork(Struct, frozen=True):
    scope: Sequence[bytes] | None  # None for the whole source


class FollowSchedule:
    """The schedule of one followed source."""

    def __init__(self, record: FollowRecord, settings: Settings) -> None:
        self.record = record
        # Changes are reported by events.
        self.is_watched = False
        self.is_running = False
        self._settings = settings
        self._next_full_at = 0.0
        self._not_before = 0.0
        # Whether a run was requested after the last one started.
        self._is_requested = False
        # Changed files, and when each is due.
        self._names: dict[bytes, float] = {}
        # In a row: the pause grows with each one.
        self._failures = 0

    def update(self, record: FollowRecord) -> None:
        """A run that was requested, and a source that is resumed, is due at once."""
        is_requested = (record.run_requested_at or 0.0) > (self.record.run_requested_at or 0.0)
        is_resumed = self.record.paused_at is not None and record.paused_at is None
        if is_requested or is_resumed:
            self.request_full()
        self.record = record

    def request_full(self) -> None:
        """The whole source is due, without a pause after the last run."""
        self._next_full_at = self._not_before = 0.0
        self._is_requested = True

    def request_changed(self) -> None:
        """The whole source is due, because it changed."""
        self._next_full_at = 0.0

    def add_changes(self, names: Sequence[bytes], now: float) -> None:
        """Of many changes at once, a scan finds all."""
        if len(names) + len(self._names) > _NAMES_MAX:
            self.request_changed()
            return
        for name in names:
            self._names[name] = min(now, self._names.get(name, now))

    def due(self, now: float) -> DueWork | None:
        if self.is_running or self.record.paused_at is not None or now < self._not_before:
            return None
        if now >= self._next_full_at:
            self._names.clear()
            # A request during the run sets it again.
            self._next_full_at = math.inf
            self._is_requested = False
            return DueWork(None)
        names = [name for name, at in self._names.items() if at <= now]
        for name in names:
            del self._names[name]
        return DueWork(sorted(names)) if names else None

    def finish(self, work: DueWork, report: SyncReport, now: float, *, took_s: float) -> None:
        self._failures = 0
        self._not_before = now + min(_PAUSE_MAX_S, _PAUSE_PER_RUN * max(0.0, took_s - _SHORT_RUN_S))
        for name in sorted(report.retries):
            self._names.setdefault(name, now + (_FOLDER_RETRY_S if name.endswith(b"/") else _RETRY_S))
        for name, pause_s in report.doubts.items():
            self._names.setdefault(name, now + pause_s)
        if work.scope is None:
            interval_s = self.record.interval_s
            if interval_s is None and self.record.is_url:
                interval_s = _FOLLOW_URL_S
            elif interval_s is None:
                interval_s = _FOLLOW_SCAN_S if self.is_watched else self._settings.fixed.follow_unwatched_scan_s
            self._next_full_at = min(self._next_full_at, now + max(interval_s, report.scan_s / _SCAN_SHARE))

    def fail(self, now: float) -> None:
        if self._is_requested:
            # The source may be there again.
            return
        pause = _FAILURE_PAUSES_S[min(self._failures, len(_FAILURE_PAUSES_S) - 1)]
        self._failures += 1
        self._not_before = now + pause
        self._next_full_at = min(self._next_full_at, now + pause)


# How long after the end of a process another one starts to follow sources, at least.
_LEASE_S = 10.0
# Notes have no events, so that sources that are written back ask for the newest one.
_NOTES_LOOK_S = 1.0


class _Followed(FollowSchedule):
    """A followed source and what this process knows about it."""

    def __init__(self, record: FollowRecord, settings: Settings) -> None:
        super().__init__(record, settings)
        # Of a single file, when it was last looked at.
        self.signature: str | None = None
        # Of the folder that is watched. Another folder at the same path has to be watched again.
        self.folder_id: str | None = None
        self.task: asyncio.Task[None] | None = None
        # When a note of the owner was last modified, and when to look again.
        self.notes_modified = ""
        self.next_notes_look_at = 0.0


class FollowService:
    """`runs` and `failures` count runs since the start of the process."""

    def __init__(
        self,
        settings: Settings,
        data_root: DataRoot,
        registry: Registry,
        libraries: Libraries,
        acquire: Callable[[str, float], Awaitable[bool]] | None = None,
    ) -> None:
        self._acquire = acquire
        self.runs = 0
        self.failures = 0
        self._settings = settings
        self._data_root = data_root
        self._registry = registry
        self._libraries = libraries
        self._follows = Follows(registry.database)
        self._followed: dict[str, _Followed] = {}
        self._revision: int | None = None
        self._slots = ImportSlots(settings.import_jobs_max, IMPORT_JOB_LIMITS.turn_s)
        self._watcher = FolderWatcher(self._note_changes, self._note_watching)
        self._wake = asyncio.Event()
        self._deployments: Sequence[Deployment] = ()
        self._folders = DeploymentFolders(settings, registry)
        # The folders of deployments, and the state of the control database, when they were last looked at.
        self._seen_folders: dict[str, tuple[int | None, frozenset[str]]] = {}

    @property
    def sources(self) -> int:
        return len(self._followed)

    @property
    def paused(self) -> int:
        return sum(followed.record.paused_at is not None for followed in self._followed.values())

    @property
    def running(self) -> int:
        return sum(followed.is_running for followed in self._followed.values())

    async def forget(self, user_id: UserId) -> None:
        """Ends following for a user, whose library is about to be deleted."""
        for record in await self._follows.list(user_id):
            await self._follows.remove(user_id, record.id)
            followed = self._followed.pop(record.id, None)
            if followed is not None and followed.task is not None:
                followed.task.cancel()
                await asyncio.gather(followed.task, return_exceptions=True)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Follows the sources until the block ends."""
        running = asyncio.create_task(self.run())
        try:
            yield self
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            while True:
                try:
                    # Of several processes, the one with the lease follows sources.
                    if self._acquire is None or await self._acquire(
                        "following", _LEASE_S + 3 * self._settings.fixed.follow_poll_s
                    ):
                        await self._step()
                except StorageError as error:
                    logger.warning("Followed sources cannot be read from the control database: {}", error.message)
                self._wake.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._settings.fixed.follow_poll_s)
        finally:
            await self._watcher.close()
            tasks = [followed.task for followed in self._followed.values() if followed.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _step(self) -> None:
        await self._reload()
        # Follows new folders of deployments, which are looked for when a folder or a user was added.
        count = 0
        for deployment in self._deployments:
            if deployment.paused_at is not None:
                continue
            try:
                names = await asyncio.to_thread(list_user_folders, Path(deployment.location))
                seen = (self._revision, frozenset(names))
                if self._seen_folders.get(deployment.id) != seen:
                    count += await self._folders.follow_new(deployment)
                self._seen_folders[deployment.id] = seen
            except SourceMissing as error:
                if self._seen_folders.pop(deployment.id, None) is not None:
                    logger.warning("Followed deployment {}: {}", deployment.id, error.message)
        if count:
            await self._reload()
        if not self._followed:
            return
        await asyncio.to_thread(self._look)
        # Finds out whether notes of users were modified that are written to files.
        checked_at = time.monotonic()
        for source in list(self._followed.values()):
            record = source.record
            is_due = record.writes_back and record.paused_at is None and checked_at >= source.next_notes_look_at
            context = await self.context_of(record) if is_due else None
            if context is None:
                continue
            source.next_notes_look_at = checked_at + _NOTES_LOOK_S
            async with self._libraries.library(context) as library:
                newest = (await library.notes.list(1, 0)).rows
            modified = newest[0].last_modified if newest else ""
            if modified != source.notes_modified:
                source.request_changed()
            source.notes_modified = modified
        # Without events, no folder is watched.
        followed_now = self._followed.values() if self._settings.fixed.follow_events else ()
        self._watcher.watch(
            {
                followed.record.location: followed.folder_id
                for followed in followed_now
                if followed.folder_id is not None and followed.record.paused_at is None
            }
        )
        now = time.monotonic()
        for followed in self._followed.values():
            work = followed.due(now)
            if work is not None:
                followed.is_running = True
                followed.task = asyncio.create_task(self._run_source(followed, work))

    async def _reload(self) -> None:
        revision = self._follows.revision()
        if revision != self._revision:
            records = await self._follows.list()
            current = {record.id: record for record in records}
            for follow_id in self._followed.keys() - current.keys():
                task = self._followed.pop(follow_id).task
                if task is not None:
                    task.cancel()
            for follow_id, record in current.items():
                if follow_id in self._followed:
                    self._followed[follow_id].update(record)
                else:
                    self._followed[follow_id] = _Followed(record, self._settings)
            self._deployments = await Deployments(self._registry.database).list()
            self._revision = revision

    # -- finding changes -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Looks at the times of single files, and at which folders exist. Runs on a thread: a network file system that
        does not answer must not block the event loop."""
        for followed in list(self._followed.values()):
            record = followed.record
            if record.is_url or record.paused_at is not None:
                continue
            was_there = followed.folder_id is not None or followed.signature is not None
            try:
                path = Path(record.location)
                if record.is_confined and path.resolve() != path:
                    raise SourceMissing("the path was replaced by a link")
                status = path.stat()
                # The identity of a folder that can be watched, or the signature of the files to look at.
                followed.folder_id = signature = None
                if not stat.S_ISDIR(status.st_mode):
                    signature = scan_file(path)
                elif names := followed_names(record.format):
                    signature = scan_names(path, names)
                else:
                    followed.folder_id = f"{status.st_dev}:{status.st_ino}"
            except (OSError, SourceMissing):
                followed.folder_id = signature = None
                if was_there:
                    # A folder that is moved away causes no event. The run reports that it is missing.
                    followed.request_changed()
            if signature is not None:
                # Looking at a file finds all of its changes.
                followed.is_watched = True
                if followed.signature is None:
                    # It may have been missing for some time.
                    followed.request_full()
                elif signature != followed.signature:
                    followed.request_changed()
            followed.signature = signature

    def _note_watching(self, is_watching: bool) -> None:
        """Changes before the folders were watched are found by a scan."""
        for followed in self._followed.values():
            if followed.folder_id is not None:
                followed.is_watched = is_watching
                followed.request_full()
        self._wake.set()

    def _note_changes(self, changes: Mapping[str, Sequence[bytes]]) -> None:
        now = time.monotonic()
        for followed in self._followed.values():
            followed.add_changes(changes.get(followed.record.location, ()), now)
        self._wake.set()

    # -- running -------------------------------------------------------------------------------------------------------

    async def _run_source(self, followed: _Followed, work: DueWork) -> None:
        started_at = time.monotonic()
        try:
            report = await self._sync(followed.record, work)
            now = time.monotonic()
            followed.finish(work, report, now, took_s=now - started_at)
            self.runs += 1
        except SourceBusy:
            # A command or another process reads it, and may have begun before the last change.
            followed.fail(time.monotonic())
        except FlorilegiumError as error:
            self._fail(followed, error.message)
        except Exception:
            # One source must not end the others.
            logger.exception("Followed source {} failed", followed.record.id)
            self._fail(followed, "internal error")
        finally:
            followed.is_running = False
            self._wake.set()

    def _fail(self, followed: _Followed, problem: str) -> None:
        self.runs += 1
        self.failures += 1
        followed.fail(time.monotonic())
        logger.info("Followed source {} is not current: {}", followed.record.id, problem)

    async def _sync(self, record: FollowRecord, work: DueWork) -> SyncReport:
        owner = await self._owner(record)
        if owner is None:
            return SyncReport()
        context, turn = self._context(owner), self._slots.turn(record.user_id)
        with background_jobs():
            async with turn, self._libraries.library(context) as library:
                # It may have waited for its turn for a while, in which the owner's role or access can have changed.
                owner = await self._owner(record)
                if owner is None:
                    return SyncReport()
                others = self._followed.values()
                own_ids = [other.record.id for other in others if other.record.user_id == record.user_id]

                async def before_batch() -> None:
                    await turn.pass_on()
                    # What was found before a change of the owner's role or access is not stored after it.
                    if await self._owner(record) != owner:
                        raise SourceBusy("the access of its owner was changed; the run is repeated")

                return await run_source(
                    library,
                    record,
                    owner,
                    self._settings,
                    scope=work.scope,
                    follows=own_ids if work.scope is None else None,
                    before_batch=before_batch,
                )

    async def context_of(self, record: FollowRecord) -> RequestContext | None:
        """Returns the context of the owner, or None if the owner is disabled."""
        owner = await self._owner(record)
        return None if owner is None else self._context(owner)

    async def _owner(self, record: FollowRecord) -> UserRecord | None:
        """Returns the owner, whose role may have changed since the last run, or None if the owner is disabled."""
        owner = await self._registry.user_by_id(record.user_id)
        return None if owner is None or owner.is_disabled else owner

    def _context(self, owner: UserRecord) -> RequestContext:
        return build_context(local_principal(owner), self._data_root, "followed source", is_agent=False)
