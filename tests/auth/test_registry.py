"""The registry: users, keys and revocations, on a real file, with two users and often two processes."""

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

from auth.api_keys import hash_of
from auth.principal import READ, WRITE
from auth.registry import Registry
from config.errors import Conflict, InvalidParams, NotFound, StorageError
from config.paths import UserId, new_user_id
from tests.auth.scene import NOW, FakeClock

NOBODY = new_user_id()


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What is in the file, past the registry."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


# Users


async def test_two_users_are_found_by_id_name_and_identity(registry: Registry) -> None:
    alice = await registry.add_user("alice")
    bob = await registry.add_user("bob", issuer="https://id.example.com", subject="0f3b")

    assert (alice.issuer, alice.subject, alice.created_at, alice.epoch) == ("", "alice", NOW, 0)
    assert await registry.user_by_id(alice.id) == await registry.user_by_name("alice") == alice
    assert await registry.user_by_identity("", "alice") == alice
    assert await registry.user_by_identity("https://id.example.com", "0f3b") == bob
    assert await registry.user_by_identity("", "0f3b") is None
    assert await registry.user_by_identity("https://id.example.com", "alice") is None
    assert await registry.list_users() == [alice, bob]


async def test_a_name_or_an_identity_is_given_once(registry: Registry) -> None:
    await registry.add_user("alice", subject="0f3b")

    with pytest.raises(Conflict, match="named 'alice'"):
        await registry.add_user("alice", subject="other")
    with pytest.raises(Conflict, match="subject '0f3b'"):
        await registry.add_user("bob", subject="0f3b")
    assert [user.name for user in await registry.list_users()] == ["alice"]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", "a\n", "ä", "a" * 129, "a\0", "a:b", "%"])
async def test_a_bad_name_is_refused_with_what_was_expected(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidParams, match=r"name: got .* expected 1 to 128 of the characters"):
        await registry.add_user(name)


@pytest.mark.parametrize("subject", ["a\0", "a\n", "\ud800", "a" * 256])
async def test_a_bad_subject_is_refused_with_what_was_expected(registry: Registry, subject: str) -> None:
    with pytest.raises(InvalidParams, match=r"subject: got .* expected 1 to 255 printable"):
        await registry.add_user("alice", subject=subject)
    with pytest.raises(InvalidParams, match="issuer: got"):
        await registry.add_user("alice", issuer=subject)


async def test_disabling_ends_one_users_keys_and_epoch_and_nobody_elses(registry: Registry, clock: FakeClock) -> None:
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
    assert key_of_alice.is_good(NOW)


async def test_enabling_brings_back_the_user_but_not_its_keys(registry: Registry, clock: FakeClock) -> None:
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
    found = {key.id: key.is_good(clock()) for key in await registry.list_keys()}
    assert found == {old.id: False, new.id: True}


async def test_enabling_a_user_who_is_not_disabled_changes_nothing(registry: Registry) -> None:
    alice = await registry.add_user("alice")

    assert await registry.enable_user(alice.id) == alice


async def test_disabling_twice_keeps_the_first_date(registry: Registry, clock: FakeClock) -> None:
    alice = await registry.add_user("alice")
    await registry.disable_user(alice.id)
    clock.advance(10)

    again = await registry.disable_user(alice.id)

    assert (again.disabled_at, again.epoch, again.tokens_valid_after) == (NOW, 2, NOW + 10)


async def test_deleting_forgets_one_user_and_its_keys(registry: Registry, clock: FakeClock, control_path: Path) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")
    _, secret = await registry.create_key(alice.id, "laptop", [READ])
    await registry.create_key(bob.id, "laptop", [READ])

    assert await registry.delete_user(alice.id) == alice

    assert await registry.list_users() == [bob]
    assert [key.user for key in await registry.list_keys()] == [bob]
    assert await registry.key_by_hash(hash_of(secret)) is None
    assert hash_of(secret) not in {row[0] for row in rows_of(control_path, "SELECT hash FROM keys")}
    assert await registry.departed_at("", "alice") == clock()
    assert await registry.departed_at("", "bob") == 0


