"""Streamed responses. They count as open streams of the user, and end when access is revoked.

A stream that fails is aborted, so that a client does not mistake a partial response for a complete one.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

from starlette.responses import StreamingResponse

from auth.context import RequestContext
from auth.principal import Principal
from config.errors import Unavailable
from config.settings import Settings
from config.times import steady_time
from server.transports.open_streams import OpenStreams
from sources.storage.contract import Libraries

EVENT_STREAM = "text/event-stream"
# Browsers wait this long before they connect again.
RETRY = b"retry: 2000\n"
# A line that clients ignore.
KEEP_ALIVE = b": \n\n"


class ChangeWatch:
    """Asks a library for the change token of its conversations every `conversation_events_interval_ms`, which reads no
    row."""

    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._interval_s = settings.conversation_events_interval_ms / 1000
        self._duration_s = settings.conversation_events_max_s
        self._keepalive_s = settings.sse_keepalive_s

    async def tokens(self, context: RequestContext) -> AsyncIterator[str | None]:
        """Yields the token at once and whenever it has changed, and None if a stream has to be kept alive. Ends after
        `conversation_events_max_s`, or when the server stops."""
        started_s = sent_s = steady_time()
        token = await self._token(context)
        yield token
        while (now_s := steady_time()) < started_s + self._duration_s and not self._open_streams.is_stopping:
            await asyncio.sleep(min(self._interval_s, started_s + self._duration_s - now_s))
            previous, token = token, await self._token(context)
            if token != previous:
                sent_s = now_s
                yield token
            elif now_s > sent_s + self._keepalive_s:
                sent_s = now_s
                yield None

    async def _token(self, context: RequestContext) -> str:
        async with self._libraries.library(context) as library:
            return await library.chats.change_token()


async def stream(
    open_streams: OpenStreams,
    context: RequestContext,
    chunks: AsyncIterator[bytes],
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> StreamingResponse:
    """Returns a streaming response. The first chunk is read beforehand, so that an early error gets an error status."""
    counted = _counted(open_streams, context.principal, chunks)
    first = await anext(counted, b"")
    return StreamingResponse(_prepend(first, counted), media_type=media_type, headers=headers)


async def _counted(
    open_streams: OpenStreams, principal: Principal, chunks: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    with open_streams.enter(principal):
        async for chunk in chunks:
            if not await open_streams.is_open(principal):
                raise Unavailable("the stream was closed")
            yield chunk


async def _prepend(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk
