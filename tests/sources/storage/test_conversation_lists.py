"""Lists of conversations, namespaces, sessions and message numbers."""

from typing import Any

import pytest

from config.errors import Conflict, InvalidParams, NotFound
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Namespace
from sources.storage.contract import Library, MetadataFilter
from tests.sources.storage.library_fixture import make_search

pytestmark = pytest.mark.postgres


async def titles(library: Library, limit: int = 50, offset: int = 0, **filters: Any) -> tuple[list[str], int]:
    page = await library.chats.list(limit, offset, **filters)
    return [row.title for row in page.rows], page.total


async def make(library: Library, title: str, **fields: Any) -> str:
    return (await library.chats.create(ConversationDraft(title=title, **fields))).id


async def test_list_is_newest_first_with_the_total(ada: Library, ben: Library) -> None:
    first = await make(ada, "one")
    for title in ("two", "three", "four"):
        await make(ada, title)
    await ada.chats.append(first, [MessageDraft(content="again")])
    assert await titles(ada, 2) == (["one", "four"], 4)
    assert await titles(ada, 2, 3) == (["two"], 4)
    assert await titles(ben) == ([], 0)


async def test_list_can_be_filtered_by_namespace(ada: Library, ben: Library) -> None:
    for number, namespace in enumerate(("work", "home", "work", "work")):
        await make(ada, f"{namespace} {number}", namespace=namespace)
    await make(ben, "work of Ben", namespace="work")
    assert await titles(ada, 2, namespace="work") == (["work 3", "work 2"], 3)
    assert await titles(ada, 2, 2, namespace="work") == (["work 0"], 3)
    assert await titles(ada, namespace="absent") == await titles(ada, namespace="\ud800") == ([], 0)


async def test_metadata_with_a_nul_character_do_not_keep_others_from_being_listed(ada: Library) -> None:
    """JSON can carry it, but PostgreSQL cannot read a value of such an object."""
    await make(ada, "odd tea", metadata={"project": "a\0b", "_bus": {"status": "open"}})
    await make(ada, "green tea", metadata={"project": "kitchen"})
    page = await ada.chats.list_created(5, namespace="default", metadata=MetadataFilter("$._bus.status", ("open",)))
    assert [row.title for row in page.rows] == ["odd tea"]
    found = await ada.chats.search(make_search("tea", projects=("kitchen",)))
    assert [hit.title for hit in found.hits] == ["green tea"]


async def test_pinned_and_archived_conversations_can_be_listed_separately(ada: Library, ben: Library) -> None:
    one, two, three = [await make(ada, title) for title in ("one", "two", "three")]
    before = await ada.chats.get(one)
    await make(ben, "of Ben")

    pinned = await ada.chats.update(one, ConversationDraft(is_pinned=True))
    await ada.chats.update(two, ConversationDraft(is_archived=True))

    assert (pinned.is_pinned, pinned.last_modified, pinned.version) == (True, before.last_modified, 2)
    assert await titles(ada) == (["three", "two", "one"], 3)
    assert await titles(ada, is_pinned=True) == (["one"], 1)
    assert await titles(ada, is_archived=True) == (["two"], 1)
    assert await titles(ada, is_pinned=False, is_archived=False) == (["three"], 1)
    assert await titles(ada, is_archived=False, search="o") == (["one"], 1)
    renamed = await ada.chats.update(three, ConversationDraft(title="drei", is_pinned=True))
    assert renamed.last_modified > before.last_modified
    with pytest.raises(NotFound):
        await ben.chats.update(one, ConversationDraft(is_pinned=False))


async def test_change_token_differs_after_every_change_and_only_then(ada: Library, ben: Library) -> None:
    chat = await make(ada, "one")
    tokens = [await ada.chats.change_token()]
    assert await ada.chats.change_token() == tokens[0]
    changes = (
        lambda: ada.chats.append(chat, [MessageDraft(content="old", created_at="2001-01-01T00:00:00Z")]),
        lambda: ada.chats.update(chat, ConversationDraft(is_pinned=True)),
        lambda: ada.chats.delete(chat),
        lambda: ada.chats.restore(chat),
    )
    for change in changes:
        await change()
        tokens.append(await ada.chats.change_token())
    await make(ben, "of Ben")

    assert len(set(tokens)) == len(tokens)
    assert await ada.chats.change_token() == tokens[-1]