@pytest.mark.parametrize(
    ("deleted_issuer", "new_issuer"), [("", ""), ("https://a", "https://a"), ("", "https://a"), ("https://a", "")]
)
async def test_a_user_made_again_inherits_when_the_old_one_left(
    registry: Registry, clock: FakeClock, deleted_issuer: str, new_issuer: str
) -> None:
    old = await registry.add_user("alice", issuer=deleted_issuer)
    clock.advance(60)
    await registry.delete_user(old.id)
    clock.advance(60)

    new = await registry.add_user("alice", issuer=new_issuer)

    assert new.id != old.id
    assert new.tokens_valid_after == NOW + 60


async def test_the_same_subject_of_another_issuer_inherits_nothing(registry: Registry) -> None:
    await registry.delete_user((await registry.add_user("alice", issuer="https://a")).id)

    assert (await registry.add_user("alice", issuer="https://b")).tokens_valid_after == 0


async def test_changing_nobody_is_not_found(registry: Registry) -> None:
    for change in (registry.disable_user, registry.enable_user, registry.delete_user):
        with pytest.raises(NotFound):
            await change(NOBODY)
    with pytest.raises(NotFound):
        await registry.create_key(NOBODY, "laptop", [READ])
    with pytest.raises(NotFound):
        await registry.revoke_key("k_nothing")


async def test_twenty_first_calls_at_once_make_one_user(control_path: Path) -> None:
    async with Registry.open(control_path) as one, Registry.open(control_path) as other:
        made = await asyncio.gather(*[(one, other)[n % 2].ensure_user("https://a", "alice") for n in range(20)])

        assert len({user.id for user in made}) == 1
        assert len(await one.list_users()) == 1


async def test_a_made_up_name_is_valid_and_unique(registry: Registry) -> None:
    subjects = ["auth0|5f7c", "auth0-5f7c", "用户", "é", "a" * 255, "a" * 254, "--", "alice@example.com"]
    made = [await registry.ensure_user("https://a", subject) for subject in subjects]

    names = [user.name for user in made]
    assert len(set(names)) == len(subjects)
    assert (names[0], names[-1]) == ("auth0-5f7c", "alice@example.com")
    assert names[1].startswith("auth0-5f7c-")
    assert [await registry.user_by_name(name) for name in names] == made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(subject=st.text(min_size=1, max_size=255))
def test_any_subject_either_makes_a_user_or_is_refused(tmp_path_factory: pytest.TempPathFactory, subject: str) -> None:
    async def scene() -> None:
        async with Registry.open(tmp_path_factory.mktemp("r") / "control.db") as registry:
            if not subject.isprintable():
                with pytest.raises(InvalidParams):
                    await registry.ensure_user("https://a", subject)
                return
            made = await registry.ensure_user("https://a", subject)
            assert made.subject == subject
            assert await registry.ensure_user("https://a", subject) == made

    asyncio.run(scene())


# API keys


async def test_a_key_is_found_by_its_hash_and_leads_to_its_own_user(registry: Registry) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")
    record, secret = await registry.create_key(alice.id, "laptop", [WRITE, READ], NOW + 60)
    _, other_secret = await registry.create_key(bob.id, "laptop", [READ])

    found = await registry.key_by_hash(hashlib.sha256(secret.encode()).digest())
    other = await registry.key_by_hash(hash_of(other_secret))

    assert found == record == await registry.key_by_id(record.id)
    assert (record.user, record.name, record.expires_at) == (alice, "laptop", NOW + 60)
    assert record.scopes == {READ, WRITE}
    assert other is not None
    assert other.user == bob


async def test_the_secret_is_not_in_the_file(registry: Registry, control_path: Path) -> None:
    alice = await registry.add_user("alice")
    _, secret = await registry.create_key(alice.id, "laptop", [READ])

    content = control_path.read_bytes()
    assert secret.encode() not in content
    assert secret.removeprefix("flo_").encode() not in content
    assert hash_of(secret) in content


@pytest.mark.parametrize("scopes", [[], ["knowledge:delete"], [READ, "*"]])
async def test_a_key_has_known_scopes(registry: Registry, scopes: list[str]) -> None:
    alice = await registry.add_user("alice")

    with pytest.raises(InvalidParams, match=r"scopes: got .* expected one or more of knowledge:read"):
        await registry.create_key(alice.id, "laptop", scopes)


