"""The authenticator: who gets in, who does not, and how soon a change of mind takes effect."""

import asyncio
import base64
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from auth.authenticator import Authenticator, as_bearer, local_principal
from auth.principal import ADMIN, READ, SCOPES, WRITE, ClientId, Principal
from auth.rate_limits import limits_of
from auth.registry import Registry, UserRecord
from auth.tokens import Claims
from config.errors import RateLimited, StorageError, Unauthenticated, Unavailable
from tests.auth.attack_tokens import ORDER_OF_P256
from tests.auth.issuers import ABSENT, b64, es256, hs256, jwks
from tests.auth.scene import ISSUER, NOW, PUBLIC_URL, SECRET, FakeClock, make_authenticator, make_settings

ALICE = hs256()
JWKS_URL = "https://id.example.com/keys"


@pytest.fixture
def keys_only(registry: Registry, clock: FakeClock) -> Authenticator:
    return make_authenticator(make_settings(require_auth=True), registry, clock)


@pytest.fixture
def with_secret(registry: Registry, clock: FakeClock) -> Authenticator:
    return make_authenticator(make_settings(jwt_secret=SECRET), registry, clock)


async def user_with_key(registry: Registry, name: str, **key: Any) -> tuple[UserRecord, str]:
    """A user and the header that carries its key."""
    user = await registry.add_user(name)
    _, secret = await registry.create_key(user.id, "laptop", key.pop("scopes", [READ]), **key)
    return user, f"Bearer {secret}"


async def is_accepted(door: Authenticator, header: str) -> bool:
    try:
        await door.authenticate(header)
    except Unauthenticated:
        return False
    return True


# Without a credential


async def test_in_single_user_mode_a_caller_without_credential_is_the_local_user(
    registry: Registry, clock: FakeClock
) -> None:
    door = make_authenticator(make_settings(single_user_name="me"), registry, clock)

    principal = await door.authenticate(None)

    assert (principal.user_name, principal.client_id, principal.kind) == ("me", "local", "local")
    assert principal.scopes == set(SCOPES)
    assert await door.authenticate(None) == principal
    assert [user.name for user in await registry.list_users()] == ["me"]
    await door.recheck(principal)


async def test_the_local_user_is_the_existing_user_of_that_name(registry: Registry, clock: FakeClock) -> None:
    me = await registry.add_user("local", issuer="https://id.example.com", subject="0f3b")

    principal = await make_authenticator(make_settings(), registry, clock).authenticate(None)

    assert principal == local_principal(me)
    assert len(await registry.list_users()) == 1


async def test_the_local_user_can_be_disabled_too(registry: Registry, clock: FakeClock) -> None:
    door = make_authenticator(make_settings(), registry, clock)
    principal = await door.authenticate(None)

    await registry.disable_user(principal.user_id)

    with pytest.raises(Unauthenticated, match="disabled"):
        await door.authenticate(None)
    with pytest.raises(Unauthenticated):
        await door.recheck(principal)


@pytest.mark.parametrize("changes", [{"require_auth": True}, {"jwt_secret": SECRET}])
async def test_where_authentication_is_configured_a_credential_is_required(
    registry: Registry, clock: FakeClock, changes: dict[str, Any]
) -> None:
    door = make_authenticator(make_settings(**changes), registry, clock)

    with pytest.raises(Unauthenticated) as refused:
        await door.authenticate(None)
    assert not refused.value.presented
    assert await registry.list_users() == []


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer  \t",
        "Bearer flo_" + "A" * 43,
        "Bearer " + ALICE.token(),
        "Basic OmZsb18=",
        "Digest x",
        "flo_" + "A" * 43,
        "Bearer \u00e9",
        "Bearer " + "A" * 20_000,
    ],
)
async def test_a_bad_credential_is_refused_even_where_none_is_needed(
    registry: Registry, clock: FakeClock, header: str
) -> None:
    door = make_authenticator(make_settings(), registry, clock)

    with pytest.raises(Unauthenticated) as refused:
        await door.authenticate(header)
    assert refused.value.presented


# API keys


