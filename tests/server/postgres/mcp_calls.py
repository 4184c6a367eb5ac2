"""Calls of tools on a running server."""

from typing import Any

import httpx2

from tests.live import LiveServer


async def call_tool(
    client: httpx2.AsyncClient, server: LiveServer, user: str, name: str, **arguments: Any
) -> dict[str, Any]:
    """Returns the result of a call, which may be an error."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    response = await client.post(f"{server.url}/api/v1/mcp/request", json=body, headers=await server.bearer(user))
    result: dict[str, Any] = response.json()
    return result


async def call(client: httpx2.AsyncClient, server: LiveServer, user: str, name: str, **arguments: Any) -> Any:
    """Returns the structured result of a call that succeeds."""
    answer = await call_tool(client, server, user, name, **arguments)
    assert "structuredContent" in answer.get("result", {}), answer
    return answer["result"]["structuredContent"]