async def test_a_key_keeps_the_profile_it_was_made_for(registry: Registry) -> None:
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
async def test_a_profile_is_named_in_plain_text(registry: Registry, profile: str) -> None:
    alice = await registry.add_user("alice")

    with pytest.raises(InvalidParams, match="profile: got "):
        await registry.create_key(alice.id, "key", [READ], profile=profile)
    assert await registry.list_keys() == []


async def test_keys_from_before_there_were_profiles_are_bound_to_none(control_path: Path, clock: FakeClock) -> None:
    async with Registry.open(control_path, clock=clock) as registry:
        keys = [await registry.create_key((await registry.add_user(n)).id, n, [READ]) for n in ("alice", "bob")]
    with closing(sqlite3.connect(control_path)) as db:
        db.execute("ALTER TABLE keys DROP COLUMN profile")
        db.execute("PRAGMA user_version = 1")

    async with Registry.open(control_path, clock=clock) as registry:
        found = [await registry.key_by_hash(hash_of(secret)) for _, secret in keys]

    assert found == [key for key, _ in keys]
    assert [key.profile for key in found if key] == [None, None]


async def test_a_key_cannot_expire_before_it_exists(registry: Registry) -> None:
    alice = await registry.add_user("alice")

    with pytest.raises(InvalidParams, match="expires_at"):
        await registry.create_key(alice.id, "laptop", [READ], NOW)


async def test_a_key_is_good_until_it_expires_or_is_revoked(registry: Registry, clock: FakeClock) -> None:
    alice = await registry.add_user("alice")
    key, _ = await registry.create_key(alice.id, "laptop", [READ], NOW + 60)
    assert key.is_good(NOW + 59.9)
    assert not key.is_good(NOW + 60)

    clock.advance(5)
    revoked = await registry.revoke_key(key.id)
    clock.advance(5)

    assert not revoked.is_good(NOW)
    assert (await registry.revoke_key(key.id)).revoked_at == NOW + 5


async def test_last_used_times_are_written_together_and_never_go_back(registry: Registry) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")
    one, _ = await registry.create_key(alice.id, "one", [READ])
    two, _ = await registry.create_key(bob.id, "two", [READ])

    await registry.touch_keys({one.id: NOW + 5, two.id: NOW + 6, "k_gone": NOW})
    await registry.touch_keys({one.id: NOW + 1})

    assert [key.last_used_at for key in await registry.list_keys()] == [NOW + 5, NOW + 6]


# Revoked tokens


async def test_a_revoked_token_has_no_user_and_others_keep_theirs(registry: Registry) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob")

    await registry.revoke_token("jti-1", NOW + 600)

    assert await registry.user_of_token(alice.id, "jti-1") is None
    assert await registry.user_of_token(alice.id, "jti-2") == alice
    assert await registry.user_of_token(bob.id, "jti-2") == bob


async def test_a_revocation_outlives_the_token_by_any_leeway_and_then_is_purged(
    registry: Registry, clock: FakeClock, control_path: Path
) -> None:
    alice = await registry.add_user("alice")
    await registry.revoke_token("old", NOW + 600)
    clock.advance(600 + 600)
    await registry.revoke_token("new", clock() + 600)
    assert await registry.user_of_token(alice.id, "old") is None

    clock.advance(3600)
    await registry.revoke_token("new", NOW)

    assert rows_of(control_path, "SELECT identity, until FROM revoked_tokens") == [("new", NOW + 1800)]


# The file


async def test_a_change_by_one_process_changes_the_revision_seen_by_another(control_path: Path) -> None:
    async with Registry.open(control_path) as here, Registry.open(control_path) as there:
        before = here.revision()
        assert here.revision() == before

        await there.add_user("alice")
        changed = here.revision()
        assert changed != before
        assert here.revision() == changed

        await here.add_user("bob")
        assert here.revision() != changed


async def test_while_another_process_commits_every_revision_is_new(control_path: Path) -> None:
    async with Registry.open(control_path) as registry:
        with closing(sqlite3.connect(control_path, isolation_level=None)) as rival:
            rival.execute("BEGIN EXCLUSIVE")
            during = [registry.revision() for _ in range(3)]
            rival.execute("ROLLBACK")

        assert len({*during, registry.revision()}) == 4


