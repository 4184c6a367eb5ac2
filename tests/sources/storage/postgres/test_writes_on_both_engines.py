"""Both engines give the same items, pages, versions and errors after any sequence of operations."""

import asyncio
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import Phase, example, given, settings
from msgspec.structs import replace

from config.errors import FlorilegiumError
from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    ObservationDraft,
    PromptDraft,
    ThreadDraft,
)
from sources.storage.contract import CreationPosition, ItemFilter, Library, MetadataFilter, ObservationFilter
from tests.sources.storage.library_fixture import new_id_ending, open_postgres, open_sqlite

T = TypeVar("T")

TITLES = ("tea", "TEA", "Straße", "STRASSE", "東京", "naïve % _ \\", 'it\'s "x"', "", "a\0b", "\ud800")
UUIDS = ("a", "b", "B", "c-1", "bad id")
TAGS = ("x", "X", "ß", "work")
DRAFTS: dict[str, Any] = {
    "notes": lambda title, **fields: NoteDraft(title=title, content=f"text of {title}", **fields),
    "media": lambda title, **fields: MediaDraft(title=title, content=f"{title} " * 5, media_type="web", **fields),
    "characters": lambda title, **fields: CharacterDraft(name=title, description="d", **fields),
    "prompts": lambda title, **fields: PromptDraft(name=title, details="d", **fields),
    "observations": lambda title, **fields: ObservationDraft(
        title=title, project=title, files_read=["src/Main.py"], **fields
    ),
}
kinds = st.sampled_from(sorted(DRAFTS))
collections = st.sampled_from((*sorted(DRAFTS), "chats"))
titles = st.sampled_from(TITLES)
uuids = st.sampled_from(UUIDS)
keys = st.tuples(uuids, st.integers(-1, 4) | st.just(2**70))
versions = st.none() | st.integers(0, 3)
pages = (st.integers(-1, 3), st.integers(-1, 2**70) | st.integers(0, 2))
tag_lists = st.lists(st.sampled_from(TAGS), max_size=2)
sessions = st.sampled_from(("", "", "s", " s"))
times = st.sampled_from(("", "2026-05-01T00:00:00Z", "2027-05-01T00:00:00Z"))
messages = st.lists(st.tuples(uuids, titles), max_size=3)


