"""Which credentials the authenticator accepts, what it caches, and when a withdrawal takes effect."""

import asyncio
import base64
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from auth.authenticator import RegistryAuthenticator, basic_to_bearer, local_principal
from auth.context import ADMIN, READ, ROLE_SCOPES, SCOPES, WRITE, ClientId, Principal
from auth.rate_limits import RateLimits, in_process_limits
from auth.registry import Registry, UserRecord
from auth.signing_keys import load_signing_keys
from auth.tokens import Claims, JwtVerifier
from config.errors import RateLimited, StorageError, Unauthenticated, Unavailable
from tests.auth.attack_tokens import ORDER_OF_P256
from tests.auth.auth_fixture import ISSUER, NOW, PUBLIC_URL, SECRET, FakeClock, make_authenticator, make_settings
from tests.auth.issuers import ABSENT, b64, es256, hs256, jwks
from tests.cases import each_case

ALICE = hs256()
JWKS_URL = "https://id.example.com/keys"


@pytest.fixture
def control_location(control_path: Path) -> Path:
    """Only SQLite: an authenticator uses nothing but the registry, whose tests run on both engines."""
    return control_path


@pytest.fixture
def keys_only(registry: Registry, clock: FakeClock) -> RegistryAuthenticator:
    return make_authenticator(make_settings(require_auth=True), registry, clock)


@pytest.fixture
def with_secret(registry: Registry, clock: FakeClock) -> RegistryAuthenticator:
    return make_authenticator(make_settings(jwt_secret=SECRET), registry, clock)


async def user_with_key(registry: Registry, name: str, **key: Any) -> tuple[UserRecord, str]:
    """Creates a user and returns it with the header that contains its key."""
    user = await registry.add_user(name, role=key.pop("role", "admin"))
    _, secret = await registry.create_key(user.id, "laptop", key.pop("scopes", [READ]), **key)
    return user, f"Bearer {secret}"


async def is_accepted(authenticator: RegistryAuthenticator, header: str) -> bool:
    try:
        await authenticator.authenticate(header)
    except Unauthenticated:
        return False
    return True


# Without a credential


async def test_caller_without_credential_is_the_local_user_in_single_user_mode(
    registry: Registry, clock: FakeClock
) -> None:
    authenticator = make_authenticator(make_settings(single_user_name="me"), registry, clock)

    principal = await authenticator.authenticate(None)

    assert (principal.user_name, principal.client_id, principal.kind) == ("me", "local", "local")
    assert principal.scopes == set(SCOPES)
    assert await authenticator.authenticate(None) == principal
    assert [user.name for user in await registry.list_users()] == ["me"]
    await authenticator.recheck(principal)


async def test_local_user_is_the_existing_user_of_that_name(registry: Registry, clock: FakeClock) -> None:
    me = await registry.add_user("local", issuer="https://id.example.com", subject="0f3b")

    principal = await make_authenticator(make_settings(), registry, clock).authenticate(None)

    assert principal == local_principal(me)
    assert len(await registry.list_users()) == 1


async def test_local_user_can_be_disabled(registry: Registry, clock: FakeClock) -> None:
    authenticator = make_authenticator(make_settings(), registry, clock)
    principal = await authenticator.authenticate(None)

    await registry.disable_user(principal.user_id)

    with pytest.raises(Unauthenticated, match="disabled"):
        await authenticator.authenticate(None)
    with pytest.raises(Unauthenticated):
        await authenticator.recheck(principal)


@pytest.mark.parametrize("changes", [{"require_auth": True}, {"jwt_secret": SECRET}])
async def test_credential_is_required_where_authentication_is_configured(
    registry: Registry, clock: FakeClock, changes: dict[str, Any]
) -> None:
    authenticator = make_authenticator(make_settings(**changes), registry, clock)

    with pytest.raises(Unauthenticated) as raised:
        await authenticator.authenticate(None)
    assert not raised.value.presented
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
async def test_invalid_credential_is_rejected_even_where_none_is_required(
    registry: Registry, clock: FakeClock, header: str
) -> None:
    authenticator = make_authenticator(make_settings(), registry, clock)

    with pytest.raises(Unauthenticated) as raised:
        await authenticator.authenticate(header)
    assert raised.value.presented


# API keys


