"""Unknown origins and host names are rejected by every transport, before any other check."""

from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from config.errors import OriginRejected
from server.transports.origin import OriginGuard
from tests.live import LiveServer, live, make_settings
from tests.server.clients import JSON_AND_EVENTS, LegacyClient, WebSocketClient, handshake
from tests.server.http_client import fetch
from tests.server.sample_catalog import SampleCatalog

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOREIGN = (
    "https://evil.example",
    "http://evil.example:8765",
    "null",
    "",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example",
    "file://localhost",
    "http://[::1",
    "127.0.0.1",
    "http://user@evil.example",
)


def _is_allowed(guard: OriginGuard, host: str | None, origin: str | None) -> bool:
    try:
        guard.check(host, origin)
    except OriginRejected:
        return False
    return True


@pytest.mark.parametrize("origin", FOREIGN)
async def test_an_unknown_origin_is_rejected_despite_a_valid_token(server: LiveServer, origin: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    response = await ada.post(handshake(), {"Origin": origin})

    assert response.status == 403
    assert response.header("mcp-session-id") is None
    assert response.header("www-authenticate") is None


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1", "https://[::1]:3000"])
async def test_a_loopback_origin_is_accepted_on_a_loopback_address(server: LiveServer, origin: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Origin": origin})).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a b"])
async def test_an_unknown_host_is_rejected_on_a_loopback_address(server: LiveServer, host: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Host": host})).status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:80", "127.9.9.9"])
async def test_every_loopback_host_is_accepted(server: LiveServer, host: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Host": host})).status == 200


@pytest.mark.parametrize("path", ["/mcp/ticket", "/mcp"])
async def test_the_origin_is_checked_before_the_credential(server: LiveServer, path: str) -> None:
    headers = {**JSON_AND_EVENTS, "Origin": "https://evil.example"}

    response = await fetch(server.url, "POST", path, headers, b"{}")

    assert response.status == 403
    assert response.header("www-authenticate") is None


async def test_an_unknown_origin_rejects_the_websocket_upgrade(server: LiveServer) -> None:
    headers = {**await server.bearer("ada"), "Origin": "https://evil.example"}

    with pytest.raises(InvalidStatus) as rejected:
        async with WebSocketClient.open(server.ws, headers):
            pass

    assert rejected.value.response.status_code == 403


async def test_an_allowed_origin_is_accepted_and_gets_cors_headers(tmp_path: Path, samples: SampleCatalog) -> None:
    page = "https://app.example.com"
    async with live(make_settings(tmp_path, allowed_origins=(page,)), catalog=samples.catalog) as server:
        ada = LegacyClient(server, await server.bearer("ada"))

        response = await ada.post(handshake(), {"Origin": page})
        preflight_headers = {
            "Origin": page,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "mcp-name",
        }
        preflight = await fetch(server.url, "OPTIONS", "/mcp", preflight_headers)
        async with WebSocketClient.open(server.ws, {**await server.bearer("ada"), "Origin": page}) as socket:
            assert (await socket.initialize())["result"]

    assert response.status == 200
    assert response.header("access-control-allow-origin") == page
    assert "Mcp-Session-Id" in (response.header("access-control-expose-headers") or "")
    assert preflight.status == 200
    assert response.header("access-control-allow-credentials") is None


async def test_the_public_url_is_an_accepted_host_and_origin(tmp_path: Path) -> None:
    guard = OriginGuard(make_settings(tmp_path, host="0.0.0.0", public_url="https://kb.example.com"))

    assert _is_allowed(guard, "kb.example.com", "https://kb.example.com")
    assert _is_allowed(guard, "KB.example.com:443", None)
    assert not _is_allowed(guard, "other.example.com", None)
    assert not _is_allowed(guard, "kb.example.com", "http://kb.example.com")
    assert not _is_allowed(guard, "kb.example.com", "http://localhost:3000")


async def test_allowed_hosts_are_accepted(tmp_path: Path) -> None:
    guard = OriginGuard(make_settings(tmp_path, allowed_hosts=("kb.internal",)))

    assert _is_allowed(guard, "kb.internal:8765", None)
    assert _is_allowed(guard, "localhost", None)
    assert not _is_allowed(guard, "kb.internal.evil.example", None)
