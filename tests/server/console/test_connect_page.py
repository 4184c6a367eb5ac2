"""The connect page: keys, connected applications, set-up, the connection test and recent activity."""

import json
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from auth.context import READ, WRITE
from server.client_guides import CLIENTS
from server.doctor.replay import FLOWS
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient
from tests.server.oauth.browser import Browser, Page, open_browser
from tests.server.oauth.oauth_client import OAuthTestClient
from tests.server.rest.rest_client import rest_client_of


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    async with live(make_settings(tmp_path)) as server:
        yield server


async def create_key(browser: Browser, url: str, **fields: str | None) -> Page:
    values = {"name": "Laptop", **fields}
    return await browser.submit(await browser.open(f"{url}/connect?client=cursor"), values, "/connect/keys")


def secret_of(page: Page) -> str:
    found = re.search(r'id="new-key" value="(flo_[\w-]+)"', page.text)
    assert found is not None, page.words
    return found[1]


async def call(server: LiveServer, secret: str, tool: str = "knowledge_search", **arguments: Any) -> int:
    client = ModernClient(server, {"Authorization": f"Bearer {secret}"})
    params = {"name": tool, "arguments": arguments or {"query": "galleon"}}
    return (await client.request("tools/call", params)).status


async def test_new_key_is_shown_once_works_and_stops_when_it_is_revoked(server: LiveServer) -> None:
    async with open_browser(server, "ada") as ada, open_browser(server, "ben") as ben:
        page = await create_key(ada, server.url)
        secret = secret_of(page)
        works = await call(server, secret)
        later = await ada.open(f"{server.url}/connect")
        (key,) = re.findall(r'name="key" value="(k_\w+)"', later.text)
        token = (await ben.open(f"{server.url}/connect")).form.values["csrf_token"]
        foreign = await ben.post("/connect/keys/revoke", {"csrf_token": token, "key": key})
        revoked = await ada.submit(later, action="/connect/keys/revoke")

    assert page.status == 201
    assert page.text.count(secret) >= 2, "the instructions contain the key"
    assert works == 200
    assert (secret in later.text, "Laptop" in later.words) == (False, True)
    assert foreign.status == 404
    assert "The key is revoked." in revoked.words
    assert "1 revoked or expired" in revoked.words
    assert await call(server, secret) == 401


async def test_key_has_the_restrictions_that_were_chosen(server: LiveServer) -> None:
    changes = {"rights": "read", "profile": "research", "expires": "30", "source_media": None, "source_chats": None}
    async with open_browser(server, "ada") as ada:
        secret = secret_of(await create_key(ada, server.url, **changes))
        page = await ada.open(f"{server.url}/connect")
    principal = await server.runtime.authenticator.authenticate(f"Bearer {secret}")

    assert (principal.scopes, principal.profile) == (frozenset((READ,)), "research")
    assert principal.sources == frozenset(("notes", "characters", "prompts"))
    assert principal.expires_at is not None
    assert "Can search and read · profile research · characters, notes, prompts" in page.words


async def test_people_cannot_give_a_key_more_than_they_have(server: LiveServer) -> None:
    reader = await server.user("rita")
    await server.runtime.registry.set_role(reader.id, "reader")
    async with open_browser(server, "rita") as rita:
        offered = await rita.open(f"{server.url}/connect")
        refused = await create_key(rita, server.url, rights="admin")
        unnamed = await create_key(rita, server.url, name=" ")
        allowed = await create_key(rita, server.url, rights="read")

    assert re.findall(r'<option value="(\w+)">(?:Search|Manage)', offered.text) == ["read"]
    assert (refused.status, "Scopes: expected scopes of your own credential" in refused.words) == (400, True)
    assert unnamed.status == 400
    assert allowed.status == 201


async def test_forms_need_the_token_of_the_session(server: LiveServer) -> None:
    async with open_browser(server) as stranger, open_browser(server, "ada") as ada:
        for path in ("/connect/keys", "/connect/keys/revoke", "/connect/applications", "/connect/test"):
            sent = await stranger.post(path, {"name": "x"})
            assert (sent.status, urlsplit(sent.location).path) == (303, "/sign-in")
            assert (await ada.post(path, {"name": "x", "csrf_token": "wrong"})).status == 403
        redirected = await stranger.open(f"{server.url}/connect", Accept="text/html")

    assert urlsplit(redirected.url).path == "/sign-in"


@pytest.mark.parametrize("client", CLIENTS)
async def test_every_client_has_instructions_with_this_address(server: LiveServer, client: str) -> None:
    async with open_browser(server, "ada") as ada:
        pages = [await ada.open(f"{server.url}/connect?client={client}&auth={auth}") for auth in ("", "sign-in", "key")]

    for page in pages:
        snippets = [unescape(text) for text in re.findall(r"<pre [^>]*>(.*?)</pre>", page.text, re.DOTALL)]
        assert any(server.mcp in text for text in snippets)
        assert (FLOWS[client].is_hosted) == ("connects from the internet and only to https" in page.words)
    has_key = "FLORILEGIUM_TOKEN" in pages[2].text or "&lt;your API key&gt;" in pages[2].text or client == "vscode"
    assert has_key == FLOWS[client].accepts_keys


