"""What is remembered about a followed source as a whole, and what one run changed."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from sources.following.changed_rows import DatabasePosition
from sources.importers.engine.summary import ImportSummary
from sources.storage.contract import FollowedItem, Library


class DatabaseState(Struct, frozen=True, kw_only=True):
    """How far a followed database was read, and when completely. After a complete read that found nothing new, although
    the file had changed, the next one waits for `pause_s`."""

    position: DatabasePosition
    complete_at: float
    pause_s: float = 0.0


class SourceState(Struct, frozen=True, kw_only=True):
    """What is remembered about a followed source as a whole, in the library. `problem` says why it could not be brought
    up to date the last time. Times are seconds since 1970."""

    root_id: str = ""
    mounts: Sequence[str] = ()
    synced_at: float | None = None
    changed_at: float | None = None
    problem: str = ""
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
    """What one run changed; `written` counts notes that were written to their files. `retries` are names to look at
    again soon, because they could not be read or may have changed while they were, `doubts` names to look at again
    after a number of seconds."""

    new: int = 0
    updated: int = 0
    deleted: int = 0
    conflicts: int = 0
    failed: int = 0
    written: int = 0
    retries: set[bytes] = set()
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
