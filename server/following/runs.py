"""One run of a followed source: opens the library, brings it up to date, and remembers how that went."""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from auth.follows import FollowRecord
from auth.registry import UserRecord
from config.errors import FlorilegiumError, InvalidParams
from config.settings import Settings
from server.following.locations import checked_path
from server.import_jobs import UPLOADS_FOLDER
from sources.following.state import SourceState, SyncReport, load_state, run_lease, save_state
from sources.following.sync import SourceSync
from sources.following.url_sync import UrlSync
from sources.importers.engine.files import printable_name
from sources.importers.engine.limits import ImportProgress
from sources.storage.contract import Library

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
