"""Export and import of all conversations: the same bytes again, nobody else's, and nothing that an archive could do."""

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
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from sources.drafts import ConversationDraft, MessageDraft
from tests.live import LiveServer, live, make_settings
from tests.server.compat.agentkit.conversing import HELLO, found, ids, keep, post
from tests.server.http_client import HttpResponse, RawConnection, fetch
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

ZIP = {"Content-Type": "application/zip"}


async def export(api: RestClient, who: str = "ada") -> bytes:
    answer = await api.get("/conversations/export?format=json", who)
    assert (answer.status, answer.header("content-type")) == (200, "application/zip")
    return answer.body


async def bring(api: RestClient, archive: bytes, who: str = "ben") -> HttpResponse:
    return await api.request("POST", "/conversations/import", who, ZIP, archive)


def files(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def packed(entries: Mapping[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in entries.items():
            made.writestr(name, content)
    return sink.getvalue()


# -- out ----------------------------------------------------------------------------------------------------------


async def test_an_export_holds_every_conversation_as_a_file_and_a_manifest(api: RestClient) -> None:
    made = sorted([await keep(api, *HELLO, title=f"Talk {n}", namespace="work") for n in range(3)])
    await keep(api, *HELLO, who="ben")

    entries = files(await export(api))

    assert list(entries) == [*(f"conversations/{one}.json" for one in made), "manifest.json"]
    first = msgspec.json.decode(entries[f"conversations/{made[0]}.json"])
    shown = (await api.get(f"/conversations/{made[0]}")).json()
    assert {**first, "messages": None} == {**shown, "messages": None, "tags": []}
    assert [m.items() >= s.items() for m, s in zip(first["messages"], shown["messages"], strict=True)] == [True] * 2
    assert msgspec.json.decode(entries["manifest.json"]) == {
        "format": "florilegium-conversations",
        "version": 1,
        "conversations": 3,
        "messages": 6,
        "namespaces": ["default", "work"],
    }


async def test_an_export_of_nothing_is_an_archive_too(api: RestClient) -> None:
    assert list(files(await export(api))) == ["manifest.json"]


async def test_exporting_twice_gives_the_same_bytes_whatever_the_time(api: RestClient) -> None:
    for n in range(5):
        await keep(api, *HELLO, title=f"Talk {n}")

    first = await export(api)

    assert await export(api) == first
    with zipfile.ZipFile(io.BytesIO(first)) as opened:
        assert {entry.date_time for entry in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}


async def test_an_export_is_complete_however_many_pages_it_takes(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, message_page_max=2) as api:
        made = await keep(api, *({"role": "user", "content": f"turn {n}"} for n in range(9)))
        before = (await api.get(f"/conversations/{made}")).json()["messages"]
        reader = await api.reader("ada")
        async with reader.libraries.library(reader.context) as library:
            for gone in (0, 4, 5):
                await library.chats.delete_message(before[gone]["id"])

        entries = files(await export(api))

    told = msgspec.json.decode(entries[f"conversations/{made}.json"])
    assert [m["content"] for m in told["messages"]] == [f"turn {n}" for n in (1, 2, 3, 6, 7, 8)]
    assert told["message_count"] == 6


@pytest.mark.parametrize("asked", ["txt", "xml"])
async def test_an_export_of_all_is_of_json_files_only(api: RestClient, asked: str) -> None:
    answer = await api.get(f"/conversations/export?format={asked}")

    assert (answer.status, answer.json()["detail"]) == (400, "Invalid format. Supported: json")


# -- and back -----------------------------------------------------------------------------------------------------

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


class Hall:
    """A client for many examples, each with new users."""

    def __init__(self, api: RestClient) -> None:
        self.api = api
        self._names = (f"user-{n}" for n in count())

    async def newcomer(self) -> LibraryUser:
        return await self.api.reader(next(self._names))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hall(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hall]:
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0}
    async with open_rest_client(tmp_path_factory.mktemp("hall"), message_page_max=2, **unlimited) as api:
        yield Hall(api)


@pytest.mark.asyncio(loop_scope="module")
@settings(max_examples=30, deadline=None)
@given(shelves=LIBRARIES, sessions=st.booleans())
async def test_what_was_exported_and_imported_is_exported_with_the_same_bytes(
    hall: Hall, shelves: list[tuple[ConversationDraft, list[MessageDraft]]], sessions: bool
) -> None:
    giver, taker = await hall.newcomer(), await hall.newcomer()
    async with giver.libraries.library(giver.context) as library:
        for n, (draft, messages) in enumerate(shelves):
            named = {"session_id": f"s-{n}"} if sessions else {}
            await library.chats.create(msgspec.structs.replace(draft, **named), messages)
        await library.chats.create_namespace("nobody is here")
    first = await export(hall.api, giver.name)

    brought = await bring(hall.api, first, taker.name)

    assert (brought.status, brought.json()["problems"]) == (200, [])
    assert brought.json()["created"] == len(shelves)
    assert await export(hall.api, taker.name) == first


async def test_importing_again_changes_nothing(api: RestClient) -> None:
    await keep(api, *HELLO)
    archive = await export(api)
    await bring(api, archive)

    again = (await bring(api, archive)).json()

    assert (again["created"], again["kept"], again["messages"]) == (0, 1, 0)
    assert await export(api, "ben") == archive


async def test_what_was_deleted_comes_back_by_an_import(api: RestClient) -> None:
    made = await keep(api, *HELLO)
    archive = await export(api)
    await api.request("DELETE", f"/conversations/{made}", "ada")

    brought = (await bring(api, archive, "ada")).json()

    assert (brought["created"], brought["messages"]) == (1, 2)
    assert await export(api) == archive
    assert await found(api, "hello") == ["Hello"]


async def test_a_message_that_was_deleted_alone_does_not_come_back_and_that_is_told(
    api: RestClient, ada: LibraryUser
) -> None:
    made = await keep(api, *HELLO)
    archive = await export(api)
    last = (await api.get(f"/conversations/{made}")).json()["messages"][-1]["id"]
    async with ada.libraries.library(ada.context) as library:
        await library.chats.delete_message(last)

    brought = (await bring(api, archive, "ada")).json()

    assert (brought["kept"], brought["failed"]) == (1, 1)
    assert last in brought["problems"][0]["message"]


async def test_a_conversation_that_is_only_begun_is_continued(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, message_page_max=3) as api:
        made = await keep(api, *({"role": "user", "content": f"turn {n}", "id": f"m-{n}"} for n in range(10)))
        archive = await export(api)
        begun = msgspec.json.decode(files(archive)[f"conversations/{made}.json"])
        for held in range(11):
            who, messages = f"taker-{held}", begun["messages"][:held]
            sent = [{name: m[name] for name in ("role", "content", "timestamp", "id")} for m in messages]
            await post(api, "/conversations", {"id": made, "title": "Begun", "messages": sent}, who)

            brought = (await bring(api, archive, who)).json()

            assert (brought["continued"], brought["kept"]) == ((1, 0) if held < 10 else (0, 1))
            told = (await api.get(f"/conversations/{made}", who)).json()["messages"]
            assert [m["id"] for m in told] == [f"m-{n}" for n in range(10)]


async def test_a_conversation_that_went_another_way_is_left_alone(api: RestClient) -> None:
    made = await keep(api, *HELLO)
    archive = await export(api)
    other = {"role": "user", "content": "Something else"}
    await post(api, "/conversations", {"id": made, "messages": [other]}, "ben")

    brought = (await bring(api, archive)).json()

    assert (brought["kept"], brought["messages"]) == (1, 0)
    assert [m["content"] for m in (await api.get(f"/conversations/{made}", "ben")).json()["messages"]] == [
        "Something else"
    ]


async def test_what_is_imported_belongs_to_who_imports_it(api: RestClient) -> None:
    made = await keep(api, *HELLO)
    archive = await export(api)
    await api.request("DELETE", f"/conversations/{made}", "ada")

    await bring(api, archive, "ben")

    assert (await ids(api, who="ada"), await ids(api, who="ben")) == ([], [made])


def layout(text: str) -> bytes:
    """With what a program that writes JSON may put between its parts."""
    return text.replace('"messages"', '\r\n\n"messages"').encode()


@pytest.mark.parametrize("indent", [None, 2])
async def test_files_that_another_program_wrote_are_imported_too(api: RestClient, indent: int | None) -> None:
    """As AgentKit's own export gives them, in any layout and folder."""
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

    brought = (await bring(api, packed({"conversation-c-1.json": layout(json.dumps(file, indent=indent))}))).json()

    told = (await api.get("/conversations/c-1", "ben")).json()
    assert (brought["created"], brought["messages"], brought["problems"]) == (1, 450, [])
    assert (told["title"], told["namespace"], told["created_at"]) == ("Old", "work", "2025-10-09T19:37:47.783000+00:00")
    assert [m["content"] for m in told["messages"]] == [f"turn {n}" for n in range(450)]


async def test_a_file_of_another_form_is_not_read_when_it_is_too_large(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_file_max_bytes=1024) as api:
        made = await keep(api, *HELLO, {"role": "user", "content": "x" * 2000})
        archive = await export(api)
        entry = f"conversations/{made}.json"
        other = packed({entry: json.dumps(json.loads(files(archive)[entry])).encode()})

        refused, taken = (await bring(api, other)).json(), (await bring(api, archive)).json()

    assert (refused["failed"], taken["created"]) == (1, 1)
    assert "each message on a line" in refused["problems"][0]["message"]


# -- archives that are none ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"PK", b"not a zip at all", packed({})[:-3], b"PK\x05\x06" + b"\xff" * 18])
async def test_something_else_than_a_zip_is_refused(api: RestClient, sent: bytes) -> None:
    answer = await bring(api, sent)

    assert answer.status in (400, 413)
    assert "the archive" in answer.json()["detail"]


async def test_a_file_that_cannot_be_read_is_told_and_the_others_are_taken(api: RestClient) -> None:
    made = await keep(api, *HELLO)
    good = files(await export(api))
    line = good[f"conversations/{made}.json"]
    bad = {
        "conversations/empty.json": b"",
        "conversations/text.json": b"hello",
        "conversations/list.json": b"[1,2]",
        "conversations/half.json": line.replace(made.encode(), b"half")[:-4],
        "conversations/shape.json": line.replace(b'"title":"Hello"', b'"title":7'),
        "conversations/search.json": line.replace(made.encode(), b"search"),
        "conversations/more.json": line.replace(made.encode(), b"more") + b"{}\n",
        "conversations/deep.json": line.replace(b'"metadata":{}', b'"metadata":{"a":' + b"[" * 9000, 1),
    }

    brought = (await bring(api, packed({**bad, **good, "notes.txt": b"ignored"}))).json()

    assert (brought["created"], brought["failed"]) == (1, len(bad))
    assert {problem["entry"] for problem in brought["problems"]} == set(bad)
    assert await ids(api, who="ben") == [made]


async def test_a_damaged_file_is_told(api: RestClient) -> None:
    await keep(api, *HELLO)
    archive = bytearray(await export(api))
    archive[archive.index(b".json") + 40] ^= 0xFF

    brought = (await bring(api, bytes(archive))).json()

    assert brought["failed"] == 1


async def test_a_manifest_of_a_later_version_is_refused(api: RestClient) -> None:
    later = packed({"manifest.json": b'{"format":"florilegium-conversations","version":2}'})

    answer = await bring(api, later)

    assert answer.status == 400
    assert "version 2, expected 'florilegium-conversations' version 1" in answer.json()["detail"]


async def test_an_archive_that_unpacks_to_more_than_allowed_is_refused_while_it_is_read(tmp_path: Path) -> None:
    bomb = packed({"conversations/a.json": b'{"id":"a"' + b" " * 50_000_000 + b',"messages":[\n'})
    async with open_rest_client(tmp_path, import_unpacked_max_bytes=100_000) as api:
        answer = await bring(api, bomb)

    assert len(bomb) < 100_000
    assert (answer.status, answer.json()["error"]["code"]) == (413, "FILE_TOO_LARGE")


async def test_an_archive_of_too_many_files_is_refused_before_they_are_listed(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_max_conversations=3) as api:
        few = await bring(api, packed({f"conversations/{n}.json": b"" for n in range(5)}))
        many = await bring(api, packed({f"conversations/{n}.json": b"" for n in range(3000)}))

    assert (few.status, few.json()["detail"]) == (400, "the archive: got 5 files, expected at most 4")
    assert (many.status, many.json()["error"]["code"]) == (413, "FILE_TOO_LARGE")


async def test_an_archive_that_lies_about_its_sizes_does_no_harm(api: RestClient) -> None:
    made = await keep(api, *HELLO)
    archive = bytearray(packed(files(await export(api))))
    place = archive.index(b"PK\x01\x02")
    archive[place + 24 : place + 28] = struct.pack("<I", 10)

    answer = await bring(api, bytes(archive))

    assert answer.status == 200
    assert (answer.json()["failed"], await ids(api, who="ben")) == (1, [])
    assert await ids(api) == [made]


async def test_an_upload_that_is_too_large_or_no_zip_by_its_name_is_refused(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_max_bytes=2048) as api:
        large = await bring(api, b"x" * 3000)
        declared = await api.request("POST", "/conversations/import", "ben", {**ZIP, "Content-Length": "3000"}, b"x")
        named = await api.request("POST", "/conversations/import", "ben", {"Content-Type": "text/plain"}, packed({}))

    assert [answer.status for answer in (large, declared, named)] == [413, 413, 415]
    assert named.json()["detail"] == "Content-Type: got 'text/plain', expected application/zip"


async def test_a_second_import_of_a_user_at_the_same_time_is_refused(api: RestClient) -> None:
    for n in range(20):
        await keep(api, *HELLO, title=f"Talk {n}")
    archive = await export(api)
    for name in ("ben", "cyd"):
        await api.server.user(name)

    mine = [bring(api, archive, "ben") for _ in range(2)]
    *of_ben, of_cyd = await asyncio.gather(*mine, bring(api, archive, "cyd"))

    assert sorted(answer.status for answer in of_ben) == [200, 503]
    assert next(answer for answer in of_ben if answer.status == 503).header("retry-after") == "5"
    assert of_cyd.status == 200
    assert await export(api, "ben") == archive


async def test_problems_are_counted_all_and_told_up_to_a_limit(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, import_problems_max=2) as api:
        brought = (await bring(api, packed({f"conversations/{n}.json": b"" for n in range(5)}))).json()

    assert (brought["failed"], len(brought["problems"])) == (5, 2)


# -- over a socket ------------------------------------------------------------------------------------------------


async def test_a_large_library_is_streamed_out_and_in_over_a_socket(tmp_path: Path) -> None:
    settings_ = make_settings(tmp_path, message_page_max=50)
    async with live(settings_) as server:
        ada, ben = [await server.bearer(name) for name in ("ada", "ben")]
        body = {"messages": [{"role": "user", "content": f"{n} " + "galleon " * 40} for n in range(600)]}
        for _ in range(3):
            made = await fetch(
                server.url, "POST", "/conversations", {**ada, "Content-Type": "application/json"}, _json(body)
            )
            assert made.status == 201

        archive = await fetch(server.url, "GET", "/conversations/export", ada)
        brought = await fetch(server.url, "POST", "/conversations/import", {**ben, **ZIP}, archive.body)
        again = await fetch(server.url, "GET", "/conversations/export", ben)

    assert archive.header("transfer-encoding") == "chunked"
    assert archive.header("content-disposition") == 'attachment; filename="conversations.zip"'
    assert (brought.json()["created"], brought.json()["messages"]) == (3, 1800)
    assert again.body == archive.body


async def test_a_reader_that_goes_away_leaves_nothing_open(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, message_page_max=50, stream_max_per_user=1)) as server:
        ada, open_streams = await server.bearer("ada"), server.runtime.open_streams
        # More than the buffers of a connection take, so that the server has to wait for its reader.
        made = await _fill(server, "ada", [f"{n} " + "galleon " * 8_000 for n in range(400)])
        async with RawConnection.open(server.url) as wire:
            await wire.request("POST", f"/conversations/{made}/export", ada, b"")
            await wire.head()
            held = len(open_streams)
            refused = await fetch(server.url, "POST", f"/conversations/{made}/export", ada, b"")
        await open_streams.wait_until_empty(10)

        assert (held, refused.status, len(open_streams)) == (1, 503, 0)
        assert (await fetch(server.url, "GET", "/conversations/export", ada)).status == 200


async def test_an_export_is_broken_off_when_access_is_withdrawn(tmp_path: Path, failures: list[str]) -> None:
    async with live(make_settings(tmp_path, message_page_max=50)) as server:
        ada = await server.bearer("ada")
        made = await _fill(server, "ada", [f"{n} " + "galleon " * 8_000 for n in range(400)])
        async with RawConnection.open(server.url) as wire:
            await wire.request("POST", f"/conversations/{made}/export", ada, b"")
            head = await wire.head()
            await server.runtime.registry.disable_user((await server.user("ada")).id)
            with pytest.raises(asyncio.IncompleteReadError) as ended:
                await wire.raw(10**9)
        assert head[0] == 200
        assert not ended.value.partial.endswith(b"0\r\n\r\n")
        assert b"399 galleon" not in ended.value.partial
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
