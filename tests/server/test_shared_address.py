"""Many people behind one address, as those of a hosted assistant: their valid credentials are never refused because of
others there. All requests of these tests come from one address that is not a trusted proxy."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.live import live, make_settings
from tests.server.clients import ModernClient, WebSocketClient
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import OAuthTestClient, call

USERS = [f"user{n}" for n in range(8)]


async def test_rejected_credentials_of_others_do_not_stop_calls(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, rate_failures_per_minute=1, rate_failures_burst=2)) as server:
        stranger = ModernClient(server, {"Authorization": "Bearer nothing"})
        refused = [(await stranger.call("server_info")).status for _ in range(4)]
        answers = [await (await ModernClient.of(server, name)).call("server_info") for name in USERS]

    assert refused == [401, 401, 429, 429]
    assert [one.json()["result"]["structuredContent"]["user"] for one in answers] == USERS


async def test_tokens_are_refreshed_although_the_address_has_used_up_its_limit(tmp_path: Path) -> None:
    # One request per minute and a burst of 100; see `server.oauth.code_request`.
    async with live(make_settings(tmp_path, rate_oauth_per_minute=1)) as server:
        client = await OAuthTestClient.register(server)
        tokens = {}
        for name in USERS:
            async with open_browser(server, name) as browser:
                tokens[name] = await client.connect(browser)
        while (guess := await client.refresh("flor_" + "x" * 43)).status != 429:
            assert guess.status == 400
        async with open_browser(server, "late") as browser:
            connected = await client.connect(browser)
        refreshed = [await client.refresh(tokens[name]["refresh_token"]) for name in USERS]
        users = [
            (await call(server, one.json()["access_token"])).json()["result"]["structuredContent"]["user"]
            for one in refreshed
        ]
        revoked = await client.token_request(grant_type="refresh_token", refresh_token=connected["refresh_token"])

    assert (users, revoked.status) == (USERS, 200)


async def test_user_who_sends_too_many_token_requests_stops_only_themselves(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, rate_oauth_per_minute=1)) as server:
        client = await OAuthTestClient.register(server)
        tokens = {}
        for name in USERS[:2]:
            async with open_browser(server, name) as browser:
                tokens[name] = await client.connect(browser)
        busy, other = (tokens[name]["refresh_token"] for name in USERS[:2])
        while (answer := await client.refresh(busy)).status == 200:
            busy = answer.json()["refresh_token"]
        refreshed = await client.refresh(other)

    assert (answer.status, refreshed.status) == (429, 200)


async def test_connections_with_a_valid_credential_do_not_count_for_their_address(tmp_path: Path) -> None:
    # Half of them are for one address without a credential.
    async with live(make_settings(tmp_path, connections_max=8)) as server, AsyncExitStack() as stack:
        for name in USERS[:6]:
            socket = await stack.enter_async_context(WebSocketClient.open(server.ws, await server.bearer(name)))
            async with asyncio.timeout(60):
                await socket.initialize()
        answer = await (await ModernClient.of(server, USERS[7])).call("server_info")

    assert answer.status == 200