async def test_two_users_keys_lead_to_two_principals(registry: Registry, keys_only: Authenticator) -> None:
    alice, of_alice = await user_with_key(registry, "alice", scopes=[READ, WRITE])
    bob, of_bob = await user_with_key(registry, "bob", scopes=[ADMIN])

    for _ in range(2):
        first, second = await keys_only.authenticate(of_alice), await keys_only.authenticate(of_bob)
        assert (first.user_id, first.user_name, first.kind) == (alice.id, "alice", "key")
        assert (second.user_id, second.user_name) == (bob.id, "bob")
        assert first.scopes == {READ, WRITE}
        assert second.scopes == {ADMIN}
        assert first.owner() != second.owner()


async def test_a_key_brings_its_profile_and_nothing_else_does(registry: Registry, with_secret: Authenticator) -> None:
    alice, of_alice = await user_with_key(registry, "alice")
    _, secret = await registry.create_key(alice.id, "bound", [READ], profile="research")

    bound = await with_secret.authenticate(f"Bearer {secret}")
    free = await with_secret.authenticate(of_alice)
    by_token = await with_secret.authenticate(f"Bearer {ALICE.token(jti='1')}")

    assert (bound.profile, free.profile, by_token.profile) == ("research", None, None)


async def test_keys_work_in_single_user_mode(registry: Registry, clock: FakeClock) -> None:
    alice, header = await user_with_key(registry, "alice")

    principal = await make_authenticator(make_settings(), registry, clock).authenticate(header)

    assert principal.user_id == alice.id
    assert principal.scopes == {READ}


@pytest.mark.parametrize("change", [str.lower, str.upper, lambda scheme: scheme + "  "])
async def test_the_scheme_is_read_in_any_case(
    registry: Registry, keys_only: Authenticator, change: Callable[[str], str]
) -> None:
    alice, header = await user_with_key(registry, "alice")

    principal = await keys_only.authenticate(change("Bearer") + " " + header.removeprefix("Bearer ") + " ")

    assert principal.user_id == alice.id


async def test_a_key_expires_although_it_is_remembered(
    registry: Registry, keys_only: Authenticator, clock: FakeClock
) -> None:
    _, header = await user_with_key(registry, "alice", expires_at=NOW + 10)
    principal = await keys_only.authenticate(header)

    clock.advance(9.9)
    assert await is_accepted(keys_only, header)
    await keys_only.recheck(principal)
    clock.advance(0.1)
    assert not await is_accepted(keys_only, header)
    with pytest.raises(Unauthenticated, match="expired"):
        await keys_only.recheck(principal)


async def test_last_use_is_written_at_the_flush(registry: Registry, keys_only: Authenticator, clock: FakeClock) -> None:
    alice, header = await user_with_key(registry, "alice")
    await user_with_key(registry, "bob")
    await keys_only.authenticate(header)
    clock.advance(5)
    await keys_only.authenticate(header)
    assert [key.last_used_at for key in await registry.list_keys()] == [None, None]

    await keys_only.flush()
    assert {key.user.name: key.last_used_at for key in await registry.list_keys()} == {"alice": NOW + 5, "bob": None}

    revision = registry.revision()
    await keys_only.flush()
    assert registry.revision() == revision
    assert (await registry.list_keys(alice.id))[0].is_good(NOW)


async def test_a_flush_that_fails_loses_nothing(control_path: Path, clock: FakeClock) -> None:
    async with Registry.open(control_path, clock=clock, busy_timeout_s=0.01) as registry:
        door = make_authenticator(make_settings(require_auth=True), registry, clock)
        _, header = await user_with_key(registry, "alice")
        await door.authenticate(header)
        with closing(sqlite3.connect(control_path, isolation_level=None)) as rival:
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError):
                await door.flush()
            rival.execute("ROLLBACK")

        await door.flush()
        assert [key.last_used_at for key in await registry.list_keys()] == [NOW]


# Tokens


async def test_a_token_leads_to_the_user_of_its_subject(registry: Registry, with_secret: Authenticator) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob", subject="0f3b")

    first = await with_secret.authenticate(f"Bearer {ALICE.token(jti='1')}")
    second = await with_secret.authenticate(f"Bearer {ALICE.token(sub='0f3b')}")

    assert (first.user_id, first.credential_id, first.expires_at) == (alice.id, "1", NOW + 630)
    assert (second.user_id, second.user_name) == (bob.id, "bob")
    assert first.scopes == {READ, WRITE}