def _operation(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


operations = st.lists(
    st.one_of(
        _operation("create", kinds, uuids, titles, tag_lists, st.none() | st.sampled_from(("key", "k\0"))),
        _operation("update", kinds, keys, titles, tag_lists, versions),
        _operation("remove", collections, keys, st.sampled_from(("delete", "purge", "restore")), versions),
        _operation("upsert", kinds, st.lists(st.tuples(uuids, titles), max_size=3), st.booleans()),
        _operation("create_many", kinds, st.lists(st.tuples(uuids, titles, tag_lists), max_size=4)),
        _operation("import_many", kinds, st.lists(st.tuples(uuids, titles, tag_lists, st.integers(0, 5)), max_size=4)),
        _operation("import_threads", st.lists(st.tuples(uuids, titles, sessions, times, messages), max_size=3)),
        _operation("withdraw", collections, st.lists(uuids, max_size=2), st.booleans()),
        _operation("read", collections, keys),
        _operation("pages", collections, *pages, tag_lists),
        _operation("media", st.integers(0, 3), *pages),
        _operation("prompt", titles, versions),
        _operation("converse", uuids, titles, messages, tag_lists),
        _operation("append", uuids, messages, versions),
        _operation("edit_message", uuids, titles, versions),
        _operation("import_thread", uuids, titles, messages, st.booleans()),
        _operation("conversations", titles, st.booleans() | st.none(), *pages),
        _operation("namespaces", titles, titles, st.sampled_from(("create", "rename", "delete"))),
        _operation("filter_observations", titles),
    ),
    min_size=5,
    max_size=25,
)


class _Operations:
    """The operations on one library. Each returns what the caller sees."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def _collection(self, kind: str) -> Any:
        return getattr(self._library, kind)

    async def create(self, kind: str, uuid: str, title: str, tags: list[str], key: str | None) -> Any:
        """On SQLite, a key can be used once in each file; in PostgreSQL, once in a library."""
        draft = DRAFTS[kind](title, uuid=uuid, tags=tags)
        if key is not None and kind in ("media", "prompts"):
            key = f"{key} {kind}"
        return await self._collection(kind).create(draft, idempotency_key=key)

    async def update(self, kind: str, keys: tuple[str, int], title: str, tags: list[str], version: int | None) -> Any:
        return await self._collection(kind).update(_key(kind, keys), DRAFTS[kind](title, tags=tags), version)

    async def remove(self, kind: str, keys: tuple[str, int], method: str, version: int | None) -> Any:
        arguments = (version,) if method == "delete" else ()
        return await getattr(self._collection(kind), method)(_key(kind, keys), *arguments)

    async def upsert(self, kind: str, drafts: list[tuple[str, str]], keeps_edits: bool) -> Any:
        made = [DRAFTS[kind](title, uuid=uuid) for uuid, title in drafts]
        return await self._collection(kind).upsert_many(made, keeps_edits=keeps_edits)

    async def create_many(self, kind: str, drafts: list[tuple[str, str, list[str]]]) -> Any:
        made = [DRAFTS[kind](title, uuid=uuid, tags=tags) for uuid, title, tags in drafts]
        return await self._collection(kind).create_many(made)

    async def import_many(self, kind: str, drafts: list[tuple[str, str, list[str], int]]) -> Any:
        """Some drafts have a preferred id, or a field that others leave unset."""
        made = []
        for uuid, title, tags, number in drafts:
            fields: dict[str, Any] = {"metadata": {"number": number}} if number > 2 else {}
            if number and kind in ("media", "characters", "prompts"):
                fields["preferred_id"] = number
            made.append(DRAFTS[kind](title, uuid=uuid, tags=tags, **fields))
        results = await self._collection(kind).upsert_many(made)
        return results, await self._collection(kind).list(10, 0)

    async def import_threads(self, drafts: list[tuple[str, str, str, str, list[tuple[str, str]]]]) -> Any:
        threads = []
        for uuid, title, session, time, texts in drafts:
            draft = ConversationDraft(uuid=uuid, title=title, session_id=session)
            if time:
                draft = replace(draft, created_at=time, last_modified=time)
            threads.append(ThreadDraft(draft, _messages(texts)))
        chats = self._library.chats
        return await chats.upsert_many(threads), await chats.list(10, 0), await chats.messages("a", 5, 0)

    async def withdraw(self, kind: str, uuids: list[str], keeps_edits: bool) -> Any:
        return sorted(await self._collection(kind).withdraw_many(uuids, keeps_edits=keeps_edits))

    async def read(self, kind: str, keys: tuple[str, int]) -> Any:
        return await self._collection(kind).get(_key(kind, keys))

    async def pages(self, kind: str, limit: int, offset: int, tags: list[str]) -> Any:
        collection = self._collection(kind)
        after = await (collection.ids("B", limit) if kind == "chats" else collection.list_after("B", limit))
        return [
            await collection.list(limit, offset),
            after,
            await collection.browse(ItemFilter(tags=tuple(tags)), limit, offset),
            await collection.tags(limit),
        ]

    async def media(self, item: int, first: int, count: int) -> Any:
        library = self._library.media
        chunks = [(chunk.index, chunk.text, chunk.start) for chunk in await library.chunks(item, first, count)]
        return chunks, await library.content(item, first, count), await library.types()

    async def prompt(self, name: str, version: int | None) -> Any:
        saved = await self._library.prompts.save(PromptDraft(name=name, uuid=f"p{len(name)}"), version)
        return saved, await self._library.prompts.get_by_name(name.upper())

    async def converse(self, uuid: str, title: str, texts: list[tuple[str, str]], tags: list[str]) -> Any:
        draft = ConversationDraft(uuid=uuid, title=title, session_id=title, tags=tags, metadata={"a": {"b": title}})
        return await self._library.chats.create(draft, _messages(texts))

    async def append(self, uuid: str, texts: list[tuple[str, str]], last: int | None) -> Any:
        chats = self._library.chats
        appended = await chats.append(uuid, _messages(texts), expected_last_number=last)
        metadata = MetadataFilter("$.mark", ("tea", None))
        return appended, await chats.messages(uuid, 5, 0), await chats.messages_after(uuid, 1, 5, metadata)

    async def edit_message(self, uuid: str, text: str, version: int | None) -> Any:
        chats = self._library.chats
        edited = await chats.update_message(uuid, MessageDraft(content=text), version)
        around = await chats.messages_around(edited.conversation_id, edited.position, 1, 1)
        before = await chats.count_before(uuid)
        if text == "":
            await chats.delete_message(uuid)
        return edited, around, before, await chats.last_message_number(edited.conversation_id)

    async def import_thread(self, uuid: str, title: str, texts: list[tuple[str, str]], keeps_edits: bool) -> Any:
        thread = ThreadDraft(ConversationDraft(uuid=uuid, title=title), _messages(texts))
        return await self._library.chats.upsert_many([thread], keeps_edits=keeps_edits)

    async def conversations(self, text: str, flag: bool | None, limit: int, offset: int) -> Any:
        chats = self._library.chats
        after = CreationPosition("2027-01-15T08:00:09.000Z")
        metadata = MetadataFilter("$.a.b", (text, None))
        return [
            await chats.list(limit, offset, search=text, is_archived=flag),
            await chats.list_created(limit, namespace="default", after=after, metadata=metadata, is_archived=flag),
        ]

    async def namespaces(self, name: str, other: str, method: str) -> Any:
        chats = self._library.chats
        if method == "create":
            await chats.create_namespace(name)
        elif method == "rename":
            await chats.rename_namespace(name, other)
        else:
            await chats.delete_namespace(name)
        return await chats.namespaces()

    async def filter_observations(self, title: str) -> Any:
        where = ObservationFilter(projects=(title,), files=("main.PY",))
        return await self._library.observations.list(5, 0, where)


def _key(kind: str, keys: tuple[str, int]) -> str | int:
    return keys[kind in ("media", "characters", "prompts")]


def _messages(texts: list[tuple[str, str]]) -> list[MessageDraft]:
    return [MessageDraft(uuid=f"m-{uuid}", content=text, metadata={"mark": text}) for uuid, text in texts]


async def _outcome(library: Library, name: str, arguments: tuple[Any, ...]) -> object:
    try:
        return await getattr(_Operations(library), name)(*arguments)
    except FlorilegiumError as error:
        return type(error).__name__, error.message


class _Engines:
    """Both engines, open for all examples, each of which has a user of its own."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._url = url

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    async def compare(self, example: list[tuple[Any, ...]]) -> None:
        ending = new_id_ending()
        with tempfile.TemporaryDirectory() as folder:
            async with AsyncExitStack() as stack:
                sqlite = await stack.enter_async_context(open_sqlite(Path(folder) / "data"))
                postgres = await stack.enter_async_context(open_postgres(self._url, Path(folder), ending))
                one = await stack.enter_async_context(sqlite.library("ada"))
                other = await stack.enter_async_context(postgres.library("ada"))
                for name, *arguments in example:
                    expected = await _outcome(one, name, tuple(arguments))
                    assert await _outcome(other, name, tuple(arguments)) == expected, (name, arguments)
                usage, expected_usage = await other.usage(), await one.usage()
                assert usage.items == expected_usage.items

    def close(self) -> None:
        self._loop.close()


# The first message exists already, and the second is invalid: the first error is reported.
_TWO_ERRORS: list[tuple[Any, ...]] = [
    ("converse", "a", "tea", [("b", "tea")], []),
    ("converse", "B", "tea", [("b", "tea"), ("bad id", "tea")], []),
]
# More rows than one statement inserts.
_LARGE_BATCH: list[tuple[Any, ...]] = [
    ("upsert", "prompts", [(f"p{number}", "tea") for number in range(502)], False),
    ("pages", "prompts", 502, 0, []),
]


# Without shrinking, which takes minutes: the operation that differs is part of the message.
@settings(max_examples=10, phases=(Phase.explicit, Phase.generate))
@given(example=operations)
@example(example=_TWO_ERRORS)
@example(example=_LARGE_BATCH)
def test_both_engines_agree(engine_url: str, example: list[tuple[Any, ...]]) -> None:
    engines = _Engines(engine_url)
    try:
        engines.run(engines.compare(example))
    finally:
        engines.close()
