"""Unknown origins and host names are rejected by every transport, before any other check."""

from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from config.errors import OriginRejected
from server.transports.headers import Headers, OriginGuard
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import JSON_AND_EVENTS, LegacyClient, WebSocketClient, handshake
from tests.server.http_client import RawConnection, fetch
from tests.server.sample_catalog import SampleCatalog

FOREIGN = (
    "https://evil.example",
    "http://evil.example:8765",
    "null",
    "",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example",
    "file://localhost",
    "http://[::1",
    "http://[::1].evil.test",
    "http://[::1]evil.test",
    "http://127.0.0.1@evil.test",
    "127.0.0.1",
    "http://user@evil.example",
)


def _is_allowed(guard: OriginGuard, host: str, origin: str | None) -> bool:
    headers = [(b"host", host.encode()), *([(b"origin", origin.encode())] if origin is not None else [])]
    try:
        guard.check(Headers(headers))
    except OriginRejected:
        return False
    return True


@each_case("origin", FOREIGN)
async def test_an_unknown_origin_is_rejected_despite_a_valid_token(server: LiveServer, origin: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    response = await ada.post(handshake(), {"Origin": origin})

    assert response.status == 403
    assert response.header("mcp-session-id") is None
    assert response.header("www-authenticate") is None


@each_case("origin", ["http://localhost:5173", "http://127.0.0.1", "https://[::1]:3000"])
async def test_a_loopback_origin_is_accepted_on_a_loopback_address(server: LiveServer, origin: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Origin": origin})).status == 200


@each_case("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a b", "[::1].evil.test"])
async def test_an_unknown_host_is_rejected_on_a_loopback_address(server: LiveServer, host: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Host": host})).status in (400, 403)


@each_case("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:80", "127.9.9.9"])
async def test_every_loopback_host_is_accepted(server: LiveServer, host: str) -> None:
    ada = LegacyClient(server, await server.bearer("ada"))

    assert (await ada.post(handshake(), {"Host": host})).status == 200


@each_case("path", ["/mcp/ticket", "/mcp"])
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


async def test_a_loopback_origin_is_rejected_on_other_addresses(tmp_path: Path) -> None:
    guard = OriginGuard(make_settings(tmp_path, host="0.0.0.0"))

    assert _is_allowed(guard, "127.0.0.1:3000", None)
    assert not _is_allowed(guard, "127.0.0.1:3000", "http://127.0.0.1:3000")


async def test_allowed_hosts_are_accepted(tmp_path: Path) -> None:
    guard = OriginGuard(make_settings(tmp_path, allowed_hosts=("kb.internal",)))

    assert _is_allowed(guard, "kb.internal:8765", None)
    assert _is_allowed(guard, "localhost", None)
    assert not _is_allowed(guard, "kb.internal.evil.example", None)


# -- browsers ---------------------------------------------------------------------------------------------------


async def test_without_authentication_only_listed_loopback_origins_are_accepted(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    settings = make_settings(tmp_path, jwt_secret="", allowed_origins=("http://localhost:5173",))
    async with live(settings, catalog=samples.catalog) as server:
        port = settings.port
        own = [f"http://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]
        statuses = {
            origin: (await LegacyClient(server, {}).post(handshake(), {"Origin": origin, "Host": host})).status
            for origin, host in (
                *((origin, origin.removeprefix("http://")) for origin in own),
                ("http://localhost:5173", f"localhost:{port}"),
                ("http://localhost:3000", f"localhost:{port}"),
                ("http://127.0.0.1", f"127.0.0.1:{port}"),
                (f"https://localhost:{port}", f"localhost:{port}"),
            )
        }

    assert statuses == {
        **dict.fromkeys(own, 200),
        "http://localhost:5173": 200,
        "http://localhost:3000": 403,
        "http://127.0.0.1": 403,
        f"https://localhost:{port}": 403,
    }


async def test_with_a_public_url_other_loopback_origins_are_rejected(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, public_url="https://kb.example.com")
    async with live(settings, catalog=samples.catalog) as server:
        ada = LegacyClient(server, await server.bearer("ada"))
        statuses = [
            (await ada.post(handshake(), {"Origin": origin})).status
            for origin in ("https://kb.example.com", "http://localhost:3000", "http://kb.example.com")
        ]

    assert statuses == [200, 403, 403]


@each_case("path", ["/mcp", "/api/v1/items", "/"])
async def test_a_request_that_another_site_causes_is_rejected(server: LiveServer, path: str) -> None:
    """Such as the address of an image: the browser sends no Origin header with it."""
    headers = {**await server.bearer("ada"), "Accept": "*/*", "Sec-Fetch-Site": "cross-site"}

    image = await fetch(server.url, "GET", path, {**headers, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"})
    unknown = await fetch(server.url, "GET", path, headers)
    link = await fetch(server.url, "GET", path, {**headers, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"})

    assert (image.status, unknown.status) == (403, 403)
    assert link.status != 403


async def test_a_listed_origin_of_another_site_is_accepted(tmp_path: Path, samples: SampleCatalog) -> None:
    page = "https://app.example.com"
    async with live(make_settings(tmp_path, allowed_origins=(page,)), catalog=samples.catalog) as server:
        ada = LegacyClient(server, await server.bearer("ada"))

        assert (await ada.post(handshake(), {"Origin": page, "Sec-Fetch-Site": "cross-site"})).status == 200


@each_case("path", ["/healthz", "/readyz", "/metrics"])
async def test_the_endpoints_of_operators_check_the_host(server: LiveServer, path: str) -> None:
    headers = await server.bearer("ada")
    hosts = ("evil.example", "[::1].evil.test", "localhost", "10.1.2.3:8765")

    statuses = [(await fetch(server.url, "GET", path, {**headers, "Host": host})).status for host in hosts]

    assert statuses == [403, 403, 200, 200]


@each_case(
    ("path", "status"), [("/healthz", 200), ("/mcp", 401), ("/", 303), ("/nowhere", 404), ("/api/v1/items", 401)]
)
async def test_every_response_forbids_sniffing_and_embedding(server: LiveServer, path: str, status: int) -> None:
    response = await fetch(server.url, "GET", path, {"Accept": "text/html, */*"})
    names = [name for name, _ in response.headers]

    assert response.status in (status, 401)
    assert response.header("x-content-type-options") == "nosniff"
    assert response.header("cross-origin-resource-policy") == "same-origin"
    assert len(names) == len(set(names))


async def test_malformed_requests_and_refused_upgrades_forbid_sniffing_and_embedding(server: LiveServer) -> None:
    async with RawConnection.open(server.url) as connection:
        await connection.send(b"nonsense\r\n\r\n")
        malformed = dict((await connection.head())[1])
    with pytest.raises(InvalidStatus) as refused:
        async with WebSocketClient.open(server.ws):
            pass

    for headers in (malformed, dict(refused.value.response.headers.raw_items())):
        lowered = {name.lower(): value for name, value in headers.items()}
        assert lowered["x-content-type-options"] == "nosniff"
        assert lowered["cross-origin-resource-policy"] == "same-origin"
