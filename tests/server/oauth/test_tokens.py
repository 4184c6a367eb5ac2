"""Tokens: rotation, reuse, revocation, and what ends them. Two users."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from auth.audit import AuditFilter
from auth.context import READ
from tests.cases import each_case
from tests.live import free_port, live, make_settings
from tests.server.clients import ModernClient
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import OAuthTestClient, connect, post_form, user_of
from tests.servers.control import stored_control_data


async def test_refresh_replaces_both_tokens(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client, first = await connect(server, "ada")
        second = (await client.refresh(first["refresh_token"])).json()
        narrow = (await client.refresh(second["refresh_token"], scope=f"{READ} openid")).json()
        wide = (await client.refresh(narrow["refresh_token"])).json()
        users = [await user_of(server, tokens["access_token"]) for tokens in (first, second, wide)]

    assert len({tokens["refresh_token"] for tokens in (first, second, narrow, wide)}) == 4
    assert (narrow["scope"], wide["scope"]) == (READ, first["scope"])
    assert users == ["ada", "ada", "ada"]


async def test_reuse_of_a_refresh_token_ends_the_connection(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, oauth_refresh_retry_s=0)) as server:
        client, first = await connect(server, "ada")
        _, other = await connect(server, "bob")
        second = (await client.refresh(first["refresh_token"])).json()
        reuse = await client.refresh(first["refresh_token"])
        after = [await user_of(server, token["access_token"]) for token in (first, second, other)]
        refreshed = await client.refresh(second["refresh_token"])

    assert (reuse.status, reuse.json()["error"]) == (400, "invalid_grant")
    assert after == ["401", "401", "bob"]
    assert refreshed.json()["error"] == "invalid_grant"


async def test_lost_response_can_be_requested_once_more(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client, first = await connect(server, "ada")
        lost = (await client.refresh(first["refresh_token"])).json()
        retry = (await client.refresh(first["refresh_token"])).json()
        users = [await user_of(server, token["access_token"]) for token in (lost, retry)]
        next_tokens = (await client.refresh(retry["refresh_token"])).json()
        late = await client.refresh(first["refresh_token"])
        after = await user_of(server, next_tokens["access_token"])

    assert users == ["401", "ada"], "only the second answer works"
    assert late.json()["error"] == "invalid_grant"
    assert after == "401", "the replacement was used, so this was no retry"


async def test_thief_and_client_cannot_both_refresh(tmp_path: Path) -> None:
    """Within the time for a retry, a thief takes the place of the client, which is noticed when the client returns."""
    async with live(make_settings(tmp_path)) as server:
        client, first = await connect(server, "ada")
        of_client = (await client.refresh(first["refresh_token"])).json()
        of_thief = (await client.refresh(first["refresh_token"])).json()
        returned = await client.refresh(of_client["refresh_token"])
        users = [await user_of(server, token["access_token"]) for token in (of_client, of_thief)]
        refreshed = await client.refresh(of_thief["refresh_token"])

    assert returned.json()["error"] == "invalid_grant"
    assert users == ["401", "401"]
    assert refreshed.json()["error"] == "invalid_grant"


async def test_second_use_of_a_code_ends_the_connection(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            code = await client.code(ada)
        tokens = (await client.redeem(code)).json()
        before = await user_of(server, tokens["access_token"])
        replay = await client.redeem(code)
        after = await user_of(server, tokens["access_token"])

    assert (before, replay.status, replay.json()["error"], after) == ("ada", 400, "invalid_grant", "401")


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_client_revokes_its_own_tokens_only(kind: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client, tokens = await connect(server, "ada")
        thief = await OAuthTestClient.register(server)
        foreign = await post_form(server, "/revoke", {"client_id": thief.client_id, "token": tokens[kind]})
        before = await user_of(server, tokens["access_token"])
        own = await post_form(server, "/revoke", {"client_id": client.client_id, "token": tokens[kind]})
        unknown = await post_form(server, "/revoke", {"client_id": client.client_id, "token": "flor_unknown"})
        after = await user_of(server, tokens["access_token"])
        refreshed = await client.refresh(tokens["refresh_token"])

    assert [response.status for response in (foreign, own, unknown)] == [200, 200, 200]
    assert (before, after) == ("ada", "401")
    assert (refreshed.status == 200) == (kind == "access_token")


@each_case("end", ["disable", "delete", "client"])
async def test_tokens_end_with_their_user_and_client(end: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client, tokens = await connect(server, "ada")
        _, others = await connect(server, "bob")
        before = await user_of(server, tokens["access_token"])
        registry, user = server.runtime.registry, await server.user("ada")
        match end:
            case "disable":
                await registry.disable_user(user.id)
                await registry.enable_user(user.id)
            case "delete":
                await registry.delete_user(user.id)
            case _:
                await registry.database.withdraw(
                    lambda db: db.execute("DELETE FROM oauth_grants WHERE client_id = ?", (client.client_id,))
                )
        after = await user_of(server, tokens["access_token"])
        refreshed = await client.refresh(tokens["refresh_token"])
        other = await user_of(server, others["access_token"])
        rows = await registry.database.read(
            lambda db: db.execute(
                "SELECT count(*) FROM oauth_tokens t JOIN oauth_grants g ON g.id = t.grant_id WHERE g.user_id = ?",
                (user.id,),
            ).fetchone()[0]
        )

    assert (before, after, other) == ("ada", "401", "bob")
    assert refreshed.json()["error"] == "invalid_grant"
    assert (rows == 0) == (end != "disable")


async def test_open_stream_ends_with_its_connection(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, access_recheck_s=0.1)) as server:
        _, tokens = await connect(server, "ada")
        principal = await server.runtime.authenticator.authenticate(f"Bearer {tokens['access_token']}")
        open_before = await server.runtime.open_streams.is_open(principal)
        async with open_browser(server, "ada") as ada:
            await ada.submit(await ada.open(f"{server.url}/connect"), action="/connect/applications")
        open_after = await server.runtime.open_streams.is_open(principal)

    assert (open_before, open_after) == (True, False)


async def test_token_of_another_address_of_the_server_is_refused(tmp_path: Path) -> None:
    """The server moved: tokens for its old address are tokens for another audience."""
    settings = make_settings(tmp_path, port=free_port())
    async with live(settings) as server:
        _, tokens = await connect(server, "ada")
        before = await user_of(server, tokens["access_token"])
    moved = msgspec.structs.replace(settings, public_url="https://kb.example.com", allowed_hosts=("127.0.0.1",))
    async with live(moved) as server:
        after = await user_of(server, tokens["access_token"])
    async with live(settings) as server:
        again = await user_of(server, tokens["access_token"])

    assert (before, after, again) == ("ada", "401", "ada")


async def test_credentials_are_stored_as_hashes(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            code = await client.code(ada)
        tokens = (await client.redeem(code)).json()
    stored = await stored_control_data(settings)
    assert client.client_id.encode() in stored

    assert not [text for text in (code, tokens["access_token"], tokens["refresh_token"]) if text.encode() in stored]


async def test_connections_and_their_misuse_are_in_the_audit_log_of_their_user(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, oauth_refresh_retry_s=0)) as server:
        client, tokens = await connect(server, "ada", client_name="Desk App")
        await client.refresh(tokens["refresh_token"])
        await client.refresh(tokens["refresh_token"])
        other, others = await connect(server, "bob")
        await post_form(server, "/revoke", {"client_id": other.client_id, "token": others["refresh_token"]})
        audit = server.runtime.audit
        events = {
            name: [
                (event.action, event.client, event.target)
                for event in await audit.select(AuditFilter(user_id=(await server.user(name)).id), 10)
                if event.action.startswith("connection.")
            ]
            for name in ("ada", "bob")
        }

    assert events["ada"] == [
        ("connection.misuse", client.client_id, "Desk App"),
        ("connection.create", client.client_id, "Desk App"),
    ]
    assert [action for action, _, _ in events["bob"]] == ["connection.revoke", "connection.create"]


async def test_connection_to_some_sources_cannot_use_the_others(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            page = await ada.open(client.authorization_url())
            others = {name: None for name in page.form.values if name.startswith("source_") and name != "source_notes"}
            answer = await ada.submit(page, {**others, "decision": "allow"})
        token = (await client.redeem(answer.answer["code"])).json()["access_token"]
        agent = ModernClient(server, {"Authorization": f"Bearer {token}"})
        listed = {tool["name"] for tool in (await agent.request("tools/list")).json()["result"]["tools"]}
        notes = await agent.call("notes_search", {"query": "galleon"})
        media = await agent.call("media_search", {"query": "galleon"})

    assert "notes_search" in listed
    assert not {"media_search", "chats_search", "characters_search", "prompts_search"} & listed
    assert notes.status == 200
    assert media.status != 200 or media.json()["result"]["isError"]


async def test_code_is_redeemed_once_by_concurrent_requests(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            code = await client.code(ada)
        responses = await asyncio.gather(*(client.redeem(code) for _ in range(5)))
        tokens = [response.json()["access_token"] for response in responses if response.status == 200]
        users = [await user_of(server, token) for token in tokens]

    assert users == ["401"], "the second request shows that someone else has the code, too"