async def test_keys_of_two_users_return_two_principals(registry: Registry, keys_only: RegistryAuthenticator) -> None:
    alice, alice_header = await user_with_key(registry, "alice", scopes=[READ, WRITE])
    bob, bob_header = await user_with_key(registry, "bob", scopes=[ADMIN])

    for _ in range(2):
        first, second = await keys_only.authenticate(alice_header), await keys_only.authenticate(bob_header)
        assert (first.user_id, first.user_name, first.kind) == (alice.id, "alice", "key")
        assert (second.user_id, second.user_name) == (bob.id, "bob")
        assert first.scopes == {READ, WRITE}
        assert second.scopes == {ADMIN}
        assert first.owner() != second.owner()


async def test_only_a_key_with_a_profile_returns_a_profile(
    registry: Registry, with_secret: RegistryAuthenticator
) -> None:
    alice, alice_header = await user_with_key(registry, "alice")
    _, secret = await registry.create_key(alice.id, "bound", [READ], profile="research")

    bound = await with_secret.authenticate(f"Bearer {secret}")
    free = await with_secret.authenticate(alice_header)
    by_token = await with_secret.authenticate(f"Bearer {ALICE.token(jti='1')}")

    assert (bound.profile, free.profile, by_token.profile) == ("research", None, None)


async def test_keys_work_in_single_user_mode(registry: Registry, clock: FakeClock) -> None:
    alice, header = await user_with_key(registry, "alice")

    principal = await make_authenticator(make_settings(), registry, clock).authenticate(header)

    assert principal.user_id == alice.id
    assert principal.scopes == {READ}


@pytest.mark.parametrize("change", [str.lower, str.upper, lambda scheme: scheme + "  "])
async def test_scheme_is_case_insensitive(
    registry: Registry, keys_only: RegistryAuthenticator, change: Callable[[str], str]
) -> None:
    alice, header = await user_with_key(registry, "alice")

    principal = await keys_only.authenticate(change("Bearer") + " " + header.removeprefix("Bearer ") + " ")

    assert principal.user_id == alice.id


async def test_cached_key_expires_on_time(
    registry: Registry, keys_only: RegistryAuthenticator, clock: FakeClock
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


async def test_last_use_is_written_by_flush(
    registry: Registry, keys_only: RegistryAuthenticator, clock: FakeClock
) -> None:
    alice, header = await user_with_key(registry, "alice")
    await user_with_key(registry, "bob")
    await keys_only.authenticate(header)
    clock.advance(5)
    await keys_only.authenticate(header)
    assert [key.last_used_at for key in await registry.list_keys()] == [None, None]

    await keys_only.flush()
    assert {key.user.name: key.last_used_at for key in await registry.list_keys()} == {"alice": NOW + 5, "bob": None}

    revision = registry.database.revision()
    await keys_only.flush()
    assert registry.database.revision() == revision
    assert (await registry.list_keys(alice.id))[0].is_valid(NOW)


async def test_failed_flush_loses_nothing(control_path: Path, clock: FakeClock) -> None:
    async with Registry.open(control_path, clock=clock, busy_timeout_s=0.01) as registry:
        authenticator = make_authenticator(make_settings(require_auth=True), registry, clock)
        _, header = await user_with_key(registry, "alice")
        await authenticator.authenticate(header)
        with closing(sqlite3.connect(control_path, isolation_level=None)) as other_connection:
            other_connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError):
                await authenticator.flush()
            other_connection.execute("ROLLBACK")

        await authenticator.flush()
        assert [key.last_used_at for key in await registry.list_keys()] == [NOW]


# Tokens


async def test_token_returns_the_user_of_its_subject(registry: Registry, with_secret: RegistryAuthenticator) -> None:
    alice, bob = await registry.add_user("alice"), await registry.add_user("bob", subject="0f3b")

    first = await with_secret.authenticate(f"Bearer {ALICE.token(jti='1')}")
    second = await with_secret.authenticate(f"Bearer {ALICE.token(sub='0f3b')}")

    assert (first.user_id, first.credential_id, first.expires_at) == (alice.id, "1", NOW + 630)
    assert (second.user_id, second.user_name) == (bob.id, "bob")
    assert first.scopes == {READ, WRITE}


