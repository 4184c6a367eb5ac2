"""Health, metrics, metadata and rate limits; and that the log contains no content or credentials."""

import io
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from starlette.types import ASGIApp
from websockets.exceptions import ConnectionClosed, InvalidStatus

from auth.context import READ, SCOPES
from config.settings import Settings
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.runtime import Runtime
from server.version import VERSION
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ELICITATION, LegacyClient, ModernClient, WebSocketClient, handshake, modern_params
from tests.server.http_client import fetch
from tests.server.in_process import call_app
from tests.server.sample_catalog import SampleCatalog


@asynccontextmanager
async def open_app(settings: Settings, samples: SampleCatalog) -> AsyncIterator[tuple[Runtime, ASGIApp]]:
    """Opens a runtime and its application, without sockets."""
    metrics = Metrics()
    async with open_runtime(settings, catalog=samples.catalog, observer=metrics) as runtime:
        yield runtime, build_app(runtime, metrics)


async def _bearer(runtime: Runtime, name: str, scopes: tuple[str, ...] = SCOPES) -> dict[str, str]:
    return await LiveServer(runtime, "").bearer(name, scopes)


# -- health -----------------------------------------------------------------------------------------------------


async def test_health_needs_no_credential_and_shows_only_the_version(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_app(make_settings(tmp_path), samples) as (_, app):
        response = await call_app(app, "GET", "/healthz")

    assert (response.status, response.json()) == (200, {"status": "ok", "version": VERSION})


async def test_a_server_is_ready_until_it_stops(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_app(make_settings(tmp_path), samples) as (runtime, app):
        ready = await call_app(app, "GET", "/readyz")
        runtime.open_streams.stop()
        stopping = await call_app(app, "GET", "/readyz")
        alive = await call_app(app, "GET", "/healthz")

    assert (ready.status, ready.json()) == (200, {"status": "ok"})
    assert (stopping.status, stopping.json()) == (503, {"status": "unavailable"})
    assert stopping.header("retry-after") == "1"
    assert alive.status == 200


async def test_a_server_without_data_directory_is_not_ready_and_reveals_no_path(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    async with open_app(make_settings(tmp_path / "data"), samples) as (_, app):
        users = tmp_path / "data" / "users"
        users.rmdir()
        users.write_text("in the way")
        response = await call_app(app, "GET", "/readyz")

    assert (response.status, response.json()) == (503, {"status": "unavailable"})


UNWRITABLE = """
import asyncio, resource, signal, sys
from pathlib import Path
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from tests.live import make_settings
from tests.server.in_process import call_app

async def main():
    metrics = Metrics()
    async with open_runtime(make_settings(Path(sys.argv[1]))) as runtime:
        app = build_app(runtime, metrics)
        # Every write to a file fails from now on, as on a full disk.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        response = await call_app(app, "GET", "/readyz")
        print(response.status, response.body.decode())
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        while (await call_app(app, "GET", "/readyz")).status != 200:
            await asyncio.sleep(0.05)
        print("ready again")

asyncio.run(main())
"""


@pytest.mark.slow("starts a server several times")
def test_a_server_that_cannot_write_its_data_directory_is_not_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNWRITABLE, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert process.stdout == '503 {"status":"unavailable"}\nready again\n', process.stderr


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_are_read_only(tmp_path: Path, samples: SampleCatalog, path: str) -> None:
    async with open_app(make_settings(tmp_path), samples) as (_, app):
        response = await call_app(app, "POST", path)

    assert (response.status, response.header("allow")) == (405, "GET, HEAD")
    assert response.json()["error"]["message"] == "method: expected GET or HEAD, got 'POST'"


@each_case("path", ["/mcp/nowhere", "/MCP", "/mcp/ticket/", "/.well-known/x"])
async def test_an_unknown_path_is_not_found(tmp_path: Path, samples: SampleCatalog, path: str) -> None:
    async with open_app(make_settings(tmp_path), samples) as (_, app):
        assert (await call_app(app, "GET", path)).status in (404, 307)
        page = await call_app(app, "GET", "/nowhere", {"Accept": "text/html,*/*"})
        assert (page.status, page.header("content-type")) == (404, "text/html; charset=utf-8")


# -- metrics ----------------------------------------------------------------------------------------------------


async def test_metrics_require_the_admin_scope_or_the_metrics_token(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_app(make_settings(tmp_path, metrics_token="scrape-me"), samples) as (runtime, app):
        credentials = {
            "nothing": {},
            "reader": await _bearer(runtime, "ada", (READ,)),
            "admin": await _bearer(runtime, "ben"),
            "scraper": {"Authorization": "Bearer scrape-me"},
            "guesser": {"Authorization": "Bearer scrape-m"},
            "scraper in capitals": {"Authorization": "BEARER scrape-me"},
            "other scheme": {"Authorization": "Basic scrape-me"},
            "no scheme": {"Authorization": "scrape-me"},
        }
        statuses = {name: (await call_app(app, "GET", "/metrics", c)).status for name, c in credentials.items()}

    assert statuses == {
        "nothing": 401,
        "reader": 403,
        "admin": 200,
        "scraper": 200,
        "guesser": 401,
        "scraper in capitals": 200,
        "other scheme": 401,
        "no scheme": 401,
    }


async def test_without_a_metrics_token_an_empty_credential_is_rejected(tmp_path: Path, samples: SampleCatalog) -> None:
    async with open_app(make_settings(tmp_path), samples) as (_, app):
        for authorization in ("Bearer ", "Bearer", "", "Bearer none"):
            assert (await call_app(app, "GET", "/metrics", {"Authorization": authorization})).status == 401


async def test_metrics_contain_only_known_names(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path), catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada-canary")
        await ada.call("echo", {"text": "text-canary"})
        await ada.call("miss", {"text": "text-canary"})
        await ada.call("tool-canary")
        await ada.request("method-canary")
        async with WebSocketClient.open(server.ws, await server.bearer("ada-canary")) as socket:
            await socket.initialize()
            text = (await fetch(server.url, "GET", "/metrics", await server.bearer("ben"))).body.decode()

    assert 'florilegium_mcp_calls_total{method="tools/call",outcome="ok",tool="echo"} 1.0' in text
    assert 'florilegium_mcp_calls_total{method="tools/call",outcome="failed",tool="miss"} 1.0' in text
    assert 'florilegium_mcp_calls_total{method="tools/call",outcome="error",tool=""} 1.0' in text
    assert 'florilegium_mcp_calls_total{method="unknown",outcome="error",tool=""} 1.0' in text
    assert "florilegium_sessions 2.0" in text
    assert "florilegium_streams 1.0" in text
    assert 'florilegium_http_responses_total{status="200"}' in text
    assert "canary" not in text


# -- resource metadata ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/mcp"])
async def test_resource_metadata_is_served_at_both_paths_with_the_exact_resource(
    tmp_path: Path, samples: SampleCatalog, path: str
) -> None:
    settings = make_settings(
        tmp_path, public_url="https://kb.example.com/base", authorization_servers=("https://login.example.com",)
    )
    async with open_app(settings, samples) as (_, app):
        response = await call_app(app, "GET", f"/.well-known/oauth-protected-resource{path}")

    assert response.status == 200
    assert b'"resource":"https://kb.example.com/base/mcp"' in response.body
    assert response.json() == {
        "resource": "https://kb.example.com/base/mcp",
        "resource_name": "Florilegium",
        "authorization_servers": ["https://login.example.com"],
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
        "resource_documentation": "https://kb.example.com/base/about/documentation",
        "resource_policy_uri": "https://kb.example.com/base/about/privacy",
        "resource_tos_uri": "https://kb.example.com/base/about/terms",
    }


async def test_a_challenge_contains_the_url_of_the_resource_metadata(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path), catalog=samples.catalog) as server:
        rejected = await LegacyClient(server, {}).post(handshake())
        location = (rejected.header("www-authenticate") or "").split('resource_metadata="')[1].split('"')[0]
        metadata = await fetch(server.url, "GET", urlsplit(location).path)

        assert location.startswith(server.url)
        assert metadata.json()["resource"] == server.mcp


# -- rate limits ------------------------------------------------------------------------------------------------


async def test_a_rate_limited_user_gets_retry_after(tmp_path: Path, samples: SampleCatalog) -> None:
    limited = make_settings(tmp_path, rate_user_per_minute=6, rate_user_burst=2)
    async with live(limited, catalog=samples.catalog) as server:
        ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
        responses = [await ada.call("echo") for _ in range(3)]
        other_user = await ben.call("echo")
        ticket = await fetch(server.url, "POST", "/mcp/ticket", ada.credential, b"")

    assert [response.status for response in responses] == [200, 200, 429]
    assert 1 <= int(responses[2].header("retry-after") or 0) <= 11
    assert responses[2].json()["error"]["code"] == 429
    assert 0 < responses[2].json()["error"]["data"]["retry_after_s"] <= 10
    assert other_user.status == 200
    assert ticket.status == 429


async def test_a_rate_limited_tool_reports_when_to_retry(tmp_path: Path, samples: SampleCatalog) -> None:
    limited = make_settings(tmp_path, rate_tool_per_minute=6, rate_tool_burst=1)
    async with live(limited, catalog=samples.catalog) as server:
        ada = await ModernClient.of(server, "ada")
        await ada.call("echo")
        rejected = await ada.call("echo")
        other_tool = await ada.call("report")

    result = rejected.json()["result"]
    assert (rejected.status, result["isError"]) == (200, True)
    assert "rate limit for this tool reached; retry after" in result["content"][0]["text"]
    assert 0 < result["_meta"]["florilegium/retryAfterS"] <= 10
    assert "isError" not in other_tool.json()["result"]


# -- the log ----------------------------------------------------------------------------------------------------


def _lines(log: io.StringIO) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in log.getvalue().splitlines()]


async def _make_valid_calls(server: LiveServer, headers: dict[str, str]) -> None:
    """Makes every kind of call, with a canary wherever content can occur."""
    legacy, modern = LegacyClient(server, headers), ModernClient(server, headers)
    handshake_response = await legacy.post(handshake(capabilities=ELICITATION))
    legacy.headers["Mcp-Session-Id"] = handshake_response.header("mcp-session-id") or ""
    await legacy.call("echo", {"text": "canary-argument"})
    await legacy.request("resources/read", {"uri": "test://items/canary-uri"})
    await legacy.request("prompts/get", {"name": "greet", "arguments": {"name": "canary-prompt"}})
    first = await modern.call("ask_name", {"text": "canary-argument"}, capabilities=ELICITATION)
    state = first.json()["result"]["requestState"]
    responses = {"name": {"content": {"name": "canary-response"}}}
    extra = {"requestState": state, "inputResponses": responses}
    await modern.call("ask_name", {"text": "canary-argument"}, extra=extra, capabilities=ELICITATION)
    async with WebSocketClient.open(f"{server.ws}?note=canary-query", headers) as socket:
        await socket.initialize()
        await socket.call("echo", {"text": "canary-argument"})


async def _make_invalid_calls(server: LiveServer, headers: dict[str, str]) -> None:
    """Makes every kind of invalid call, with a canary in each request."""
    legacy, modern = LegacyClient(server, headers), ModernClient(server, headers)
    for body in (b'{"canary-body":', b'["canary-body"]', b'{"jsonrpc":"2.0","id":"canary-id","method":7}'):
        await legacy.post(body)
    await modern.call("explode", {"text": "canary-argument"})
    await modern.call("echo", {"canary-name": "canary-argument"})
    await modern.call("miss", {"text": "canary-argument"})
    await modern.call("canary-tool")
    await modern.request("canary-method")
    await modern.request("resources/read", {"uri": "test://canary-uri"})
    await modern.request("tools/list", headers={"Mcp-Session-Id": "canary-session", "X-Note": "canary-header"})
    await modern.call("ask_name", extra={"requestState": "canary-state"}, capabilities=ELICITATION)
    await fetch(server.url, "GET", "/mcp?note=canary-query", headers)
    await legacy.get({"Mcp-Session-Id": "canary-session"})
    async with WebSocketClient.open(server.ws, headers) as socket:
        await socket.connection.send("canary-frame")
        await socket.receive()
        await socket.request("resources/read", modern_params({"uri": "test://broken"}))
        await socket.connection.send(b"canary-frame")
        await socket.close_code()


async def test_the_log_contains_no_content(tmp_path: Path, samples: SampleCatalog, log: io.StringIO) -> None:
    settings = make_settings(tmp_path, log_requests=True, rate_failures_per_minute=0)
    async with live(settings, catalog=samples.catalog) as server:
        await _make_valid_calls(server, await server.bearer("ada"))
        await _make_invalid_calls(server, await server.bearer("ada"))

    lines = _lines(log)
    assert any("POST /mcp 200" in line["message"] for line in lines)
    assert any("RuntimeError" in line.get("exception", "") for line in lines)
    assert "canary" not in log.getvalue()


async def test_the_log_contains_no_credentials(tmp_path: Path, samples: SampleCatalog, log: io.StringIO) -> None:
    settings = make_settings(tmp_path, log_requests=True, rate_failures_per_minute=0, metrics_token="scrape-me")
    async with live(settings, catalog=samples.catalog) as server:
        token = await server.token("ada")
        _, key = await server.runtime.registry.create_key((await server.user("ada")).id, "k", SCOPES)
        secrets = [token, key, "not-a-token-but-a-secret", token[:-4] + "AAAA", "flo_" + "x" * 43, "scrape-me"]
        tickets = []
        for secret in secrets:
            headers = {"Authorization": f"Bearer {secret}"}
            await LegacyClient(server, headers).post(handshake())
            await fetch(server.url, "GET", "/metrics", headers)
            issued = await fetch(server.url, "POST", "/mcp/ticket", headers, b"")
            tickets += [issued.json()["ticket"]] if issued.status == 200 else []
            await fetch(server.url, "GET", f"/mcp?access_token={secret}&%61ccess={secret}", headers)
            await _connect(f"{server.ws}?access_token={secret}&key={secret}")
            await _connect(server.ws.replace("ws://", f"ws://someone:{secret}@"))
        await _connect(f"{server.ws}?ticket={tickets[0]}")
        await _connect(f"{server.ws}?%74icket={tickets[1]}")

    assert len(tickets) == 2
    text = log.getvalue()
    assert not [secret for secret in (*secrets, *tickets) if secret in text]


async def _connect(url: str) -> None:
    """Connects and sends one message, whether the connection is admitted or not."""
    with suppress(ConnectionClosed, InvalidStatus):
        async with WebSocketClient.open(url) as socket:
            await socket.request("ping")


async def test_every_log_line_of_a_request_has_its_id(tmp_path: Path, samples: SampleCatalog, log: io.StringIO) -> None:
    async with live(make_settings(tmp_path, log_requests=True), catalog=samples.catalog) as server:
        response = await (await ModernClient.of(server, "ada")).call(
            "explode", headers={"X-Request-Id": "from-the-caller"}
        )

    lines = [line for line in _lines(log) if line["request_id"] == "from-the-caller"]
    assert "from-the-caller" in response.json()["result"]["content"][0]["text"]
    assert [line["level"] for line in lines] == ["error", "info"]
    assert (lines[1]["message"], lines[1]["tool"], lines[1]["outcome"]) == ("POST /mcp 200", "explode", "failed")
