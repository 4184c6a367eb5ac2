"""Streamed responses. They count as open streams of the user, and end when access is revoked.

A stream that fails is aborted, so that a client does not mistake a partial response for a complete one.
"""

from collections.abc import AsyncIterator, Mapping

from starlette.responses import StreamingResponse

from auth.context import RequestContext
from auth.principal import Principal
from config.errors import Unavailable
from server.transports.open_streams import OpenStreams


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
