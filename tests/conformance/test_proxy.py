"""The proxy adds a credential and nothing else, and does not buffer responses."""

import asyncio
from pathlib import Path

from tests.conformance.proxy import injecting_proxy
from tests.live import live, make_settings

PING = b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}'


async def status_of(port: int) -> int:
    """Returns the status of a request without a credential."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = ("POST /mcp HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(PING)}")
    writer.write("\r\n".join((*lines, "", "")).encode() + PING)
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return int(line.split()[1])


async def test_only_requests_through_the_proxy_have_the_token(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    async with live(settings) as server:
        header = f"Authorization: Bearer {await server.token('ada')}"
        async with injecting_proxy(settings.port, header) as port:
            assert await status_of(settings.port) == 401
            assert await status_of(port) == 400  # admitted, then rejected because _meta is missing


async def test_part_of_a_response_is_passed_on_before_the_response_ends() -> None:
    send_more = asyncio.Event()

    async def respond_in_parts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"first " + str(b"X-Added: yes" in head).encode())
        await send_more.wait()
        writer.write(b" second")
        writer.close()

    upstream = await asyncio.start_server(respond_in_parts, "127.0.0.1", 0)
    async with upstream, injecting_proxy(upstream.sockets[0].getsockname()[1], "X-Added: yes") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await asyncio.wait_for(reader.readexactly(10), 10) == b"first True"
        send_more.set()
        assert await asyncio.wait_for(reader.read(), 10) == b" second"
        writer.close()
