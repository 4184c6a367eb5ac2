"""The registry: users, keys and revocations in a real file, often with two users and two processes."""

import asyncio
import hashlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auth.context import ADMIN, READ, WRITE
from auth.registry import ControlLocation, Registry, hash_credential
from config.errors import Conflict, InvalidParams, NotFound, StorageError
from config.paths import UserId, new_user_id
from tests.auth.auth_fixture import NOW, FakeClock
from tests.cases import each_case
from tests.tiers import examples

UNKNOWN_USER = new_user_id()


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Reads the file directly, without the registry."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


async def stored(registry: Registry, query: str) -> list[tuple[Any, ...]]:
    """Reads rows of either engine."""
    return await registry.database.read(lambda db: [tuple(row) for row in db.execute(query)])


# Users


async def test_users_are_found_by_id_name_and_identity(registry: Registry) -> None:
    alice = await registry.add_user("alice")
    bob = await registry.add_user("bob", issuer="https://id.example.com", subject="0f3b")

    assert (alice.issuer, alice.subject, alice.created_at, alice.epoch) == ("", "alice", NOW, 0)
    assert await registry.user_by_id(alice.id) == await registry.user_by_name("alice") == alice
    assert await registry.user_by_identity("", "alice") == alice
    assert await registry.user_by_identity("https://id.example.com", "0f3b") == bob
    assert await registry.user_by_identity("", "0f3b") is None
    assert await registry.user_by_identity("https://id.example.com", "alice") is None
    assert await registry.list_users() == [alice, bob]


async def test_duplicate_name_or_identity_raises_conflict(registry: Registry) -> None:
    await registry.add_user("alice", subject="0f3b")

    with pytest.raises(Conflict, match="named 'alice'"):
        await registry.add_user("alice", subject="other")
    with pytest.raises(Conflict, match="subject '0f3b'"):
        await registry.add_user("bob", subject="0f3b")
    assert [user.name for user in await registry.list_users()] == ["alice"]


async def test_name_that_differs_only_by_case_is_refused(registry: Registry) -> None:
    await registry.add_user("alice")

    with pytest.raises(Conflict, match="a user named 'alice' already exists; names must differ in more than"):
        await registry.add_user("Alice")
    created = await registry.ensure_user("https://id.example.com", "ALICE")
    assert created.name.startswith("ALICE-")


@each_case("name", ["", "a b", "a/b", "../a", "a\n", "ä", "a" * 129, "a\0", "a:b", "%"])
async def test_invalid_name_is_rejected(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidParams, match=r"name: expected 1 to 128 of the characters .* got "):
        await registry.add_user(name)


@each_case("subject", ["a\0", "a\n", "\ud800", "a" * 256])
async def test_invalid_subject_or_issuer_is_rejected(registry: Registry, subject: str) -> None:
    with pytest.raises(InvalidParams, match=r"subject: expected 1 to 255 printable characters, got "):
        await registry.add_user("alice", subject=subject)
    with pytest.raises(InvalidParams, match="issuer: expected"):
        await registry.add_user("alice", issuer=subject)


async def test_disabling_a_user_revokes_only_that_users_keys(registry: Registry, clock: FakeClock) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")
    key_of_alice, _ = await registry.create_key(alice.id, "laptop", [READ])
    key_of_bob, _ = await registry.create_key(bob.id, "laptop", [READ])
    clock.advance(10)

    disabled = await registry.disable_user(alice.id)

    assert disabled.is_disabled
    assert (disabled.epoch, disabled.tokens_valid_after) == (1, NOW + 10)
    assert [key.revoked_at for key in await registry.list_keys(alice.id)] == [NOW + 10]
    assert await registry.list_keys(bob.id) == [key_of_bob]
    assert await registry.user_by_id(bob.id) == bob
    assert key_of_alice.is_valid(NOW)


