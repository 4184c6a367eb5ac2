"""The last official Python client with a WebSocket transport (mcp 1.x), run by its own interpreter.

Connects to the URL in FLORILEGIUM_TEST_URL, which contains the credential, lists the tools, calls
`server_info` and prints one JSON object.
"""

import asyncio
import importlib
import json
import os

# By name: the project's own environment has mcp 2.x, where type checkers find no WebSocket transport.
ClientSession = importlib.import_module("mcp").ClientSession
websocket_client = importlib.import_module("mcp.client.websocket").websocket_client


async def main() -> None:
    async with (
        websocket_client(os.environ["FLORILEGIUM_TEST_URL"]) as (read_stream, write_stream),
        ClientSession(read_stream, write_stream) as session,
    ):
        await session.initialize()
        listed = await session.list_tools()
        result = await session.call_tool("server_info", {})
        report = {
            "tools": [tool.name for tool in listed.tools],
            "isError": result.isError,
            "info": result.structuredContent,
        }
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main())
