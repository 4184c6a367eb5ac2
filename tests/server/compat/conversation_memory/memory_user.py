"""Two users of the memory tools, and shortcuts to fill their libraries and call the tools."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from sources.drafts import ConversationDraft, MessageDraft, ObservationDraft
from sources.records import Conversation
from tests.live import NO_RATE_LIMITS
from tests.server.clients import text_of
from tests.server.rest.rest_client import open_rest_client
from tests.sources.source_fixture import LibraryUser


class MemoryUser(Struct, frozen=True):
    user: LibraryUser

    async def text(self, tool: str, **arguments: Any) -> str:
        """Calls a tool that returns Markdown: a single text, without structured content."""
        result = await self.result(tool, **arguments)
        assert "isError" not in result, text_of(result)
        assert [block["type"] for block in result["content"]] == ["text"]
        assert "structuredContent" not in result
        return text_of(result)

    async def json(self, **arguments: Any) -> Any:
        return await self.user.call("memory_search", response_format="json", **arguments)

    async def rows(self, query: Any, **arguments: Any) -> list[Any]:
        return list((await self.json(query=query, **arguments))["results"])

    async def titles(self, query: Any, **arguments: Any) -> set[str]:
        return {row["title"] for row in await self.rows(query, **arguments)}

    async def error(self, tool: str, **arguments: Any) -> str:
        return await self.user.call_error(tool, **arguments)

    async def result(self, tool: str, **arguments: Any) -> Any:
        return await self.user.request("tools/call", name=tool, arguments=arguments)

    async def add_observation(self, title: str, **fields: Any) -> str:
        async with self.user.libraries.library(self.user.context) as library:
            return (await library.observations.create(ObservationDraft(title=title, **fields))).id

    async def add_conversation(self, *contents: str | MessageDraft, title: str = "", **fields: Any) -> Conversation:
        """Adds a conversation in which plain strings alternate between user and assistant."""
        messages = [
            content
            if isinstance(content, MessageDraft)
            else MessageDraft(role=("user", "assistant")[index % 2], content=content)
            for index, content in enumerate(contents)
        ]
        async with self.user.libraries.library(self.user.context) as library:
            return await library.chats.create(ConversationDraft(title=title, **fields), messages)

    async def add_session(self, name: str, turns: Sequence[tuple[str, str, int, int]], project: str) -> Conversation:
        """Adds a conversation as an importer creates it from a session file: turns of role, text, first and last
        line."""
        messages = [
            MessageDraft(role=role, content=text, metadata={"line_start": start, "line_end": end})
            for role, text, start, end in turns
        ]
        metadata = {"path": f"{project}/{name}.jsonl", "project": project}
        return await self.add_conversation(*messages, session_id=name, metadata=metadata)


@asynccontextmanager
async def open_memory_users(root: Path, **changes: Any) -> AsyncIterator[tuple[MemoryUser, MemoryUser]]:
    async with open_rest_client(root, **NO_RATE_LIMITS, **changes) as api:
        yield MemoryUser(await api.library_user("ada")), MemoryUser(await api.library_user("ben"))