async def test_a_user_of_the_exact_issuer_comes_before_one_without(
    registry: Registry, with_secret: Authenticator
) -> None:
    await registry.add_user("of-nobody", subject="alice")
    await registry.add_user("of-another", issuer="https://other.example.com", subject="alice")
    exact = await registry.add_user("of-ours", issuer=PUBLIC_URL, subject="alice")

    assert (await with_secret.authenticate(f"Bearer {ALICE.token()}")).user_id == exact.id


async def test_a_user_of_another_issuer_is_not_ours(registry: Registry, with_secret: Authenticator) -> None:
    await registry.add_user("alice", issuer="https://other.example.com")

    assert not await is_accepted(with_secret, f"Bearer {ALICE.token()}")


async def test_unknown_scopes_are_dropped(registry: Registry, with_secret: Authenticator) -> None:
    await registry.add_user("alice")

    principal = await with_secret.authenticate(f"Bearer {ALICE.token(scope='openid knowledge:read root')}")

    assert principal.scopes == {READ}


async def test_write_and_admin_do_not_imply_read(registry: Registry, with_secret: Authenticator) -> None:
    await registry.add_user("alice")

    principal = await with_secret.authenticate(f"Bearer {ALICE.token(scope='knowledge:write admin')}")

    assert not principal.holds(READ)


async def test_an_unknown_user_is_refused_until_added(registry: Registry, with_secret: Authenticator) -> None:
    header = f"Bearer {ALICE.token()}"
    assert not await is_accepted(with_secret, header)
    assert await registry.list_users() == []

    await registry.add_user("alice")
    assert await is_accepted(with_secret, header)


async def test_twenty_first_calls_at_once_create_one_user(registry: Registry, clock: FakeClock) -> None:
    door = make_authenticator(make_settings(jwt_secret=SECRET, jwt_create_users=True), registry, clock)
    tokens = [ALICE.token(sub="auth0|5f7c", jti=str(number)) for number in range(20)]

    principals = await asyncio.gather(*[door.authenticate(f"Bearer {token}") for token in tokens])

    (user,) = await registry.list_users()
    assert {principal.user_id for principal in principals} == {user.id}
    assert (user.name, user.issuer, user.subject) == ("auth0-5f7c", PUBLIC_URL, "auth0|5f7c")


async def test_an_old_token_of_a_deleted_user_does_not_create_it_again(registry: Registry, clock: FakeClock) -> None:
    door = make_authenticator(make_settings(jwt_secret=SECRET, jwt_create_users=True), registry, clock)
    old = f"Bearer {ALICE.token()}"
    principal = await door.authenticate(old)
    await registry.delete_user(principal.user_id)

    assert not await is_accepted(door, old)
    assert not await is_accepted(door, f"Bearer {ALICE.token(iat=ABSENT)}")
    assert await registry.list_users() == []

    new = await door.authenticate(f"Bearer {ALICE.token(iat=NOW)}")
    assert new.user_id != principal.user_id


async def test_a_token_expires_although_it_is_remembered(registry: Registry, clock: FakeClock) -> None:
    door = make_authenticator(make_settings(jwt_secret=SECRET, jwt_leeway_s=0), registry, clock)
    await registry.add_user("alice")
    header = f"Bearer {ALICE.token(exp=NOW + 10)}"
    principal = await door.authenticate(header)

    clock.advance(9.9)
    assert await is_accepted(door, header)
    clock.advance(0.1)
    with pytest.raises(Unauthenticated, match="token expired"):
        await door.authenticate(header)
    with pytest.raises(Unauthenticated):
        await door.recheck(principal)


async def test_a_second_valid_signature_does_not_escape_a_revocation(registry: Registry, clock: FakeClock) -> None:
    """ECDSA is malleable: from (r, s) anybody can make (r, n - s)."""

    async def fetch(_url: str) -> bytes:
        return jwks(es256())

    settings = make_settings(jwt_jwks_url=JWKS_URL, jwt_issuer=ISSUER)
    door = make_authenticator(settings, registry, clock, fetch)
    await registry.add_user("alice")
    token = es256().token()
    twin = _twin(token)
    assert twin != token
    principal = await door.authenticate(f"Bearer {token}")
    assert await is_accepted(door, f"Bearer {twin}")

    await registry.revoke_token(principal.credential_id, NOW + 600)

    assert not await is_accepted(door, f"Bearer {token}")
    assert not await is_accepted(door, f"Bearer {twin}")


