"""Export and import of all conversations: byte-identical round trips, isolation, and hostile archives."""

import asyncio
import io
import json
import struct
import zipfile
from collections.abc import AsyncIterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auth.context import SCOPES, ClientId, Principal, build_context
from sources.drafts import ConversationDraft, MessageDraft
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.compat.agentkit.conversations_api import (
    HELLO,
    conversation_ids,
    create_conversation,
    post,
    search_contents,
)
from tests.server.http_client import HttpResponse, RawConnection, fetch
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser
from tests.tiers import examples

ZIP = {"Content-Type": "application/zip"}


async def export(api: RestClient, who: str = "ada") -> bytes:
    response = await api.get("/conversations/export?format=json", who)
    assert (response.status, response.header("content-type")) == (200, "application/zip")
    return response.body


async def import_archive(api: RestClient, archive: bytes, who: str = "ben") -> HttpResponse:
    return await api.request("POST", "/conversations/import", who, ZIP, archive)


def files(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def make_zip(entries: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return sink.getvalue()


# Export


async def test_export_contains_every_conversation_and_a_manifest(api: RestClient) -> None:
    conversations = sorted(
        [await create_conversation(api, *HELLO, title=f"Talk {n}", namespace="work") for n in range(3)]
    )
    await create_conversation(api, *HELLO, who="ben")

    entries = files(await export(api))

    assert list(entries) == [*(f"conversations/{one}.json" for one in conversations), "manifest.json"]
    first = msgspec.json.decode(entries[f"conversations/{conversations[0]}.json"])
    detail = (await api.get(f"/conversations/{conversations[0]}")).json()
    assert {**first, "messages": None} == {**detail, "messages": None, "tags": []}
    # Every library numbers its messages itself.
    shown = [{name: value for name, value in one.items() if name != "seq"} for one in detail["messages"]]
    assert [m.items() >= s.items() for m, s in zip(first["messages"], shown, strict=True)] == [True] * 2
    assert msgspec.json.decode(entries["manifest.json"]) == {
        "format": "florilegium-conversations",
        "version": 1,
        "conversations": 3,
        "messages": 6,
        "namespaces": ["default", "work"],
    }


async def test_export_of_an_empty_library_is_an_archive(api: RestClient) -> None:
    assert list(files(await export(api))) == ["manifest.json"]


async def test_exporting_twice_gives_the_same_bytes(api: RestClient) -> None:
    for n in range(5):
        await create_conversation(api, *HELLO, title=f"Talk {n}")

    first = await export(api)

    assert await export(api) == first
    with zipfile.ZipFile(io.BytesIO(first)) as opened:
        assert {entry.date_time for entry in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}


async def test_export_of_many_pages_is_complete(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, message_page_max=2) as api:
        conversation = await create_conversation(api, *({"role": "user", "content": f"turn {n}"} for n in range(9)))
        before = (await api.get(f"/conversations/{conversation}")).json()["messages"]
        reader = await api.library_user("ada")
        async with reader.libraries.library(reader.context) as library:
            for gone in (0, 4, 5):
                await library.chats.delete_message(before[gone]["id"])

        entries = files(await export(api))

    exported = msgspec.json.decode(entries[f"conversations/{conversation}.json"])
    assert [m["content"] for m in exported["messages"]] == [f"turn {n}" for n in (1, 2, 3, 6, 7, 8)]
    assert exported["message_count"] == 6


@each_case("export_format", ["txt", "xml"])
async def test_archive_supports_only_json(api: RestClient, export_format: str) -> None:
    response = await api.get(f"/conversations/export?format={export_format}")

    assert (response.status, response.json()["detail"]) == (400, "Invalid format. Supported: json")


# Round trip

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
TIMES = st.integers(0, 2_000_000_000_000).map(
    lambda ms: f"20{ms % 90 + 10}-0{ms % 9 + 1}-1{ms % 9}T08:30:00.{ms % 1000:03}Z"
)
OBJECTS = st.dictionaries(
    TEXT, TEXT | st.integers(-(2**53), 2**53) | st.none() | st.lists(TEXT, max_size=2), max_size=2
)
MESSAGES = st.builds(
    MessageDraft,
    role=st.sampled_from(("user", "assistant", "system", "tool")),
    sender=TEXT,
    content=TEXT,
    model=st.none() | TEXT,
    tool=st.none() | TEXT,
    attachments=st.lists(OBJECTS, max_size=2),
    citations=st.lists(OBJECTS, max_size=2),
    metadata=OBJECTS,
    parent_id=st.none() | TEXT,
    is_canonical=st.booleans(),
    created_at=TIMES,
)
CONVERSATIONS = st.builds(
    ConversationDraft,
    title=TEXT,
    namespace=TEXT,
    tags=st.lists(TEXT, max_size=2),
    metadata=OBJECTS,
    created_at=TIMES,
    last_modified=TIMES,
)
LIBRARIES = st.lists(st.tuples(CONVERSATIONS, st.lists(MESSAGES, max_size=4)), max_size=4)


class UserFactory:
    """A client for many examples, each with new users."""

    def __init__(self, api: RestClient) -> None:
        self.api = api
        self._names = (f"user-{n}" for n in count())

    async def new_user(self) -> LibraryUser:
        return await self.api.library_user(next(self._names))


@pytest.fixture(scope="module")
async def factory(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[UserFactory]:
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0}
    async with open_rest_client(tmp_path_factory.mktemp("archives"), message_page_max=2, **unlimited) as api:
        yield UserFactory(api)


@settings(max_examples=examples(20))
@given(conversations=LIBRARIES, sessions=st.booleans())
async def test_export_after_import_has_the_same_bytes(
    factory: UserFactory, conversations: list[tuple[ConversationDraft, list[MessageDraft]]], sessions: bool
) -> None:
    exporter, importer = await factory.new_user(), await factory.new_user()
    async with exporter.libraries.library(exporter.context) as library:
        for n, (draft, messages) in enumerate(conversations):
            session = {"session_id": f"s-{n}"} if sessions else {}
            await library.chats.create(msgspec.structs.replace(draft, **session), messages)
        await library.chats.create_namespace("empty namespace")
    first = await export(factory.api, exporter.name)

    result = await import_archive(factory.api, first, importer.name)

    assert (result.status, result.json()["problems"]) == (200, [])
    assert result.json()["created"] == len(conversations)
    assert await export(factory.api, importer.name) == first


async def test_repeated_import_changes_nothing(api: RestClient) -> None:
    await create_conversation(api, *HELLO)
    archive = await export(api)
    await import_archive(api, archive)

    again = (await import_archive(api, archive)).json()

    assert (again["created"], again["kept"], again["messages"]) == (0, 1, 0)
    assert await export(api, "ben") == archive


async def test_import_restores_a_deleted_conversation(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO)
    archive = await export(api)
    await api.request("DELETE", f"/conversations/{conversation}", "ada")

    result = (await import_archive(api, archive, "ada")).json()

    assert (result["created"], result["messages"]) == (1, 2)
    assert await export(api) == archive
    assert await search_contents(api, "hello") == ["Hello"]


async def test_import_reports_a_deleted_message_that_it_cannot_restore(api: RestClient, ada: LibraryUser) -> None:
    conversation = await create_conversation(api, *HELLO)
    archive = await export(api)
    last = (await api.get(f"/conversations/{conversation}")).json()["messages"][-1]["id"]
    async with ada.libraries.library(ada.context) as library:
        await library.chats.delete_message(last)

    result = (await import_archive(api, archive, "ada")).json()

    assert (result["kept"], result["failed"]) == (1, 1)
    assert last in result["problems"][0]["message"]


async def test_import_continues_an_incomplete_conversation(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, message_page_max=3) as api:
        conversation = await create_conversation(
            api, *({"role": "user", "content": f"turn {n}", "id": f"m-{n}"} for n in range(10))
        )
        archive = await export(api)
        exported = msgspec.json.decode(files(archive)[f"conversations/{conversation}.json"])
        for stored in range(11):
            who, messages = f"importer-{stored}", exported["messages"][:stored]
            sent = [{name: m[name] for name in ("role", "content", "timestamp", "id")} for m in messages]
            await post(api, "/conversations", {"id": conversation, "title": "Begun", "messages": sent}, who)

            result = (await import_archive(api, archive, who)).json()

            assert (result["continued"], result["kept"]) == ((1, 0) if stored < 10 else (0, 1))
            messages = (await api.get(f"/conversations/{conversation}", who)).json()["messages"]
            assert [m["id"] for m in messages] == [f"m-{n}" for n in range(10)]


async def test_import_does_not_change_a_conversation_that_diverged(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO)
    archive = await export(api)
    other = {"role": "user", "content": "Something else"}
    await post(api, "/conversations", {"id": conversation, "messages": [other]}, "ben")

    result = (await import_archive(api, archive)).json()

    assert (result["kept"], result["messages"]) == (1, 0)
    assert [m["content"] for m in (await api.get(f"/conversations/{conversation}", "ben")).json()["messages"]] == [
        "Something else"
    ]


async def test_imported_conversations_belong_to_the_importing_user(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO)
    archive = await export(api)
    await api.request("DELETE", f"/conversations/{conversation}", "ada")

    await import_archive(api, archive, "ben")

    assert (await conversation_ids(api, who="ada"), await conversation_ids(api, who="ben")) == ([], [conversation])


def layout(text: str) -> bytes:
    """Adds line ends where another JSON writer may put them."""
    return text.replace('"messages"', '\r\n\n"messages"').encode()


@pytest.mark.parametrize("indent", [None, 2])
async def test_agentkits_own_export_files_can_be_imported(api: RestClient, indent: int | None) -> None:
    """In any layout and folder."""
    message: dict[str, Any] = {
        "conversation_id": "c-1",
        "model": None,
        "tool_used": None,
        "attachments": [],
        "citations": [],
    }
    time = "2025-10-09T19:37:47.783681+00:00"
    turns = [{"id": f"m-{n}", "role": "user", "content": f"turn {n}", "timestamp": time, **message} for n in range(450)]
    known = {"id": "c-1", "session_id": "s-1", "title": "Old", "namespace": "work", "created_at": time}
    file = {**known, "updated_at": time, "message_count": 450, "metadata": {}, "messages": turns}

    result = (
        await import_archive(api, make_zip({"conversation-c-1.json": layout(json.dumps(file, indent=indent))}))
    ).json()

    imported = (await api.get("/conversations/c-1", "ben")).json()
    assert (result["created"], result["messages"], result["problems"]) == (1, 450, [])
    assert (imported["title"], imported["namespace"], imported["created_at"]) == (
        "Old",
        "work",
        "2025-10-09T19:37:47.783000+00:00",
    )
    assert [m["content"] for m in imported["messages"]] == [f"turn {n}" for n in range(450)]


async def test_too_large_file_in_another_layout_is_rejected(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_file_max_bytes=1024) as api:
        conversation = await create_conversation(api, *HELLO, {"role": "user", "content": "x" * 2000})
        archive = await export(api)
        entry = f"conversations/{conversation}.json"
        other = make_zip({entry: json.dumps(json.loads(files(archive)[entry])).encode()})

        rejected, accepted = (await import_archive(api, other)).json(), (await import_archive(api, archive)).json()

    assert (rejected["failed"], accepted["created"]) == (1, 1)
    assert "expected one message per line" in rejected["problems"][0]["message"]


# Hostile and damaged archives


@each_case("upload", [b"", b"PK", b"not a zip at all", make_zip({})[:-3], b"PK\x05\x06" + b"\xff" * 18])
async def test_upload_that_is_not_a_zip_is_rejected(api: RestClient, upload: bytes) -> None:
    response = await import_archive(api, upload)

    assert response.status in (400, 413)
    assert "archive: not a valid zip file" in response.json()["detail"]


async def test_unreadable_files_are_reported_and_others_imported(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO)
    good = files(await export(api))
    line = good[f"conversations/{conversation}.json"]
    bad = {
        "conversations/empty.json": b"",
        "conversations/text.json": b"hello",
        "conversations/list.json": b"[1,2]",
        "conversations/half.json": line.replace(conversation.encode(), b"half")[:-4],
        "conversations/shape.json": line.replace(b'"title":"Hello"', b'"title":7'),
        "conversations/search.json": line.replace(conversation.encode(), b"search"),
        "conversations/more.json": line.replace(conversation.encode(), b"more") + b"{}\n",
        "conversations/deep.json": line.replace(b'"metadata":{}', b'"metadata":{"a":' + b"[" * 9000, 1),
    }

    result = (await import_archive(api, make_zip({**bad, **good, "notes.txt": b"ignored"}))).json()

    assert (result["created"], result["failed"]) == (1, len(bad))
    assert {problem["entry"] for problem in result["problems"]} == set(bad)
    assert await conversation_ids(api, who="ben") == [conversation]


async def test_damaged_file_is_reported(api: RestClient) -> None:
    await create_conversation(api, *HELLO)
    archive = bytearray(await export(api))
    archive[archive.index(b".json") + 40] ^= 0xFF

    result = (await import_archive(api, bytes(archive))).json()

    assert result["failed"] == 1


async def test_manifest_of_a_later_version_is_rejected(api: RestClient) -> None:
    later = make_zip({"manifest.json": b'{"format":"florilegium-conversations","version":2}'})

    response = await import_archive(api, later)

    assert response.status == 400
    assert (
        "expected 'florilegium-conversations' version 1, got 'florilegium-conversations' version 2"
        in response.json()["detail"]
    )


@pytest.mark.slow("makes a large file")
async def test_zip_bomb_is_rejected_while_unpacking(tmp_path: Path) -> None:
    bomb = make_zip({"conversations/a.json": b'{"id":"a"' + b" " * 50_000_000 + b',"messages":[\n'})
    async with open_rest_client(tmp_path, import_max_bytes=100_000) as api:
        response = await import_archive(api, bomb)

    assert len(bomb) < 100_000
    assert (response.status, response.json()["error"]["code"]) == (413, "FILE_TOO_LARGE")


async def test_archive_with_too_many_files_is_rejected_before_listing(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_max_conversations=3) as api:
        few = await import_archive(api, make_zip({f"conversations/{n}.json": b"" for n in range(5)}))
        many = await import_archive(api, make_zip({f"conversations/{n}.json": b"" for n in range(3000)}))

    assert (few.status, few.json()["detail"]) == (400, "archive: expected at most 4 files, got 5")
    assert (many.status, many.json()["error"]["code"]) == (413, "FILE_TOO_LARGE")


async def test_archive_with_false_sizes_is_harmless(api: RestClient) -> None:
    conversation = await create_conversation(api, *HELLO)
    archive = bytearray(make_zip(files(await export(api))))
    entry = archive.index(b"PK\x01\x02")
    archive[entry + 24 : entry + 28] = struct.pack("<I", 10)

    response = await import_archive(api, bytes(archive))

    assert response.status == 200
    assert (response.json()["failed"], await conversation_ids(api, who="ben")) == (1, [])
    assert await conversation_ids(api) == [conversation]


async def test_too_large_or_wrongly_typed_upload_is_rejected(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_max_bytes=2048) as api:
        large = await import_archive(api, b"x" * 3000)
        declared = await api.request("POST", "/conversations/import", "ben", {**ZIP, "Content-Length": "3000"}, b"x")
        named = await api.request("POST", "/conversations/import", "ben", {"Content-Type": "text/plain"}, make_zip({}))

    assert [response.status for response in (large, declared, named)] == [413, 413, 415]
    assert named.json()["detail"] == "Content-Type: expected application/zip, got 'text/plain'"


async def test_second_concurrent_import_of_a_user_is_rejected(api: RestClient) -> None:
    for n in range(20):
        await create_conversation(api, *HELLO, title=f"Talk {n}")
    archive = await export(api)
    for name in ("ben", "cyd"):
        await api.server.user(name)

    imports = [import_archive(api, archive, "ben") for _ in range(2)]
    *of_ben, of_cyd = await asyncio.gather(*imports, import_archive(api, archive, "cyd"))

    assert sorted(response.status for response in of_ben) == [200, 503]
    assert next(response for response in of_ben if response.status == 503).header("retry-after") == "5"
    assert of_cyd.status == 200
    assert await export(api, "ben") == archive


async def test_all_problems_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_problems_max=2) as api:
        result = (await import_archive(api, make_zip({f"conversations/{n}.json": b"" for n in range(5)}))).json()

    assert (result["failed"], len(result["problems"])) == (5, 2)


# Over a socket


@pytest.mark.slow("makes a large library")
async def test_large_library_is_exported_and_imported_over_a_socket(tmp_path: Path) -> None:
    settings_ = make_settings(tmp_path, message_page_max=50)
    async with live(settings_) as server:
        ada, ben = [await server.bearer(name) for name in ("ada", "ben")]
        body = {"messages": [{"role": "user", "content": f"{n} " + "galleon " * 40} for n in range(600)]}
        for _ in range(3):
            conversation = await fetch(
                server.url, "POST", "/conversations", {**ada, "Content-Type": "application/json"}, _json(body)
            )
            assert conversation.status == 201

        archive = await fetch(server.url, "GET", "/conversations/export", ada)
        result = await fetch(server.url, "POST", "/conversations/import", {**ben, **ZIP}, archive.body)
        again = await fetch(server.url, "GET", "/conversations/export", ben)

    assert archive.header("transfer-encoding") == "chunked"
    assert archive.header("content-disposition") == 'attachment; filename="conversations.zip"'
    assert (result.json()["created"], result.json()["messages"]) == (3, 1800)
    assert again.body == archive.body


async def test_every_message_of_an_import_is_found_at_once(tmp_path: Path) -> None:
    """The library has more messages than are scanned before an index is built."""
    async with live(make_settings(tmp_path, message_scan_max_rows=100)) as server:
        ada, ben = [await server.bearer(name) for name in ("ada", "ben")]
        for part in range(3):
            body = {"messages": [{"role": "user", "content": f"galleon {part}-{n}."} for n in range(600)]}
            await fetch(server.url, "POST", "/conversations", {**ada, "Content-Type": "application/json"}, _json(body))
        archive = await fetch(server.url, "GET", "/conversations/export", ada)
        result = await fetch(server.url, "POST", "/conversations/import", {**ben, **ZIP}, archive.body)
        path = "/conversations/search/messages?query=galleon+{}."
        found = [(await fetch(server.url, "GET", path.format(f"{part}-0"), ben)).json() for part in range(3)]
        missing = (await fetch(server.url, "GET", path.format("3-0"), ben)).json()

    assert result.json()["messages"] == 1_800
    assert [one["messages"][0]["content"] for one in found] == [f"galleon {part}-0." for part in range(3)]
    assert {(one["total"], one["is_complete"]) for one in found} == {(1, True)}
    assert (missing["total"], missing["is_complete"]) == (0, True)


async def test_disconnected_reader_leaves_nothing_open(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, message_page_max=50, stream_max_per_user=1)) as server:
        ada, open_streams = await server.bearer("ada"), server.runtime.open_streams
        # More than the connection's buffers hold, so that the server has to wait for its reader.
        conversation = await _fill(server, "ada", [f"{n} " + "galleon " * 8_000 for n in range(200)])
        async with RawConnection.open(server.url) as wire:
            await wire.request("POST", f"/conversations/{conversation}/export", ada, b"")
            await wire.head()
            open_count = len(open_streams)
            rejected = await fetch(server.url, "POST", f"/conversations/{conversation}/export", ada, b"")
        await open_streams.wait_until_empty(10)

        assert (open_count, rejected.status, len(open_streams)) == (1, 503, 0)
        assert (await fetch(server.url, "GET", "/conversations/export", ada)).status == 200