async def test_enabling_a_user_does_not_restore_the_keys(registry: Registry, clock: FakeClock) -> None:
    alice = await registry.add_user("alice")
    old, _ = await registry.create_key(alice.id, "old", [READ])
    await registry.disable_user(alice.id)
    with pytest.raises(Conflict, match="disabled"):
        await registry.create_key(alice.id, "too early", [READ])

    clock.advance(10)
    enabled = await registry.enable_user(alice.id)
    new, _ = await registry.create_key(alice.id, "new", [READ])

    assert not enabled.is_disabled
    assert (enabled.epoch, enabled.tokens_valid_after) == (1, NOW + 10)
    validity = {key.id: key.is_valid(clock()) for key in await registry.list_keys()}
    assert validity == {old.id: False, new.id: True}


async def test_enabling_an_enabled_user_changes_nothing(registry: Registry) -> None:
    alice = await registry.add_user("alice")

    assert await registry.enable_user(alice.id) == alice


async def test_disabling_twice_keeps_the_first_time(registry: Registry, clock: FakeClock) -> None:
    alice = await registry.add_user("alice")
    await registry.disable_user(alice.id)
    clock.advance(10)

    again = await registry.disable_user(alice.id)

    assert (again.disabled_at, again.epoch, again.tokens_valid_after) == (NOW, 2, NOW + 10)


async def test_deleting_a_user_removes_its_keys(registry: Registry, clock: FakeClock) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")
    _, secret = await registry.create_key(alice.id, "laptop", [READ])
    await registry.create_key(bob.id, "laptop", [READ])

    assert await registry.delete_user(alice.id) == alice

    assert await registry.list_users() == [bob]
    assert [key.user for key in await registry.list_keys()] == [bob]
    assert await registry.key_by_hash(hash_credential(secret)) is None
    assert hash_credential(secret) not in {row[0] for row in await stored(registry, "SELECT hash FROM keys")}
    assert await registry.user_deleted_at("", "alice") == clock()
    assert await registry.user_deleted_at("", "bob") == 0


@pytest.mark.parametrize(
    ("deleted_issuer", "new_issuer"), [("", ""), ("https://a", "https://a"), ("", "https://a"), ("https://a", "")]
)
async def test_recreated_user_rejects_tokens_from_before_the_deletion(
    registry: Registry, clock: FakeClock, deleted_issuer: str, new_issuer: str
) -> None:
    old = await registry.add_user("alice", issuer=deleted_issuer)
    clock.advance(60)
    await registry.delete_user(old.id)
    clock.advance(60)

    new = await registry.add_user("alice", issuer=new_issuer)

    assert new.id != old.id
    assert new.tokens_valid_after == NOW + 60


async def test_same_subject_of_another_issuer_is_unaffected_by_the_deletion(registry: Registry) -> None:
    await registry.delete_user((await registry.add_user("alice", issuer="https://a")).id)

    assert (await registry.add_user("alice", issuer="https://b")).tokens_valid_after == 0


async def test_changing_an_unknown_user_or_key_raises_not_found(registry: Registry) -> None:
    for change in (registry.disable_user, registry.enable_user, registry.delete_user):
        with pytest.raises(NotFound):
            await change(UNKNOWN_USER)
    with pytest.raises(NotFound):
        await registry.create_key(UNKNOWN_USER, "laptop", [READ])
    with pytest.raises(NotFound):
        await registry.revoke_key("k_nothing")


async def test_concurrent_ensure_user_calls_create_one_user(control_location: ControlLocation) -> None:
    async with Registry.open(control_location) as one, Registry.open(control_location) as other:
        users = await asyncio.gather(*[(one, other)[n % 2].ensure_user("https://a", "alice") for n in range(20)])

        assert len({user.id for user in users}) == 1
        assert len(await one.list_users()) == 1


async def test_derived_name_is_valid_and_unique(registry: Registry) -> None:
    subjects = ["auth0|5f7c", "auth0-5f7c", "用户", "é", "a" * 255, "a" * 254, "--", "alice@example.com"]
    users = [await registry.ensure_user("https://a", subject) for subject in subjects]

    names = [user.name for user in users]
    assert len(set(names)) == len(subjects)
    assert (names[0], names[-1]) == ("auth0-5f7c", "alice@example.com")
    assert names[1].startswith("auth0-5f7c-")
    assert [await registry.user_by_name(name) for name in names] == users


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(20))
@given(subject=st.text(min_size=1, max_size=255))
def test_arbitrary_subject_creates_a_user_or_is_rejected(
    tmp_path_factory: pytest.TempPathFactory, subject: str
) -> None:
    async def check() -> None:
        async with Registry.open(tmp_path_factory.mktemp("r") / "control.db") as registry:
            if not subject.isprintable():
                with pytest.raises(InvalidParams):
                    await registry.ensure_user("https://a", subject)
                return
            user = await registry.ensure_user("https://a", subject)
            assert user.subject == subject
            assert await registry.ensure_user("https://a", subject) == user

    asyncio.run(check())


