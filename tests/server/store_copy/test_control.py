"""Copying the control data to PostgreSQL and back loses and changes nothing."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from auth.audit import AuditEvent, AuditFile
from auth.context import READ
from auth.follows import FollowRecord, Follows
from auth.quotas import QuotaOverrides, Quotas
from auth.registry import ControlLocation, Registry
from config.errors import StorageError
from config.postgres.connection import ConnectionOptions
from config.settings import Settings
from server.store_copy.migration import CONTROL_TABLES, copy_control, prepare_control


async def fill(path: Path) -> None:
    """Two users with keys, a deleted one, quotas, followed sources and events."""
    async with Registry.open(path) as registry:
        ada, ben = await registry.add_user("ada", role="admin"), await registry.add_user("ben")
        gone = await registry.add_user("gone", issuer="https://id.example.com", subject="é")
        for user in (ada, ben):
            await registry.create_key(user.id, "laptop", [READ], sources=["notes"])
            await Follows(registry.database).add(
                FollowRecord(user_id=user.id, location="/srv/notes", is_confined=True), per_user_max=3
            )
        await registry.revoke_token("jti", 1e9 + 0.25)
        await registry.delete_user(gone.id)
        await registry.disable_user(ben.id)
        await Quotas(registry.database, Settings()).set(ada.id, QuotaOverrides(max_bytes=2**40))
    events = [AuditEvent(time=0.5 + n, action="sign_in", user_id=ada.id, detail="ß") for n in range(3)]
    AuditFile(path.with_name("audit.db")).append(events)


async def copy(source: ControlLocation, target: ControlLocation) -> dict[str, int]:
    for location in (source, target):
        await prepare_control(location)
    digests = await asyncio.to_thread(copy_control, source, target)
    return {name: digest.rows for name, digest in digests.items()}


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    rows = {}
    with closing(sqlite3.connect(path)) as db:
        for table in CONTROL_TABLES:
            rows[table] = sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
    with closing(sqlite3.connect(path.with_name("audit.db"))) as db:
        rows["events"] = db.execute("SELECT * FROM events ORDER BY id").fetchall()
    return rows


@pytest.fixture
async def original(tmp_path: Path) -> Path:
    path = tmp_path / "original" / "control.db"
    path.parent.mkdir()
    await fill(path)
    return path


async def test_round_trip_is_equal(original: Path, tmp_path: Path, database_url: str) -> None:
    postgres, back = ConnectionOptions(url=database_url), tmp_path / "back" / "control.db"

    there = await copy(original, postgres)
    again = await copy(original, postgres)
    returned = await copy(postgres, back)

    assert there == again == returned
    assert (there["users"], there["keys"], there["events"], there["deleted_users"]) == (2, 2, 3, 1)
    assert rows_of(back) == rows_of(original)
    async with Registry.open(postgres) as registry, Registry.open(original) as before:
        assert await registry.list_keys() == await before.list_keys()


async def test_all_tables_are_copied(original: Path) -> None:
    with closing(sqlite3.connect(original)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}

    assert names == set(CONTROL_TABLES)


async def test_users_of_another_deployment_are_not_overwritten(original: Path, database_url: str) -> None:
    postgres = ConnectionOptions(url=database_url)
    async with Registry.open(postgres) as registry:
        carl = await registry.add_user("carl")

    with pytest.raises(StorageError, match="the target has 1 users that this deployment does not have"):
        await copy(original, postgres)

    async with Registry.open(postgres) as registry:
        assert await registry.list_users() == [carl]


async def test_failed_copy_changes_nothing(original: Path, database_url: str) -> None:
    postgres = ConnectionOptions(url=database_url)
    await copy(original, postgres)
    with closing(sqlite3.connect(original)) as db, db:
        db.execute("UPDATE users SET name = 'changed' WHERE name = 'ada'")
        # PostgreSQL cannot store this character.
        db.execute("UPDATE follows SET location = 'a' || char(0) || 'b'")

    with pytest.raises(StorageError, match=r"NUL characters \(follows, id "):
        await copy(original, postgres)

    async with Registry.open(postgres) as registry:
        assert sorted(user.name for user in await registry.list_users()) == ["ada", "ben"]