async def test_export_is_interrupted_when_access_is_revoked(tmp_path: Path, failures: list[str]) -> None:
    async with live(make_settings(tmp_path, message_page_max=50)) as server:
        ada = await server.bearer("ada")
        conversation = await _fill(server, "ada", [f"{n} " + "galleon " * 8_000 for n in range(200)])
        async with RawConnection.open(server.url) as wire:
            await wire.request("POST", f"/conversations/{conversation}/export", ada, b"")
            head = await wire.head()
            await server.runtime.registry.disable_user((await server.user("ada")).id)
            with pytest.raises(asyncio.IncompleteReadError) as ended:
                await wire.raw(10**9)
        assert head[0] == 200
        assert not ended.value.partial.endswith(b"0\r\n\r\n")
        assert b"199 galleon" not in ended.value.partial
    assert [line for line in failures if "Unavailable" in line]
    failures.clear()


async def _fill(server: LiveServer, name: str, texts: list[str]) -> str:
    user = await server.user(name)
    principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
    context = build_context(principal, server.runtime.data_root, "request")
    async with server.runtime.libraries.library(context) as library:
        messages = [MessageDraft(content=text) for text in texts]
        return (await library.chats.create(ConversationDraft(title="Long"), messages)).id


def _json(body: Any) -> bytes:
    return msgspec.json.encode(body)
