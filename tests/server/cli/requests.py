"""MCP messages of both eras, and one call over HTTP."""

import json
import urllib.error
import urllib.request
from typing import Any

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def request(request_id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def modern(request_id: int, method: str, **params: Any) -> dict[str, Any]:
    return request(request_id, method, **params, _meta=META)


def lines(*messages: Any) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def call_tool(mcp_url: str, tool: str, **arguments: Any) -> Any:
    """The structured result of a call without a credential."""
    with _open(mcp_url, tool, arguments, "") as response:
        return json.load(response)["result"]["structuredContent"]


def who_am_i(mcp_url: str, credential: str = "") -> tuple[int, str]:
    """The status of a call to `server_info`, and the user it was made as."""
    try:
        with _open(mcp_url, "server_info", {}, credential) as response:
            return response.status, json.load(response)["result"]["structuredContent"]["user"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def _open(mcp_url: str, tool: str, arguments: dict[str, Any], credential: str) -> Any:
    headers = {
        "Content-Type": "application/json",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
        **({"Authorization": f"Bearer {credential}"} if credential else {}),
    }
    body = json.dumps(modern(1, "tools/call", name=tool, arguments=arguments)).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(urllib.request.Request(mcp_url, body, headers), timeout=60)