# API keys


async def test_key_is_found_by_its_hash_and_returns_its_user(registry: Registry) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")
    record, secret = await registry.create_key(alice.id, "laptop", [WRITE, READ], NOW + 60)
    _, other_secret = await registry.create_key(bob.id, "laptop", [READ])

    by_hash = await registry.key_by_hash(hashlib.sha256(secret.encode()).digest())
    other = await registry.key_by_hash(hash_credential(other_secret))

    assert by_hash == record == await registry.key_by_id(record.id)
    assert (record.user, record.name, record.expires_at) == (alice, "laptop", NOW + 60)
    assert record.scopes == {READ, WRITE}
    assert other is not None
    assert other.user == bob


async def test_secret_is_not_stored(control_path: Path) -> None:
    async with Registry.open(control_path) as registry:
        alice = await registry.add_user("alice")
        _, secret = await registry.create_key(alice.id, "laptop", [READ])

    content = control_path.read_bytes()
    assert secret.encode() not in content
    assert secret.removeprefix("flo_").encode() not in content
    assert hash_credential(secret) in content


@pytest.mark.parametrize("scopes", [[], ["knowledge:delete"], [READ, "*"]])
async def test_unknown_or_missing_scopes_are_rejected(registry: Registry, scopes: list[str]) -> None:
    alice = await registry.add_user("alice")

    with pytest.raises(InvalidParams, match=r"scopes: expected one or more of knowledge:read .* got "):
        await registry.create_key(alice.id, "laptop", scopes)


async def test_key_keeps_its_profile(registry: Registry) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")

    bound, _ = await registry.create_key(alice.id, "bound", [READ], profile="research")
    free, _ = await registry.create_key(bob.id, "free", [READ])

    assert [(key.user.name, key.profile) for key in await registry.list_keys()] == [
        ("alice", "research"),
        ("bob", None),
    ]
    assert await registry.key_by_id(bound.id) == bound
    assert await registry.key_by_id(free.id) == free


@pytest.mark.parametrize("profile", ["", "a\nb", "x" * 256])
async def test_invalid_profile_name_is_rejected(registry: Registry, profile: str) -> None:
    alice = await registry.add_user("alice")

    with pytest.raises(InvalidParams, match="profile: expected "):
        await registry.create_key(alice.id, "key", [READ], profile=profile)
    assert await registry.list_keys() == []


async def test_key_that_expires_in_the_past_is_rejected(registry: Registry) -> None:
    alice = await registry.add_user("alice")

    with pytest.raises(InvalidParams, match="expires_at"):
        await registry.create_key(alice.id, "laptop", [READ], NOW)


async def test_key_is_valid_until_it_expires_or_is_revoked(registry: Registry, clock: FakeClock) -> None:
    alice = await registry.add_user("alice")
    key, _ = await registry.create_key(alice.id, "laptop", [READ], NOW + 60)
    assert key.is_valid(NOW + 59.9)
    assert not key.is_valid(NOW + 60)

    clock.advance(5)
    revoked = await registry.revoke_key(key.id)
    clock.advance(5)

    assert not revoked.is_valid(NOW)
    assert (await registry.revoke_key(key.id)).revoked_at == NOW + 5


async def test_last_used_times_never_move_backwards(registry: Registry) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")
    one, _ = await registry.create_key(alice.id, "one", [READ])
    two, _ = await registry.create_key(bob.id, "two", [READ])

    await registry.touch_keys({one.id: NOW + 5, two.id: NOW + 6, "k_gone": NOW})
    await registry.touch_keys({one.id: NOW + 1})

    assert [key.last_used_at for key in await registry.list_keys()] == [NOW + 5, NOW + 6]


