"""Two people with a memory each, before the memory tools: what they remember, and what they are told in text."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from server.compat.conversation_memory.tools import add_memory
from server.protocol.catalog import Catalog
from sources.drafts import ConversationDraft, MessageDraft, ObservationDraft
from sources.records import Conversation
from tests.server.clients import text_of
from tests.server.protocol.dispatcher_fixture import make_dispatcher
from tests.sources.source_fixture import LibraryUser, open_source_fixture


class Rememberer(Struct, frozen=True):
    """One user of the memory tools."""

    reader: LibraryUser

    async def text(self, tool: str, **arguments: Any) -> str:
        """An answer in Markdown: one text, and nothing structured beside it."""
        result = await self.reader.request("tools/call", name=tool, arguments=arguments)
        assert "isError" not in result, text_of(result)
        assert [block["type"] for block in result["content"]] == ["text"]
        assert "structuredContent" not in result
        return text_of(result)

    async def json(self, **arguments: Any) -> Any:
        return await self.reader.call("memory_search", response_format="json", **arguments)

    async def rows(self, query: Any, **arguments: Any) -> list[Any]:
        return list((await self.json(query=query, **arguments))["results"])

    async def titles(self, query: Any, **arguments: Any) -> set[str]:
        return {row["title"] for row in await self.rows(query, **arguments)}

    async def refusal(self, tool: str, **arguments: Any) -> str:
        return await self.reader.call_error(tool, **arguments)

    async def result(self, tool: str, **arguments: Any) -> Any:
        return await self.reader.request("tools/call", name=tool, arguments=arguments)

    async def learn(self, title: str, **more: Any) -> str:
        async with self.reader.libraries.library(self.reader.context) as library:
            return (await library.observations.create(ObservationDraft(title=title, **more))).id

    async def talk(self, *said: str | MessageDraft, title: str = "", **more: Any) -> Conversation:
        """A conversation in which the user and the assistant take turns."""
        messages = [
            one if isinstance(one, MessageDraft) else MessageDraft(role=("user", "assistant")[n % 2], content=one)
            for n, one in enumerate(said)
        ]
        async with self.reader.libraries.library(self.reader.context) as library:
            return await library.chats.create(ConversationDraft(title=title, **more), messages)

    async def session(self, name: str, turns: Sequence[tuple[str, str, int, int]], project: str) -> Conversation:
        """A conversation as an importer makes it of a session's file: each turn with its role, text and lines."""
        messages = [
            MessageDraft(role=role, content=text, metadata={"line_start": start, "line_end": end})
            for role, text, start, end in turns
        ]
        metadata = {"path": f"{project}/{name}.jsonl", "project": project}
        return await self.talk(*messages, session_id=name, metadata=metadata)


@asynccontextmanager
async def two_memories(root: Path, **changes: Any) -> AsyncIterator[tuple[Rememberer, Rememberer]]:
    async with open_source_fixture(root, **changes) as fixture:
        catalog = Catalog()
        add_memory(catalog, fixture.libraries, fixture.settings)
        dispatcher = make_dispatcher(catalog)
        ada, ben = (msgspec.structs.replace(reader, dispatcher=dispatcher) for reader in (fixture.ada, fixture.ben))
        yield Rememberer(ada), Rememberer(ben)
