"""Clients with a metadata document, over a real server and a real host of documents. Two users."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.oauth_person import people
from tests.clients.test_oauth import PythonClient
from tests.live import LiveServer, live, make_settings
from tests.server.oauth.browser import open_browser
from tests.server.oauth.document_host import DocumentHost
from tests.server.oauth.oauth_client import REDIRECT_URI, OAuthTestClient, user_of

DOCUMENT: dict[str, Any] = {
    "client_name": "Published App",
    "redirect_uris": [REDIRECT_URI],
    "grant_types": ["authorization_code", "refresh_token"],
    "token_endpoint_auth_method": "none",
}


@pytest.fixture
async def server(tmp_path: Path, host: DocumentHost) -> AsyncIterator[LiveServer]:
    settings = make_settings(
        tmp_path / "data",
        oauth_client_metadata_hosts=(f"127.0.0.1:{host.port}",),
        oauth_client_metadata_timeout_s=30.0,
    )
    async with live(settings) as running:
        yield running


async def test_client_with_a_document_connects_each_user(server: LiveServer, host: DocumentHost) -> None:
    client = OAuthTestClient(server, host.serve("/client.json", DOCUMENT))
    async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
        asked = await ada.open(client.authorization_url())
        tokens = [await client.connect(ada), await client.connect(bob)]
        remembered = await ada.open(client.authorization_url())
        connections = await ada.open(f"{server.url}/connect")
    refreshed = (await client.refresh(tokens[0]["refresh_token"])).json()
    users = [await user_of(server, token["access_token"]) for token in (*tokens, refreshed)]

    assert f"Its name is published by 127.0.0.1:{host.port}, which we have checked." in asked.words
    assert users == ["ada", "bob", "ada"]
    assert "code" in remembered.answer
    assert client.client_id in connections.words
    assert host.requests == ["/client.json"], "the document is cached"


async def test_python_sdk_connects_with_its_document(server: LiveServer, host: DocumentHost) -> None:
    url = host.serve("/python.json", {**DOCUMENT, "redirect_uris": ["http://127.0.0.1/callback"]})
    async with people(server) as persons:
        clients = [PythonClient(person, server.mcp, url) for person in persons]
        infos = [await client.call("server_info") for client in clients]

    assert [info["user"] for info in infos if isinstance(info, dict)] == ["ada", "bob"]
    assert [client.storage.client.client_id for client in clients if client.storage.client] == [url, url]


async def test_local_program_with_a_public_id_has_to_ask_each_time(server: LiveServer, host: DocumentHost) -> None:
    url = host.serve("/local.json", {**DOCUMENT, "redirect_uris": ["http://127.0.0.1/callback", "app.example:/cb"]})
    async with open_browser(server, "ada") as ada:
        for uri in ("http://127.0.0.1:4321/callback", "app.example:/cb"):
            client = OAuthTestClient(server, url, uri)
            await client.connect(ada)
            again = await ada.open(client.authorization_url())
            assert (again.status, again.location) == (200, "")


async def test_document_is_not_fetched_for_strangers(server: LiveServer, host: DocumentHost) -> None:
    client = OAuthTestClient(server, host.serve("/client.json", DOCUMENT))
    async with open_browser(server) as stranger:
        page = await stranger.open(client.authorization_url())
    token = await client.redeem("floc_" + "A" * 43)

    assert "/sign-in?next=/authorize" in page.url
    assert token.json()["error"] == "invalid_grant"
    assert host.requests == []


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"client_id": "https://claude.ai/client.json"}, "expected the URL of the document"),
        ({"client_id": None}, "expected the URL of the document"),
        ({"token_endpoint_auth_method": "client_secret_post"}, "because the document is public"),
        ({"client_secret": "secret"}, "because the document is public"),
        ({"redirect_uris": ["http://app.example.com/"]}, "redirect_uris: expected https"),
        ({"redirect_uris": []}, "redirect_uris: expected 1 to 20"),
        ({"client_name": ["x"]}, "Expected `str`"),
        ({"client_name": "x" * 20_000}, "larger than 16384 bytes"),
    ],
)
async def test_unusable_document_is_explained_and_leads_nowhere(
    document: dict[str, Any], problem: str, server: LiveServer, host: DocumentHost
) -> None:
    client = OAuthTestClient(server, host.serve("/bad.json", {**DOCUMENT, **document}))
    client.client_id = host.url("/bad.json")
    async with open_browser(server, "ada") as ada:
        pages = [await ada.open(client.authorization_url()) for _ in range(2)]

    assert [(page.status, page.location) for page in pages] == [(400, "")] * 2
    assert problem in pages[0].words
    assert host.requests == ["/bad.json"], "a failure is cached too"


async def test_private_address_is_refused_unless_it_is_listed(tmp_path: Path, host: DocumentHost) -> None:
    url = host.serve("/client.json", DOCUMENT)
    async with live(make_settings(tmp_path / "data")) as server, open_browser(server, "ada") as ada:
        pages = [
            await ada.open(OAuthTestClient(server, client_id).authorization_url())
            for client_id in (url, "https://127.0.0.1/client.json", "https://localhost/client.json", "https://[::1]/c")
        ]

    assert [(page.status, page.location) for page in pages] == [(400, "")] * 4
    assert host.requests == []


async def test_document_with_another_redirect_is_not_a_way_around(server: LiveServer, host: DocumentHost) -> None:
    client = OAuthTestClient(server, host.serve("/client.json", DOCUMENT), "https://evil.example.com/callback")
    async with open_browser(server, "ada") as ada:
        page = await ada.open(client.authorization_url())

    assert (page.status, page.location) == (400, "")
