"""The connections of claude.ai and ChatGPT, hop by hop: the requests that their servers send, in their order."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from msgspec import Struct

from auth.context import READ, WRITE
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import JSON_AND_EVENTS, handshake, message
from tests.server.http_client import HttpResponse, fetch
from tests.server.oauth.browser import open_browser
from tests.server.oauth.document_host import DocumentHost, open_document_host
from tests.server.oauth.oauth_client import challenge_of, post_form
from tests.server.oauth.signing_client import ASSERTION_TYPE, ClientKey, SigningClient

VERIFIER = "a-code-verifier-of-more-than-forty-three-characters"
KEY = ClientKey("RS256")


class HostedClient(Struct, frozen=True):
    """What an application sends. `finds_server` is how it looks for the authorization server."""

    name: str
    redirect_uri: str
    agent: str
    scope: str | None
    auth_method: str
    finds_server: str


CLAUDE = HostedClient(
    "Claude",
    "https://claude.ai/api/mcp/auth_callback",
    "Claude-User",
    "claudeai",
    "none",
    "/.well-known/oauth-authorization-server",
)
CHATGPT = HostedClient(
    "ChatGPT",
    "https://chatgpt.com/connector/oauth/OUbdUMlL15Ct",
    "openai-mcp/1.0.0 (ChatGPT)",
    f"{READ} {WRITE}",
    "client_secret_post",
    "/.well-known/oauth-authorization-server/mcp",
)
OLD_CHATGPT = HostedClient(
    "ChatGPT",
    "https://chatgpt.com/connector_platform_oauth_redirect",
    "openai-mcp/1.0.0 (ChatGPT)",
    None,
    "none",
    "/.well-known/oauth-authorization-server/mcp",
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    async with live(make_settings(tmp_path / "data")) as running:
        yield running


async def post_mcp(server: LiveServer, client: HostedClient, body: Any, **headers: str) -> HttpResponse:
    all_headers = {**JSON_AND_EVENTS, "Content-Type": "application/json", "User-Agent": client.agent, **headers}
    return await fetch(server.url, "POST", "/mcp", all_headers, msgspec.json.encode(body))


async def discover(server: LiveServer, client: HostedClient) -> dict[str, Any]:
    """401 with a challenge, the metadata of the resource, and that of the authorization server."""
    refused = await post_mcp(server, client, handshake())
    challenge = refused.header("www-authenticate") or ""
    assert refused.status == 401
    assert challenge.startswith(f'Bearer resource_metadata="{server.url}/.well-known/oauth-protected-resource/mcp"')
    resource = (await fetch(server.url, "GET", "/.well-known/oauth-protected-resource/mcp")).json()
    assert resource["resource"] == server.mcp
    assert resource["authorization_servers"] == [server.url]
    metadata: dict[str, Any] = (await fetch(server.url, "GET", client.finds_server)).json()
    assert metadata["issuer"] == server.url
    return metadata


async def authorize(server: LiveServer, client: HostedClient, client_id: str, user: str) -> dict[str, str]:
    """The person is sent to `/authorize` of the server, whatever the metadata says."""
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": client.redirect_uri,
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
        "state": "a state",
        "resource": server.mcp,
        **({"scope": client.scope} if client.scope else {}),
    }
    async with open_browser(server, user) as browser:
        page = await browser.allow(f"{server.url}/authorize?{urlencode(query)}")
    assert page.status == 303, "the callback accepts GET only"
    assert page.location.startswith(f"{client.redirect_uri}?")
    assert (page.answer["state"], page.answer["iss"]) == ("a state", server.url)
    return page.answer


async def exchange(
    server: LiveServer, client: HostedClient, client_id: str, code: str, secret: str, **proof: str
) -> dict[str, Any]:
    values = {
        "grant_type": "authorization_code",
        "client_id": client_id,
        "client_secret": secret or None,
        "code": code,
        "redirect_uri": client.redirect_uri,
        "code_verifier": VERIFIER,
        "resource": server.mcp,
        **proof,
    }
    response = await post_form(server, "/token", values)
    assert response.status == 200, response.body
    tokens: dict[str, Any] = response.json()
    assert tokens["token_type"] == "Bearer"
    return tokens


async def use(server: LiveServer, client: HostedClient, token: str) -> tuple[str, list[str]]:
    """Initialize, list, call. Returns the user and the names of the tools."""
    bearer = {"Authorization": f"Bearer {token}"}
    initialized = await post_mcp(server, client, handshake(), **bearer)
    session = {"Mcp-Session-Id": initialized.header("mcp-session-id") or "", **bearer}
    listed = await post_mcp(server, client, message("tools/list", {}, 2), **session)
    called = await post_mcp(server, client, message("tools/call", {"name": "server_info"}, 3), **session)
    (tools,), (info,) = [response.events() or [response.json()] for response in (listed, called)]
    names = [tool["name"] for tool in tools["result"]["tools"]]
    return info["result"]["structuredContent"]["user"], names


@each_case("client", [CLAUDE, CHATGPT, OLD_CHATGPT])
async def test_hosted_client_registers_and_connects(client: HostedClient, server: LiveServer) -> None:
    users = []
    for user in ("ada", "bob"):
        metadata = await discover(server, client)
        document = {
            "client_name": client.name,
            "redirect_uris": [client.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": client.auth_method,
            **({"scope": client.scope} if client.scope else {}),
        }
        path = metadata["registration_endpoint"].removeprefix(server.url)
        registered = (await fetch(server.url, "POST", path, JSON_AND_EVENTS, msgspec.json.encode(document))).json()
        answer = await authorize(server, client, registered["client_id"], user)
        secret = registered.get("client_secret", "")
        tokens = await exchange(server, client, registered["client_id"], answer["code"], secret)
        users.append(await use(server, client, tokens["access_token"]))
        values = {
            "grant_type": "refresh_token",
            "refresh_token": tokens["refresh_token"],
            "client_id": registered["client_id"],
            "client_secret": secret or None,
            "resource": server.mcp,
            "scope": client.scope,
        }
        refreshed = (await post_form(server, "/token", values)).json()
        assert (await use(server, client, refreshed["access_token"]))[0] == user
        assert tokens["scope"] == refreshed["scope"] == f"{READ} {WRITE}"

    assert [user for user, _ in users] == ["ada", "bob"]
    assert all({"search", "fetch"} <= set(names) for _, names in users)


@pytest.mark.parametrize("client", [CLAUDE, CHATGPT])
async def test_hosted_client_connects_with_its_metadata_document(
    client: HostedClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_document_host(tmp_path / "host") as host:
        monkeypatch.setenv("SSL_CERT_FILE", str(host.authority))
        settings = make_settings(tmp_path / "data", oauth_client_metadata_hosts=(f"127.0.0.1:{host.port}",))
        client_id = _serve_document(host, client)
        async with live(settings) as server:
            metadata = await discover(server, client)
            answer = await authorize(server, client, client_id, "ada")
            proof = _prove(server, client_id) if client is CHATGPT else {}
            tokens = await exchange(server, client, client_id, answer["code"], "", **proof)
            user, _ = await use(server, client, tokens["access_token"])

    assert metadata["client_id_metadata_document_supported"]
    assert "none" in metadata["token_endpoint_auth_methods_supported"]
    assert user == "ada"


def _prove(server: LiveServer, client_id: str) -> dict[str, str]:
    claims = SigningClient(server, client_id, KEY).claims()
    return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": KEY.sign(claims)}


def _serve_document(host: DocumentHost, client: HostedClient) -> str:
    """ChatGPT proves its identity with a key of its own."""
    method = {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [KEY.jwk]}}
    return host.serve(
        "/oauth/client.json",
        {
            "client_name": client.name,
            "client_uri": "https://example.com",
            "redirect_uris": [client.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            **(method if client is CHATGPT else {"token_endpoint_auth_method": "none"}),
        },
    )