# Revoked tokens


async def test_revoked_token_returns_no_user(registry: Registry) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")

    await registry.revoke_token("jti-1", NOW + 600)

    assert await registry.user_of_token(alice.id, "jti-1") is None
    assert await registry.user_of_token(alice.id, "jti-2") == alice
    assert await registry.user_of_token(bob.id, "jti-2") == bob


async def test_user_of_a_new_token_is_the_one_with_its_issuer_unless_it_was_revoked(registry: Registry) -> None:
    without_issuer = await registry.add_user("alice")
    ours, other = "https://id.example.com", "https://other.example.com"
    await registry.revoke_token("jti-1", NOW + 600)

    assert await registry.user_of_new_token(ours, "alice", ours, "jti-1") is None
    assert await registry.user_of_new_token(ours, "alice", ours, "jti-2") == without_issuer
    assert await registry.user_of_new_token(other, "alice", ours, "jti-2") is None
    assert await registry.user_of_new_token(ours, "bob", ours, "jti-2") is None

    with_issuer = await registry.add_user("alice2", issuer=ours, subject="alice")

    assert await registry.user_of_new_token(ours, "alice", ours, "jti-2") == with_issuer
    assert await registry.user_of_claims(ours, "alice", ours) == with_issuer
    assert await registry.user_of_claims(other, "alice", other) == without_issuer


async def test_revocation_outlives_the_token_and_is_then_purged(registry: Registry, clock: FakeClock) -> None:
    alice = await registry.add_user("alice")
    await registry.revoke_token("old", NOW + 600)
    clock.advance(600 + 600)
    await registry.revoke_token("new", clock() + 600)
    assert await registry.user_of_token(alice.id, "old") is None

    clock.advance(3600)
    await registry.revoke_token("new", NOW)

    assert await stored(registry, "SELECT identity, until FROM revoked_tokens") == [("new", NOW + 1800)]


# The file


async def test_change_by_one_process_changes_the_revision_of_another(control_path: Path) -> None:
    async with Registry.open(control_path) as here, Registry.open(control_path) as there:
        before = here.database.revision()
        assert here.database.revision() == before

        await there.add_user("alice")
        changed = here.database.revision()
        assert changed != before
        assert here.database.revision() == changed

        await here.add_user("bob")
        assert here.database.revision() != changed


async def test_every_revision_is_new_while_another_process_commits(control_path: Path) -> None:
    async with Registry.open(control_path) as registry:
        with closing(sqlite3.connect(control_path, isolation_level=None)) as other_connection:
            other_connection.execute("BEGIN EXCLUSIVE")
            during = [registry.database.revision() for _ in range(3)]
            other_connection.execute("ROLLBACK")

        assert len({*during, registry.database.revision()}) == 4


async def test_revision_holds_no_lock(control_path: Path) -> None:
    async with Registry.open(control_path) as registry:
        registry.database.revision()

        with closing(sqlite3.connect(control_path, timeout=0, isolation_level=None)) as other_connection:
            other_connection.execute("BEGIN EXCLUSIVE")
            other_connection.execute("ROLLBACK")


async def test_locked_database_raises_storage_error_and_the_next_call_works(control_path: Path) -> None:
    async with Registry.open(control_path, busy_timeout_s=0.01) as registry:
        with closing(sqlite3.connect(control_path, isolation_level=None)) as other_connection:
            other_connection.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StorageError, match="is busy"):
                await registry.add_user("alice")
            with pytest.raises(StorageError, match="is busy"):
                await registry.user_by_name("alice")
            other_connection.execute("ROLLBACK")

        await registry.add_user("alice")


async def test_file_that_is_not_a_database_raises_storage_error_without_its_path(control_path: Path) -> None:
    control_path.write_bytes(b"not a database, but long enough to be read as one" * 100)

    with pytest.raises(StorageError, match="not an SQLite file") as raised:
        async with Registry.open(control_path):
            pass
    assert str(control_path) not in raised.value.message


