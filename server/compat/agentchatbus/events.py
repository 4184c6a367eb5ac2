"""AgentChatBus's event stream, `GET /events`: what happens in the caller's own threads.

AgentChatBus writes a table of events. Here a stream compares the threads with those that it has seen before, whenever
the library has changed, so that writing is not slower and a restart loses nothing.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

from auth.context import RequestContext
from config.errors import NotFound
from config.settings import Settings
from server.compat.agentchatbus.posting import RESPONSE_MAX_BYTES
from server.compat.agentchatbus.schemas import BusThread, FollowBusRequest
from server.compat.agentchatbus.threads import NAMESPACE, bus_message, bus_thread, read_page
from server.operations.operation import EVENT_STREAM
from server.rest.requests import KEEP_ALIVE, RETRY, ChangeWatch, stream
from server.transports.client_connections import OpenStreams
from sources.storage.contract import Chats, Libraries


class _SeenThread(Struct):
    """A thread as the stream last saw it."""

    thread: BusThread
    last_seq: int | None = None  # not known before the thread changes for the first time


class BusEvents:
    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._watch = ChangeWatch(libraries, open_streams, settings)
        self._page_max = settings.message_page_max

    async def follow(self, context: RequestContext, _: FollowBusRequest) -> Response:
        return await stream(self._open_streams, context, self._events(context), EVENT_STREAM)

    async def _events(self, context: RequestContext) -> AsyncIterator[bytes]:
        seen: dict[str, _SeenThread] | None = None
        async for token in self._watch.tokens(context):
            if token is None:
                yield KEEP_ALIVE
            elif seen is None:
                async with self._libraries.library(context) as library:
                    threads = await self._changed_threads(library.chats, {}, reads_all=True)
                seen = {thread.id: _SeenThread(thread) for thread in threads}
                yield RETRY + _event("connected", {})
            else:
                async for event in self._changes(context, seen):
                    yield event

    async def _changes(self, context: RequestContext, seen: dict[str, _SeenThread]) -> AsyncIterator[bytes]:
        """Yields what has changed since `seen`, which it updates. No library is held while the client reads."""
        async with self._libraries.library(context) as library:
            # Deleted threads are noticed by their number. Only then all of them are read.
            total = (await library.chats.list(1, 0, namespace=NAMESPACE)).total
            changed = await self._changed_threads(library.chats, seen, reads_all=False)
            is_deleted = total < len(seen) + sum(thread.id not in seen for thread in changed)
            present = await self._changed_threads(library.chats, {}, reads_all=True) if is_deleted else None
        if present is not None:
            for thread_id in seen.keys() - {thread.id for thread in present}:
                del seen[thread_id]
                yield _event("thread.deleted", {"thread_id": thread_id})
        for thread in reversed(changed):  # the oldest change first
            before = seen.get(thread.id)
            if before is None:
                yield _event("thread.created", thread)
                before = seen[thread.id] = _SeenThread(thread, 0)
            elif thread.status != before.thread.status:
                yield _event("thread.state", thread)
            elif (thread.topic, thread.system_prompt) != (before.thread.topic, before.thread.system_prompt):
                yield _event("thread.updated", thread)
            async for event in self._new_messages(context, before):
                yield event
            before.thread = thread

    async def _new_messages(self, context: RequestContext, before: _SeenThread) -> AsyncIterator[bytes]:
        has_more = True
        while has_more:
            try:
                async with self._libraries.library(context) as library:
                    if before.last_seq is None:
                        before.last_seq = await _last_seq(library.chats, before.thread)
                    messages, has_more = await read_page(
                        library.chats, before.thread.id, before.last_seq, self._page_max, RESPONSE_MAX_BYTES
                    )
            except NotFound:  # deleted meanwhile
                return
            for message in messages:
                before.last_seq = message.number
                yield _event("msg.new", bus_message(message))

    async def _changed_threads(
        self, chats: Chats, seen: Mapping[str, _SeenThread], *, reads_all: bool
    ) -> Sequence[BusThread]:
        """Returns the threads that differ from those in `seen`, the latest change first. Unless it reads all, it ends
        at the first page without a change: the list is sorted by time of change."""
        changed: list[BusThread] = []
        offset = 0
        while True:
            page = await chats.list(self._page_max, offset, namespace=NAMESPACE)
            threads = [bus_thread(conversation) for conversation in page.rows]
            differing = [one for one in threads if one.id not in seen or seen[one.id].thread != one]
            changed += differing
            offset += len(threads)
            if not threads or offset >= page.total or not (differing or reads_all):
                return changed


async def _last_seq(chats: Chats, thread: BusThread) -> int:
    """Returns the seq of the last message that a thread had when it was seen."""
    if not thread.message_count:
        return 0
    rows = (await chats.messages(thread.id, 1, thread.message_count - 1)).rows
    return rows[0].number if rows else await chats.last_message_number(thread.id)


def _event(kind: str, payload: Any) -> bytes:
    """AgentChatBus's events have no name, so that `onmessage` of a browser receives all of them."""
    return b"data: " + msgspec.json.encode({"type": kind, "payload": payload}) + b"\n\n"
