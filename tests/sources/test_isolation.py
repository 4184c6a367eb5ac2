"""Another reader's items answer exactly as items that do not exist: every tool, resource, prompt and cursor.

Each test asks for one id twice: while nobody has such an item, and after the other reader has made it. The two answers
must be the same bytes.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from config.errors import FlorilegiumError
from server.protocol.messages import error_message
from sources.drafts import MessageDraft
from sources.records import Segment
from tests.sources.source_fixture import ID_ARGUMENT, SOURCES, LibraryUser

TEXT = " ".join(f"Sentence number {n} speaks of a galleon." for n in range(400))
UUID = "6f1c1d5e-0000-4000-8000-00000000abcd"
MESSAGE = "6f1c1d5e-0000-4000-8000-00000000ffff"
# The id that the third item of a source will have.
ID: dict[str, Any] = {"notes": UUID, "media": 3, "chats": UUID, "characters": 3, "prompts": 3}
every_source = pytest.mark.parametrize("source", SOURCES)


async def told(ask: Awaitable[Any]) -> bytes:
    """Every byte a caller learns: the answer, or the error it became."""
    try:
        return msgspec.json.encode(await ask)
    except FlorilegiumError as error:
        return msgspec.json.encode(error_message(1, error))


async def make_third(reader: LibraryUser, source: str) -> None:
    segments = [Segment(start_ms=n * 1000, end_ms=n * 1000 + 999, text=f"galleon {n}") for n in range(900)]
    more = {"segments": segments} if source == "media" else {}
    for number in range(3):
        identity = {"uuid": UUID} if number == 2 else {}
        await reader.add_item(source, f"Voyage {number}", "" if more else TEXT, **more, **identity)


async def assert_foreign_is_absent(ask: Callable[[], Awaitable[Any]], ada: LibraryUser, source: str) -> None:
    absent = await told(ask())
    await make_third(ada, source)

    assert await told(ask()) == absent
    assert b"galleon" not in absent


@every_source
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"retrieval": {"mode": "full"}},
        {"retrieval": {"mode": "chunk_with_siblings", "max_tokens": 300}, "query": "galleon"},
        {"loc": {"chunk_index": 0, "message_index": 0, "approx_offset": 5}, "retrieval": {"mode": "chunk"}},
        {"cursor": "not ours"},
    ],
)
async def test_a_get_of_a_foreign_id_is_a_get_of_an_absent_one(
    ada: LibraryUser, ben: LibraryUser, source: str, arguments: dict[str, Any]
) -> None:
    await ben.add_item(source, "Mine", "Ben's own.")
    given = {ID_ARGUMENT[source]: ID[source], **arguments}

    await assert_foreign_is_absent(
        lambda: ben.request("tools/call", name=f"{source}_get", arguments=given), ada, source
    )
    assert (await ada.read(source, ID[source]))["meta"]["id"] == ID[source]


@every_source
async def test_a_foreign_cursor_opens_nothing(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    await make_third(ada, source)
    cursor = (await ada.read(source, ID[source], retrieval={"mode": "full", "max_tokens": 300}))["next_cursor"]
    assert cursor is not None
    given = {ID_ARGUMENT[source]: ID[source]}

    with_cursor = await told(ben.request("tools/call", name=f"{source}_get", arguments={**given, "cursor": cursor}))

    assert with_cursor == await told(ben.request("tools/call", name=f"{source}_get", arguments=given))


@every_source
async def test_a_foreign_resource_is_an_absent_one(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    await assert_foreign_is_absent(lambda: ben.request("resources/read", uri=f"{source}://{ID[source]}"), ada, source)


@every_source
async def test_lists_searches_and_completions_do_not_change_with_anothers_items(
    ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    await ben.add_item(source, "Voyage of my own", "Ben's own.")
    reference = {"type": "ref/resource", "uri": f"{source}://{{id}}"}

    async def ask() -> list[Any]:
        return [
            await ben.request("resources/list"),
            await ben.request("prompts/list"),
            await ben.request("tools/call", name=f"{source}_search", arguments={"query": "voyage galleon"}),
            await ben.request("completion/complete", ref=reference, argument={"name": "id", "value": "voyage"}),
        ]

    before = await ask()
    await make_third(ada, source)

    assert await ask() == before


async def test_a_transcript_of_a_foreign_item_is_absent(ada: LibraryUser, ben: LibraryUser) -> None:
    given = {"media_id": 3, "format": "srt"}

    await assert_foreign_is_absent(
        lambda: ben.request("tools/call", name="media_transcript", arguments=given), ada, "media"
    )
    assert "galleon 5" in (await ada.call("media_transcript", **given))["content"]


async def test_a_foreign_uuid_of_media_is_an_absent_one(ada: LibraryUser, ben: LibraryUser) -> None:
    given = {"media_id": UUID}

    await assert_foreign_is_absent(lambda: ben.request("tools/call", name="media_get", arguments=given), ada, "media")
    assert (await ada.call("media_get", **given))["meta"]["id"] == 3


@pytest.mark.parametrize("whose", ["ben", "ada"])
async def test_a_message_of_another_conversation_is_an_absent_one(
    ada: LibraryUser, ben: LibraryUser, whose: str
) -> None:
    """Whether the other conversation is another's or one's own."""
    reader = {"ada": ada, "ben": ben}[whose]
    mine = await reader.add_chat("Mine", "My own.")

    async def ask() -> list[bytes]:
        given = {"conversation_id": mine, "loc": {"message_id": MESSAGE}}
        return [
            await told(reader.request("tools/call", name="chats_get", arguments=given)),
            await told(reader.request("resources/read", uri=f"chats://{mine}/{MESSAGE}")),
        ]

    absent = await ask()
    await ada.add_chat("Voyage", MessageDraft(content="galleon", uuid=MESSAGE))

    assert await ask() == absent


@pytest.mark.parametrize(("kind", "source"), [("prompt", "prompts"), ("character", "characters")])
async def test_a_foreign_prompt_is_an_unknown_one(ada: LibraryUser, ben: LibraryUser, kind: str, source: str) -> None:
    await assert_foreign_is_absent(lambda: ben.request("prompts/get", name=f"{kind}_3"), ada, source)
    assert (await ada.request("prompts/get", name=f"{kind}_3"))["messages"]


async def test_a_foreign_prompt_name_is_an_unknown_one(ada: LibraryUser, ben: LibraryUser) -> None:
    given = {"prompt_id_or_name": "Voyage 2"}

    await assert_foreign_is_absent(
        lambda: ben.request("tools/call", name="prompts_get", arguments=given), ada, "prompts"
    )


async def test_media_types_count_the_readers_own_items(ada: LibraryUser, ben: LibraryUser) -> None:
    await assert_foreign_is_absent(lambda: ben.request("resources/read", uri="media://types"), ada, "media")


@every_source
async def test_deleting_an_item_makes_it_absent(ada: LibraryUser, source: str) -> None:
    given = {ID_ARGUMENT[source]: ID[source]}

    async def ask() -> list[bytes]:
        return [
            await told(ada.request("tools/call", name=f"{source}_get", arguments=given)),
            await told(ada.request("resources/read", uri=f"{source}://{ID[source]}")),
        ]

    absent = await ask()
    await make_third(ada, source)
    assert await ask() != absent
    async with ada.libraries.library(ada.context) as library:
        await getattr(library, source).delete(ID[source])

    assert await ask() == absent
