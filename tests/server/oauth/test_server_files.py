"""Credentials for agents do not reach files of the server, or change it, with the rights of their administrator."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auth.context import SCOPES
from tests.live import LiveServer, live, make_settings
from tests.server.following.tldw_deployment import make_user
from tests.server.http_client import HttpResponse, fetch
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import OAuthTestClient

JSON = {"Content-Type": "application/json"}
Credential = Callable[[LiveServer], Awaitable[str]]


async def application(server: LiveServer) -> str:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        url = client.authorization_url(scope=" ".join(SCOPES))
        page = await ada.allow(url, {"scope_admin": "on"})
    token: str = (await client.redeem(page.answer["code"])).json()["access_token"]
    return token


async def profile_key(server: LiveServer) -> str:
    user = await server.user("ada")
    _, secret = await server.runtime.registry.create_key(user.id, "agent", SCOPES, profile="full")
    return secret


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    roots = (str(tmp_path / "vaults" / "{user}"),)
    async with live(make_settings(tmp_path / "data", follow_roots=roots)) as server:
        await server.user("ada")
        yield server


async def send(server: LiveServer, secret: str, method: str, path: str, body: Any = None) -> HttpResponse:
    headers = {"Authorization": f"Bearer {secret}", **(JSON if body is not None else {})}
    return await fetch(server.url, method, path, headers, None if body is None else msgspec.json.encode(body))


@pytest.mark.parametrize("credential", [application, profile_key])
async def test_credential_of_an_agent_follows_no_deployment_and_no_other_path(
    server: LiveServer, tmp_path: Path, credential: Credential
) -> None:
    secret = await credential(server)
    account = (await send(server, secret, "GET", "/api/v1/account")).json()
    root, own = tmp_path / "user_databases", tmp_path / "vaults" / "ada"
    make_user(root, 7)
    own.mkdir(parents=True)
    deployments, deployment = "/api/v1/follow-deployments", {"location": str(root), "create_users": True}
    person = (await server.bearer("ada"))["Authorization"].removeprefix("Bearer ")
    refused = await send(server, secret, "POST", deployments, deployment)
    existing = await send(server, person, "POST", deployments, deployment)
    one = f"{deployments}/{existing.json()['id']}"
    paused = await send(server, secret, "PATCH", one, {"paused": True})
    removed = await send(server, secret, "DELETE", one)
    listed = await send(server, secret, "GET", deployments)
    outside = await send(server, secret, "POST", "/api/v1/follows", {"location": str(tmp_path), "write_back": True})
    inside = await send(server, secret, "POST", "/api/v1/follows", {"location": str(own)})

    assert "admin" in account["scopes"]
    assert [response.status for response in (refused, existing, paused, removed)] == [403, 201, 403, 403]
    assert listed.status == 200
    assert (outside.status, "follow_roots" in outside.body.decode()) == (400, True)
    assert inside.status == 201


async def test_consent_page_says_what_an_application_may_do_with_files(server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        page = await ada.open(client.authorization_url(scope=" ".join(SCOPES)))

    assert "files of this server in folders that its operator opened to you" in page.words
    assert "cannot change users, keys or quotas, and reaches no other files" in page.words