def _twin(token: str) -> str:
    head, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    s = ORDER_OF_P256 - int.from_bytes(raw[32:], "big")
    return f"{head}.{b64(raw[:32] + s.to_bytes(32, 'big'))}"


# Withdrawing access


Withdraw = Callable[[Registry, Principal], Awaitable[object]]
WITHDRAWALS: dict[str, Withdraw] = {
    "key revoked": lambda registry, principal: registry.revoke_key(principal.credential_id),
    "user disabled, by key": lambda registry, principal: registry.disable_user(principal.user_id),
    "user deleted, by key": lambda registry, principal: registry.delete_user(principal.user_id),
    "token revoked": lambda registry, principal: registry.revoke_token(principal.credential_id, NOW + 600),
    "user disabled, by token": lambda registry, principal: registry.disable_user(principal.user_id),
    "user deleted, by token": lambda registry, principal: registry.delete_user(principal.user_id),
}


@asynccontextmanager
async def two_processes(path: Path, clock: FakeClock) -> AsyncIterator[tuple[Authenticator, Registry]]:
    """A server, and the registry as another process has it open."""
    async with Registry.open(path, clock=clock) as here, Registry.open(path, clock=clock) as there:
        yield make_authenticator(make_settings(jwt_secret=SECRET), here, clock), there


@pytest.mark.parametrize("name", WITHDRAWALS)
async def test_what_another_process_withdraws_is_refused_at_the_next_call(
    control_path: Path, clock: FakeClock, name: str
) -> None:
    async with two_processes(control_path, clock) as (server, elsewhere):
        _, key_of_alice = await user_with_key(elsewhere, "alice")
        _, key_of_bob = await user_with_key(elsewhere, "bob")
        by_key = "key" in name
        of_alice = key_of_alice if by_key else f"Bearer {ALICE.token()}"
        of_bob = key_of_bob if by_key else f"Bearer {ALICE.token(sub='bob')}"
        principal, neighbour = await server.authenticate(of_alice), await server.authenticate(of_bob)
        await server.recheck(principal)

        await WITHDRAWALS[name](elsewhere, principal)

        assert not await is_accepted(server, of_alice)
        with pytest.raises(Unauthenticated):
            await server.recheck(principal)
        assert await server.authenticate(of_bob) == neighbour
        await server.recheck(neighbour)


async def test_disabling_is_for_good_and_enabling_asks_for_new_credentials(
    control_path: Path, clock: FakeClock
) -> None:
    async with two_processes(control_path, clock) as (server, elsewhere):
        alice, old_key = await user_with_key(elsewhere, "alice")
        old_token = f"Bearer {ALICE.token()}"
        before = await server.authenticate(old_token)
        clock.advance(1)
        await elsewhere.disable_user(alice.id)
        meanwhile_token = f"Bearer {ALICE.token(iat=NOW + 1)}"
        assert not await is_accepted(server, meanwhile_token)

        clock.advance(1)
        await elsewhere.enable_user(alice.id)
        fresh_token = f"Bearer {ALICE.token(iat=NOW + 2)}"
        _, new_key = await elsewhere.create_key(alice.id, "new", [READ])

        assert not await is_accepted(server, old_key)
        assert not await is_accepted(server, old_token)
        assert not await is_accepted(server, meanwhile_token)
        assert not await is_accepted(server, f"Bearer {ALICE.token(iat=ABSENT)}")
        after = await server.authenticate(fresh_token)
        assert await is_accepted(server, f"Bearer {new_key}")
        assert (before.epoch, after.epoch) == (0, 1)
        assert before.owner() != after.owner()
        with pytest.raises(Unauthenticated):
            await server.recheck(before)
        await server.recheck(after)