async def test_messages_before_a_message_are_counted_without_deleted_ones(ada: Library, ben: Library) -> None:
    chat = await make(ada, "one")
    messages = await ada.chats.append(chat, [MessageDraft(content=str(number)) for number in range(5)])
    await ada.chats.delete_message(messages[1].id)

    assert [await ada.chats.count_before(messages[index].id) for index in (0, 2, 4)] == [0, 1, 3]
    for library, message in ((ada, messages[1].id), (ben, messages[0].id), (ada, "absent")):
        with pytest.raises(NotFound):
            await library.chats.count_before(message)


async def test_list_can_be_searched_by_part_of_a_title_or_id(ada: Library, ben: Library) -> None:
    for title, uuid in (("tea", "a1"), ("Green TEA", "b2"), ("Straße", "abc-Id"), ("école", "d4"), ("100%", "e5")):
        await make(ada, title, uuid=uuid)
    expected = {
        ("tea",): ["Green TEA", "tea"],
        ("EEN T",): ["Green TEA"],
        ("strasse", "STRAßE", "C-ID"): ["Straße"],
        ("É",): ["école"],
        ("%",): ["100%"],
        ("_", "\\", "t" * 60_000, "\ud800"): [],
        ("",): ["100%", "école", "Straße", "Green TEA", "tea"],
    }
    for search, found in ((search, found) for searches, found in expected.items() for search in searches):
        assert await titles(ada, search=search) == (found, len(found)), search
        assert await titles(ben, search=search) == ([], 0)


async def test_namespace_and_search_are_combined_and_paged(ada: Library) -> None:
    for number in range(5):
        await make(ada, f"tea {number}", namespace="work")
        await make(ada, f"tea {number} at home", namespace="home")
    await make(ada, "coffee", namespace="work")
    assert await titles(ada, 2, 1, namespace="work", search="TEA") == (["tea 3", "tea 2"], 5)


async def test_conversation_without_namespace_is_in_the_default_namespace(ada: Library) -> None:
    await make(ada, "one")
    await make(ada, "two", namespace=" ")
    assert await titles(ada, namespace="default") == (["two", "one"], 2)


async def test_namespaces_are_listed_with_their_conversation_counts(ada: Library, ben: Library) -> None:
    deleted = await make(ada, "gone", namespace="old")
    await make(ada, "one", namespace="work")
    await ada.chats.create_namespace("empty")
    await ada.chats.delete(deleted)
    expected = [Namespace("default", 0), Namespace("empty", 0), Namespace("work", 1)]
    assert await ada.chats.namespaces() == expected
    assert await ben.chats.namespaces() == [Namespace("default", 0)]


async def test_conversations_are_counted_by_namespace(ada: Library, ben: Library) -> None:
    ids = [await make(ada, "one", namespace="work"), await make(ada, "two", namespace="work"), await make(ada, "three")]
    await make(ada, "not asked for", namespace="work")
    deleted, foreign = await make(ada, "gone", namespace="old"), await make(ben, "of Ben", namespace="work")
    await ada.chats.delete(deleted)
    assert await ada.chats.namespace_counts([*ids, deleted, foreign, "unknown"]) == {"work": 2, "default": 1}
    assert await ada.chats.namespace_counts([]) == {}


async def test_renaming_a_namespace_moves_its_conversations(ada: Library, ben: Library) -> None:
    conversation = await make(ada, "one", namespace="work")
    await make(ben, "of Ben", namespace="work")
    before = await ada.chats.get(conversation)
    assert await ada.chats.rename_namespace("work", "job") == Namespace("job", 1)
    after = await ada.chats.get(conversation)
    assert (after.namespace, after.version, after.last_modified) == ("job", 2, before.last_modified)
    assert await titles(ben, namespace="work") == (["of Ben"], 1)
    assert await ada.chats.rename_namespace("job", "job") == Namespace("job", 1)


async def test_deleting_a_namespace_moves_its_conversations_to_the_default_one(ada: Library) -> None:
    await make(ada, "one", namespace="work")
    assert await ada.chats.delete_namespace("work") == 1
    assert await ada.chats.namespaces() == [Namespace("default", 1)]


