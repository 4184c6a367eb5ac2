"""Restoring deleted items: they are found again by every kind of search, and the indexes match the tables."""

from pathlib import Path

import pytest

from config.errors import Conflict, NotFound
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import ExactSearch, ItemFilter, Library, MessageSearch
from tests.cases import each_case
from tests.sources.storage.item_kinds import ITEM_KINDS, ItemKind
from tests.sources.storage.library_fixture import make_search, open_sqlite
from tests.sources.storage.sqlite.file_checks import check_files

pytestmark = pytest.mark.postgres

HUMAN_ONLY = {"human_only": True}


@each_case("kind", ITEM_KINDS)
async def test_restored_item_is_as_before_with_a_new_version(kind: ItemKind, ada: Library, ben: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea", "green leaves", tags=["home"]))
    await collection.delete(item.id)

    with pytest.raises(NotFound):
        await kind.collection(ben).restore(item.id)
    restored = await collection.restore(item.id)

    assert (kind.title_of(restored), restored.tags, restored.version) == ("Tea", ("home",), 3)
    assert [hit.id for hit in (await collection.search(make_search("tea"))).hits] == [item.id]
    assert (await collection.browse(ItemFilter(tags=("home",)), 10, 0)).total == 1
    with pytest.raises(NotFound):
        await collection.restore(item.id)


async def test_indexes_match_the_tables_after_deletions_and_restorations(tmp_path: Path) -> None:
    drafts = [
        MessageDraft(role="user", content="green tea leaves"),
        MessageDraft(role="user", content="secret tea", metadata=HUMAN_ONLY),
        MessageDraft(role="assistant", content="black tea leaves"),
    ]
    exact = ExactSearch(expression="tea", limit=10, deadline_ms=10_000)
    substring = MessageSearch(text="ea leav", limit=10, deadline_ms=10_000)
    async with open_sqlite(tmp_path) as libraries, libraries.library("ada") as ada:
        chat = await ada.chats.create(ConversationDraft(title="Tea time"), drafts)
        items = [await kind.collection(ada).create(kind.draft("Tea", "green leaves")) for kind in ITEM_KINDS]
        # Builds the indexes that are built on demand.
        assert len((await ada.chats.match_messages(exact)).hits) == 3
        assert len((await ada.chats.find_messages(substring)).hits) == 2
        for _ in range(2):
            await ada.chats.delete(chat.id)
            assert (await ada.chats.match_messages(exact)).hits == ()
            for kind, item in zip(ITEM_KINDS, items, strict=True):
                await kind.collection(ada).delete(item.id)
                await kind.collection(ada).restore(item.id)
            await ada.chats.restore(chat.id)

        assert len((await ada.chats.match_messages(exact)).hits) == 3
        assert len((await ada.chats.find_messages(substring)).hits) == 2
        assert (await ada.chats.search(make_search("black leaves"))).hits[0].id == chat.id
    check_files(tmp_path)


async def test_deleted_messages_stay_deleted_when_their_conversation_is_restored(ada: Library) -> None:
    drafts = [MessageDraft(role="user", content="green tea"), MessageDraft(role="user", content="black tea")]
    chat = await ada.chats.create(ConversationDraft(title="Talk"), drafts)
    first, _ = (await ada.chats.messages(chat.id, 10, 0)).rows
    await ada.chats.delete_message(first.id)
    await ada.chats.delete(chat.id)

    await ada.chats.restore(chat.id)

    assert [message.content for message in (await ada.chats.messages(chat.id, 10, 0)).rows] == ["black tea"]
    assert (await ada.chats.search(make_search("green"))).hits == ()


async def test_conversation_whose_session_is_taken_cannot_be_restored(ada: Library) -> None:
    chat = await ada.chats.create(ConversationDraft(title="Old", session_id="s-1"))
    await ada.chats.delete(chat.id)
    await ada.chats.create(ConversationDraft(title="New", session_id="s-1"))

    with pytest.raises(Conflict):
        await ada.chats.restore(chat.id)
