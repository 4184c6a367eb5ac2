"""Validates every result, in every protocol version, with the official models (mcp_types)."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from tests.cases import each_case
from tests.conformance.fixtures import add_fixtures
from tests.live import HTTP_OPTIONS, live, make_settings

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


def versions(group: str) -> Sequence[str]:
    from mcp_types import version  # noqa: PLC0415 - as in python_client.py

    return tuple(getattr(version, f"{group}_PROTOCOL_VERSIONS"))


def methods_of(version: str) -> list[str]:
    from mcp_types.methods import SERVER_RESULTS  # noqa: PLC0415 - as above

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


@each_case("version", partial(versions, "HANDSHAKE"))
async def test_every_legacy_result_is_valid(version: str, tmp_path: Path) -> None:
    from mcp_types.methods import validate_server_result  # noqa: PLC0415 - as above

    settings = make_settings(tmp_path)
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with (
        live(settings, extend=add_fixtures) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS, headers=await server.bearer("ada")) as http,
    ):
        initialized, headers = await request(http, server.mcp, "initialize", params, {})
        validate_server_result("initialize", version, initialized)
        assert initialized["protocolVersion"] == version
        session = {"Mcp-Session-Id": headers["mcp-session-id"]}
        for method in methods_of(version):
            result, _ = await request(http, server.mcp, method, PARAMS[method], session)
            validate_server_result(method, version, result)


@each_case("version", partial(versions, "MODERN"))
async def test_every_modern_result_is_valid(version: str, tmp_path: Path) -> None:
    import mcp_types as types  # noqa: PLC0415 - as above
    from mcp_types.methods import validate_server_result  # noqa: PLC0415 - as above

    settings = make_settings(tmp_path)
    meta = {types.PROTOCOL_VERSION_META_KEY: version, types.CLIENT_CAPABILITIES_META_KEY: {}}
    async with (
        live(settings, extend=add_fixtures) as server,
        httpx2.AsyncClient(**HTTP_OPTIONS, headers=await server.bearer("ada")) as http,
    ):
        for method in methods_of(version):
            params = {**PARAMS[method], "_meta": meta}
            name = params.get("name") or params.get("uri") or ""
            headers = {"MCP-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name}
            result, _ = await request(http, server.mcp, method, params, headers)
            validate_server_result(method, version, result)