async def test_user_of_the_exact_issuer_takes_precedence_over_one_without(
    registry: Registry, with_secret: RegistryAuthenticator
) -> None:
    await registry.add_user("without-issuer", subject="alice")
    await registry.add_user("other-issuer", issuer="https://other.example.com", subject="alice")
    exact = await registry.add_user("exact-issuer", issuer=PUBLIC_URL, subject="alice")

    assert (await with_secret.authenticate(f"Bearer {ALICE.token()}")).user_id == exact.id


async def test_user_of_another_issuer_is_rejected(registry: Registry, with_secret: RegistryAuthenticator) -> None:
    await registry.add_user("alice", issuer="https://other.example.com")

    assert not await is_accepted(with_secret, f"Bearer {ALICE.token()}")


async def test_unknown_scopes_are_dropped(registry: Registry, with_secret: RegistryAuthenticator) -> None:
    await registry.add_user("alice")

    principal = await with_secret.authenticate(f"Bearer {ALICE.token(scope='openid knowledge:read root')}")

    assert principal.scopes == {READ}


async def test_write_and_admin_do_not_imply_read(registry: Registry, with_secret: RegistryAuthenticator) -> None:
    await registry.add_user("alice")

    principal = await with_secret.authenticate(f"Bearer {ALICE.token(scope='knowledge:write admin')}")

    assert not principal.has_scope(READ)


async def test_unknown_user_is_rejected_until_added(registry: Registry, with_secret: RegistryAuthenticator) -> None:
    header = f"Bearer {ALICE.token()}"
    assert not await is_accepted(with_secret, header)
    assert await registry.list_users() == []

    await registry.add_user("alice")
    assert await is_accepted(with_secret, header)


async def test_twenty_concurrent_first_calls_create_one_user(registry: Registry, clock: FakeClock) -> None:
    authenticator = make_authenticator(make_settings(jwt_secret=SECRET, jwt_create_users=True), registry, clock)
    tokens = [ALICE.token(sub="auth0|5f7c", jti=str(number)) for number in range(20)]

    principals = await asyncio.gather(*[authenticator.authenticate(f"Bearer {token}") for token in tokens])

    (user,) = await registry.list_users()
    assert {principal.user_id for principal in principals} == {user.id}
    assert (user.name, user.issuer, user.subject) == ("auth0-5f7c", PUBLIC_URL, "auth0|5f7c")


async def test_old_token_of_a_deleted_user_does_not_recreate_the_user(registry: Registry, clock: FakeClock) -> None:
    authenticator = make_authenticator(make_settings(jwt_secret=SECRET, jwt_create_users=True), registry, clock)
    old = f"Bearer {ALICE.token()}"
    principal = await authenticator.authenticate(old)
    await registry.delete_user(principal.user_id)

    assert not await is_accepted(authenticator, old)
    assert not await is_accepted(authenticator, f"Bearer {ALICE.token(iat=ABSENT)}")
    assert await registry.list_users() == []

    new = await authenticator.authenticate(f"Bearer {ALICE.token(iat=NOW)}")
    assert new.user_id != principal.user_id


async def test_cached_token_expires_on_time(registry: Registry, clock: FakeClock) -> None:
    authenticator = make_authenticator(make_settings(jwt_secret=SECRET, jwt_leeway_s=0), registry, clock)
    await registry.add_user("alice")
    header = f"Bearer {ALICE.token(exp=NOW + 10)}"
    principal = await authenticator.authenticate(header)

    clock.advance(9.9)
    assert await is_accepted(authenticator, header)
    clock.advance(0.1)
    with pytest.raises(Unauthenticated, match="token expired"):
        await authenticator.authenticate(header)
    with pytest.raises(Unauthenticated):
        await authenticator.recheck(principal)


async def test_second_valid_signature_does_not_escape_a_revocation(registry: Registry, clock: FakeClock) -> None:
    """ECDSA is malleable: anyone can derive (r, n - s) from (r, s)."""

    async def fetch(_url: str) -> bytes:
        return jwks(es256())

    settings = make_settings(jwt_jwks_url=JWKS_URL, jwt_issuer=ISSUER)
    authenticator = make_authenticator(settings, registry, clock, fetch)
    await registry.add_user("alice")
    token = es256().token()
    second_token = _malleated(token)
    assert second_token != token
    principal = await authenticator.authenticate(f"Bearer {token}")
    assert await is_accepted(authenticator, f"Bearer {second_token}")

    await registry.revoke_token(principal.credential_id, NOW + 600)

    assert not await is_accepted(authenticator, f"Bearer {token}")
    assert not await is_accepted(authenticator, f"Bearer {second_token}")


