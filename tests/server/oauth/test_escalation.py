"""A connected application cannot turn its connection into something that outlasts or exceeds it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.live import LiveServer, live, make_settings
from tests.server.http_client import fetch
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import OAuthTestClient

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    async with live(make_settings(tmp_path)) as server:
        yield server


async def test_a_connected_application_cannot_change_the_account(server: LiveServer) -> None:
    await server.user("ben")
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        token = (await client.redeem(await client.code(ada))).json()["access_token"]
    key = {"Authorization": f"Bearer {token}"}
    requests: list[tuple[str, str, dict[str, Any] | None]] = [
        ("POST", "/api/v1/keys", {"name": "forever"}),
        ("DELETE", "/api/v1/keys/k_x", None),
        ("DELETE", "/api/v1/connections/g_x", None),
        ("POST", "/api/v1/users", {"name": "eve", "role": "admin"}),
        ("PATCH", "/api/v1/users/ben", {"role": "admin"}),
        ("POST", "/api/v1/invitations", {"role": "admin"}),
    ]
    for method, path, body in requests:
        content = b"" if body is None else msgspec.json.encode(body)
        response = await fetch(server.url, method, path, {**key, **(JSON if body is not None else {})}, content)
        assert response.status == 403, path
    assert (await fetch(server.url, "GET", "/api/v1/account", key)).json()["kind"] == "oauth"
