"""When followed sources are read: requests are never lost, and no run delays changes for long."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from auth.follows import FollowRecord
from config.paths import UserId
from config.settings import Settings
from server.following.locations import FolderWatcher, changed_names
from server.following.service import DueWork, FollowSchedule
from sources.following.state import SyncReport

RECORD = FollowRecord(
    id="f",
    user_id=UserId("u"),
    location="/vault",
    format=None,
    interval_s=None,
    keeps_deleted=False,
    writes_back=False,
    is_confined=False,
    created_at=0.0,
)


def test_changes_after_a_first_import_of_minutes_are_read_within_seconds() -> None:
    schedule = FollowSchedule(RECORD, Settings())
    work = schedule.due(1000.0)
    assert work is not None
    assert work.scope is None
    schedule.finish(work, SyncReport(scan_s=0.3), 1300.0, took_s=300.0)
    schedule.add_changes([b"Tea.md"], 1301.0)
    assert schedule.due(1303.0) == DueWork([b"Tea.md"])


def test_request_during_a_run_is_due_after_it() -> None:
    schedule = FollowSchedule(RECORD, Settings())
    work = schedule.due(1000.0)
    assert work is not None
    schedule.request_changed()
    schedule.finish(work, SyncReport(scan_s=0.1), 1000.5, took_s=0.5)
    assert schedule.due(1000.5) == DueWork(None)
    assert schedule.due(1000.6) is None


def test_request_during_a_failing_run_is_due_after_it() -> None:
    schedule = FollowSchedule(RECORD, Settings())
    for now in (1000.0, 2000.0, 3000.0):
        assert schedule.due(now) == DueWork(None)
        schedule.fail(now)
    assert schedule.due(4000.0) == DueWork(None)
    schedule.request_full()
    schedule.fail(4000.5)
    assert schedule.due(4000.5) == DueWork(None)


def test_doubtful_file_is_looked_at_again_after_its_pause() -> None:
    schedule = FollowSchedule(RECORD, Settings())
    work = schedule.due(1000.0)
    assert work is not None
    schedule.finish(work, SyncReport(doubts={b"notes.db": 8.0}), 1000.5, took_s=0.5)
    assert schedule.due(1008.0) is None
    assert schedule.due(1008.5) == DueWork([b"notes.db"])


def test_many_changes_at_once_are_found_by_one_scan() -> None:
    schedule = FollowSchedule(RECORD, Settings())
    work = schedule.due(1000.0)
    assert work is not None
    schedule.finish(work, SyncReport(scan_s=0.1), 1000.5, took_s=0.5)
    schedule.add_changes([b"%d.md" % number for number in range(5_000)], 1001.0)
    assert schedule.due(1001.0) == DueWork(None)
    assert schedule.due(1002.0) is None


def test_changed_paths_are_named_within_their_folders() -> None:
    paths = {"/vault/a/Tea.md", "/vault/.obsidian/workspace.json", "/vault/chat.db-wal", "/vaults/Cup.md", "/other"}
    changes = changed_names(paths, ["/vault", "/vault/a"])
    assert {folder: sorted(names) for folder, names in changes.items()} == {
        "/vault": [b"a/Tea.md", b"chat.db"],
        "/vault/a": [b"Tea.md"],
    }


async def test_folders_behind_links_are_not_watched(tmp_path: Path) -> None:
    vault, outside = tmp_path / "vault", tmp_path / "outside"
    (vault / "kept").mkdir(parents=True)
    outside.mkdir()
    (vault / "link").symlink_to(outside)
    seen: set[bytes] = set()
    ready = asyncio.Event()

    def note(changes: Mapping[str, Sequence[bytes]]) -> None:
        seen.update(changes.get(str(vault), ()))

    watcher = FolderWatcher(note, lambda _: ready.set())
    watcher.watch({str(vault): "1"})
    await _wait_until(ready.is_set)
    try:
        (outside / "Secret.md").write_text("theirs")
        (vault / "kept" / "Tea.md").write_text("steep")
        await _wait_until(lambda: b"kept/Tea.md" in seen)
        ready.clear()
        (vault / "new").mkdir()
        await _wait_until(ready.is_set)
        (outside / "Later.md").write_text("theirs")
        (vault / "new" / "Cup.md").write_text("porcelain")
        await _wait_until(lambda: b"new/Cup.md" in seen)
    finally:
        await watcher.close()
    assert not [name for name in seen if name.startswith(b"link/")]


async def _wait_until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_reached():
            await asyncio.sleep(0.05)