def _malleated(token: str) -> str:
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
async def two_processes(path: Path, clock: FakeClock) -> AsyncIterator[tuple[RegistryAuthenticator, Registry]]:
    """A server, and the registry as opened by another process."""
    async with Registry.open(path, clock=clock) as here, Registry.open(path, clock=clock) as there:
        yield make_authenticator(make_settings(jwt_secret=SECRET), here, clock), there


@pytest.mark.parametrize("name", WITHDRAWALS)
async def test_access_withdrawn_by_another_process_is_rejected_at_the_next_call(
    control_path: Path, clock: FakeClock, name: str
) -> None:
    async with two_processes(control_path, clock) as (server, other_process):
        _, alice_key = await user_with_key(other_process, "alice")
        _, bob_key = await user_with_key(other_process, "bob")
        by_key = "key" in name
        alice_header = alice_key if by_key else f"Bearer {ALICE.token()}"
        bob_header = bob_key if by_key else f"Bearer {ALICE.token(sub='bob')}"
        principal, bob_principal = await server.authenticate(alice_header), await server.authenticate(bob_header)
        await server.recheck(principal)

        await WITHDRAWALS[name](other_process, principal)

        assert not await is_accepted(server, alice_header)
        with pytest.raises(Unauthenticated):
            await server.recheck(principal)
        assert await server.authenticate(bob_header) == bob_principal
        await server.recheck(bob_principal)


async def test_enabling_a_disabled_user_requires_new_credentials(control_path: Path, clock: FakeClock) -> None:
    async with two_processes(control_path, clock) as (server, other_process):
        alice, old_key = await user_with_key(other_process, "alice")
        old_token = f"Bearer {ALICE.token()}"
        before = await server.authenticate(old_token)
        clock.advance(1)
        await other_process.disable_user(alice.id)
        token_while_disabled = f"Bearer {ALICE.token(iat=NOW + 1)}"
        assert not await is_accepted(server, token_while_disabled)

        clock.advance(1)
        await other_process.enable_user(alice.id)
        new_token = f"Bearer {ALICE.token(iat=NOW + 2)}"
        _, new_key = await other_process.create_key(alice.id, "new", [READ])

        assert not await is_accepted(server, old_key)
        assert not await is_accepted(server, old_token)
        assert not await is_accepted(server, token_while_disabled)
        assert not await is_accepted(server, f"Bearer {ALICE.token(iat=ABSENT)}")
        after = await server.authenticate(new_token)
        assert await is_accepted(server, f"Bearer {new_key}")
        assert (before.epoch, after.epoch) == (0, 1)
        assert before.owner() != after.owner()
        with pytest.raises(Unauthenticated):
            await server.recheck(before)
        await server.recheck(after)


async def test_cached_credential_is_not_accepted_while_the_registry_is_locked(
    control_path: Path, clock: FakeClock
) -> None:
    async with Registry.open(control_path, clock=clock, busy_timeout_s=0.01) as registry:
        authenticator = make_authenticator(make_settings(require_auth=True), registry, clock)
        _, header = await user_with_key(registry, "alice")
        principal = await authenticator.authenticate(header)
        with closing(sqlite3.connect(control_path, isolation_level=None)) as other_connection:
            other_connection.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StorageError, match="is busy"):
                await authenticator.authenticate(header)
            with pytest.raises(StorageError, match="is busy"):
                await authenticator.recheck(principal)
            other_connection.execute("ROLLBACK")

        assert await authenticator.authenticate(header) == principal


# Caching


class FakeVerifier:
    """Accepts every token or none, and counts its calls."""

    def __init__(self) -> None:
        self.issuer = PUBLIC_URL
        self.accepts = True
        self.calls = 0
        self.generation = 0

    async def verify(self, token: str, now: float) -> Claims:
        self.calls += 1
        if not self.accepts:
            raise Unauthenticated("token not accepted", presented=True)
        return Claims(self.issuer, "alice", ClientId("reader"), frozenset({READ}), NOW + 3600, NOW - 60, token)


