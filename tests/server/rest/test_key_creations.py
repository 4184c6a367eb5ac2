"""What was created with an API key is listed, and on request revoked, when the key is revoked."""

from pathlib import Path
from typing import Any

from auth.context import READ, SCOPES
from auth.follows import FollowRecord, Follows
from tests.server.console.console_fixture import console, text_of
from tests.server.rest.rest_client import RestClient
from tests.server.rest.test_account import key_of, send

KEYS = "/api/v1/keys"
NEW_FOLLOW = {"location": "https://harbour.invalid/"}


async def key_with_creations(api: RestClient, tmp_path: Path) -> dict[str, str]:
    """Returns the secrets of the keys that were created with a key, with which something of every kind was created."""
    stolen = await key_of(api, "ada", *SCOPES)
    second = (await send(api, stolen, "POST", KEYS, {"name": "second", "scopes": list(SCOPES)})).json()
    bearer = {"Authorization": f"Bearer {second['secret']}"}
    third = (await send(api, bearer, "POST", KEYS, {"name": "third"})).json()
    deployment = tmp_path / "tldw"
    deployment.mkdir()
    await api.server.user("ben")
    for key, path, body in (
        (stolen, "/api/v1/follows", NEW_FOLLOW),
        (stolen, "/api/v1/follow-deployments", {"location": str(deployment)}),
        (bearer, "/api/v1/invitations", {"name": "carl"}),
        (bearer, "/api/v1/users/ben/password-reset", {}),
    ):
        response = await send(api, key, "POST", path, body)
        assert response.status == 201, response.body
    return {"second": second["secret"], "third": third["secret"]}


async def first_key(api: RestClient) -> str:
    user = await api.server.user("ada")
    return (await api.server.runtime.registry.list_keys(user.id))[0].id


async def works(api: RestClient, secret: str) -> bool:
    return (await api.get("/api/v1/account", None, Authorization=f"Bearer {secret}")).status == 200


async def test_creations_of_a_revoked_key_are_listed_and_revoked_on_request(
    api: RestClient, tmp_path_factory: Any
) -> None:
    secrets = await key_with_creations(api, tmp_path_factory.mktemp("deployment"))
    other = await key_of(api, "ada", READ)
    person = await api.server.bearer("ada")
    key = await first_key(api)
    by_person = (await send(api, person, "POST", "/api/v1/invitations", {"name": "dora"})).status

    listed = (await send(api, person, "DELETE", f"{KEYS}/{key}")).json()
    kinds = [(one["kind"], one["is_revoked"]) for one in listed["created"]]
    assert by_person == 201
    assert sorted(kinds) == sorted(
        (kind, False)
        for kind in ("key", "key", "followed source", "followed deployment", "invitation", "password reset link")
    )
    assert [one["name"] for one in listed["created"] if one["kind"] == "key"] == ["second", "third"]
    assert await works(api, secrets["second"])
    assert await works(api, secrets["third"])

    revoked = (await send(api, person, "DELETE", f"{KEYS}/{key}?created=true")).json()
    assert all(one["is_revoked"] for one in revoked["created"])
    assert not await works(api, secrets["second"])
    assert not await works(api, secrets["third"])
    assert await works(api, other["Authorization"].removeprefix("Bearer "))
    assert (await send(api, person, "GET", "/api/v1/follows")).json()["follows"] == []
    assert (await send(api, person, "GET", "/api/v1/follow-deployments")).json()["deployments"] == []
    invitations = (await send(api, person, "GET", "/api/v1/invitations")).json()["invitations"]
    assert [one["name"] for one in invitations] == ["dora"]
    again = (await send(api, person, "DELETE", f"{KEYS}/{key}")).json()
    assert again["created"] == []
    events = (await send(api, person, "GET", "/api/v1/audit?action=key.revoke_created")).json()["events"]
    assert len(events) == 6


async def test_others_and_lesser_keys_revoke_nothing(api: RestClient, tmp_path_factory: Any) -> None:
    secrets = await key_with_creations(api, tmp_path_factory.mktemp("deployment"))
    key = await first_key(api)
    reading = await key_of(api, "ada", READ)

    foreign = await send(api, await api.server.bearer("ben"), "DELETE", f"{KEYS}/{key}?created=true")
    lesser = await send(api, reading, "DELETE", f"{KEYS}/{key}?created=true")

    assert (foreign.status, lesser.status) == (404, 403)
    assert await works(api, secrets["second"])


async def test_page_offers_to_revoke_what_a_key_created(tmp_path: Path) -> None:
    async with console(tmp_path) as site, site.browser() as ada:
        user = await site.add_account("ada")
        registry = site.server.runtime.registry
        first, _ = await registry.create_key(user.id, "stolen", [READ])
        second, _ = await registry.create_key(user.id, "left behind", [READ], created_with=first.id)
        await Follows(registry.database).add(
            FollowRecord(user_id=user.id, location="/vault", created_with=first.id), per_user_max=None
        )
        await ada.sign_in("ada")
        page = await ada.submit("/connect", {"key": first.id}, "/connect/keys/revoke")
        text = text_of(page.text)
        before = await registry.key_by_id(second.id)
        fields = {"key": first.id, "created": "on"}
        done = await ada.submit("/connect", fields, "/connect/keys/revoke")
        after = await registry.key_by_id(second.id)
        follows = await Follows(registry.database).list(user.id)

    assert page.status_code == 200
    assert "The key “stolen” is revoked. What was created with it is still there:" in text
    assert "key left behind" in text
    assert "followed source /vault" in text
    assert done.headers["Location"] == "/connect?done=key-revoked#keys"
    assert before is not None
    assert after is not None
    assert (before.revoked_at, after.revoked_at is None, follows) == (None, False, [])
