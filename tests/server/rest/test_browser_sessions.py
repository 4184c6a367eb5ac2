"""Signed-in browsers, passkeys, invitations and the end of an account over REST."""

from typing import Any

import pytest

from auth.accounts.service import AccountLinks, LinkNotValid
from auth.context import READ, SCOPES, WRITE
from auth.registry import UserRecord
from tests.server.rest.rest_client import RestClient
from tests.server.rest.test_account import key_of, message_of, send
from tests.sources.source_fixture import LibraryUser

SESSIONS = "/api/v1/browser-sessions"


async def sign_in(api: RestClient, name: str, agent: str) -> UserRecord:
    user = await api.server.user(name)
    await api.server.runtime.browser_sessions.create(user, "192.0.2.7", agent)
    return user


async def test_people_see_and_end_only_their_own_browser_sessions(api: RestClient) -> None:
    for name, agent in (("ada", "Mozilla/5.0 (iPhone) Safari/605"), ("ada", "curl/8"), ("ben", "Firefox/140 Linux")):
        await sign_in(api, name, agent)
    ada, ben = await api.server.bearer("ada"), await api.server.bearer("ben")
    listed = (await send(api, ada, "GET", SESSIONS)).json()["sessions"]
    assert {one["browser"] for one in listed} == {"Safari on iPhone", "curl/8"}
    assert [one["is_current"] for one in listed] == [False, False]

    assert (await send(api, ben, "DELETE", f"{SESSIONS}/{listed[0]['id']}")).status == 404
    assert (await send(api, ada, "DELETE", f"{SESSIONS}/{listed[0]['id']}")).json()["id"] == listed[0]["id"]
    assert (await send(api, ada, "GET", SESSIONS)).json()["sessions"] == [listed[1]]
    assert len((await send(api, ada, "DELETE", SESSIONS)).json()["sessions"]) == 1
    assert (await send(api, ada, "GET", SESSIONS)).json()["sessions"] == []
    assert len((await send(api, ben, "GET", SESSIONS)).json()["sessions"]) == 1


@pytest.mark.parametrize("limits", [{"profile": "full"}, {"sources": ["notes"]}])
async def test_restricted_keys_end_no_session(api: RestClient, limits: dict[str, Any]) -> None:
    await sign_in(api, "ada", "curl/8")
    key = await key_of(api, "ada", READ, WRITE, **limits)

    assert (await send(api, key, "DELETE", SESSIONS)).status == 403
    assert (await send(api, key, "DELETE", "/api/v1/account?token=x")).status == 403
    assert len(await api.server.runtime.browser_sessions.list((await api.server.user("ada")).id)) == 1


async def test_invitations_are_listed_without_their_links_and_revoked(api: RestClient) -> None:
    ada = await key_of(api, "ada", *SCOPES)
    created = (await send(api, ada, "POST", "/api/v1/invitations", {"role": "reader", "name": "eve"})).json()
    secret = created["url"].rpartition("/")[2]
    listed = await send(api, ada, "GET", "/api/v1/invitations")
    [invitation] = listed.json()["invitations"]
    assert (invitation["name"], invitation["role"], invitation["created_by"]) == ("eve", "reader", "ada")
    assert secret not in listed.body.decode()

    links = AccountLinks(api.server.runtime.registry.database)
    assert (await links.find("invitation", secret)).name == "eve"
    path = f"/api/v1/invitations/{invitation['id']}"
    assert (await send(api, ada, "DELETE", path)).json()["name"] == "eve"
    assert (await send(api, ada, "DELETE", path)).status == 404
    assert (await send(api, ada, "GET", "/api/v1/invitations")).json()["invitations"] == []
    with pytest.raises(LinkNotValid):
        await links.find("invitation", secret)


async def test_people_delete_their_account_with_everything(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Tides", "high water")
    await ben.add_note("Ships", "high water")
    admin, his = await api.server.bearer("ada"), await api.server.bearer("ben", (READ, WRITE))
    folder = api.server.runtime.data_root.paths_of(ben.context.user_id).chacha.parent
    token = (await send(api, his, "POST", "/api/v1/account/deletion")).json()["token"]
    assert (await send(api, admin, "DELETE", f"/api/v1/account?token={token}")).status == 400
    assert (await send(api, his, "DELETE", "/api/v1/account?token=x")).status == 400

    deleted = await send(api, his, "DELETE", f"/api/v1/account?token={token}")
    assert (deleted.status, deleted.json()["name"], deleted.json()["items"]) == (200, "ben", 1)
    assert not folder.exists()
    assert (await send(api, his, "GET", "/api/v1/account")).status == 401
    assert [user["name"] for user in (await send(api, admin, "GET", "/api/v1/users")).json()["users"]] == ["ada"]
    assert (await send(api, admin, "POST", "/api/v1/search", {"query": "water"})).json()["results"]


async def test_the_last_administrator_cannot_be_deleted(api: RestClient) -> None:
    ada, ben = await api.server.bearer("ada"), await api.server.user("ben")
    await api.server.runtime.registry.set_role(ben.id, "writer")
    token = (await send(api, ada, "POST", "/api/v1/account/deletion")).json()["token"]
    refused = await send(api, ada, "DELETE", f"/api/v1/account?token={token}")
    assert (refused.status, "only administrator" in message_of(refused)) == (409, True)

    await api.server.runtime.registry.set_role(ben.id, "admin")
    assert (await send(api, ada, "DELETE", f"/api/v1/account?token={token}")).status == 200


async def test_the_state_of_the_server_names_sources_embeddings_disk_and_calls(own_api: RestClient) -> None:
    ada = await key_of(own_api, "ada", *SCOPES)
    await send(own_api, ada, "POST", "/api/v1/search", {"query": "water"})

    status = (await send(own_api, ada, "GET", "/api/v1/server")).json()

    assert [source["name"] for source in status["sources"]] == ["notes", "media", "chats", "characters", "prompts"]
    assert {source["skipped_users"] for source in status["sources"]} == {0}
    assert status["is_ready"] is True
    assert status["embedding"]["model"] == "off"
    assert 0 < status["disk_free_bytes"] <= status["disk_size_bytes"]
    assert status["searches"]["complete"] == 1
    assert status["responses"]["200"] >= 1
    assert status["last_backup"] is None


async def test_the_audit_log_leaves_out_reads_on_request(own_api: RestClient) -> None:
    ada = await own_api.library_user("ada")
    note = await ada.add_note("Tides", "high water")
    key = await key_of(own_api, "ada", *SCOPES)
    await send(own_api, key, "GET", f"/api/v1/items/notes/{note}")
    await send(own_api, key, "POST", "/api/v1/keys", {"name": "agent"})

    async def actions(query: str) -> list[str]:
        return [one["action"] for one in (await send(own_api, key, "GET", f"/api/v1/audit{query}")).json()["events"]]

    assert sorted(await actions("")) == ["key.create", "read"]
    assert await actions("?reads=false") == ["key.create"]
    assert await actions("?reads=false&action=read") == ["read"]
