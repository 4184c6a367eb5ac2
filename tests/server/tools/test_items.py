"""items_create, items_update and items_delete on every source, and URIs in place of ids."""

from typing import Any

from sources.drafts import MessageDraft
from sources.records import Segment
from tests.cases import each_case
from tests.sources.source_fixture import ID_ARGUMENT, SOURCES, LibraryUser

TEXT_SOURCES = ("notes", "media", "characters", "prompts")


async def text_of_item(user: LibraryUser, uri: str) -> str:
    source, _, identity = uri.partition("://")
    return str((await user.read(source, identity, retrieval={"mode": "full"}))["content"])


async def messages_of(user: LibraryUser, conversation_id: str) -> list[str]:
    async with user.libraries.library(user.context) as library:
        return [message.content for message in (await library.chats.messages(conversation_id, 10, 0)).rows]


async def message_uris(user: LibraryUser, conversation_id: str) -> list[str]:
    async with user.libraries.library(user.context) as library:
        rows = (await library.chats.messages(conversation_id, 10, 0)).rows
    return [f"chats://{conversation_id}/{message.id}" for message in rows]


# -- create ------------------------------------------------------------------------------------------------------------


@each_case("source", TEXT_SOURCES)
async def test_a_created_item_is_found_by_its_owner_only(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    written = await ada.call("items_create", source=source, title="Voyage", content="a galleon", tags=["sea"])

    [hit] = await ada.search(f"{source}_search", "galleon tag:sea")
    assert (hit["uri"], hit["title"], hit["version"]) == (written["uri"], "Voyage", 1)
    assert await ben.search(f"{source}_search", "galleon") == []


async def test_a_conversation_is_created_with_its_messages(ada: LibraryUser) -> None:
    messages = [{"content": "When?"}, {"content": "Friday.", "role": "assistant"}]

    written = await ada.call("items_create", source="chats", title="Lisbon", fields={"messages": messages})

    assert await messages_of(ada, written["id"]) == ["When?", "Friday."]


async def test_other_fields_are_written_and_a_repeated_key_creates_nothing(ada: LibraryUser) -> None:
    arguments: dict[str, Any] = {
        "source": "prompts",
        "title": "Review",
        "content": "Review {{diff}}.",
        "fields": {"system_prompt": "You are strict.", "arguments": [{"name": "diff", "required": True}]},
        "idempotency_key": "once",
    }

    first, second = await ada.call("items_create", **arguments), await ada.call("items_create", **arguments)

    assert first == second
    async with ada.libraries.library(ada.context) as library:
        prompt = await library.prompts.get(first["id"])
    assert (prompt.system_prompt, prompt.user_prompt) == ("You are strict.", "Review {{diff}}.")
    assert prompt.arguments[0].name == "diff"


@each_case(
    ("arguments", "sentence"),
    [
        ({"source": "web", "title": "x"}, "source: expected one of characters, chats, media, notes, prompts"),
        ({"source": "notes", "title": "x", "fields": {"author": "x"}}, "fields.author: unknown argument"),
        ({"source": "media", "title": "x", "fields": {"autor": "x"}}, "did you mean 'author'?"),
        ({"source": "media", "title": "x", "fields": {"url": 3}}, "fields.url: expected"),
        (
            {"source": "chats", "content": "y", "fields": {"messages": [{"content": "z"}]}},
            "content: expected none with fields.messages",
        ),
    ],
)
async def test_invalid_fields_are_rejected_with_the_expected_ones(
    ada: LibraryUser, arguments: dict[str, Any], sentence: str
) -> None:
    assert sentence in await ada.call_error("items_create", **arguments)


async def test_content_of_a_new_conversation_is_its_first_message(ada: LibraryUser) -> None:
    created = await ada.call("items_create", source="chats", title="Talk", content="a galleon")

    (hit,) = await ada.search("chats_search", "galleon")
    assert hit["uri"].startswith(created["uri"])
    async with ada.libraries.library(ada.context) as library:
        page = await library.chats.messages(created["id"], 10, 0)
    assert [(message.role, message.content) for message in page.rows] == [("user", "a galleon")]


# -- update ------------------------------------------------------------------------------------------------------------


@each_case("source", TEXT_SOURCES)
async def test_an_update_by_uri_replaces_title_and_text(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    uri = f"{source}://{await ada.add_item(source, 'Voyage', 'a galleon', tags=['sea'])}"
    changes = {"title": "Journey", "content": "a sloop", "expected_version": 1}

    assert "not found" in await ben.call_error("items_update", uri=uri, **changes)
    written = await ada.call("items_update", uri=uri, **changes)

    assert (written["title"], written["version"], written["tags"]) == ("Journey", 2, ["sea"])
    assert "a sloop" in await text_of_item(ada, uri)
    assert await ada.search(f"{source}_search", "galleon") == []
    assert "found version 2" in await ada.call_error("items_update", uri=uri, title="x", expected_version=1)


async def test_a_conversation_is_renamed_and_a_message_is_edited(ada: LibraryUser, ben: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", "a galleon", "a sloop")
    first, _ = await message_uris(ada, chat)

    assert "not found" in await ben.call_error("items_update", uri=first, content="mine")
    renamed = await ada.call("items_update", uri=f"chats://{chat}", title="Ships")
    edited = await ada.call("items_update", uri=first, content="a frigate", expected_version=1)

    assert (renamed["title"], edited["uri"]) == ("Ships", first)
    assert await messages_of(ada, chat) == ["a frigate", "a sloop"]


async def test_an_agent_cannot_change_a_human_only_message_or_its_mark(ada: LibraryUser) -> None:
    secret = MessageDraft(role="user", content="the code is 4711", metadata={"human_only": True})
    chat = await ada.add_chat("Talk", secret)
    [uri] = await message_uris(ada, chat)

    assert "is human-only" in await ada.call_error("items_update", uri=uri, content="the code is 4712")
    assert "metadata" in await ada.call_error("items_update", uri=uri, fields={"metadata": {}})


@each_case(
    ("arguments", "sentence"),
    [
        ({}, "title, content, tags, fields: expected at least one of them"),
        ({"title": "x"}, "title: a message has none"),
        ({"tags": ["x"]}, "tags: a message has none"),
    ],
)
async def test_an_update_that_a_message_cannot_have_is_rejected(
    ada: LibraryUser, arguments: dict[str, Any], sentence: str
) -> None:
    [uri] = await message_uris(ada, await ada.add_chat("Talk", "a galleon"))

    assert await ada.call_error("items_update", uri=uri, **arguments) == sentence


# -- delete ------------------------------------------------------------------------------------------------------------


@each_case("source", SOURCES)
async def test_a_deleted_item_is_gone_everywhere(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    uri = f"{source}://{await ada.add_item(source, 'Voyage', 'a galleon')}"
    kept = f"{source}://{await ben.add_item(source, 'Voyage', 'a galleon')}"

    foreign = await ben.call_error("items_delete", uri=uri) if uri != kept else "not found"
    deleted = await ada.call("items_delete", uri=uri, expected_version=1)

    assert "not found" in foreign
    assert deleted == {"uri": uri, "is_deleted": True}
    assert await ada.search(f"{source}_search", "galleon") == []
    assert "not found" in await ada.call_error("items_delete", uri=uri)
    assert [hit["id"] for hit in await ben.search(f"{source}_search", "galleon")] != []


async def test_one_message_is_deleted_and_the_others_stay(ada: LibraryUser, ben: LibraryUser) -> None:
    chat, other = await ada.add_chat("Talk", "a galleon", "a sloop"), await ada.add_chat("Other", "a barge")
    first, _ = await message_uris(ada, chat)

    assert "not found" in await ben.call_error("items_delete", uri=first)
    assert "not found" in await ada.call_error("items_delete", uri=first.replace(chat, other))
    assert (await ada.call("items_delete", uri=first))["uri"] == first

    assert await messages_of(ada, chat) == ["a sloop"]
    assert await ada.search("chats_search", "galleon") == []


async def test_media_are_deleted_by_uuid_and_prompts_by_name(ada: LibraryUser) -> None:
    media, prompt = await ada.add_media("Film", "a galleon"), await ada.add_prompt("Code review", "a galleon")
    async with ada.libraries.library(ada.context) as library:
        uuid = (await library.media.get(media)).uuid

    assert (await ada.call("items_delete", uri=f"media://{uuid}"))["uri"] == f"media://{media}"
    assert (await ada.call("items_delete", uri="prompts://Code%20review"))["uri"] == f"prompts://{prompt}"


@each_case("uri", ["web://1", "notes://", "notes://a/b", "chats://a/b/c", "6f1c", ""])
async def test_a_uri_of_no_item_is_rejected(ada: LibraryUser, uri: str) -> None:
    assert "uri: expected the URI of an item" in await ada.call_error("items_delete", uri=uri)


# -- URIs in place of ids ----------------------------------------------------------------------------------------------


@each_case("source", SOURCES)
async def test_every_get_accepts_a_uri(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", "a galleon")
    uri = f"{source}://{identity}"
    by_id = await ada.read(source, identity)

    assert await ada.call(f"{source}_get", uri=uri) == by_id
    assert await ada.read(source, uri) == by_id
    assert await ada.read(source, identity, uri=uri) == by_id
    assert (await ada.call_error(f"{source}_get", uri=f"{source}://absent")).endswith("not found")
    assert "not found" in await ben.call_error(f"{source}_get", uri=uri)


async def test_a_get_with_another_id_than_its_uri_or_of_another_source_is_rejected(ada: LibraryUser) -> None:
    for source in SOURCES:
        uri = f"{source}://{await ada.add_item(source, 'Voyage', 'a galleon')}"
        other = "media" if source == "notes" else "notes"

        assert "the value in uri" in await ada.call_error(f"{source}_get", **{ID_ARGUMENT[source]: "77"}, uri=uri)
        expected = f"uri: expected a URI that starts with {source}://, got '{other}://1'"
        assert await ada.call_error(f"{source}_get", uri=f"{other}://1") == expected


async def test_the_uri_of_a_message_reads_the_conversation_there(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", *(f"turn number {n}" for n in range(9)))
    uri = (await message_uris(ada, chat))[4]

    answer = await ada.call("chats_get", uri=uri, retrieval={"mode": "chunk"})

    assert answer["content"] == "Ana: turn number 4"


async def test_writing_tools_accept_a_uri(ada: LibraryUser, ben: LibraryUser) -> None:
    uri = f"notes://{await ada.add_note('Voyage', 'a galleon')}"
    chat = f"chats://{await ada.add_chat('Talk', 'hello')}"

    for tool, arguments in (("notes_update", {"title": "x"}), ("notes_append", {"text": "x"}), ("notes_delete", {})):
        assert "not found" in await ben.call_error(tool, uri=uri, **arguments)
    assert (await ada.call("notes_update", uri=uri, title="Journey"))["uri"] == uri
    assert (await ada.call("notes_append", note_id=uri, text="under sail"))["uri"] == uri
    assert (await ada.call("notes_delete", uri=uri))["uri"] == uri
    assert (await ada.call("chats_append", uri=chat, messages=[{"content": "again"}]))["message_count"] == 2
    assert "note_id: expected the id or uri of a hit" in await ada.call_error("notes_append", text="x")


async def test_a_transcript_is_read_by_uri(ada: LibraryUser) -> None:
    media = await ada.add_media("Film", segments=[Segment(start_ms=0, end_ms=900, text="We expose.")])

    assert "We expose." in (await ada.call("media_transcript", uri=f"media://{media}"))["content"]
