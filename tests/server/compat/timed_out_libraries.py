"""Libraries whose every use times out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from auth.context import RequestContext
from config.errors import SourceTimeout
from sources.storage.contract import Library
from tests.aggregator.aggregator_fixture import FakeLibraries, FakeLibrary


class TimedOutLibraries(FakeLibraries):
    def __init__(self) -> None:
        super().__init__(FakeLibrary())

    @asynccontextmanager
    async def library(self, context: RequestContext) -> AsyncIterator[Library]:
        raise SourceTimeout("chats", 2000)
        yield  # makes this a generator
