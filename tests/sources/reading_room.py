"""A room with two readers: Ada and Ben, each with a library of their own, before one dispatcher with every source."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from auth.context import RequestContext, build_context
from config.paths import DataRoot
from config.settings import Settings
from server.lifespan import build_knowledge
from server.protocol.call import Silence
from server.protocol.catalog import Catalog
from server.protocol.dispatcher import Dispatcher
from server.protocol.envelope import legacy_call
from server.protocol.messages import Request
from server.tools import add_knowledge
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import Libraries
from sources.storage.sqlite import SqliteLibraries
from tests.server.clients import text_of
from tests.server.protocol.stage import make_dispatcher, make_session, person

SOURCES = ("notes", "media", "chats", "characters", "prompts")
# The name of the argument that holds an item's id.
ID_ARGUMENT = {
    "notes": "note_id",
    "media": "media_id",
    "chats": "conversation_id",
    "characters": "character_id",
    "prompts": "prompt_id_or_name",
}


class Reader(Struct, frozen=True):
    """One user. Everything is asked through the dispatcher, as a client would."""

    name: str
    dispatcher: Dispatcher
    libraries: Libraries
    context: RequestContext

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        request = Request(1, method, params)
        session = make_session(self.context.principal)
        answer = await self.dispatcher.dispatch(legacy_call(session, request, self.context, Silence()), request)
        return msgspec.json.decode(msgspec.json.encode(answer), type=dict[str, Any])

    async def call(self, tool: str, **arguments: Any) -> Any:
        """What a tool answers; it must not fail."""
        result = await self.ask("tools/call", name=tool, arguments=arguments)
        assert "isError" not in result, text_of(result)
        assert msgspec.json.decode(text_of(result)) == result["structuredContent"]
        return result["structuredContent"]

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """The sentence with which a tool fails; it must fail."""
        result = await self.ask("tools/call", name=tool, arguments=arguments)
        assert result.get("isError") is True
        return text_of(result)

    async def found(self, tool: str, query: Any, **arguments: Any) -> list[Any]:
        return list((await self.call(tool, query=query, **arguments))["results"])

    def preferring(self, **config: Any) -> "Reader":
        return msgspec.structs.replace(self, context=msgspec.structs.replace(self.context, config=config))

    # -- what the reader keeps; each answers the id ---------------------------------------------------------------

    async def note(self, title: str, content: str, tags: Sequence[str] = (), **more: Any) -> str:
        async with self.libraries.library(self.context) as library:
            return (await library.notes.create(NoteDraft(title=title, content=content, tags=tags, **more))).id

    async def media(self, title: str, content: str = "", **more: Any) -> int:
        text: dict[str, Any] = {"content": content} if content else {}
        async with self.libraries.library(self.context) as library:
            return (await library.media.create(MediaDraft(title=title, **text, **more))).id

    async def chat(self, title: str, *texts: str | MessageDraft, **more: Any) -> str:
        """A conversation in which Ana and the assistant take turns."""
        turns = (("user", "Ana"), ("assistant", "Guide"))
        messages = [
            text
            if isinstance(text, MessageDraft)
            else MessageDraft(role=turns[n % 2][0], sender=turns[n % 2][1], content=text)
            for n, text in enumerate(texts)
        ]
        async with self.libraries.library(self.context) as library:
            return (await library.chats.create(ConversationDraft(title=title, **more), messages)).id

    async def character(self, name: str, description: str = "", tags: Sequence[str] = (), **more: Any) -> int:
        draft = CharacterDraft(name=name, description=description, tags=tags, **more)
        async with self.libraries.library(self.context) as library:
            return (await library.characters.create(draft)).id

    async def prompt(self, name: str, user_prompt: str = "", tags: Sequence[str] = (), **more: Any) -> int:
        draft = PromptDraft(name=name, user_prompt=user_prompt, tags=tags, **more)
        async with self.libraries.library(self.context) as library:
            return (await library.prompts.create(draft)).id

    async def item(self, source: str, title: str, text: str, **more: Any) -> str | int:
        """One item of a source that holds a text."""
        match source:
            case "notes":
                return await self.note(title, text, **more)
            case "media":
                return await self.media(title, text, **more)
            case "chats":
                return await self.chat(title, text, **more)
            case "characters":
                return await self.character(title, text, **more)
            case _:
                return await self.prompt(title, text, **more)

    async def read(self, source: str, identity: str | int, **arguments: Any) -> Any:
        return await self.call(f"{source}_get", **{ID_ARGUMENT[source]: identity}, **arguments)


class Room(Struct, frozen=True):
    settings: Settings
    catalog: Catalog
    dispatcher: Dispatcher
    libraries: Libraries
    ada: Reader
    ben: Reader


@asynccontextmanager
async def open_room(root: Path, offer: Mapping[str, Any] | None = None, **changes: Any) -> AsyncIterator[Room]:
    settings, data_root = Settings(data_dir=str(root), **changes), DataRoot(root)
    data_root.prepare()
    libraries = SqliteLibraries(data_root, settings)
    catalog = Catalog()
    add_knowledge(catalog, libraries, build_knowledge(settings, libraries), settings)
    dispatcher = make_dispatcher(catalog, **(offer or {}))
    ada, ben = (
        Reader(name, dispatcher, libraries, build_context(person(name), data_root, "request"))
        for name in ("ada", "ben")
    )
    try:
        yield Room(settings, catalog, dispatcher, libraries, ada, ben)
    finally:
        await libraries.close()
