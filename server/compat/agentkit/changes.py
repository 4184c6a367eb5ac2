"""Tells a page that shows conversations when to request them again."""

from collections.abc import AsyncIterator

from starlette.responses import Response

from auth.context import RequestContext
from config.settings import Settings
from server.compat.agentkit.schemas import FollowConversationsRequest
from server.rest.streams import EVENT_STREAM, KEEP_ALIVE, RETRY, ChangeWatch, stream
from server.transports.open_streams import OpenStreams
from sources.storage.contract import Libraries


class ConversationChanges:
    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._open_streams = open_streams
        self._watch = ChangeWatch(libraries, open_streams, settings)

    async def follow(self, context: RequestContext, request: FollowConversationsRequest) -> Response:
        return await stream(self._open_streams, context, self._events(context, request.last_event_id), EVENT_STREAM)

    async def _events(self, context: RequestContext, last_token: str | None) -> AsyncIterator[bytes]:
        is_open = False
        async for token in self._watch.tokens(context):
            if token is None:
                yield KEEP_ALIVE
            elif is_open:
                yield _event("changed", token)
            else:
                is_open = True
                yield RETRY + _event("open" if last_token in (None, token) else "changed", token)


def _event(name: str, token: str) -> bytes:
    return f"event: {name}\nid: {token}\ndata: {{}}\n\n".encode()
