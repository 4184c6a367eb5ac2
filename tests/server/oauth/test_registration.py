"""Clients that register themselves, with limits, and clients of the operator."""

from pathlib import Path
from typing import Any

from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.http_client import fetch
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import OAuthTestClient, connect, register


@each_case(
    ("changes", "error"),
    [
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": None}, "invalid_redirect_uri"),
        ({"redirect_uris": "https://app.example.com/"}, "invalid_client_metadata"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://app.example.com/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [f"https://app.example.com/{n}" for n in range(21)]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["app:/callback"], "application_type": "web"}, "invalid_redirect_uri"),
        ({"redirect_uris": ["app:/callback", "https://app.example.com/"]}, "invalid_redirect_uri"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"),
        ({"grant_types": ["client_credentials"]}, "invalid_client_metadata"),
        ({"grant_types": ["password", "implicit"]}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
        ({"application_type": "other"}, "invalid_client_metadata"),
        ({"client_name": 7}, "invalid_client_metadata"),
    ],
)
async def test_registration_that_cannot_work_is_refused(changes: dict[str, Any], error: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        response = await register(server, **changes)

    assert (response.status, response.json()["error"]) == (400, error)
    assert response.json()["error_description"]


@each_case("body", [b"", b"[]", b"{", b'"x"', b"\xff", b"[" * 5000])
async def test_registration_has_to_be_a_json_object(body: bytes, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        response = await fetch(server.url, "POST", "/register", {"Content-Type": "application/json"}, body)
        large = await fetch(server.url, "POST", "/register", {}, b'{"client_name": "' + b"x" * 100_000 + b'"}')

    assert (response.status, response.json()["error"]) == (400, "invalid_client_metadata")
    assert large.status == 413


async def test_native_clients_of_well_known_applications_can_register(tmp_path: Path) -> None:
    uris = (
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "http://localhost:7777/oauth/callback",
        "http://127.0.0.1:3334/oauth/callback",
        "https://claude.ai/api/mcp/auth_callback",
        "https://chatgpt.com/connector/oauth/OUbdUMlL15Ct",
        "com.example.app:/oauth",
    )
    async with live(make_settings(tmp_path)) as server:
        statuses = {uri: (await register(server, redirect_uris=[uri])).status for uri in uris}

    assert statuses == dict.fromkeys(uris, 201)


async def test_registrations_of_an_address_are_limited(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, rate_oauth_per_minute=60)) as server:
        responses = [await register(server) for _ in range(22)]

    assert [response.status for response in responses] == [201] * 20 + [429, 429]
    assert responses[-1].header("retry-after") == "60"


async def test_registrations_of_a_network_of_ipv6_are_limited(tmp_path: Path) -> None:
    """One customer of a provider has all addresses of a /64 network."""
    settings = make_settings(tmp_path, rate_oauth_per_minute=60, trusted_proxies=("127.0.0.1",))
    addresses = [*(f"2001:db8:1:2::{number}" for number in range(1, 22)), "2001:db8:1:3::1"]
    async with live(settings) as server:
        statuses = []
        for address in addresses:
            headers = {"Content-Type": "application/json", "X-Forwarded-For": address}
            body = b'{"redirect_uris": ["https://app.example.com/"]}'
            statuses.append((await fetch(server.url, "POST", "/register", headers, body)).status)

    assert statuses == [201] * 20 + [429, 201]


async def test_unused_client_makes_room_and_connected_ones_stay(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, oauth_clients_max=3)) as server:
        connected, _ = await connect(server, "ada")
        oldest = await OAuthTestClient.register(server)
        newer = [await OAuthTestClient.register(server) for _ in range(2)]
        async with open_browser(server, "ada") as ada:
            statuses = [
                (await ada.open(client.authorization_url(prompt="consent"))).status
                for client in (connected, oldest, *newer)
            ]

    assert statuses == [200, 400, 200, 200]


async def test_unused_clients_expire(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, oauth_client_unused_ttl_s=60)) as server:
        connected, _ = await connect(server, "ada")
        unused = await OAuthTestClient.register(server)
        await server.runtime.registry.database.write(lambda db: db.execute("UPDATE oauth_clients SET created_at = 1"))
        await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            statuses = [
                (await ada.open(client.authorization_url(prompt="consent"))).status for client in (connected, unused)
            ]

    assert statuses == [200, 400]


async def test_registration_can_be_turned_off(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, oauth_registration=False)) as server:
        response = await register(server)
        metadata = (await fetch(server.url, "GET", "/.well-known/oauth-authorization-server")).json()

    assert (response.status, response.json()["error"]) == (400, "access_denied")
    assert "registration_endpoint" not in metadata


async def test_requests_of_an_address_are_limited(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, rate_oauth_per_minute=1)) as server:
        client = await OAuthTestClient.register(server)
        statuses = [(await client.token_request(grant_type="refresh_token")).status for _ in range(102)]

    assert statuses == [400] * 100 + [429, 429]