def with_fake_verifier(
    registry: Registry, clock: FakeClock, **changes: Any
) -> tuple[RegistryAuthenticator, FakeVerifier]:
    settings = make_settings(jwt_secret=SECRET, **changes)
    verifier = FakeVerifier()
    return RegistryAuthenticator(
        settings,
        registry,
        RateLimits.from_settings(settings, in_process_limits(clock)).failures,
        verifier,
        clock,
        clock,
    ), verifier


async def test_user_without_issuer_belongs_to_the_configured_issuer_only(registry: Registry, clock: FakeClock) -> None:
    authenticator, verifier = with_fake_verifier(registry, clock)
    await registry.add_user("alice")

    verifier.issuer = "https://other.example.com"
    assert not await is_accepted(authenticator, "Bearer one")
    verifier.issuer = PUBLIC_URL
    assert await is_accepted(authenticator, "Bearer two")


async def test_valid_token_is_verified_once_per_interval(registry: Registry, clock: FakeClock) -> None:
    authenticator, verifier = with_fake_verifier(registry, clock, token_cache_ttl_s=60)
    await registry.add_user("alice")
    for _ in range(5):
        await authenticator.authenticate("Bearer one")
    await authenticator.authenticate("Bearer two")
    assert verifier.calls == 2

    clock.advance(60)
    await authenticator.authenticate("Bearer one")
    assert verifier.calls == 3


async def test_registry_change_requires_no_second_verification(registry: Registry, clock: FakeClock) -> None:
    authenticator, verifier = with_fake_verifier(registry, clock)
    await registry.add_user("alice")
    await authenticator.authenticate("Bearer one")

    await registry.add_user("bob")

    await authenticator.authenticate("Bearer one")
    assert verifier.calls == 1


async def test_rejected_token_is_cached_briefly_and_repetition_does_not_extend_it(
    registry: Registry, clock: FakeClock
) -> None:
    authenticator, verifier = with_fake_verifier(registry, clock, token_failure_cache_ttl_s=5)
    await registry.add_user("alice")
    verifier.accepts = False
    for _ in range(5):
        assert not await is_accepted(authenticator, "Bearer one")
        clock.advance(0.9)
    assert verifier.calls == 1

    verifier.accepts = True
    clock.advance(0.5)
    assert await is_accepted(authenticator, "Bearer one")


async def test_new_signing_keys_clear_the_cache(registry: Registry, clock: FakeClock) -> None:
    authenticator, verifier = with_fake_verifier(registry, clock)
    await registry.add_user("alice")
    await authenticator.authenticate("Bearer good")
    verifier.accepts = False
    assert not await is_accepted(authenticator, "Bearer bad")
    assert verifier.calls == 2

    verifier.accepts = True
    verifier.generation = 1
    await authenticator.authenticate("Bearer other")  # verifying any token detects the new generation

    assert await is_accepted(authenticator, "Bearer bad")
    assert await is_accepted(authenticator, "Bearer good")
    assert verifier.calls == 5


async def test_a_token_that_is_verified_while_the_keys_change_is_verified_again(
    registry: Registry, with_secret: RegistryAuthenticator
) -> None:
    known, new = (f"Bearer {ALICE.token(jti=jti)}" for jti in ("known", "new"))
    await registry.add_user("alice")
    await with_secret.authenticate(known)
    await registry.add_user("bob")  # so that the user of the known token is looked up again
    settings = make_settings(jwt_secret="another HS256 secret of more than 32 bytes")
    keys = load_signing_keys(settings)
    assert keys is not None

    verifying = [asyncio.create_task(with_secret.authenticate(header)) for header in (known, new)]
    await asyncio.sleep(0)  # the signatures were verified, and the users are looked up
    with_secret.use_verifier(JwtVerifier(settings, keys))
    await asyncio.gather(*verifying)

    assert [await is_accepted(with_secret, header) for header in (known, new)] == [False, False]


async def test_cache_is_bounded_and_invalid_tokens_do_not_evict_valid_ones(
    registry: Registry, clock: FakeClock
) -> None:
    authenticator, verifier = with_fake_verifier(registry, clock, token_cache_max=10)
    await registry.add_user("alice")
    await authenticator.authenticate("Bearer good")
    verifier.accepts = False
    for number in range(100):
        assert not await is_accepted(authenticator, f"Bearer invalid {number}")
    assert verifier.calls == 101

    assert await is_accepted(authenticator, "Bearer good")
    assert verifier.calls == 101
    assert not await is_accepted(authenticator, "Bearer invalid 0")  # evicted, so verified again
    assert verifier.calls == 102


