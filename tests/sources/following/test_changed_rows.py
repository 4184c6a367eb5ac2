"""Of a followed tldw database, only the items that changed are copied and read."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from sources.following.changed_rows import DatabasePosition
from sources.following.copy_process import DatabaseCopy
from sources.following.database_copy import DatabaseCopier, open_database_copier
from sources.following.scan import scan_file
from sources.importers.formats.tldw import FOLLOWED_DATABASES
from tests.server.following.tldw_deployment import CHACHA_NAME, MEDIA_NAME, execute, make_user
from tests.sources.following.followed_library import FollowedLibrary

NOTE = "INSERT INTO notes (id, title, content, last_modified) VALUES (?, ?, ?, ?)"


class Copies:
    """Copies databases one after the other in the same process."""

    def __init__(self, copier: DatabaseCopier) -> None:
        self._copier = copier

    async def copy(self, source: Path, target: Path, since: DatabasePosition | None = None) -> DatabaseCopy:
        target.unlink(missing_ok=True)
        return await self._copier.copy(source, target, FOLLOWED_DATABASES, since)


@pytest.fixture(scope="module")
async def copies() -> AsyncIterator[Copies]:
    async with open_database_copier(1 << 30, 60) as copier:
        yield Copies(copier)


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = make_user(tmp_path, 1)
    for number in range(1, 51):
        execute(folder / CHACHA_NAME, NOTE, f"n{number}", f"Note {number}", "Text.", "2026-01-01 00:00:00")
    return folder


async def test_one_changed_note_of_many_is_copied_alone(copies: Copies, folder: Path, tmp_path: Path) -> None:
    source, target = folder / CHACHA_NAME, tmp_path / "copy.db"
    whole = await copies.copy(source, target)
    assert not whole.is_partial
    execute(source, "UPDATE notes SET content = 'New.', last_modified = '2026-01-01T00:01:00.000Z' WHERE id = 'n7'")
    part = await copies.copy(source, target, whole.position)
    assert (part.items, count(target, "notes"), count(target, "messages")) == (1, 1, 0)
    execute(source, NOTE, "n51", "New", "Text.", "2020-01-01 00:00:00")
    execute(source, "INSERT INTO sync_log (entity, entity_id) VALUES ('notes', 'n9')")
    part = await copies.copy(source, target, part.position)
    assert part.items == 2


async def test_new_message_brings_its_whole_conversation(copies: Copies, folder: Path, tmp_path: Path) -> None:
    source, target = folder / CHACHA_NAME, tmp_path / "copy.db"
    sql = "INSERT INTO messages (id, conversation_id, sender, content) VALUES (?, ?, 'user', 'Text.')"
    conversation = "00000000-0000-4002-0001-000000000001"
    execute(source, sql, "m1", conversation)
    whole = await copies.copy(source, target)
    execute(source, sql, "m2", conversation)
    part = await copies.copy(source, target, whole.position)
    assert (part.items, count(target, "messages"), count(target, "character_cards")) == (1, 2, 1)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM notes WHERE id = 'n7'",
        "DELETE FROM sync_log",
        "DROP TABLE note_keywords",
        "ALTER TABLE notes RENAME COLUMN title TO name",
    ],
)
async def test_changes_that_leave_no_trace_mean_copying_all(
    copies: Copies, folder: Path, tmp_path: Path, sql: str
) -> None:
    source, target = folder / CHACHA_NAME, tmp_path / "copy.db"
    execute(source, "INSERT INTO sync_log (entity, entity_id) VALUES ('notes', 'n9')")
    whole = await copies.copy(source, target)
    execute(source, sql)
    execute(source, NOTE.replace("title", "name") if "RENAME" in sql else NOTE, "n51", "New", "Text.", "2026")
    assert not (await copies.copy(source, target, whole.position)).is_partial


def test_edit_without_a_time_is_found_by_reading_everything(tmp_path: Path) -> None:
    source = make_user(tmp_path, 1) / MEDIA_NAME
    followed = FollowedLibrary(tmp_path / "data", source)

    async def contents() -> list[str]:
        library = await followed.library()
        return [item.title for item in (await library.media.list(10, 0)).rows]

    try:
        followed.sync()
        execute(source, "UPDATE Media SET title = 'Edited'")
        followed.sync()
        assert followed.run(contents()) == ["Edited"]
    finally:
        followed.close()


def test_second_edit_without_a_time_is_reported_as_a_doubt_until_it_is_read(tmp_path: Path) -> None:
    source = make_user(tmp_path, 1) / MEDIA_NAME
    followed = FollowedLibrary(tmp_path / "data", source)
    try:
        followed.sync()
        execute(source, "CREATE TABLE other (id INTEGER)")
        assert followed.sync().doubts == {}
        execute(source, "UPDATE Media SET title = 'Edited'")
        [(name, pause_s)] = followed.sync().doubts.items()
        assert (name, pause_s > 0) == (os.fsencode(MEDIA_NAME), True)
    finally:
        followed.close()


def test_reading_a_closed_database_creates_no_files_and_is_no_reason_to_read_it_again(tmp_path: Path) -> None:
    source = make_user(tmp_path, 1) / MEDIA_NAME
    names = sorted(path.name for path in source.parent.iterdir())
    followed = FollowedLibrary(tmp_path / "data", source)
    try:
        followed.sync()
        assert sorted(path.name for path in source.parent.iterdir()) == names
        signature = scan_file(source)
        with closing(sqlite3.connect(source)) as owner:
            owner.execute("SELECT count(*) FROM Media").fetchone()
            assert source.with_name(source.name + "-wal").exists()
            assert scan_file(source) == signature
    finally:
        followed.close()
