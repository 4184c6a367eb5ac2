"""Accounts, connections, quotas and followed sources behave the same on each engine, with two users."""

import asyncio
import base64
import hashlib

import pytest

from auth.accounts.service import Accounts, SignInFailed
from auth.browser_sessions import BrowserSessions
from auth.context import READ
from auth.follows import Deployment, Deployments, FollowRecord, Follows
from auth.oauth.clients import OAuthClients
from auth.oauth.grants import GrantRequest, OAuthError, OAuthGrants, Resources, TokenResource
from auth.oauth.tokens import DeviceCodes, OAuthTokens, TokenRequest
from auth.quotas import QuotaOverrides, Quotas
from auth.registry import Registry, UserRecord, hash_credential
from config.errors import Conflict, NotFound
from config.paths import new_user_id
from config.settings import Settings
from tests.auth.auth_fixture import FakeClock, make_settings

REDIRECT = "http://127.0.0.1/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
PASSWORD = "correct horse battery staple"


@pytest.fixture
def settings() -> Settings:
    return make_settings(
        require_auth=True, oauth_connections_max_per_user=2, password_hash_memory_kib=64, password_hash_passes=1
    )


def request_of(user: UserRecord, settings: Settings, client_id: str = "c_reader") -> GrantRequest:
    resource = TokenResource(settings.resource_url, None)
    return GrantRequest(
        user=user,
        client_id=client_id,
        client_name="Reader",
        redirect_uri=REDIRECT,
        resource=resource,
        scopes=frozenset((READ,)),
    )


async def test_connections_belong_to_their_users(registry: Registry, settings: Settings, clock: FakeClock) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    grants = OAuthGrants(registry.database, settings, clock)
    tokens = OAuthTokens(registry.database, settings, clock)
    by_code = TokenRequest(client_id="c_reader", redirect_uri=REDIRECT, code_verifier=VERIFIER)
    issued = [
        await tokens.redeem(await grants.approve(request_of(user, settings), CHALLENGE), by_code) for user in (ada, ben)
    ]

    found = [await tokens.find(hash_credential(one.access_token)) for one in issued]
    assert [one.grant.user.id for one in found if one] == [ada.id, ben.id]
    assert await grants.find_remembered(request_of(ada, settings)) is not None

    refreshed = await tokens.refresh(issued[0].refresh_token or "", TokenRequest(client_id="c_reader"))
    await tokens.touch({found[1].id: clock() + 5} if found[1] else {})
    assert refreshed.grant.id == issued[0].grant.id
    assert [grant.last_used_at for grant in await grants.list(ben.id)] == [clock() + 5]

    with pytest.raises(NotFound):
        await grants.revoke(ben.id, issued[0].grant.id)
    await grants.revoke(ada.id, issued[0].grant.id)
    assert await tokens.find(hash_credential(refreshed.access_token)) is None
    assert await tokens.find(hash_credential(issued[1].access_token)) is not None


async def test_oldest_connections_end_at_the_limit(registry: Registry, settings: Settings, clock: FakeClock) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    grants = OAuthGrants(registry.database, settings, clock)
    await grants.approve(request_of(ben, settings, "c_1"), CHALLENGE)
    for number in range(3):
        clock.advance(1)
        await grants.approve(request_of(ada, settings, f"c_{number}"), CHALLENGE)

    assert [grant.client_id for grant in await grants.list(ada.id)] == ["c_2", "c_1"]
    assert [grant.client_id for grant in await grants.list(ben.id)] == ["c_1"]


async def test_clients_and_their_device_codes(registry: Registry, settings: Settings, clock: FakeClock) -> None:
    ada = await registry.add_user("ada")
    clients = OAuthClients(registry.database, settings, clock)
    tokens = OAuthTokens(registry.database, settings, clock)
    codes = DeviceCodes(registry.database, settings, Resources(settings, ()), tokens, clock)
    client, _ = await clients.add({"redirect_uris": [REDIRECT], "client_name": "Reader"}, is_confidential=False)
    assert await clients.list() == [client]

    device_code, user_code = await codes.create(
        client.id, frozenset((READ,)), TokenResource(settings.resource_url, None)
    )
    asking = TokenRequest(client_id=client.id)
    with pytest.raises(OAuthError):
        await codes.poll(device_code, asking)
    await codes.approve(user_code, request_of(ada, settings, client.id))
    clock.advance(60)
    issued = await codes.poll(device_code, asking)

    assert issued.grant.user.id == ada.id
    assert await clients.remove(client.id) == 1
    assert await tokens.find(hash_credential(issued.access_token)) is None
    with pytest.raises(NotFound):
        await clients.remove(client.id)


async def test_invitation_is_used_once(registry: Registry, settings: Settings, clock: FakeClock) -> None:
    accounts = Accounts(settings, registry.database, clock=clock)
    setup, invitation = await accounts.links.create_setup(), await accounts.links.create_invitation("reader", "ben")
    assert setup is not None
    ada = await accounts.redeem_link("setup", setup.path.rpartition("/")[2], "ada", PASSWORD)
    secret = invitation.path.rpartition("/")[2]
    assert [one.name for one in await accounts.links.pending_invitations()] == ["ben"]
    ben = await accounts.redeem_link("invitation", secret, "", PASSWORD)

    assert (ada.role, ben.role, ben.name) == ("admin", "reader", "ben")
    assert await accounts.links.create_setup() is None
    assert await accounts.links.pending_invitations() == []
    assert (await accounts.sign_in("ADA", PASSWORD, "192.0.2.1")).user == ada
    with pytest.raises(SignInFailed):
        await accounts.sign_in("ben", "wrong", "192.0.2.2")


