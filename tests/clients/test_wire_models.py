"""Validates every result, in every protocol version, with the official models (mcp_types)."""

from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp_types.methods import SERVER_RESULTS, validate_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from tests.cases import each_case
from tests.conformance.fixtures import add_fixtures
from tests.live import NO_CERTIFICATES, live, make_settings

PARAMS: dict[str, dict[str, Any]] = {
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "par"},
    },
    "logging/setLevel": {"level": "info"},
    "ping": {},
    "prompts/get": {"name": "test_prompt_with_embedded_resource", "arguments": {"resourceUri": "test://x"}},
    "prompts/list": {},
    "resources/list": {},
    "resources/read": {"uri": "test://template/7/data"},
    "resources/subscribe": {"uri": "test://watched-resource"},
    "resources/templates/list": {},
    "resources/unsubscribe": {"uri": "test://watched-resource"},
    "server/discover": {},
    "tools/call": {"name": "server_info", "arguments": {}},
    "tools/list": {},
}
# The handshake is tested separately below, and a subscription is a stream with its own test.
TESTED_SEPARATELY = {"initialize", "subscriptions/listen"}


def methods_of(version: str) -> list[str]:
    return sorted(
        method for method, supported in SERVER_RESULTS if supported == version and method not in TESTED_SEPARATELY
    )


async def request(
    http: httpx2.AsyncClient, url: str, method: str, params: dict[str, Any], headers: dict[str, str]
) -> tuple[dict[str, Any], httpx2.Headers]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = await http.post(url, json=body, headers=headers)
    message = response.json()
    assert "error" not in message, message
    return message["result"], response.headers


@each_case("version", HANDSHAKE_PROTOCOL_VERSIONS)
async def test_every_legacy_result_is_valid(version: str, tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with (
        live(settings, extend=add_fixtures) as server,
        httpx2.AsyncClient(verify=NO_CERTIFICATES, headers=await server.bearer("ada"), trust_env=False) as http,
    ):
        initialized, headers = await request(http, server.mcp, "initialize", params, {})
        validate_server_result("initialize", version, initialized)
        assert initialized["protocolVersion"] == version
        session = {"Mcp-Session-Id": headers["mcp-session-id"]}
        for method in methods_of(version):
            result, _ = await request(http, server.mcp, method, PARAMS[method], session)
            validate_server_result(method, version, result)


@pytest.mark.parametrize("version", MODERN_PROTOCOL_VERSIONS)
async def test_every_modern_result_is_valid(version: str, tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    meta = {types.PROTOCOL_VERSION_META_KEY: version, types.CLIENT_CAPABILITIES_META_KEY: {}}
    async with (
        live(settings, extend=add_fixtures) as server,
        httpx2.AsyncClient(verify=NO_CERTIFICATES, headers=await server.bearer("ada"), trust_env=False) as http,
    ):
        for method in methods_of(version):
            params = {**PARAMS[method], "_meta": meta}
            name = params.get("name") or params.get("uri") or ""
            headers = {"MCP-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name}
            result, _ = await request(http, server.mcp, method, params, headers)
            validate_server_result(method, version, result)
