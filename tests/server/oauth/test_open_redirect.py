"""A link to this server does not lead to the site of an application that nobody allowed or added."""

from pathlib import Path
from typing import Any

import pytest

from auth.oauth.clients import OAuthClients
from tests.live import live, make_settings
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import OAuthTestClient

INVALID: list[dict[str, Any]] = [
    {"response_type": "token"},
    {"response_type": None},
    {"response_mode": "fragment"},
    {"request": "x"},
    {"code_challenge": None},
    {"resource": "https://other.example.com/mcp"},
]


@pytest.mark.parametrize("site", ["cross-site", "same-origin"])
async def test_invalid_request_of_a_self_registered_client_shows_a_page(tmp_path: Path, site: str) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server, "https://evil.example.com/phish")
        async with open_browser(server, "ada") as ada:
            pages = [
                await ada.open(client.authorization_url(**changes), **{"Sec-Fetch-Site": site}) for changes in INVALID
            ]

    assert [(page.status, page.location) for page in pages] == [(400, "")] * len(INVALID)
    assert all("Leave this server for evil.example.com" in page.words for page in pages)
    assert all('http-equiv="refresh"' not in page.text for page in pages)
    assert pages[0].refusal["error"] == "unsupported_response_type"


async def test_invalid_request_of_a_program_on_the_same_computer_leads_back(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server, "http://127.0.0.1:7777/callback")
        async with open_browser(server, "ada") as ada:
            page = await ada.open(client.authorization_url(response_type="token"))

    assert page.location.startswith("http://127.0.0.1:7777/callback?error=unsupported_response_type")


async def test_invalid_request_of_a_client_of_the_operator_leads_back(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        uri = "https://app.example.com/callback"
        clients = OAuthClients(server.runtime.registry.database, server.runtime.settings)
        added, _ = await clients.add({"client_name": "App", "redirect_uris": [uri]}, is_confidential=False)
        client = OAuthTestClient(server, added.id, uri)
        async with open_browser(server, "ada") as ada:
            page = await ada.open(client.authorization_url(response_type="token"))

    assert page.location.startswith(f"{uri}?error=unsupported_response_type")