async def test_a_locked_registry_lets_nobody_in_on_old_knowledge(control_path: Path, clock: FakeClock) -> None:
    async with Registry.open(control_path, clock=clock, busy_timeout_s=0.01) as registry:
        door = make_authenticator(make_settings(require_auth=True), registry, clock)
        _, header = await user_with_key(registry, "alice")
        principal = await door.authenticate(header)
        with closing(sqlite3.connect(control_path, isolation_level=None)) as rival:
            rival.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StorageError, match="locked"):
                await door.authenticate(header)
            with pytest.raises(StorageError, match="locked"):
                await door.recheck(principal)
            rival.execute("ROLLBACK")

        assert await door.authenticate(header) == principal


# What is remembered


class FakeVerifier:
    """Accepts every token, or none, and counts how often it is asked."""

    def __init__(self) -> None:
        self.issuer = PUBLIC_URL
        self.accepts = True
        self.asked = 0
        self.generation = 0

    async def verify(self, token: str, now: float) -> Claims:
        self.asked += 1
        if not self.accepts:
            raise Unauthenticated("token not accepted", presented=True)
        return Claims(self.issuer, "alice", ClientId("reader"), frozenset({READ}), NOW + 3600, NOW - 60, token)


def remembering(registry: Registry, clock: FakeClock, **changes: Any) -> tuple[Authenticator, FakeVerifier]:
    settings = make_settings(jwt_secret=SECRET, **changes)
    verifier = FakeVerifier()
    return Authenticator(settings, registry, limits_of(settings, clock).failures, verifier, clock), verifier


async def test_a_user_without_issuer_belongs_to_the_configured_issuer_alone(
    registry: Registry, clock: FakeClock
) -> None:
    door, verifier = remembering(registry, clock)
    await registry.add_user("alice")

    verifier.issuer = "https://other.example.com"
    assert not await is_accepted(door, "Bearer one")
    verifier.issuer = PUBLIC_URL
    assert await is_accepted(door, "Bearer two")


async def test_a_good_token_is_verified_once_per_interval(registry: Registry, clock: FakeClock) -> None:
    door, verifier = remembering(registry, clock, token_cache_ttl_s=60)
    await registry.add_user("alice")
    for _ in range(5):
        await door.authenticate("Bearer one")
    await door.authenticate("Bearer two")
    assert verifier.asked == 2

    clock.advance(60)
    await door.authenticate("Bearer one")
    assert verifier.asked == 3


async def test_a_change_of_the_registry_needs_no_second_verification(registry: Registry, clock: FakeClock) -> None:
    door, verifier = remembering(registry, clock)
    await registry.add_user("alice")
    await door.authenticate("Bearer one")

    await registry.add_user("bob")

    await door.authenticate("Bearer one")
    assert verifier.asked == 1


async def test_a_refused_token_is_remembered_briefly_and_its_repetition_does_not_prolong_it(
    registry: Registry, clock: FakeClock
) -> None:
    door, verifier = remembering(registry, clock, token_failure_cache_ttl_s=5)
    await registry.add_user("alice")
    verifier.accepts = False
    for _ in range(5):
        assert not await is_accepted(door, "Bearer one")
        clock.advance(0.9)
    assert verifier.asked == 1

    verifier.accepts = True
    clock.advance(0.5)
    assert await is_accepted(door, "Bearer one")


async def test_new_signing_keys_void_what_was_remembered(registry: Registry, clock: FakeClock) -> None:
    door, verifier = remembering(registry, clock)
    await registry.add_user("alice")
    await door.authenticate("Bearer good")
    verifier.accepts = False
    assert not await is_accepted(door, "Bearer bad")
    assert verifier.asked == 2

    verifier.accepts = True
    verifier.generation = 1
    await door.authenticate("Bearer other")  # any token that is verified brings the news

    assert await is_accepted(door, "Bearer bad")
    assert await is_accepted(door, "Bearer good")
    assert verifier.asked == 5


async def test_what_is_remembered_is_bounded_and_rubbish_does_not_push_out_what_is_good(
    registry: Registry, clock: FakeClock
) -> None:
    door, verifier = remembering(registry, clock, token_cache_max=10)
    await registry.add_user("alice")
    await door.authenticate("Bearer good")
    verifier.accepts = False
    for number in range(100):
        assert not await is_accepted(door, f"Bearer rubbish {number}")
    assert verifier.asked == 101

    assert await is_accepted(door, "Bearer good")
    assert verifier.asked == 101
    assert not await is_accepted(door, "Bearer rubbish 0")  # forgotten, so asked again
    assert verifier.asked == 102


