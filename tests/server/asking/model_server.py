"""A server on a loopback port that streams like OpenAI's chat completions, or misbehaves as a test chooses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

Send = Callable[[bytes], Awaitable[None]]
Respond = Callable[[Send], Awaitable[None]]
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"


class ModelServer:
    """`requests` are the headers and bodies that it got. `client_gone` is set when a client closed its connection
    before the response was complete."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.url = ""
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.client_gone = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((headers, msgspec.json.decode(body)))

        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        responding = asyncio.ensure_future(self._respond(send))
        leaving = asyncio.create_task(reader.read())
        await asyncio.wait((responding, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not responding.done() or responding.exception() is not None:
            self.client_gone.set()
        for task in (responding, leaving):
            task.cancel()
        await asyncio.gather(responding, leaving, return_exceptions=True)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def serve_model(respond: Respond) -> AsyncIterator[ModelServer]:
    model = ModelServer(respond)
    server = await asyncio.start_server(model.handle, "127.0.0.1", 0)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield model
    finally:
        server.close()


def event(text: str, **more: Any) -> bytes:
    chunk = {"model": "wise-1", "choices": [{"index": 0, "delta": {"content": text}}], **more}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def streaming(*texts: str, usage: dict[str, int] | None = None) -> Respond:
    """Streams the texts and the end."""

    async def respond(send: Send) -> None:
        await send(_EVENTS)
        for text in texts:
            await send(event(text))
        if usage is not None:
            await send(b"data: " + msgspec.json.encode({"choices": [], "usage": usage}) + b"\n\n")
        await send(b"data: [DONE]\n\n")

    return respond


def plain(status: int, body: bytes = b"{}", content_type: str = "application/json") -> Respond:
    async def respond(send: Send) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        await send(head.encode() + body)

    return respond


async def endless(send: Send) -> None:
    """Never ends, and never ends a sentence either."""
    await send(_EVENTS)
    while True:
        await send(event("word " * 200))
        await asyncio.sleep(0)


async def endless_noise(send: Send) -> None:
    await send(_EVENTS)
    while True:
        await send(b": \xff\x00 not an event " * 2_000)
        await asyncio.sleep(0)


async def hanging(send: Send) -> None:
    """Sends one sentence, and then nothing."""
    await send(_EVENTS)
    await send(event("The boiler was serviced in May. [1] And "))
    await asyncio.Event().wait()


async def breaking_off(send: Send) -> None:
    await send(_EVENTS)
    await send(event("The boiler was serviced in May. [1] And "))
