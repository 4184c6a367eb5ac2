"""A forward proxy for tests: `python -m tests.server.compat.agentkit.chat.forward_proxy LOG NAME=PORT...`.

It prints its port. It knows only the named hosts, which are ports of this machine, and writes the first line of each
request to the log.
"""

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

_CHUNK_BYTES = 64 * 1024


class ForwardProxy:
    def __init__(self, log: Path, ports: dict[str, int]) -> None:
        self._log = log
        self._ports = ports

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first_line, _, headers = head.partition(b"\r\n")
        method, target, version = first_line.decode().split()
        with self._log.open("a") as log:
            log.write(f"{method} {target}\n")
        url = urlsplit(target if "://" in target else f"//{target}")
        if url.hostname not in self._ports:
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._ports[url.hostname])
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            far_writer.write(f"{method} {url.path} {version}\r\n".encode() + headers)
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer), return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()


async def main(log: str, *hosts: str) -> None:
    ports = {name: int(port) for name, _, port in (host.partition("=") for host in hosts)}
    server = await asyncio.start_server(ForwardProxy(Path(log), ports).serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
