"""The write tools as a client calls them. Written items are found at once, and only by their owner."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from auth.context import READ
from sources.drafts import CharacterDraft
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import LegacyClient, ModernClient, WebSocketClient
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import SOURCES, LibraryUser

NAMES = (
    *("notes_create", "notes_update", "notes_append", "notes_delete"),
    *("chats_append", "prompts_save", "media_add_text"),
    *("items_create", "items_update", "items_delete", "items_tag"),
)


async def text_of_note(reader: LibraryUser, note_id: str) -> str:
    return str((await reader.read("notes", note_id, retrieval={"mode": "full"}))["content"])


# -- notes -------------------------------------------------------------------------------------------------------------


async def test_a_new_note_is_found_at_once_and_only_by_its_owner(ada: LibraryUser, ben: LibraryUser) -> None:
    written = await ada.call("notes_create", title="Voyage", content="A galleon under sail.", tags=["sea"])

    [hit] = await ada.search("notes_search", "galleon", keywords=["sea"])
    assert (hit["id"], hit["uri"], hit["version"]) == (written["id"], written["uri"], written["version"])
    assert (written["title"], written["version"], written["tags"]) == ("Voyage", 1, ["sea"])
    assert await ben.search("notes_search", "galleon") == []
    assert "not found" in await ben.call_error("notes_update", note_id=written["id"], title="Mine")


async def test_an_update_keeps_omitted_fields(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.", ["sea"])

    written = await ada.call("notes_update", note_id=note, content="A sloop.", expected_version=1)

    assert (written["title"], written["version"], written["tags"]) == ("Voyage", 2, ["sea"])
    assert await text_of_note(ada, note) == "A sloop."
    assert await ada.search("notes_search", "galleon") == []


async def test_an_empty_update_is_rejected(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    refusal = await ada.call_error("notes_update", note_id=note)

    assert "title, content, tags: expected at least one of them" in refusal


@each_case(
    ("tool", "change"),
    [("notes_update", {"content": "Lost."}), ("notes_append", {"text": "Lost."}), ("notes_delete", {})],
)
async def test_a_conflicting_update_fails_with_the_current_version(
    ada: LibraryUser, tool: str, change: dict[str, Any]
) -> None:
    note = await ada.add_note("Voyage", "A galleon.")
    await ada.call("notes_update", note_id=note, content="A sloop.")

    refusal = await ada.call_error(tool, note_id=note, expected_version=1, **change)

    assert "expected version 1, found version 2" in refusal
    assert await text_of_note(ada, note) == "A sloop."


@pytest.mark.parametrize(
    ("held", "whole"), [("one", "one\ntwo"), ("one\n", "one\ntwo"), ("", "two"), ("one\n\n", "one\n\ntwo")]
)
async def test_appended_text_starts_on_a_new_line(ada: LibraryUser, held: str, whole: str) -> None:
    note = await ada.add_note("List", held)

    written = await ada.call("notes_append", note_id=note, text="two")

    assert written["version"] == 2
    assert await text_of_note(ada, note) == whole
    assert [hit["id"] for hit in await ada.search("notes_search", "two")] == [note]


async def test_a_deleted_note_no_longer_appears_anywhere(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    assert await ada.call("notes_delete", note_id=note) == {"uri": f"notes://{note}", "is_deleted": True}

    assert await ada.search("notes_search", "galleon") == []
    assert "not found" in await ada.call_error("notes_get", note_id=note)
    assert "not found" in await ada.call_error("notes_delete", note_id=note)


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("notes_create", {"title": "Voyage"}),
        ("notes_update", {"note_id": "voyage", "content": "A sloop."}),
        ("notes_append", {"note_id": "voyage", "text": "A sloop."}),
        ("notes_delete", {"note_id": "voyage", "expected_version": 1}),
        ("chats_append", {"messages": [{"content": "Ahoy"}], "title": "At sea"}),
        ("chats_append", {"messages": [{"content": "Ahoy"}], "conversation_id": "sea"}),
        ("prompts_save", {"name": "Review", "user_prompt": "Review it."}),
        ("media_add_text", {"title": "On drift", "text": "Clocks drift."}),
    ],
)
async def test_a_repeated_call_with_the_same_key_writes_once(
    ada: LibraryUser, ben: LibraryUser, tool: str, arguments: dict[str, Any]
) -> None:
    for reader in (ada, ben):
        await reader.add_note("Voyage", "A galleon.", uuid="voyage")
        await reader.add_chat("Sea", "Land!", uuid="sea")

    first = await ada.call(tool, **arguments, idempotency_key="once")

    assert await ada.call(tool, **arguments, idempotency_key="once") == first
    await ben.call(tool, **arguments, idempotency_key="once")


async def test_an_idempotency_key_of_another_request_is_rejected(ada: LibraryUser) -> None:
    await ada.call("notes_create", title="Voyage", idempotency_key="once")

    error = await ada.call_error("notes_create", title="Other", idempotency_key="once")
    assert "was already used for a different request" in error


async def test_a_repeated_append_adds_one_line(ada: LibraryUser) -> None:
    note = await ada.add_note("List", "")

    for _ in range(3):
        await ada.call("notes_append", note_id=note, text="bread", idempotency_key="bread")

    assert await text_of_note(ada, note) == "bread"


# -- chats, prompts, media ---------------------------------------------------------------------------------------------


async def test_messages_start_a_conversation_and_later_ones_are_appended(ada: LibraryUser, ben: LibraryUser) -> None:
    begun = await ada.call(
        "chats_append",
        title="Lisbon",
        tags=["travel"],
        messages=[
            {"role": "user", "content": "When is the flight?", "time": "2026-01-02T03:04:05Z"},
            {"role": "assistant", "sender": "Guide", "content": "On Friday.", "model": "m-1"},
        ],
    )
    more = await ada.call(
        "chats_append", conversation_id=begun["conversation_id"], messages=[{"content": "Then I pack tomorrow."}]
    )

    assert (len(begun["message_ids"]), begun["message_count"], more["message_count"]) == (2, 2, 3)
    [hit] = await ada.search("chats_search", "pack tomorrow")
    assert (hit["uri"], hit["title"]) == (f"{more['uri']}/{more['message_ids'][0]}", "Lisbon")
    async with ada.libraries.library(ada.context) as library:
        kept = (await library.chats.messages(begun["conversation_id"], 10, 0)).rows
    assert [(one.sender, one.model) for one in kept] == [("user", None), ("Guide", "m-1"), ("user", None)]
    assert kept[0].created_at == "2026-01-02T03:04:05.000Z"
    refusal = await ben.call_error(
        "chats_append", conversation_id=begun["conversation_id"], messages=[{"content": "Me too."}]
    )
    assert "not found" in refusal


async def test_appending_requires_messages_and_allows_a_title_only_for_a_new_conversation(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Lisbon", "When?")

    assert "messages: expected 1 to" in await ada.call_error("chats_append", messages=[])
    refusal = await ada.call_error("chats_append", conversation_id=chat, title="Porto", messages=[{"content": "When?"}])
    assert "only allowed for a new conversation" in refusal


async def test_a_prompt_is_created_and_then_updated_by_name(ada: LibraryUser, ben: LibraryUser) -> None:
    made = await ada.call(
        "prompts_save", name="Review", user_prompt="Review {{diff}}.", arguments=[{"name": "diff", "required": True}]
    )
    saved = await ada.call("prompts_save", name="review", details="For code.", expected_version=1)

    assert (made["version"], saved["version"], saved["id"]) == (1, 2, made["id"])
    async with ada.libraries.library(ada.context) as library:
        prompt = await library.prompts.get(made["id"])
    assert (prompt.user_prompt, prompt.details, prompt.arguments[0].required) == ("Review {{diff}}.", "For code.", True)
    assert "expected version 0, found version 2" in await ada.call_error(
        "prompts_save", name="Review", details="New?", expected_version=0
    )
    assert (await ben.call("prompts_save", name="Review", details="Mine.", expected_version=0))["version"] == 1
    assert "not found" in await ben.call_error("prompts_save", name="Absent", details="x", expected_version=3)


async def test_concurrent_saves_under_one_name_create_one_prompt(ada: LibraryUser) -> None:
    await asyncio.gather(*(ada.call("prompts_save", name="Review", details=f"{n}") for n in range(5)))

    async with ada.libraries.library(ada.context) as library:
        assert (await library.prompts.list(10, 0)).total == 1


async def test_a_text_is_added_as_media_and_found_by_passage(ada: LibraryUser, ben: LibraryUser) -> None:
    text = "Clocks drift apart. " * 200 + "The galleon knows none."
    written = await ada.call(
        "media_add_text", title="On drift", text=text, url="https://example.org/drift", media_type="article"
    )

    [hit] = await ada.search("media_search", "galleon", media_types=["article"])
    assert (hit["uri"], hit["url"]) == (written["uri"], "https://example.org/drift")
    assert hit["loc"]["chunk_index"] > 0
    assert await ben.search("media_search", "galleon") == []


# -- tags --------------------------------------------------------------------------------------------------------------


@each_case("source", SOURCES)
async def test_an_item_of_every_source_can_be_tagged(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    item = await ada.add_item(source, "Voyage", "A galleon.", tags=["Sea", "inbox"])
    uri = f"{source}://{item}"

    written = await ada.call("items_tag", uri=uri, add=["ship", "SEA"], remove=["INBOX"])

    assert (written["uri"], written["tags"], written["version"]) == (uri, ["Sea", "ship"], 2)
    assert "not found" in await ben.call_error("items_tag", uri=uri, add=["mine"])
    assert (await ada.call("items_tag", uri=uri, add=["ship"]))["version"] == 2


async def test_concurrent_tagging_loses_no_tag(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "")

    await asyncio.gather(*(ada.call("items_tag", uri=f"notes://{note}", add=[f"tag{n}"]) for n in range(4)))

    [hit] = await ada.search("notes_search", "voyage")
    assert sorted(hit["tags"]) == ["tag0", "tag1", "tag2", "tag3"]


@each_case("uri", ["", "notes://", "news://1", "notes://a/b", "6f1c"])
async def test_an_invalid_uri_is_rejected(ada: LibraryUser, uri: str) -> None:
    assert "uri: expected the URI of an item" in await ada.call_error("items_tag", uri=uri, add=["x"])


@each_case("identity", ["0", "x", "9" * 30, "٣", "-1"])
async def test_an_unknown_id_is_not_found(ada: LibraryUser, identity: str) -> None:
    async with ada.libraries.library(ada.context) as library:
        await library.characters.create(CharacterDraft(name="Ana"))

    assert "not found" in await ada.call_error("items_tag", uri=f"characters://{identity}", add=["x"])


# -- through the doors -------------------------------------------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    async with live(make_settings(tmp_path / "live")) as server:
        yield server


async def call(server: LiveServer, door: str, name: str, tool: str, arguments: dict[str, Any]) -> Any:
    match door:
        case "legacy":
            body = (await (await LegacyClient.open(server, name)).call(tool, arguments)).json()
        case "modern":
            body = (await (await ModernClient.of(server, name)).call(tool, arguments)).json()
        case _:
            async with WebSocketClient.open(server.ws, await server.bearer(name)) as socket:
                await socket.initialize()
                body = await socket.call(tool, arguments)
    return body["result"]["structuredContent"]


@pytest.mark.parametrize("door", ["legacy", "modern", "websocket"])
async def test_a_written_item_is_found_by_the_next_knowledge_search(server: LiveServer, door: str) -> None:
    note = await call(server, door, "ada", "notes_create", {"title": "Voyage", "content": "A galleon."})
    chat = await call(server, door, "ada", "chats_append", {"messages": [{"content": "That galleon again."}]})
    media = await call(server, door, "ada", "media_add_text", {"title": "Ships", "text": "The galleon had guns."})
    prompt = await call(server, door, "ada", "prompts_save", {"name": "Ship", "user_prompt": "Draw a galleon."})

    mine = await call(server, door, "ada", "knowledge_search", {"query": "galleon"})
    others = await call(server, door, "ben", "knowledge_search", {"query": "galleon"})

    written = {note["uri"], f"{chat['uri']}/{chat['message_ids'][0]}", media["uri"], prompt["uri"]}
    assert {hit["uri"] for hit in mine["results"]} == written
    assert others["results"] == []


async def test_without_the_write_scope_write_tools_are_neither_listed_nor_callable(server: LiveServer) -> None:
    reader = ModernClient(server, await server.bearer("ada", (READ,)))

    listed = (await reader.request("tools/list")).json()["result"]["tools"]
    answer = await reader.call("notes_create", {"title": "Voyage"})

    assert not set(NAMES) & {tool["name"] for tool in listed}
    assert answer.status == 403


def test_hints_describe_the_effect_of_each_tool(api: RestClient) -> None:
    hints = {name: api.server.runtime.dispatcher.catalog.tools[name].hints for name in NAMES}

    assert not any(hint.read_only_hint or hint.open_world_hint for hint in hints.values())
    assert {name for name, hint in hints.items() if hint.destructive_hint} == {
        *("notes_update", "notes_delete", "prompts_save", "items_update", "items_delete", "items_tag")
    }
    assert {name for name, hint in hints.items() if hint.idempotent_hint} == {
        "notes_delete",
        "items_delete",
        "items_tag",
    }


async def test_only_the_writers_own_streams_are_notified(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    changes = api.server.runtime.dispatcher.catalog.changes
    kinds = frozenset(("resources", "prompts"))
    with (
        changes.listen(ada.context.principal, kinds, set()) as hers,
        changes.listen(ben.context.principal, kinds, set()) as his,
    ):
        await ada.call("prompts_save", name="Review", details="For code.")

        heard = {change.kind for _ in range(2) if (change := await hers.next(1.0))}
        assert heard == kinds
        assert await his.next(0.0) is None