async def test_no_credential_is_kept_in_memory(registry: Registry, clock: FakeClock) -> None:
    door, verifier = remembering(registry, clock)
    await registry.add_user("alice")
    _, key = await user_with_key(registry, "bob")
    await door.authenticate(key)
    verifier.accepts = False
    assert not await is_accepted(door, "Bearer canary-that-failed")

    remembered = repr(vars(door))
    assert "canary" not in remembered
    assert key.removeprefix("Bearer ") not in remembered


async def test_when_no_signing_keys_can_be_had_the_answer_is_unavailable_and_not_remembered(
    registry: Registry, clock: FakeClock
) -> None:
    is_down = True

    async def fetch(_url: str) -> bytes:
        if is_down:
            raise Unavailable("down")
        return jwks(es256())

    door = make_authenticator(make_settings(jwt_jwks_url=JWKS_URL, jwt_issuer=ISSUER), registry, clock, fetch)
    await registry.add_user("alice")
    header = f"Bearer {es256().token()}"
    with pytest.raises(Unavailable):
        await door.authenticate(header)

    is_down = False
    clock.advance(30)
    assert await is_accepted(door, header)


# Failed sign-ins


def limited(registry: Registry, clock: FakeClock) -> Authenticator:
    settings = make_settings(require_auth=True, rate_failures_per_minute=60, rate_failures_burst=2)
    return make_authenticator(settings, registry, clock)


@pytest.mark.parametrize("bad", ["Bearer nonsense", "Digest x", "Bearer flo_" + "A" * 43])
async def test_failures_from_one_address_are_limited_and_from_another_are_not(
    registry: Registry, clock: FakeClock, bad: str
) -> None:
    door = limited(registry, clock)
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await door.authenticate(bad, address="192.0.2.1")

    with pytest.raises(RateLimited) as refused:
        await door.authenticate(bad, address="192.0.2.1")
    assert refused.value.retry_after_s == pytest.approx(1)
    with pytest.raises(Unauthenticated):
        await door.authenticate(bad, address="192.0.2.2")


async def test_a_good_credential_is_not_locked_out_by_a_neighbours_failures(
    registry: Registry, clock: FakeClock
) -> None:
    door = limited(registry, clock)
    alice, header = await user_with_key(registry, "alice")
    for _ in range(10):
        with pytest.raises((Unauthenticated, RateLimited)):
            await door.authenticate("Bearer nonsense", address="192.0.2.1")

    assert (await door.authenticate(header, address="192.0.2.1")).user_id == alice.id


async def test_asking_without_a_credential_is_not_a_failed_sign_in(registry: Registry, clock: FakeClock) -> None:
    door = limited(registry, clock)

    for _ in range(10):
        with pytest.raises(Unauthenticated):
            await door.authenticate(None, address="192.0.2.1")


# Basic


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("Bearer x", "Bearer x"),
        (basic("alice:flo_x"), "Bearer flo_x"),
        (basic(":flo_x"), "Bearer flo_x"),
        (basic("u:a:b"), "Bearer a:b"),
        (basic("x:y").replace("Basic", "BASIC"), "Bearer y"),
        (basic("no colon"), basic("no colon")),
        ("Basic !!!", "Basic !!!"),
        ("Basic /w==", "Basic /w=="),
        ("Basic", "Basic"),
    ],
)
def test_the_password_of_basic_becomes_the_bearer_token(header: str | None, expected: str | None) -> None:
    assert as_bearer(header) == expected


async def test_a_basic_header_is_only_accepted_by_a_door_that_reads_it(
    registry: Registry, keys_only: Authenticator
) -> None:
    alice, header = await user_with_key(registry, "alice")
    as_basic = basic("anything:" + header.removeprefix("Bearer "))

    assert not await is_accepted(keys_only, as_basic)
    assert (await keys_only.authenticate(as_bearer(as_basic))).user_id == alice.id
