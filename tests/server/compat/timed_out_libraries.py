"""Libraries whose every use times out."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from auth.context import RequestContext
from config.errors import SourceTimeout
from config.paths import UserId
from sources.storage.contract import LibrariesState, Library


class TimedOutLibraries:
    @asynccontextmanager
    async def library(self, context: RequestContext) -> AsyncIterator[Library]:
        raise SourceTimeout("chats", 2000)
        yield  # makes this a generator

    def require_capacity(self, user_id: UserId) -> None:
        return

    def state(self) -> LibrariesState:
        raise NotImplementedError

    async def stored_bytes(self, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
        return dict.fromkeys(user_ids, 0)

    async def remove(self, user_id: UserId) -> None:
        raise NotImplementedError

    async def embed(self, user_id: UserId) -> str | None:
        return None

    async def close(self) -> None:
        return
