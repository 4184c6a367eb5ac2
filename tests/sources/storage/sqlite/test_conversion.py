"""Files that older versions wrote before release 0.1.0."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from config.errors import StorageError
from config.paths import DatabaseKind, DataRoot
from sources.storage.sqlite.connection.open import add_functions
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS, salvage
from sources.storage.sqlite.schema.kinds import migrate, migrate_to, schema_version
from tests.older_versions import FIRST, LAST, extract
from tests.older_versions.contents import check_contents, check_writing
from tests.sources.storage.library_fixture import open_sqlite
from tests.sources.storage.sqlite.file_checks import check_files, open_file

# Migrates a file and dies after so many steps of SQLite.
DYING = """
import os, signal, sqlite3, sys
from sources.storage.sqlite.connection.open import add_functions
from sources.storage.sqlite.maintenance.maintenance import SCHEMAS
from sources.storage.sqlite.schema.kinds import migrate

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # pages reach the file before the transaction ends
add_functions(connection)
connection.execute("BEGIN IMMEDIATE")
connection.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), int(sys.argv[3]))
migrate(SCHEMAS[sys.argv[2]], connection)
"""
TABLES = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
OBJECTS = "SELECT type, name, iif(type = 'table', '', sql) FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'"
COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)'
Rows = dict[str, list[dict[str, object]]]


def read_rows(file: Path) -> Rows:
    with open_file(file) as connection:
        connection.row_factory = sqlite3.Row
        tables = [row["name"] for row in connection.execute(TABLES)]
        return {
            table: [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
            for table in tables
            if not table.endswith("_queue")
        }


def describe(connection: sqlite3.Connection) -> tuple[object, ...]:
    """Describes a schema, without the order of columns and the line breaks of statements."""
    objects = sorted((kind, name, " ".join(sql.split())) for kind, name, sql in connection.execute(OBJECTS))
    columns = {name: sorted(connection.execute(COLUMNS, (name,)).fetchall()) for _, name, _ in objects}
    return schema_version(connection), objects, columns


@pytest.mark.parametrize("version", [FIRST, LAST])
async def test_library_of_an_older_version_is_searched_and_written_to(tmp_path: Path, version: str) -> None:
    users = extract(version, tmp_path)
    before = {path: read_rows(path) for path in tmp_path.glob("users/*/*/*.db")}
    async with open_sqlite(tmp_path) as libraries:
        for name, user_id in users.items():
            await check_contents(libraries, user_id, name)
    check_files(tmp_path)
    after = {path: read_rows(path) for path in before}
    for path, tables in before.items():
        for table, rows in tables.items():
            assert len(after[path][table]) == len(rows), (path.name, table)
    async with open_sqlite(tmp_path) as libraries:
        for name, user_id in users.items():
            await check_contents(libraries, user_id, name)
            await check_writing(libraries, user_id)
    check_files(tmp_path)


@pytest.mark.parametrize("version", [FIRST, LAST])
@pytest.mark.parametrize("kind", list(SCHEMAS))
def test_conversion_keeps_all_values_and_gives_the_schema_of_a_new_file(
    tmp_path: Path, version: str, kind: DatabaseKind
) -> None:
    extract(version, tmp_path)
    with open_file(tmp_path / "new.db") as connection:
        migrate_to(SCHEMAS[kind], connection, SCHEMAS[kind].newest_version)
        new = describe(connection)
    for path in tmp_path.glob(f"users/*/*/{kind}.db"):
        before = read_rows(path)
        contents = [path.read_bytes()]
        for _ in range(2):
            with open_file(path) as connection:
                add_functions(connection)
                migrate(SCHEMAS[kind], connection)
                assert describe(connection) == new
            contents.append(path.read_bytes())
        assert contents[1] == contents[2]
        assert (contents[0] == contents[1]) == (version == LAST or kind == "prompts")
        after = read_rows(path)
        changed = {
            (table, column)
            for table, rows in before.items()
            for old, row in zip(rows, after[table], strict=True)
            for column, value in old.items()
            if row[column] != value
        }
        # A title that was made of a message for people only, and the mark of an archived thread.
        fields = ("title", "version", "content_hash", "metadata") if (version, kind) == (FIRST, "chacha") else ()
        assert changed == {("conversations", field) for field in fields}
        if kind == "chacha":
            archived = {row["title"]: row["is_archived"] for row in after["conversations"]}
            assert archived["Archived thread"] == int(version == FIRST)
            assert ("The password is quince" in archived) == (version == LAST)


@pytest.mark.slow("kills processes")
@pytest.mark.parametrize("kind", ["chacha", "media"])
def test_killed_conversion_is_repeated(tmp_path: Path, kind: DatabaseKind) -> None:
    extract(FIRST, tmp_path)
    original = next(tmp_path.glob(f"users/*/*/{kind}.db"))
    before, file = read_rows(original), tmp_path / "killed.db"
    kills = 0
    for steps in (3, 10, 30, 100, 300, 1_000, 3_000):
        shutil.copy(original, file)
        died = subprocess.run([sys.executable, "-c", DYING, str(file), kind, str(steps)], check=False)
        kills += died.returncode == -signal.SIGKILL
        if died.returncode:
            assert read_rows(file) == before
        with open_file(file) as connection:
            add_functions(connection)
            migrate(SCHEMAS[kind], connection)
            assert schema_version(connection) == SCHEMAS[kind].newest_version
        assert {table: len(rows) for table, rows in read_rows(file).items() if table in before} == {
            table: len(rows) for table, rows in before.items()
        }
    assert kills >= 2


def test_files_from_before_the_first_supported_version_are_rejected_and_unchanged(tmp_path: Path) -> None:
    extract(FIRST, tmp_path)
    for kind, schema in SCHEMAS.items():
        file = next(tmp_path.glob(f"users/*/*/{kind}.db"))
        with open_file(file) as connection:
            connection.execute("PRAGMA user_version = 1")
        content = file.read_bytes()
        with (
            open_file(file) as connection,
            pytest.raises(StorageError, match="has schema 1, which no version of"),
        ):
            migrate(schema, connection)
        assert file.read_bytes() == content


def test_triggers_and_views_of_strangers_do_not_survive_the_conversion(tmp_path: Path) -> None:
    extract(FIRST, tmp_path)
    file = next(tmp_path.glob("users/*/*/chacha.db"))
    with open_file(file) as connection:
        connection.execute("CREATE TRIGGER spy AFTER UPDATE ON messages BEGIN DELETE FROM notes; END")
        connection.execute('CREATE VIEW "a ""view" AS SELECT 1')
        add_functions(connection)
        migrate(SCHEMAS["chacha"], connection)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        assert connection.execute("SELECT count(*) FROM notes").fetchone() == (2,)
    assert not names & {"spy", 'a "view'}


async def test_damaged_file_of_an_older_version_is_salvaged_and_converted(tmp_path: Path) -> None:
    users = extract(FIRST, tmp_path)
    report = salvage(DataRoot(tmp_path), users["ada"], "chacha")
    assert (report.rows["messages"], report.rows["notes"], report.gaps) == (6, 2, {})
    async with open_sqlite(tmp_path) as libraries, libraries.library(users["ada"].removeprefix("u_")) as library:
        assert [row.title for row in (await library.notes.list(10, 0)).rows] == ["Kettle of Ada"]
        assert (await library.chats.list(10, 0)).total == 3


def test_titles_made_of_messages_for_people_only_are_removed(tmp_path: Path) -> None:
    """Older versions made a title of the first message, shortened if it was long."""
    extract(FIRST, tmp_path)
    secret, marks = "a pomelo " * 10, ('{"audience":"Human"}', '{"visibility":"human_only"}', '{"note":"human"}')
    with open_file(next(tmp_path.glob("users/*/*/chacha.db"))) as connection:
        add_functions(connection)
        for number, metadata in enumerate(marks, start=101):
            connection.execute(
                "INSERT INTO conversations (id, uuid, title, namespace, session_id, created_at, last_modified, "
                "client_id, content_hash) VALUES (?1, 'c' || ?1, ?2, 'default', '', ?3, ?3, '', '')",
                (number, f"{secret[:50]}...", "2026-01-01T00:00:00.000Z"),
            )
            connection.execute(
                "INSERT INTO messages (uuid, conversation_id, position, role, sender, content, attachments, "
                "citations, is_canonical, metadata, created_at, last_modified, client_id, content_hash) "
                "VALUES ('m' || ?1, ?1, 0, 'user', 'Ana', ?2, '[]', '[]', 1, ?3, ?4, ?4, '', '')",
                (number, secret, metadata, "2026-01-01T00:00:00.000Z"),
            )
        migrate(SCHEMAS["chacha"], connection)
        titles = connection.execute("SELECT title FROM conversations WHERE id > 100 ORDER BY id").fetchall()
        found = connection.execute("SELECT count(*) FROM chats_index WHERE chats_index MATCH 'pomelo'").fetchone()
    assert titles == [("",), ("",), (f"{secret[:50]}...",)]
    # The third message and its title. Neither the other two nor the message of the older version are found by agents.
    assert found == (2,)