async def test_no_credential_is_kept_in_memory(registry: Registry, clock: FakeClock) -> None:
    authenticator, verifier = with_fake_verifier(registry, clock)
    await registry.add_user("alice")
    _, key = await user_with_key(registry, "bob")
    await authenticator.authenticate(key)
    verifier.accepts = False
    assert not await is_accepted(authenticator, "Bearer canary-that-failed")

    state = repr(vars(authenticator))
    assert "canary" not in state
    assert key.removeprefix("Bearer ") not in state


async def test_missing_signing_keys_raise_unavailable_which_is_not_cached(registry: Registry, clock: FakeClock) -> None:
    is_down = True

    async def fetch(_url: str) -> bytes:
        if is_down:
            raise Unavailable("down")
        return jwks(es256())

    authenticator = make_authenticator(make_settings(jwt_jwks_url=JWKS_URL, jwt_issuer=ISSUER), registry, clock, fetch)
    await registry.add_user("alice")
    header = f"Bearer {es256().token()}"
    with pytest.raises(Unavailable):
        await authenticator.authenticate(header)

    is_down = False
    clock.advance(30)
    assert await is_accepted(authenticator, header)


# Failed sign-ins


def with_failure_limit(registry: Registry, clock: FakeClock) -> RegistryAuthenticator:
    settings = make_settings(require_auth=True, rate_failures_per_minute=60, rate_failures_burst=2)
    return make_authenticator(settings, registry, clock)


@pytest.mark.parametrize("header", ["Bearer nonsense", "Digest x", "Bearer flo_" + "A" * 43])
async def test_failures_are_limited_per_address(registry: Registry, clock: FakeClock, header: str) -> None:
    authenticator = with_failure_limit(registry, clock)
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(header, address="192.0.2.1")

    with pytest.raises(RateLimited) as raised:
        await authenticator.authenticate(header, address="192.0.2.1")
    assert raised.value.retry_after_s == pytest.approx(1)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(header, address="192.0.2.2")


async def test_failures_are_limited_per_network_of_ipv6(registry: Registry, clock: FakeClock) -> None:
    authenticator = with_failure_limit(registry, clock)
    outcomes = []
    for address in ("2001:db8:1:2::1", "2001:db8:1:2:3::", "2001:db8:1:2::3", "2001:db8:1:3::1"):
        with pytest.raises((Unauthenticated, RateLimited)) as raised:
            await authenticator.authenticate("Bearer nonsense", address=address)
        outcomes.append(raised.type)

    assert outcomes == [Unauthenticated, Unauthenticated, RateLimited, Unauthenticated]


async def test_valid_credential_is_not_locked_out_by_failures_from_the_same_address(
    registry: Registry, clock: FakeClock
) -> None:
    authenticator = with_failure_limit(registry, clock)
    alice, header = await user_with_key(registry, "alice")
    for _ in range(10):
        with pytest.raises((Unauthenticated, RateLimited)):
            await authenticator.authenticate("Bearer nonsense", address="192.0.2.1")

    assert (await authenticator.authenticate(header, address="192.0.2.1")).user_id == alice.id


async def test_request_without_a_credential_is_not_a_failed_sign_in(registry: Registry, clock: FakeClock) -> None:
    authenticator = with_failure_limit(registry, clock)

    for _ in range(10):
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(None, address="192.0.2.1")