async def test_sign_in_that_a_change_of_the_password_overtakes_fails(
    registry: Registry, settings: Settings, clock: FakeClock
) -> None:
    """Comparing a password takes long enough to sign in, or to set another one, across the change."""
    accounts, sessions = (
        Accounts(settings, registry.database, clock=clock),
        BrowserSessions(registry.database, settings),
    )
    link = await accounts.links.create_invitation("writer", "ada")
    ada = await accounts.redeem_link("invitation", link.path.rpartition("/")[2], "", PASSWORD)
    clock.advance(1)
    signed_in = await accounts.sign_in("ada", PASSWORD, "192.0.2.1")
    changes = [accounts.change_password(ada, PASSWORD, f"another lantern {n}", "192.0.2.1") for n in range(2)]
    outcomes = await asyncio.gather(*changes, return_exceptions=True)

    # Either of them may be first.
    assert {type(outcome) for outcome in outcomes} == {type(None), SignInFailed}
    with pytest.raises(SignInFailed):
        await sessions.create(ada, password_changed_at=signed_in.password_changed_at)
    again = await accounts.sign_in("ada", f"another lantern {outcomes.index(None)}", "192.0.2.1")
    await sessions.create(ada, password_changed_at=again.password_changed_at)
    assert len(await sessions.list(ada.id)) == 1


async def test_quotas_replace_those_of_the_settings(registry: Registry, settings: Settings) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    quotas = Quotas(registry.database, settings)
    await quotas.set(ada.id, QuotaOverrides(max_items=5))
    assert (await quotas.limits(ada.id)).max_items == 5
    await quotas.set(ada.id, QuotaOverrides(max_items=7, max_bytes=3))

    assert (await quotas.limits(ada.id)).max_items == 7
    assert (await quotas.overrides(ada.id)).max_bytes == 3
    assert await quotas.overrides(ben.id) == QuotaOverrides()
    with pytest.raises(NotFound):
        await quotas.set(new_user_id(), QuotaOverrides())


async def test_each_source_is_followed_once(registry: Registry, clock: FakeClock) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    follows = Follows(registry.database, clock)
    first = await follows.add(FollowRecord(user_id=ada.id, location="/srv/notes", writes_back=True), per_user_max=2)
    await follows.add(FollowRecord(user_id=ben.id, location="/srv/notes"), per_user_max=2)

    with pytest.raises(Conflict, match="already followed"):
        await follows.add(FollowRecord(user_id=ada.id, location="/srv/notes"), per_user_max=2)
    assert await follows.list(ada.id) == [first]
    assert (await follows.pause(ada.id, first.id)).paused_at == clock()
    assert (await follows.resume(ada.id, first.id)).paused_at is None
    with pytest.raises(NotFound):
        await follows.remove(ben.id, first.id)
    await follows.remove(ada.id, first.id)
    assert [one.user_id for one in await follows.list()] == [ben.id]


async def test_deployment_ends_with_the_sources_of_its_users(registry: Registry, clock: FakeClock) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    deployments, follows = Deployments(registry.database, clock), Follows(registry.database, clock)
    tldw = await deployments.add(Deployment(location="/srv/tldw", creates_users=True))
    own = await follows.add(FollowRecord(user_id=ada.id, location="/srv/notes"), per_user_max=1)
    first = await follows.add(
        FollowRecord(user_id=ada.id, location="/srv/tldw/1", deployment=tldw.id), per_user_max=None
    )
    second = await follows.add(
        FollowRecord(user_id=ben.id, location="/srv/tldw/2", deployment=tldw.id), per_user_max=None
    )

    with pytest.raises(Conflict, match="already followed"):
        await deployments.add(Deployment(location="/srv/tldw"))
    assert await deployments.list() == [tldw]
    await deployments.pause(tldw.id)
    assert {one.id: one.paused_at for one in await follows.list(ada.id)} == {own.id: None, first.id: clock()}
    assert (await deployments.resume(tldw.id)).paused_at is None
    assert await follows.list(ben.id) == [second]
    await follows.remove(ada.id, first.id)
    assert await deployments.excluded(tldw.id) == {"/srv/tldw/1"}
    await deployments.remove(tldw.id)
    assert await follows.list() == [own]
    with pytest.raises(NotFound):
        await deployments.get(tldw.id)


async def test_deleting_a_user_removes_all_that_belongs_to_it(
    registry: Registry, settings: Settings, clock: FakeClock
) -> None:
    ada, ben = await registry.add_user("ada"), await registry.add_user("ben")
    grants, follows = OAuthGrants(registry.database, settings, clock), Follows(registry.database, clock)
    for user in (ada, ben):
        await grants.approve(request_of(user, settings), CHALLENGE)
        await follows.add(FollowRecord(user_id=user.id, location="/srv/notes"), per_user_max=2)

    await registry.delete_user(ada.id)

    tables = ("users", "oauth_grants", "oauth_codes", "follows")
    union = " UNION ALL ".join(f"SELECT count(*) FROM {table}" for table in tables)
    counts = await registry.database.read(lambda db: [count for (count,) in db.execute(union)])
    assert counts == [1, 1, 1, 1]
