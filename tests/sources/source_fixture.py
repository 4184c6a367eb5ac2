"""Two users, Ada and Ben, each with an own library, and a dispatcher that serves every source to both."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from auth.context import RequestContext, build_context
from config.paths import DataRoot
from config.settings import Settings
from server.protocol.call import NullPeer, legacy_call
from server.protocol.catalog import Catalog
from server.protocol.dispatcher import Dispatcher
from server.protocol.messages import Request
from server.services import build_knowledge
from server.stores import open_libraries
from server.tools.source_tools import add_sources
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import Libraries
from tests.build_settings import build_settings
from tests.prepared_libraries import copy_libraries
from tests.server.clients import text_of
from tests.server.protocol.dispatcher_fixture import make_dispatcher, make_principal, make_session
from tests.servers.storage import has_database, storage_settings
from tests.sources.storage.library_fixture import total_items

SOURCES = ("notes", "media", "chats", "characters", "prompts")
# The argument of `<source>_get` that holds the item's id.
ID_ARGUMENT = {
    "notes": "note_id",
    "media": "media_id",
    "chats": "conversation_id",
    "characters": "character_id",
    "prompts": "prompt_id_or_name",
}

# Tools whose text is Markdown for a model, unless the client asks for JSON.
MARKDOWN_TOOLS = ("knowledge_search",)


class LibraryUser(Struct, frozen=True):
    """One user. Every request goes through the dispatcher, as a client's would."""

    name: str
    dispatcher: Dispatcher
    libraries: Libraries
    context: RequestContext

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        request = Request(1, method, params)
        session = make_session(self.context.principal)
        response = await self.dispatcher.dispatch(legacy_call(session, request, self.context, NullPeer()), request)
        return msgspec.json.decode(msgspec.json.encode(response), type=dict[str, Any])

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Returns the tool's structured result and fails the test if the tool reports an error."""
        result = await self.request("tools/call", name=tool, arguments=arguments)
        assert "isError" not in result, text_of(result)
        if tool not in MARKDOWN_TOOLS:
            assert msgspec.json.decode(text_of(result)) == result["structuredContent"]
        return result["structuredContent"]

    async def call_error(self, tool: str, **arguments: Any) -> str:
        """Returns the tool's error message and fails the test if the tool succeeds."""
        result = await self.request("tools/call", name=tool, arguments=arguments)
        assert result.get("isError") is True
        return text_of(result)

    async def search(self, tool: str, query: Any, **arguments: Any) -> list[Any]:
        return list((await self.call(tool, query=query, **arguments))["results"])

    def with_config(self, **config: Any) -> "LibraryUser":
        return msgspec.structs.replace(self, context=msgspec.structs.replace(self.context, config=config))

    # -- adding items; each method returns the new id ---------------------------------------------------------------

    async def add_note(self, title: str, content: str, tags: Sequence[str] = (), **more: Any) -> str:
        async with self.libraries.library(self.context) as library:
            return (await library.notes.create(NoteDraft(title=title, content=content, tags=tags, **more))).id

    async def add_media(self, title: str, content: str = "", **more: Any) -> int:
        text: dict[str, Any] = {"content": content} if content else {}
        async with self.libraries.library(self.context) as library:
            return (await library.media.create(MediaDraft(title=title, **text, **more))).id

    async def add_chat(self, title: str, *texts: str | MessageDraft, **more: Any) -> str:
        """Adds a conversation in which Ana and the assistant take turns."""
        turns = (("user", "Ana"), ("assistant", "Guide"))
        messages = [
            text
            if isinstance(text, MessageDraft)
            else MessageDraft(role=turns[n % 2][0], sender=turns[n % 2][1], content=text)
            for n, text in enumerate(texts)
        ]
        async with self.libraries.library(self.context) as library:
            return (await library.chats.create(ConversationDraft(title=title, **more), messages)).id

    async def add_character(self, name: str, description: str = "", tags: Sequence[str] = (), **more: Any) -> int:
        draft = CharacterDraft(name=name, description=description, tags=tags, **more)
        async with self.libraries.library(self.context) as library:
            return (await library.characters.create(draft)).id

    async def add_prompt(self, name: str, user_prompt: str = "", tags: Sequence[str] = (), **more: Any) -> int:
        draft = PromptDraft(name=name, user_prompt=user_prompt, tags=tags, **more)
        async with self.libraries.library(self.context) as library:
            return (await library.prompts.create(draft)).id

    async def add_item(self, source: str, title: str, text: str, **more: Any) -> str | int:
        """Adds one item with the given text to a source."""
        match source:
            case "notes":
                return await self.add_note(title, text, **more)
            case "media":
                return await self.add_media(title, text, **more)
            case "chats":
                return await self.add_chat(title, text, **more)
            case "characters":
                return await self.add_character(title, text, **more)
            case _:
                return await self.add_prompt(title, text, **more)

    async def read(self, source: str, item_id: str | int, **arguments: Any) -> Any:
        return await self.call(f"{source}_get", **{ID_ARGUMENT[source]: item_id}, **arguments)


class SourceFixture(Struct, frozen=True):
    settings: Settings
    catalog: Catalog
    dispatcher: Dispatcher
    libraries: Libraries
    ada: LibraryUser
    ben: LibraryUser


@asynccontextmanager
async def open_source_fixture(
    root: Path, offer: Mapping[str, Any] | None = None, **changes: Any
) -> AsyncIterator[SourceFixture]:
    if not (DataRoot(root).control_path.exists() or has_database(root)):
        copy_libraries(_create_libraries, root)
    async with _open_source_fixture(root, offer, **changes) as fixture:
        yield fixture


async def _create_libraries(root: Path) -> None:
    async with _open_source_fixture(root) as fixture:
        for user in (fixture.ada, fixture.ben):
            async with fixture.libraries.library(user.context) as library:
                await total_items(library)


@asynccontextmanager
async def _open_source_fixture(
    root: Path, offer: Mapping[str, Any] | None = None, **changes: Any
) -> AsyncIterator[SourceFixture]:
    settings = build_settings(**{"data_dir": str(root), **storage_settings(root), **changes})
    data_root = DataRoot(root)
    data_root.prepare()
    libraries = open_libraries(settings, data_root)
    catalog = Catalog()
    add_sources(catalog, libraries, build_knowledge(settings, libraries), settings)
    dispatcher = make_dispatcher(catalog, **(offer or {}))
    ada, ben = (
        LibraryUser(name, dispatcher, libraries, build_context(make_principal(name), data_root, "request"))
        for name in ("ada", "ben")
    )
    try:
        yield SourceFixture(settings, catalog, dispatcher, libraries, ada, ben)
    finally:
        await libraries.close()
