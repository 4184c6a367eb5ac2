"""Keys, connections and administration over REST, which must never give away more than the caller has."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auth.context import ADMIN, READ, SCOPES, WRITE
from auth.oauth.grants import GrantRequest, OAuthGrants, TokenResource
from config.errors import Conflict
from config.times import format_time_seconds
from tests.cases import each_case
from tests.server.http_client import HttpResponse
from tests.server.in_process import call_app
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

KEYS = "/api/v1/keys"
YEAR_S = 365 * 86_400


async def key_of(api: RestClient, name: str, *scopes: str, **limits: Any) -> dict[str, str]:
    user = await api.server.user(name)
    _, secret = await api.server.runtime.registry.create_key(user.id, f"key of {name}", scopes, **limits)
    return {"Authorization": f"Bearer {secret}"}


async def send(api: RestClient, key: dict[str, str], method: str, path: str, body: Any = None) -> HttpResponse:
    content = {} if body is None else {"Content-Type": "application/json"}
    return await call_app(api.app, method, path, {**key, **content}, b"" if body is None else msgspec.json.encode(body))


def message_of(response: HttpResponse) -> str:
    return str(response.json()["error"]["message"])


# -- keys --------------------------------------------------------------------------------------------------------------


async def test_people_create_list_and_revoke_their_own_keys(api: RestClient) -> None:
    ada, ben = await key_of(api, "ada", READ, WRITE), await key_of(api, "ben", READ)
    request = {"name": "agent", "scopes": [READ], "sources": ["notes", "media"], "profile": "compact"}
    created = await send(api, ada, "POST", KEYS, request)
    assert created.status == 201
    key = created.json()
    assert (key["scopes"], key["sources"], key["profile"], key["state"]) == (
        [READ],
        ["media", "notes"],
        "compact",
        "active",
    )
    agent = {"Authorization": f"Bearer {key['secret']}"}
    assert (await send(api, agent, "POST", "/api/v1/search", {"query": "x"})).status == 200
    listed = {one["id"]: one for one in (await send(api, ada, "GET", KEYS)).json()["keys"]}
    assert set(listed[key["id"]]) == {*key} - {"secret"}
    assert key["id"] not in {one["id"] for one in (await send(api, ben, "GET", KEYS)).json()["keys"]}

    for foreign in (key["id"], "k_unknown"):
        refused = await send(api, ben, "DELETE", f"{KEYS}/{foreign}")
        assert (refused.status, message_of(refused)) == (404, f"key '{foreign}' not found")
    assert (await send(api, ada, "DELETE", f"{KEYS}/{key['id']}")).json()["state"] == "revoked"
    assert (await send(api, agent, "POST", "/api/v1/search", {"query": "x"})).status == 401
    actions = [
        (event["action"], event["target"]) for event in (await send(api, ada, "GET", "/api/v1/audit")).json()["events"]
    ]
    assert actions == [("key.revoke", key["id"]), ("key.create", key["id"])]


@each_case(
    ("own", "requested"),
    [
        ((READ,), [WRITE]),
        ((READ,), [READ, WRITE]),
        ((READ, WRITE), [ADMIN]),
        ((READ, WRITE), list(SCOPES)),
        ((READ,), []),
    ],
)
async def test_a_key_has_no_scope_that_its_creator_lacks(
    api: RestClient, own: tuple[str, ...], requested: list[str]
) -> None:
    refused = await send(api, await key_of(api, "ada", *own), "POST", KEYS, {"name": "more", "scopes": requested})
    assert refused.status == 400
    assert message_of(refused).startswith("scopes: expected ")


async def test_the_default_scopes_leave_out_admin(api: RestClient) -> None:
    key = await send(api, await key_of(api, "ada", *SCOPES), "POST", KEYS, {"name": "laptop"})
    assert key.json()["scopes"] == [READ, WRITE]


async def test_a_lowered_role_limits_new_keys(api: RestClient) -> None:
    ada = await key_of(api, "ada", READ, WRITE)
    await api.server.runtime.registry.set_role((await api.server.user("ada")).id, "reader")
    assert (await send(api, ada, "POST", KEYS, {"name": "x", "scopes": [WRITE]})).status == 400
    assert (await send(api, ada, "POST", KEYS, {"name": "x"})).json()["scopes"] == [READ]


async def test_a_key_does_not_outlast_the_key_that_created_it(api: RestClient) -> None:
    expires_at = time.time() + 3600
    short = await key_of(api, "ada", READ, expires_at=expires_at)
    latest = format_time_seconds(expires_at)
    assert (await send(api, short, "POST", KEYS, {"name": "default"})).json()["expires_at"] == latest
    later = format_time_seconds(expires_at + YEAR_S)
    refused = await send(api, short, "POST", KEYS, {"name": "later", "expires_at": later})
    assert (refused.status, message_of(refused)) == (
        400,
        f"expires_at: expected {latest} or earlier, when your own key expires",
    )
    token = await api.server.bearer("ada", (READ,))
    assert (await send(api, token, "POST", KEYS, {"name": "signed in"})).json()["expires_at"] is None


async def test_a_lesser_key_cannot_revoke_a_more_powerful_one(api: RestClient) -> None:
    await key_of(api, "ada", READ, WRITE)
    reader = await key_of(api, "ada", READ)
    [writing] = [k for k in (await send(api, reader, "GET", KEYS)).json()["keys"] if WRITE in k["scopes"]]
    assert (await send(api, reader, "DELETE", f"{KEYS}/{writing['id']}")).status == 403


@each_case("limits", [{"profile": "full"}, {"profile": "default"}, {"profile": "bus"}, {"sources": ["notes"]}])
async def test_restricted_keys_change_nothing(api: RestClient, limits: dict[str, Any]) -> None:
    restricted = await key_of(api, "ada", *SCOPES, **limits)
    await api.server.user("ben")
    for method, path, body in (
        ("POST", KEYS, {"name": "free"}),
        ("DELETE", f"{KEYS}/k_x", None),
        ("DELETE", "/api/v1/connections/g_x", None),
        ("POST", "/api/v1/users", {"name": "eve", "role": "admin"}),
        ("PATCH", "/api/v1/users/ben", {"role": "admin"}),
        ("DELETE", "/api/v1/users/ben", None),
        ("POST", "/api/v1/invitations", {"role": "admin"}),
        ("POST", "/api/v1/users/ben/password-reset", None),
        ("PUT", "/api/v1/users/ben/quotas", {"max_items": 1}),
    ):
        assert (await send(api, restricted, method, path, body)).status == 403, path


@each_case(
    ("body", "message"),
    [
        ({"name": ""}, "name: expected 1 to 255 printable characters"),
        ({"name": "x", "profile": "deep"}, "profile: expected one of default, "),
        (
            {"name": "x", "sources": ["mail"]},
            "sources: expected one of notes, media, chats, characters, prompts, got 'mail'",
        ),
        ({"name": "x", "sources": []}, "sources: expected one or more names of sources"),
        ({"name": "x", "expires_at": "soon"}, "expires_at: expected a time such as 2026-12-31T00:00:00Z, got 'soon'"),
        ({"name": "x", "expires_at": "2001-01-01"}, "expires_at: expected a time in the future"),
        ({"name": "x", "user": "ben"}, "user: unexpected"),
    ],
)
async def test_invalid_requests_for_keys_are_explained(api: RestClient, body: dict[str, Any], message: str) -> None:
    refused = await send(api, await key_of(api, "ada", READ), "POST", KEYS, body)
    assert refused.status == 400
    assert message.partition(":")[0] in message_of(refused)
    assert message in message_of(refused) or "user" in body


async def test_connections_are_listed_and_ended(api: RestClient) -> None:
    runtime = api.server.runtime
    grants = OAuthGrants(runtime.registry.database, runtime.settings)
    resource = TokenResource(runtime.settings.resource_url, None)
    for name in ("ada", "ben"):
        request = GrantRequest(
            user=await api.server.user(name),
            client_id="https://app.example.com/client.json",
            client_name="Reader",
            redirect_uri="https://app.example.com/callback",
            resource=resource,
            scopes=frozenset((READ,)),
            sources=frozenset(("notes",)),
        )
        await grants.approve(request, "challenge")
    ada, ben = await api.server.bearer("ada"), await api.server.bearer("ben")
    [mine] = (await send(api, ada, "GET", "/api/v1/connections")).json()["connections"]
    assert (mine["client_name"], mine["scopes"], mine["sources"]) == ("Reader", [READ], ["notes"])
    assert (await send(api, ben, "DELETE", f"/api/v1/connections/{mine['id']}")).status == 404
    assert (await send(api, ada, "DELETE", f"/api/v1/connections/{mine['id']}")).status == 200
    assert (await send(api, ada, "GET", "/api/v1/connections")).json()["connections"] == []
    assert len((await send(api, ben, "GET", "/api/v1/connections")).json()["connections"]) == 1


async def test_the_account_says_what_the_credential_allows(api: RestClient) -> None:
    account = (await send(api, await key_of(api, "ada", READ, sources=["notes"]), "GET", "/api/v1/account")).json()
    assert (account["name"], account["role"], account["kind"]) == ("ada", "admin", "key")
    assert (account["scopes"], account["sources"], account["profile"]) == ([READ], ["notes"], None)


# -- administration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scopes", [(READ,), (READ, WRITE)])
async def test_administration_needs_the_scope_and_the_role(api: RestClient, scopes: tuple[str, ...]) -> None:
    await api.server.user("ben")
    demoted = await key_of(api, "carl", *SCOPES)
    await api.server.runtime.registry.set_role((await api.server.user("carl")).id, "writer")
    for key in (await key_of(api, "ada", *scopes), demoted):
        for method, path, body in (
            ("GET", "/api/v1/users", None),
            ("POST", "/api/v1/users", {"name": "eve"}),
            ("PATCH", "/api/v1/users/ada", {"role": "admin"}),
            ("DELETE", "/api/v1/users/ben", None),
            ("POST", "/api/v1/invitations", {}),
            ("POST", "/api/v1/users/ben/password-reset", None),
            ("GET", "/api/v1/users/ben/quotas", None),
            ("PUT", "/api/v1/users/ada/quotas", {}),
            ("GET", "/api/v1/server", None),
        ):
            assert (await send(api, key, method, path, body)).status == 403, path


async def test_administrators_manage_users(own_api: RestClient) -> None:
    ada = await key_of(own_api, "ada", READ, ADMIN)
    added = await send(own_api, ada, "POST", "/api/v1/users", {"name": "dan", "role": "reader"})
    assert (added.status, added.json()["role"]) == (201, "reader")
    assert (await send(own_api, ada, "POST", "/api/v1/users", {"name": "Dan"})).status == 409
    dan = await key_of(own_api, "dan", READ)
    assert (await send(own_api, ada, "PATCH", "/api/v1/users/dan", {"role": "writer"})).json()["role"] == "writer"
    assert (await send(own_api, ada, "PATCH", "/api/v1/users/dan", {"is_disabled": True})).json()["is_disabled"] is True
    assert (await send(own_api, dan, "GET", "/api/v1/account")).status == 401
    assert (await send(own_api, ada, "PATCH", "/api/v1/users/dan", {"is_disabled": False})).json()[
        "is_disabled"
    ] is False
    users = (await send(own_api, ada, "GET", "/api/v1/users")).json()["users"]
    assert [user["name"] for user in users] == ["ada", "ben", "dan"]
    invited = (await send(own_api, ada, "POST", "/api/v1/invitations", {"role": "reader", "name": "carl"})).json()
    assert invited["url"].startswith("http://127.0.0.1")
    assert (await send(own_api, ada, "POST", "/api/v1/users/dan/password-reset")).status == 201
    assert (await send(own_api, ada, "DELETE", "/api/v1/users/dan")).status == 200
    assert (await send(own_api, ada, "GET", "/api/v1/users/dan")).status == 404
    status = (await send(own_api, ada, "GET", "/api/v1/server")).json()
    assert (status["users"], status["imports_running"]) == (2, 0)
    events = (await send(own_api, ada, "GET", "/api/v1/audit")).json()["events"]
    assert [event["action"] for event in reversed(events)] == [
        "user.add",
        "user.role",
        "user.disable",
        "credential.reject",
        "user.enable",
        "user.invite",
        "user.reset_password",
        "user.delete",
    ]
    assert {event["client"] for event in events if event["action"] != "credential.reject"} <= {
        "ada",
        *(event["client"] for event in events if event["action"] == "user.invite"),
    }


async def test_administrators_cannot_lock_themselves_out(api: RestClient) -> None:
    ada = await key_of(api, "ada", *SCOPES)
    for method, body in (("PATCH", {"role": "reader"}), ("PATCH", {"is_disabled": True}), ("DELETE", None)):
        assert (await send(api, ada, method, "/api/v1/users/ada", body)).status == 409
    assert (await send(api, ada, "GET", "/api/v1/account")).json()["role"] == "admin"


async def test_purging_a_user_deletes_the_library(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Tides", "high")
    await ben.add_note("Ships", "of Ben")
    admin = await key_of(api, "ada", *SCOPES)
    assert (await send(api, admin, "DELETE", "/api/v1/users/ben?purge=true")).status == 200
    # A call that began before cannot read or create a library any more.
    async with ben.libraries.library(ben.context) as library:
        with pytest.raises(Conflict, match="disabled or deleted"):
            await library.notes.list(1, 0)
    assert await ben.libraries.stored_bytes([ben.context.user_id]) == {ben.context.user_id: 0}
    assert (await send(api, admin, "POST", "/api/v1/search", {"query": "high"})).json()["results"]


async def test_quotas_of_a_user_apply_at_once(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, user_max_items=2) as api:
        admin, ben, carl = (
            await key_of(api, "ada", *SCOPES),
            await key_of(api, "ben", READ, WRITE),
            await key_of(api, "carl", READ, WRITE),
        )
        quotas = "/api/v1/users/ben/quotas"
        assert (await send(api, admin, "GET", quotas)).json()["max_items"] == 2

        async def write(key: dict[str, str]) -> int:
            return (await send(api, key, "POST", "/api/v1/items/notes", {"title": "Note"})).status

        assert [await write(ben) for _ in range(3)] == [201, 201, 507]
        changed = (await send(api, admin, "PUT", quotas, {"max_items": 3, "import_max_bytes": 10})).json()
        assert (changed["max_items"], changed["own"]["max_items"], changed["import_max_bytes"]) == (3, 3, 10)
        assert [await write(ben) for _ in range(2)] == [201, 507]
        assert (await send(api, ben, "GET", "/api/v1/usage")).json()["max_items"] == 3
        assert [await write(carl) for _ in range(3)] == [201, 201, 507]
        upload = {"Content-Type": "application/octet-stream"}
        assert (await call_app(api.app, "POST", "/api/v1/import?name=a.md", {**ben, **upload}, b"x" * 11)).status == 413
        assert (await call_app(api.app, "POST", "/api/v1/import?name=a.md", {**carl, **upload}, b"# x")).status == 507
        assert (await send(api, admin, "PUT", quotas, {"max_items": 0})).json()["max_items"] == 0
        assert [await write(ben) for _ in range(3)] == [201, 201, 201]
        assert (await send(api, admin, "PUT", quotas, {"max_items": -1})).status == 400