# Basic


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@each_case(
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
def test_basic_password_becomes_the_bearer_token(header: str | None, expected: str | None) -> None:
    assert basic_to_bearer(header) == expected


async def test_basic_header_is_rejected_unless_converted(registry: Registry, keys_only: RegistryAuthenticator) -> None:
    alice, header = await user_with_key(registry, "alice")
    as_basic = basic("anything:" + header.removeprefix("Bearer "))

    assert not await is_accepted(keys_only, as_basic)
    assert (await keys_only.authenticate(basic_to_bearer(as_basic))).user_id == alice.id


# Roles


async def test_role_limits_the_scopes_of_keys_and_tokens(
    registry: Registry, with_secret: RegistryAuthenticator
) -> None:
    _, ben_key = await user_with_key(registry, "ben", scopes=SCOPES)
    alice, alice_key = await user_with_key(registry, "alice", scopes=SCOPES)
    for role, scopes in ROLE_SCOPES.items():
        await registry.set_role(alice.id, role)

        for header in (alice_key, f"Bearer {ALICE.token(scope=' '.join(SCOPES))}"):
            assert (await with_secret.authenticate(header)).scopes == scopes
        assert (await with_secret.authenticate(ben_key)).scopes == set(SCOPES)


async def test_a_connection_opened_with_a_higher_role_loses_access(
    registry: Registry, keys_only: RegistryAuthenticator
) -> None:
    alice, key = await user_with_key(registry, "alice", scopes=[READ, WRITE])
    principal = await keys_only.authenticate(key)
    await keys_only.recheck(principal)

    await registry.set_role(alice.id, "reader")

    with pytest.raises(Unauthenticated, match="access withdrawn"):
        await keys_only.recheck(principal)
    await keys_only.recheck(await keys_only.authenticate(key))
    # Also after a newer connection of the same key was checked.
    with pytest.raises(Unauthenticated, match="access withdrawn"):
        await keys_only.recheck(principal)


async def test_users_created_by_tokens_are_writers(registry: Registry, clock: FakeClock) -> None:
    authenticator = make_authenticator(make_settings(jwt_secret=SECRET, jwt_create_users=True), registry, clock)

    principal = await authenticator.authenticate(f"Bearer {ALICE.token(scope=' '.join(SCOPES))}")

    assert principal.scopes == {READ, WRITE}
    user = await registry.user_by_id(principal.user_id)
    assert user is not None
    assert user.role == "writer"


async def test_principal_of_a_key_has_its_sources(registry: Registry, keys_only: RegistryAuthenticator) -> None:
    _, restricted = await user_with_key(registry, "alice", sources=["notes", "media"])
    _, free = await user_with_key(registry, "ben")

    assert (await keys_only.authenticate(restricted)).sources == frozenset(("notes", "media"))
    assert (await keys_only.authenticate(free)).sources is None


async def test_access_ends_at_the_time_at_which_a_user_expires(
    registry: Registry, keys_only: RegistryAuthenticator, clock: FakeClock
) -> None:
    ada, header = await user_with_key(registry, "ada")
    ben, limited = await user_with_key(registry, "ben", expires_at=NOW + 50)
    for user in (ada, ben):
        await registry.expire_user(user.id, NOW + 100)
    principal = await keys_only.authenticate(header)

    assert (principal.expires_at, (await keys_only.authenticate(limited)).expires_at) == (NOW + 100, NOW + 50)
    clock.advance(99)
    await keys_only.recheck(principal)
    clock.advance(1)
    with pytest.raises(Unauthenticated):
        await keys_only.recheck(principal)


async def test_user_who_has_expired_is_disabled(registry: Registry, keys_only: RegistryAuthenticator) -> None:
    ada, header = await user_with_key(registry, "ada")

    assert not (await registry.expire_user(ada.id, time.time() + 3600)).is_disabled
    assert (await registry.expire_user(ada.id, time.time() - 1)).is_disabled
    assert not await is_accepted(keys_only, header)
    # Withdrawn access is disabled whatever the clock says.
    assert (await registry.disable_user(ada.id)).disabled_at == NOW
    assert (await registry.enable_user(ada.id)).disabled_at is None


async def test_account_that_has_expired_gets_no_earlier_key_back_when_it_is_enabled(
    registry: Registry, keys_only: RegistryAuthenticator
) -> None:
    ada, header = await user_with_key(registry, "ada")
    await registry.expire_user(ada.id, time.time() - 1)

    assert not (await registry.enable_user(ada.id)).is_disabled

    assert not await is_accepted(keys_only, header)
    _, secret = await registry.create_key(ada.id, "new", [READ])
    assert await is_accepted(keys_only, f"Bearer {secret}")
    # An account whose time has not come keeps what it has.
    await registry.expire_user(ada.id, time.time() + 3600)
    assert (await registry.enable_user(ada.id)).expires_at is None
    assert await is_accepted(keys_only, f"Bearer {secret}")
