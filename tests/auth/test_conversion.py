"""Control databases that older versions wrote before release 0.1.0."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from auth.context import ADMIN, READ, WRITE
from auth.control_database import CONTROL_SCHEMA
from auth.registry import Registry
from config.errors import StorageError
from tests.older_versions import FIRST, LAST, extract

pytestmark = pytest.mark.sqlite  # PostgreSQL needs no conversion

OBJECTS = "SELECT type, name FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*'"
COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)'
# Converts a file and dies after so many steps of SQLite.
DYING = """
import os, signal, sqlite3, sys
from auth.control_database import CONTROL_SCHEMA
from auth.conversion import convert_control

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # pages reach the file before the transaction ends
connection.execute("BEGIN IMMEDIATE")
connection.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), int(sys.argv[2]))
convert_control(CONTROL_SCHEMA.statements, connection, 2)
"""


def describe(connection: sqlite3.Connection) -> tuple[object, ...]:
    """Describes a schema, without the order of columns."""
    objects = sorted(connection.execute(OBJECTS).fetchall())
    return objects, {name: sorted(connection.execute(COLUMNS, (name,)).fetchall()) for _, name in objects}


async def check_registry(control_path: Path, version: str) -> None:
    async with Registry.open(control_path) as registry:
        users = {user.name: user for user in await registry.list_users()}
        keys = {(key.name, key.user.name): key for key in await registry.list_keys()}
        added = await registry.add_user("dee")
        await registry.delete_user(added.id)
    assert {name: user.named_by for name, user in users.items()} == {"ada": "operator", "ben": "operator"}
    laptop = keys[("laptop", "ada")]
    assert (laptop.scopes, laptop.profile, laptop.sources) == (frozenset({READ, WRITE}), None, None)
    if version == FIRST:  # a user with a key of an administrator became one
        assert (users["ben"].role, keys[("admin", "ben")].scopes) == ("admin", frozenset({ADMIN}))
    assert users["ada"].role == "writer"


@pytest.mark.parametrize("version", [FIRST, LAST])
async def test_registry_of_an_older_version_is_opened_and_changed(tmp_path: Path, version: str) -> None:
    extract(version, tmp_path)
    await check_registry(tmp_path / "control.db", version)
    with closing(sqlite3.connect(tmp_path / "control.db")) as db, closing(sqlite3.connect(":memory:")) as new:
        for statement in chain(CONTROL_SCHEMA.statements, *CONTROL_SCHEMA.migrations):
            new.execute(statement)
        assert describe(db) == describe(new)
        assert db.execute("PRAGMA user_version").fetchone() == (CONTROL_SCHEMA.newest_version,)
        assert ("cy",) in db.execute("SELECT subject FROM deleted_users").fetchall()
        db.execute("UPDATE users SET notices_seen_at = 5")
        db.commit()
    async with Registry.open(tmp_path / "control.db"):
        pass
    with closing(sqlite3.connect(tmp_path / "control.db")) as db:
        assert db.execute("SELECT DISTINCT notices_seen_at FROM users").fetchall() == [(5.0,)]
    copies = [path.name for path in tmp_path.glob("control.db.schema-*")]
    assert copies == ["control.db.schema-2" if version == FIRST else "control.db.schema-12"]


@pytest.mark.slow("kills processes")
async def test_killed_conversion_is_repeated(tmp_path: Path) -> None:
    extract(FIRST, tmp_path)
    original = (tmp_path / "control.db").read_bytes()
    kills = 0
    for steps in (3, 10, 30, 100, 300, 1_000):
        file = tmp_path / str(steps) / "control.db"
        file.parent.mkdir()
        file.write_bytes(original)
        shutil.copytree(tmp_path / "users", file.parent / "users")
        died = subprocess.run([sys.executable, "-c", DYING, str(file), str(steps)], check=False)
        kills += died.returncode == -signal.SIGKILL
        await check_registry(file, FIRST)
    assert kills >= 2


async def test_file_from_before_the_first_supported_version_is_rejected(tmp_path: Path) -> None:
    extract(FIRST, tmp_path)
    with closing(sqlite3.connect(tmp_path / "control.db")) as db:
        db.execute("PRAGMA user_version = 1")
    with pytest.raises(StorageError, match="schema version 1, which no version of Florilegium since"):
        async with Registry.open(tmp_path / "control.db"):
            pass