async def test_default_namespace_cannot_change_and_names_are_unique(ada: Library) -> None:
    await ada.chats.create_namespace("work")
    for call in (ada.chats.rename_namespace("default", "x"), ada.chats.delete_namespace("default")):
        with pytest.raises(InvalidParams, match="cannot be renamed or deleted"):
            await call
    for name in ("work", "default"):
        with pytest.raises(Conflict, match="already exists"):
            await ada.chats.create_namespace(name)
    await ada.chats.create_namespace("home")
    with pytest.raises(Conflict, match="'work' already exists"):
        await ada.chats.rename_namespace("home", "work")
    for absent in (ada.chats.delete_namespace("absent"), ada.chats.rename_namespace("absent", "x")):
        with pytest.raises(NotFound):
            await absent
    with pytest.raises(InvalidParams, match="name: expected a non-empty string"):
        await ada.chats.create_namespace(" ")


async def test_session_has_one_conversation(ada: Library, ben: Library) -> None:
    conversation = await make(ada, "one", session_id="s-1")
    other = await make(ada, "other")
    await make(ada, "third")
    assert (await ada.chats.get_by_session("s-1")).id == conversation
    for call in (
        make(ada, "again", session_id="s-1"),
        ada.chats.update(other, ConversationDraft(session_id="s-1")),
    ):
        with pytest.raises(Conflict, match=f"session_id: 's-1' is already used by conversation '{conversation}'"):
            await call
    await ada.chats.update(conversation, ConversationDraft(session_id="s-1", title="still one"))
    for absent in ("", "s-2", "\ud800"):
        with pytest.raises(NotFound):
            await ada.chats.get_by_session(absent)
    with pytest.raises(NotFound):
        await ben.chats.get_by_session("s-1")
    await make(ben, "of Ben", session_id="s-1")


async def test_session_of_a_deleted_conversation_can_be_reused(ada: Library) -> None:
    await ada.chats.delete(await make(ada, "one", session_id="s-1"))
    again = await make(ada, "again", session_id="s-1")
    assert (await ada.chats.get_by_session("s-1")).id == again


async def test_message_numbers_increase_across_the_library_and_are_never_reused(ada: Library, ben: Library) -> None:
    first, second = await make(ada, "one"), await make(ada, "two")
    numbers = [
        (await ada.chats.append(conversation, [MessageDraft(content="x")]))[0].number
        for conversation in (first, second, first)
    ]
    assert numbers == [1, 2, 3]
    assert (await ada.chats.last_message_number(first), await ada.chats.last_message_number(second)) == (3, 2)
    await ada.chats.purge(first)
    await ada.chats.purge(second)
    third = await make(ada, "three")
    assert await ada.chats.last_message_number(third) == 0
    assert [
        conversation.number for conversation in await ada.chats.append(third, [MessageDraft(), MessageDraft()])
    ] == [4, 5]
    with pytest.raises(NotFound):
        await ben.chats.last_message_number(third)


async def test_append_is_rejected_if_the_last_message_is_not_the_expected_one(ada: Library) -> None:
    conversation = await make(ada, "one")
    [first] = await ada.chats.append(
        conversation, [MessageDraft(content="a")], expected_last_number=0, idempotency_key="k"
    )
    with pytest.raises(Conflict, match="the conversation has changed") as call:
        await ada.chats.append(conversation, [MessageDraft(content="b")], expected_last_number=0)
    assert call.value.data == {"last_number": 1, "expected_last_number": 0}
    again = await ada.chats.append(
        conversation, [MessageDraft(content="a")], expected_last_number=0, idempotency_key="k"
    )
    assert again == [first]
    await ada.chats.append(conversation, [MessageDraft(content="b")], expected_last_number=1)


async def test_imported_conversation_keeps_its_times(ada: Library) -> None:
    draft = ConversationDraft(title="one", created_at="2025-01-01T00:00:00Z", last_modified="2025-03-01T00:00:00Z")
    conversation = await ada.chats.create(draft, [MessageDraft(content="x", created_at="2025-02-01T00:00:00Z")])
    assert (conversation.created_at, conversation.last_modified) == (
        "2025-01-01T00:00:00.000Z",
        "2025-03-01T00:00:00.000Z",
    )
    with pytest.raises(InvalidParams, match="last_modified"):
        await ada.chats.create(ConversationDraft(last_modified="yesterday"))
