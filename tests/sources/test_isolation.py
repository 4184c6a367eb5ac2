"""Items of another user are indistinguishable from missing items in every tool, resource, prompt and cursor.

Each test requests one id twice: before the item exists, and after another user has created it. The two responses must
be the same bytes.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from sources.drafts import MessageDraft
from sources.records import Segment
from tests.cases import each_case
from tests.server.rest.rest_client import RpcError
from tests.sources.source_fixture import ID_ARGUMENT, SOURCES, LibraryUser

TEXT = " ".join(f"Sentence number {n} speaks of a galleon." for n in range(400))
UUID = "6f1c1d5e-0000-4000-8000-00000000abcd"
MESSAGE = "6f1c1d5e-0000-4000-8000-00000000ffff"
# The id of the third item of each source.
ID: dict[str, Any] = {"notes": UUID, "media": 3, "chats": UUID, "characters": 3, "prompts": 3}
# The items of different sources in one library do not disturb each other.
every_source = each_case("source", SOURCES)


async def response_bytes(request: Awaitable[Any]) -> bytes:
    """The encoded response, or the encoded error."""
    try:
        return msgspec.json.encode(await request)
    except RpcError as refusal:
        return msgspec.json.encode(refusal.error)


async def add_three_items(user: LibraryUser, source: str) -> None:
    segments = [Segment(start_ms=n * 1000, end_ms=n * 1000 + 999, text=f"galleon {n}") for n in range(900)]
    more = {"segments": segments} if source == "media" else {}
    for number in range(3):
        uuid = {"uuid": UUID} if number == 2 else {}
        await user.add_item(source, f"Voyage {number}", "" if more else TEXT, **more, **uuid)


async def assert_foreign_equals_missing(request: Callable[[], Awaitable[Any]], ada: LibraryUser, source: str) -> None:
    missing = await response_bytes(request())
    await add_three_items(ada, source)

    assert await response_bytes(request()) == missing
    assert b"galleon" not in missing


@every_source
async def test_get_of_a_foreign_id_equals_get_of_a_missing_one(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    await ben.add_item(source, "Mine", "Ben's own.")
    all_options: list[dict[str, Any]] = [
        {},
        {"retrieval": {"mode": "full"}},
        {"retrieval": {"mode": "chunk_with_siblings", "max_tokens": 300}, "query": "galleon"},
        {"loc": {"chunk_index": 0, "message_index": 0, "approx_offset": 5}, "retrieval": {"mode": "chunk"}},
        {"cursor": "not ours"},
    ]

    async def request() -> list[str]:
        arguments = [{ID_ARGUMENT[source]: ID[source], **options} for options in all_options]
        calls = [ben.request("tools/call", name=f"{source}_get", arguments=each) for each in arguments]
        return [(await response_bytes(call)).decode() for call in calls]

    await assert_foreign_equals_missing(request, ada, source)
    assert (await ada.read(source, ID[source]))["meta"]["id"] == ID[source]


@every_source
async def test_foreign_cursor_gives_no_access(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    await add_three_items(ada, source)
    cursor = (await ada.read(source, ID[source], retrieval={"mode": "full", "max_tokens": 300}))["next_cursor"]
    assert cursor is not None
    arguments = {ID_ARGUMENT[source]: ID[source]}

    with_cursor = await response_bytes(
        ben.request("tools/call", name=f"{source}_get", arguments={**arguments, "cursor": cursor})
    )

    assert with_cursor == await response_bytes(ben.request("tools/call", name=f"{source}_get", arguments=arguments))


@every_source
async def test_foreign_resource_equals_a_missing_one(ada: LibraryUser, ben: LibraryUser, source: str) -> None:
    await assert_foreign_equals_missing(
        lambda: ben.request("resources/read", uri=f"{source}://{ID[source]}"), ada, source
    )


@every_source
async def test_lists_searches_and_completions_ignore_items_of_other_users(
    ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    await ben.add_item(source, "Voyage of my own", "Ben's own.")
    reference = {"type": "ref/resource", "uri": f"{source}://{{id}}"}

    async def request() -> list[Any]:
        return [
            await ben.request("resources/list"),
            await ben.request("prompts/list"),
            await ben.request("tools/call", name=f"{source}_search", arguments={"query": "voyage galleon"}),
            await ben.request("completion/complete", ref=reference, argument={"name": "id", "value": "voyage"}),
        ]

    before = await request()
    await add_three_items(ada, source)

    assert await request() == before


async def test_transcript_of_a_foreign_item_equals_a_missing_one(ada: LibraryUser, ben: LibraryUser) -> None:
    arguments = {"media_id": 3, "format": "srt"}

    await assert_foreign_equals_missing(
        lambda: ben.request("tools/call", name="media_transcript", arguments=arguments), ada, "media"
    )
    assert "galleon 5" in (await ada.call("media_transcript", **arguments))["content"]


async def test_foreign_media_uuid_equals_a_missing_one(ada: LibraryUser, ben: LibraryUser) -> None:
    arguments = {"media_id": UUID}

    await assert_foreign_equals_missing(
        lambda: ben.request("tools/call", name="media_get", arguments=arguments), ada, "media"
    )
    assert (await ada.call("media_get", **arguments))["meta"]["id"] == 3


@pytest.mark.parametrize("name", ["ben", "ada"])
async def test_message_of_another_conversation_equals_a_missing_one(
    ada: LibraryUser, ben: LibraryUser, name: str
) -> None:
    """The other conversation may belong to the same or to another user."""
    user = {"ada": ada, "ben": ben}[name]
    mine = await user.add_chat("Mine", "My own.")

    async def request() -> list[bytes]:
        arguments = {"conversation_id": mine, "loc": {"message_id": MESSAGE}}
        return [
            await response_bytes(user.request("tools/call", name="chats_get", arguments=arguments)),
            await response_bytes(user.request("resources/read", uri=f"chats://{mine}/{MESSAGE}")),
        ]

    missing = await request()
    await ada.add_chat("Voyage", MessageDraft(content="galleon", uuid=MESSAGE))

    assert await request() == missing


@each_case(("kind", "source"), [("prompt", "prompts"), ("character", "characters")])
async def test_foreign_prompt_equals_an_unknown_one(ada: LibraryUser, ben: LibraryUser, kind: str, source: str) -> None:
    await assert_foreign_equals_missing(lambda: ben.request("prompts/get", name=f"{kind}_3"), ada, source)
    assert (await ada.request("prompts/get", name=f"{kind}_3"))["messages"]


async def test_foreign_prompt_name_equals_an_unknown_one(ada: LibraryUser, ben: LibraryUser) -> None:
    arguments = {"prompt_id_or_name": "Voyage 2"}

    await assert_foreign_equals_missing(
        lambda: ben.request("tools/call", name="prompts_get", arguments=arguments), ada, "prompts"
    )


async def test_media_types_count_only_the_users_own_items(ada: LibraryUser, ben: LibraryUser) -> None:
    await assert_foreign_equals_missing(lambda: ben.request("resources/read", uri="media://types"), ada, "media")


@every_source
async def test_deleted_item_equals_a_missing_one(ada: LibraryUser, source: str) -> None:
    arguments = {ID_ARGUMENT[source]: ID[source]}

    async def request() -> list[bytes]:
        return [
            await response_bytes(ada.request("tools/call", name=f"{source}_get", arguments=arguments)),
            await response_bytes(ada.request("resources/read", uri=f"{source}://{ID[source]}")),
        ]

    missing = await request()
    await add_three_items(ada, source)
    assert await request() != missing
    async with ada.libraries.library(ada.context) as library:
        await getattr(library, source).delete(ID[source])

    assert await request() == missing