async def test_missing_directory_raises_storage_error_without_its_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file") as raised:
        async with Registry.open(tmp_path / "missing" / "control.db"):
            pass
    assert str(tmp_path) not in raised.value.message


async def test_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "control.db").symlink_to(tmp_path / "elsewhere.db")

    with pytest.raises(StorageError, match="not a regular file"):
        async with Registry.open(tmp_path / "control.db"):
            pass
    assert not (tmp_path / "elsewhere.db").exists()


async def test_closed_registry_raises_storage_error(control_path: Path) -> None:
    async with Registry.open(control_path) as registry:
        pass

    with pytest.raises(StorageError, match="closed"):
        await registry.list_users()
    with pytest.raises(StorageError):
        registry.database.revision()


async def test_file_is_private_and_not_in_wal_mode(control_path: Path) -> None:
    control_path.touch(mode=0o644)
    mask = os.umask(0)
    try:
        async with Registry.open(control_path) as registry, Registry.open(control_path.with_name("new.db")):
            await registry.add_user("alice")
    finally:
        os.umask(mask)

    files = sorted(control_path.parent.iterdir())
    assert [file.name for file in files] == ["control.db", "control.db-reserved", "new.db", "new.db-reserved"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    databases = [file for file in files if file.suffix == ".db"]
    assert all(
        file.read_bytes()[18:20] == b"\x01\x01" for file in databases
    )  # the format numbers of a rollback journal


async def test_registry_works_after_cancelled_writes(registry: Registry) -> None:
    for number in range(20):
        task = asyncio.create_task(registry.add_user(f"user-{number}"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    alice = await registry.add_user("alice")
    assert await registry.user_by_name("alice") == alice


async def test_users_persist_after_closing(control_location: ControlLocation) -> None:
    async with Registry.open(control_location) as registry:
        alice = await registry.add_user("alice")
    async with Registry.open(control_location) as registry:
        assert await registry.list_users() == [alice]


WRITER = """
import asyncio, sys
from pathlib import Path
from auth.registry import ControlLocation, Registry

async def main():
    async with Registry.open(Path(sys.argv[1])) as registry:
        for number in range(10_000):
            user = await registry.add_user(f"{sys.argv[2]}-{number}")
            await registry.create_key(user.id, "key", ["knowledge:read"])
            await registry.disable_user(user.id)
            print(user.id, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow("kills processes")
async def test_acknowledged_writes_survive_a_killed_writer(control_path: Path) -> None:
    acknowledged: list[UserId] = []
    for kill in range(10):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(control_path), f"run{kill}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        with writer:
            assert writer.stdout
            # Killed after the n-th acknowledgement, so at a different point of the loop each time.
            acknowledged += [UserId(writer.stdout.readline().strip()) for _ in range(kill + 1)]
            writer.send_signal(signal.SIGKILL)

        async with Registry.open(control_path) as registry:
            users = {user.id: user for user in await registry.list_users()}
            assert all(users[user_id].is_disabled for user_id in acknowledged)
            assert all(key.revoked_at or not key.user.is_disabled for key in await registry.list_keys())
        assert rows_of(control_path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_key_cannot_have_scopes_beyond_the_role(registry: Registry) -> None:
    ada, ben = await registry.add_user("ada", role="reader"), await registry.add_user("ben", role="admin")

    message = "scopes: ada has the role reader, which allows knowledge:read; got admin knowledge:write"
    with pytest.raises(InvalidParams, match=message):
        await registry.create_key(ada.id, "laptop", [READ, WRITE, ADMIN])

    assert await registry.list_keys(ada.id) == []
    key, _ = await registry.create_key(ben.id, "laptop", [READ, WRITE, ADMIN])
    assert key.scopes == {READ, WRITE, ADMIN}


@pytest.mark.parametrize("sources", [[], ["Notes"], ["notes media"], [""], ["notes", "a" * 17]])
async def test_sources_of_a_key_must_be_names(registry: Registry, sources: list[str]) -> None:
    ada = await registry.add_user("ada")

    with pytest.raises(InvalidParams, match="sources: expected one or more names of sources, got"):
        await registry.create_key(ada.id, "laptop", [READ], sources=sources)
