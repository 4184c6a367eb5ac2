"""Tells a page that shows conversations when to request them again."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response

from auth.context import RequestContext
from config.settings import Settings
from config.times import steady_time
from server.compat.agentkit.schemas import FollowConversationsRequest
from server.rest.streams import stream
from server.transports.open_streams import OpenStreams
from sources.storage.contract import Libraries

EVENTS = "text/event-stream"
# Browsers wait this long before they connect again.
_RETRY_MS = 2_000
# A line that clients ignore.
_KEEP_ALIVE = b": \n\n"


class ConversationChanges:
    """Each stream asks the library for its change token every `conversation_events_interval_ms`, which reads no row."""

    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._interval_s = settings.conversation_events_interval_ms / 1000
        self._duration_s = settings.conversation_events_max_s
        self._keepalive_s = settings.sse_keepalive_s

    async def follow(self, context: RequestContext, request: FollowConversationsRequest) -> Response:
        return await stream(self._open_streams, context, self._events(context, request.last_event_id), EVENTS)

    async def _events(self, context: RequestContext, last_token: str | None) -> AsyncIterator[bytes]:
        started_s = sent_s = steady_time()
        token = await self._token(context)
        has_missed = last_token is not None and last_token != token
        yield f"retry: {_RETRY_MS}\n".encode() + _event("changed" if has_missed else "open", token)
        while (now_s := steady_time()) < started_s + self._duration_s and not self._open_streams.is_stopping:
            await asyncio.sleep(min(self._interval_s, started_s + self._duration_s - now_s))
            previous, token = token, await self._token(context)
            if token != previous:
                sent_s = now_s
                yield _event("changed", token)
            elif now_s > sent_s + self._keepalive_s:
                sent_s = now_s
                yield _KEEP_ALIVE

    async def _token(self, context: RequestContext) -> str:
        async with self._libraries.library(context) as library:
            return await library.chats.change_token()


def _event(name: str, token: str) -> bytes:
    return f"event: {name}\nid: {token}\ndata: {{}}\n\n".encode()
