"""Answers that are streamed: counted among the user's open streams, and ended when access is withdrawn.

An answer that cannot be brought to its end is broken off: a client must not take a part for the whole.
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
    pieces: AsyncIterator[bytes],
    media_type: str,
    headers: Mapping[str, str] | None = None,
) -> StreamingResponse:
    """It is begun before it is answered, so that what fails at once is refused in good form."""
    watched = _watched(open_streams, context.principal, pieces)
    first = await anext(watched, b"")
    return StreamingResponse(_joined(first, watched), media_type=media_type, headers=headers)


async def _watched(
    open_streams: OpenStreams, principal: Principal, pieces: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    with open_streams.enter(principal):
        async for piece in pieces:
            if not await open_streams.is_open(principal):
                raise Unavailable("the stream was ended")
            yield piece


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
