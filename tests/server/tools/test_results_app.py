"""The page of the search tools for clients with MCP Apps, and what other clients see: nothing of it."""

import re
from typing import Any

import msgspec
import pytest

from server.protocol.call import APP_MEDIA_TYPE, APPS_EXTENSION
from tests.server.clients import message, modern_headers, modern_params
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

URI = "ui://florilegium/results.html"
META = {"ui": {"resourceUri": URI}, "openai/outputTemplate": URI}
APPS = {"extensions": {APPS_EXTENSION: {"mimeTypes": [APP_MEDIA_TYPE]}}}


async def send(api: RestClient, method: str, params: dict[str, Any] | None = None, **meta: Any) -> bytes:
    headers = modern_headers(method, params or {})
    body = msgspec.json.encode(message(method, modern_params(params, **meta), 1))
    return (await api.request("POST", "/mcp", "ada", headers, body)).body


def apps_of(body: bytes) -> dict[str, Any]:
    tools = msgspec.json.decode(body)["result"]["tools"]
    return {tool["name"]: tool["_meta"] for tool in tools if "_meta" in tool}


async def test_only_clients_that_show_apps_are_told_about_the_page(api: RestClient) -> None:
    plain = await send(api, "tools/list")
    others: list[dict[str, Any]] = [
        {"capabilities": {"extensions": {"io.example/other": {}}}},
        {"capabilities": {"extensions": {APPS_EXTENSION: {"mimeTypes": ["text/html"]}}}},
        {"capabilities": {"extensions": {APPS_EXTENSION: "yes"}}},
        {"capabilities": {"extensions": [APPS_EXTENSION]}},
    ]

    assert apps_of(plain) == {}
    for meta in others:
        assert await send(api, "tools/list", **meta) == plain
    expected = {"knowledge_search": META, "knowledge_get": META}
    assert apps_of(await send(api, "tools/list", capabilities=APPS)) == expected
    client = {"name": "openai-mcp", "version": "1.0.0"}
    assert apps_of(await send(api, "tools/list", **{"io.modelcontextprotocol/clientInfo": client})) == expected
    assert await send(api, "tools/list") == plain


async def test_extension_is_declared_to_clients_that_have_it(api: RestClient) -> None:
    declared = [
        msgspec.json.decode(await send(api, "server/discover", **meta))["result"]["capabilities"].get("extensions")
        for meta in ({}, {"capabilities": APPS})
    ]
    assert declared == [None, {APPS_EXTENSION: {}}]


async def test_results_are_the_same_for_clients_with_and_without_apps(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "a galleon under sail")
    calls = [
        {"name": "knowledge_search", "arguments": {"query": "galleon", "dedupe": "off"}},
        {"name": "knowledge_get", "arguments": {"uri": f"notes://{note}"}},
    ]
    for call in calls:
        both = [await send(api, "tools/call", call, **meta) for meta in ({}, {"capabilities": APPS})]
        first, second = (re.sub(rb"session(\"|\\\"|)?:[ \"\\]*[\w-]+", b"", body) for body in both)
        assert first == second


async def test_page_is_read_with_its_policy_and_loads_nothing(api: RestClient) -> None:
    result = msgspec.json.decode(await send(api, "resources/read", {"uri": URI}, capabilities=APPS))["result"]

    [content] = result["contents"]
    assert (content["uri"], content["mimeType"]) == (URI, APP_MEDIA_TYPE)
    assert content["_meta"]["ui"] == {"csp": {"connectDomains": [], "resourceDomains": []}, "prefersBorder": True}
    html = content["text"]
    assert f'data-server="{api.server.runtime.settings.base_url}"' in html
    assert not re.search(r"\b(src|href|action)=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|innerHTML|eval\(", html)
    assert "default-src 'none'" in html
    listed = msgspec.json.decode(await send(api, "resources/list", capabilities=APPS))["result"]["resources"]
    assert URI not in [resource["uri"] for resource in listed]


async def test_key_for_the_search_tools_alone_can_read_the_page(api: RestClient, ada: LibraryUser) -> None:
    _, key = await api.server.runtime.registry.create_key(
        ada.context.user_id, "agent", ("knowledge:read",), profile="research"
    )
    params = {"uri": URI}
    headers = {**modern_headers("resources/read", params), "Authorization": f"Bearer {key}"}
    body = msgspec.json.encode(message("resources/read", modern_params(params), 1))
    response = (await api.request("POST", "/mcp", None, headers, body)).json()
    assert response["result"]["contents"][0]["mimeType"] == APP_MEDIA_TYPE


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_legacy_client_negotiates_the_extension(api: RestClient, version: str) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    for capabilities, expected in (({}, {}), (APPS, {"knowledge_search": META, "knowledge_get": META})):
        params = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "host", "version": "1"},
        }
        body = msgspec.json.encode(message("initialize", params, 1))
        response = await api.request("POST", "/mcp", "ada", headers, body)
        declared = response.json()["result"]["capabilities"]
        assert ("extensions" in declared) is bool(expected)
        session = {**headers, "Mcp-Session-Id": response.header("mcp-session-id") or ""}
        session["Mcp-Protocol-Version"] = version
        listed = await api.request("POST", "/mcp", "ada", session, msgspec.json.encode(message("tools/list", {}, 2)))
        assert apps_of(listed.body) == expected