async def test_asking_for_the_revision_holds_no_lock(registry: Registry, control_path: Path) -> None:
    registry.revision()

    with closing(sqlite3.connect(control_path, timeout=0, isolation_level=None)) as rival:
        rival.execute("BEGIN EXCLUSIVE")
        rival.execute("ROLLBACK")


async def test_a_locked_database_is_a_storage_error_and_the_next_call_works(control_path: Path) -> None:
    async with Registry.open(control_path, busy_timeout_s=0.01) as registry:
        with closing(sqlite3.connect(control_path, isolation_level=None)) as rival:
            rival.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StorageError, match="locked by another process"):
                await registry.add_user("alice")
            with pytest.raises(StorageError, match="locked by another process"):
                await registry.user_by_name("alice")
            rival.execute("ROLLBACK")

        await registry.add_user("alice")


async def test_a_damaged_or_foreign_file_is_a_storage_error_without_its_path(control_path: Path) -> None:
    control_path.write_bytes(b"not a database, but long enough to be read as one" * 100)

    with pytest.raises(StorageError, match="not an SQLite file") as refused:
        async with Registry.open(control_path):
            pass
    assert str(control_path) not in refused.value.message


async def test_a_missing_directory_is_a_storage_error_without_its_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file") as refused:
        async with Registry.open(tmp_path / "missing" / "control.db"):
            pass
    assert str(tmp_path) not in refused.value.message


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "control.db").symlink_to(tmp_path / "elsewhere.db")

    with pytest.raises(StorageError, match="not a regular file"):
        async with Registry.open(tmp_path / "control.db"):
            pass
    assert not (tmp_path / "elsewhere.db").exists()


async def test_a_closed_registry_says_so(control_path: Path) -> None:
    async with Registry.open(control_path) as registry:
        pass

    with pytest.raises(StorageError, match="closed"):
        await registry.list_users()
    with pytest.raises(StorageError):
        registry.revision()


async def test_the_file_is_private_and_not_in_wal_mode(control_path: Path) -> None:
    control_path.touch(mode=0o644)
    mask = os.umask(0)
    try:
        async with Registry.open(control_path) as registry, Registry.open(control_path.with_name("new.db")):
            await registry.add_user("alice")
    finally:
        os.umask(mask)

    files = sorted(control_path.parent.iterdir())
    assert [file.name for file in files] == ["control.db", "new.db"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert all(file.read_bytes()[18:20] == b"\x01\x01" for file in files)  # the format numbers of a rollback journal


async def test_a_cancelled_write_is_done_or_not_done_and_the_next_works(registry: Registry) -> None:
    for number in range(20):
        task = asyncio.create_task(registry.add_user(f"user-{number}"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    alice = await registry.add_user("alice")
    assert await registry.user_by_name("alice") == alice


async def test_users_of_the_registry_survive_its_closing(control_path: Path) -> None:
    async with Registry.open(control_path) as registry:
        alice = await registry.add_user("alice")
    async with Registry.open(control_path) as registry:
        assert await registry.list_users() == [alice]


WRITER = """
import asyncio, sys
from pathlib import Path
from auth.registry import Registry

async def main():
    async with Registry.open(Path(sys.argv[1])) as registry:
        for number in range(10_000):
            user = await registry.add_user(f"{sys.argv[2]}-{number}")
            await registry.create_key(user.id, "key", ["knowledge:read"])
            await registry.disable_user(user.id)
            print(user.id, flush=True)

asyncio.run(main())
"""


async def test_nothing_acknowledged_is_lost_when_a_writer_is_killed(control_path: Path) -> None:
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
            # A different moment of the writer's loop each time, without a clock: after its n-th acknowledgement.
            acknowledged += [UserId(writer.stdout.readline().strip()) for _ in range(kill + 1)]
            writer.send_signal(signal.SIGKILL)

        async with Registry.open(control_path) as registry:
            found = {user.id: user for user in await registry.list_users()}
            assert all(found[user_id].is_disabled for user_id in acknowledged)
            assert all(key.revoked_at or not key.user.is_disabled for key in await registry.list_keys())
        assert rows_of(control_path, "PRAGMA integrity_check") == [("ok",)]
