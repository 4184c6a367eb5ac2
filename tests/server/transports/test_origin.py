"""Foreign web pages and foreign host names are turned away at every door, before anything else is looked at."""

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
async def test_a_page_of_another_origin_is_refused_even_with_a_good_token(server: LiveServer, origin: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    answer = await ada.post(handshake(), {"Origin": origin})

    assert answer.status == 403
    assert answer.header("mcp-session-id") is None
    assert answer.header("www-authenticate") is None


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1", "https://[::1]:3000"])
async def test_a_page_of_this_machine_is_served_on_a_loopback_address(server: LiveServer, origin: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Origin": origin})).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a b"])
async def test_another_host_name_is_refused_on_a_loopback_address(server: LiveServer, host: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Host": host})).status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:80", "127.9.9.9"])
async def test_every_name_of_this_machine_is_its_own(server: LiveServer, host: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Host": host})).status == 200


@pytest.mark.parametrize("path", ["/mcp/ticket", "/mcp"])
async def test_a_refusal_by_origin_comes_before_the_credential_is_looked_at(server: LiveServer, path: str) -> None:
    headers = {**JSON_AND_EVENTS, "Origin": "https://evil.example"}

    answer = await fetch(server.url, "POST", path, headers, b"{}")

    assert answer.status == 403
    assert answer.header("www-authenticate") is None


async def test_a_websocket_of_another_origin_is_refused_at_the_upgrade(server: LiveServer) -> None:
    headers = {**await server.bearer("ada"), "Origin": "https://evil.example"}

    with pytest.raises(InvalidStatus) as refused:
        async with WebSocketClient.open(server.ws, headers):
            pass

    assert refused.value.response.status_code == 403


async def test_a_named_origin_may_call_and_is_told_so_by_cors(tmp_path: Path, samples: SampleCatalog) -> None:
    page = "https://app.example.com"
    async with live(make_settings(tmp_path, allowed_origins=(page,)), catalog=samples.catalog) as server:
        ada = LegacyClient(server, await server.bearer("ada"))

        answer = await ada.post(handshake(), {"Origin": page})
        asking = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "mcp-name"}
        preflight = await fetch(server.url, "OPTIONS", "/mcp", asking)
        async with WebSocketClient.open(server.ws, {**await server.bearer("ada"), "Origin": page}) as socket:
            assert (await socket.initialize())["result"]

    assert answer.status == 200
    assert answer.header("access-control-allow-origin") == page
    assert "Mcp-Session-Id" in (answer.header("access-control-expose-headers") or "")
    assert preflight.status == 200
    assert answer.header("access-control-allow-credentials") is None


async def test_behind_a_public_name_that_name_and_its_origin_are_ours(tmp_path: Path) -> None:
    guard = OriginGuard(make_settings(tmp_path, host="0.0.0.0", public_url="https://kb.example.com"))

    assert _is_allowed(guard, "kb.example.com", "https://kb.example.com")
    assert _is_allowed(guard, "KB.example.com:443", None)
    assert not _is_allowed(guard, "other.example.com", None)
    assert not _is_allowed(guard, "kb.example.com", "http://kb.example.com")
    assert not _is_allowed(guard, "kb.example.com", "http://localhost:3000")


async def test_allowed_hosts_are_ours_too(tmp_path: Path) -> None:
    guard = OriginGuard(make_settings(tmp_path, allowed_hosts=("kb.internal",)))

    assert _is_allowed(guard, "kb.internal:8765", None)
    assert _is_allowed(guard, "localhost", None)
    assert not _is_allowed(guard, "kb.internal.evil.example", None)
