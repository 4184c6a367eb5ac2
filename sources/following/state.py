"""What is remembered about a followed source as a whole, and what one run changed."""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from auth.follows import FollowRecord
from config.errors import Conflict, FlorilegiumError
from sources.following.changed_rows import DatabasePosition
from sources.importers.engine.summary import ImportSummary
from sources.installed import ITEM_KINDS
from sources.records import OBSERVATION
from sources.storage.collections.items import Bookmarks
from sources.storage.contract import FollowedItem, Library
from sources.storage.job_queue import retrieve_exception


class DatabaseState(Struct, frozen=True, kw_only=True):
    """How far a followed database was read."""

    position: DatabasePosition
    complete_at: float  # when all of it was read
    # How long the next complete read waits, after one that found nothing new although the file had changed.
    pause_s: float = 0.0


class SourceState(Struct, frozen=True, kw_only=True):
    """What is remembered about a followed source as a whole, in the library. Times are seconds since 1970."""

    # Device and inode of the folder: another one may be mounted or moved to its path.
    root_id: str = ""
    # Folders on other file systems, whose files are not deleted while these are not mounted.
    mounts: Sequence[str] = ()
    synced_at: float | None = None
    changed_at: float | None = None
    problem: str = ""  # why it could not be brought up to date the last time
    # Notes that were modified before this time have been written to their files.
    written_until: str = ""
    # Validators of a document that was fetched from a URL.
    etag: str = ""
    last_modified: str = ""
    # By the names of the files.
    databases: Mapping[str, DatabaseState] = {}
    # The items of deleted files with ids that do not come from the names of the files, by these names.
    former_items: Mapping[str, Sequence[FollowedItem]] = {}


class SyncReport(Struct, kw_only=True):
    """What one run changed."""

    new: int = 0
    updated: int = 0
    deleted: int = 0
    conflicts: int = 0
    failed: int = 0
    written: int = 0  # notes that were written to their files
    # Names to look at again soon, because they could not be read or may have changed while they were.
    retries: set[bytes] = set()
    # Names to look at again after a number of seconds.
    doubts: dict[bytes, float] = {}
    # The CPU time of looking for changes.
    scan_s: float = 0.0

    @property
    def changes(self) -> int:
        return self.new + self.updated + self.deleted

    def add_summary(self, summary: ImportSummary) -> None:
        for kind, counts in summary.kinds.items():
            if kind != "messages":
                self.new += counts.new
                self.updated += counts.updated
            self.conflicts += counts.conflict
        self.failed += bool(summary.failures)


async def load_state(library: Library, follow_id: str) -> SourceState:
    text = await library.bookmarks.get(_bookmark(follow_id))
    return SourceState() if text is None else msgspec.json.decode(text, type=SourceState)


async def save_state(library: Library, follow_id: str, state: SourceState) -> None:
    await library.bookmarks.set(_bookmark(follow_id), msgspec.json.encode(state).decode())


def _bookmark(follow_id: str) -> str:
    return f"follow {follow_id}"


# -- withdrawals -------------------------------------------------------------------------------------------------------
# Deletes items that disappeared from their followed source. They are restored if they come back.

# Looked up and deleted at a time.
_WITHDRAWN_ITEMS = 100


async def withdraw_items(
    library: Library,
    record: FollowRecord,
    report: SyncReport,
    names: Sequence[bytes],
    items: Sequence[FollowedItem],
    *,
    keeps_edits: bool,
) -> list[FollowedItem]:
    """Withdraws items that no other file contains. Returns those that are kept because they were edited."""
    if record.keeps_deleted:
        return []
    kept: list[FollowedItem] = []
    conversations = [item.uuid for item in items if item.kind == "chats"]
    # Conversations first: the messages of one that is kept are kept, too.
    for kind in sorted({item.kind for item in items}):
        of_kind = [item for item in items if item.kind == kind]
        for start in range(0, len(of_kind), _WITHDRAWN_ITEMS):
            part = of_kind[start : start + _WITHDRAWN_ITEMS]
            elsewhere = await library.followed_files.other_owners(record.id, names, [item.uuid for item in part])
            uuids = [item.uuid for item in part if (kind, item.uuid) not in elsewhere]
            if kind == "messages":
                still_kept = await library.chats.withdraw_messages(
                    uuids, outside=conversations, keeps_edits=keeps_edits
                )
            elif kind not in ITEM_KINDS and kind != OBSERVATION.source:
                kept += part  # the distribution that adds this kind is not installed any more
                continue
            else:
                still_kept = await library.collection(kind).withdraw_many(uuids, keeps_edits=keeps_edits)
                report.deleted += len(uuids) - len(still_kept)
            kept += [item for item in part if item.uuid in still_kept]
    return kept


# -- run lease ---------------------------------------------------------------------------------------------------------
# One process at a time reads a followed source: a server, one of its workers, or a command.
#
# The lease is stored in the library, which all processes of a deployment share. It is extended while the run lasts.
# After a process was killed, the next one on the same machine takes the lease over at once, and others when it has
# ended.

# Longer than a busy machine delays an extension.
_LEASE_S = 60.0
# So that a lease survives two extensions that fail.
_EXTENDED_EVERY_S = 15.0
_RETRY_PAUSE_S = 0.1


class SourceBusy(Conflict):
    """Another process reads the source."""


@asynccontextmanager
async def run_lease(bookmarks: Bookmarks, follow_id: str, *, wait_s: float = 0.0) -> AsyncIterator[None]:
    """Raises SourceBusy if the source is still being read after `wait_s`, by another process or another task."""
    owner = f"{socket.gethostname()} {os.getpid()} {_started_at(os.getpid())} {secrets.token_hex(4)}"
    extending = asyncio.create_task(_extend(bookmarks, follow_id, owner))
    try:
        # A claim that is cancelled may have been stored, so that it is released as well.
        due = time.monotonic() + wait_s
        while True:
            holder = await bookmarks.claim(follow_id, owner, _LEASE_S)
            if holder != owner and _has_ended(holder):
                holder = await bookmarks.claim(follow_id, owner, _LEASE_S, instead_of=holder)
            if holder == owner:
                break
            if time.monotonic() >= due:
                raise SourceBusy("the source is being read; try again in a moment")
            await asyncio.sleep(_RETRY_PAUSE_S)
        yield
    finally:
        # Nothing is awaited before the release is submitted: a run that is cancelled here would keep the lease. Writes
        # of a library take turns, so an extension that has begun is stored before it.
        extending.cancel()
        releasing = asyncio.ensure_future(bookmarks.release(follow_id, owner))
        # If this is cancelled meanwhile, no one else learns how it ended.
        releasing.add_done_callback(retrieve_exception)
        with suppress(FlorilegiumError):  # the lease ends by itself
            await asyncio.shield(releasing)


async def _extend(bookmarks: Bookmarks, follow_id: str, owner: str) -> None:
    while True:
        await asyncio.sleep(_EXTENDED_EVERY_S)
        with suppress(FlorilegiumError):  # it is repeated
            await bookmarks.claim(follow_id, owner, _LEASE_S)


def _has_ended(owner: str) -> bool:
    """Whether the process was one of this machine and no longer exists."""
    host, process, started_at, _ = owner.split(" ")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return started_at != _started_at(int(process))


def _started_at(process: int) -> str:
    """Returns when a process was started, which distinguishes it from a later one with the same number. Only Linux
    says so; see proc(5)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return "unknown"