async def test_test_of_the_connection_reports_every_hop_and_leaves_no_key(server: LiveServer) -> None:
    async with open_browser(server, "ada") as ada:
        page = await ada.open(f"{server.url}/connect?client=codex")
        report = await ada.submit(page, action="/connect/test")
        hosted = await ada.submit(await ada.open(f"{server.url}/connect?client=chatgpt"), action="/connect/test")
    user = await server.user("ada")

    hops = re.findall(r'data-state="(\w+)">\w+</span> <strong>([\w ]+)</strong>', report.text)
    assert [name for outcome, name in hops if outcome == "ok"] == [
        *("address", "challenge", "resource metadata", "server metadata", "registration", "authorize", "token"),
        *("initialize", "tools", "call"),
    ]
    assert "The connection works." in report.words
    assert "The connection does not work yet." in hosted.words
    assert await server.runtime.registry.list_keys(user.id) == []


async def test_only_the_address_of_this_server_can_be_tested(server: LiveServer) -> None:
    api = rest_client_of(server)
    json_body = {"Content-Type": "application/json"}
    for body in ({"url": "http://127.0.0.1:22/"}, {"client": "http://evil.example"}, {"client": "any", "token": "x"}):
        refused = await api.request("POST", "/api/v1/connection-test", "ada", json_body, json.dumps(body).encode())
        assert refused.status == 400
    restricted = await server.runtime.registry.create_key((await server.user("ada")).id, "r", [READ], sources=["notes"])
    bearer = {"Authorization": f"Bearer {restricted[1]}", **json_body}
    assert (await api.request("POST", "/api/v1/connection-test", None, bearer, b"{}")).status == 403


async def test_single_user_needs_no_key_and_the_test_works(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, jwt_secret="")) as server, open_browser(server) as browser:
        page = await browser.open(f"{server.url}/connect?client=claude-code")
        report = await browser.submit(page, action="/connect/test")

    assert "This server is yours alone" in page.words
    assert f"claude mcp add --transport http florilegium {server.mcp}" in page.words
    assert "Create key" not in page.words
    assert "no credential is required" in report.words
    assert "The connection works." in report.words


async def test_calls_and_reads_of_the_own_clients_are_listed(server: LiveServer) -> None:
    ada = await rest_client_of(server).library_user("ada")
    note = await ada.add_note("Voyage <b>", "a galleon")
    deleted = await ada.add_note("Gone", "a frigate")
    async with open_browser(server, "ada") as browser, open_browser(server, "ben") as ben:
        secret = secret_of(await create_key(browser, server.url, name="My <i>agent"))
        await call(server, secret)
        await call(server, secret, "notes_get", note_id=note)
        await call(server, secret, "notes_get", note_id=deleted)
        await call(server, secret, "notes_get", note_id="unknown")
        await ada.call("notes_delete", note_id=deleted)
        page = await browser.open(f"{server.url}/connect")
        other = await ben.open(f"{server.url}/connect")
    api = rest_client_of(server)
    calls = (await api.get("/api/v1/calls", "ada")).json()["calls"]
    reads = (await api.get("/api/v1/reads?titles=true", "ada")).json()["reads"]

    assert f'<a href="/items/notes/{note}">Voyage &lt;b&gt;</a>' in page.text
    assert f"<code>notes://{deleted}</code>" in page.text
    assert "<i>" not in page.text
    assert [(one["tool"], one["outcome"]) for one in calls if one["client_name"] == "My <i>agent"] == [
        ("notes_get", "failed"),
        ("notes_get", "ok"),
        ("notes_get", "ok"),
        ("knowledge_search", "ok"),
    ]
    assert {one["title"] for one in reads} == {"Voyage <b>", None}
    assert "galleon" not in json.dumps(calls)
    assert (await api.get("/api/v1/calls", "ben")).json() == {"calls": []}
    assert "No client has called since the server was started." in other.words
    assert "Voyage" not in other.text


async def test_hostile_name_of_an_application_is_text(server: LiveServer) -> None:
    name = '"><script>globalThis.xss=1</script>'
    client = await OAuthTestClient.register(server, client_name=name)
    async with open_browser(server, "ada") as ada:
        tokens = await client.connect(ada, scope=f"{READ} {WRITE}")
        page = await ada.open(f"{server.url}/connect")
        works = await call(server, tokens["access_token"])
        await ada.submit(page, action="/connect/applications")

    assert "<script>globalThis" not in page.text
    assert unescape(page.text).count(name) >= 1
    assert (works, await call(server, tokens["access_token"])) == (200, 401)
