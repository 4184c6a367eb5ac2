"""Items of followed sources: edits are kept, and items whose origin disappears come back with it."""

import pytest
from msgspec.structs import replace

from sources.drafts import ConversationDraft, MessageDraft, NoteDraft, ThreadDraft
from sources.storage.contract import Library
from tests.sources.storage.library_fixture import ids, make_search

pytestmark = pytest.mark.postgres

TEA = NoteDraft(uuid="note-1", title="Tea", content="Steep for three minutes.")
TALK = ConversationDraft(uuid="talk-1", title="Kettles")
FIRST = MessageDraft(uuid="m1", role="user", content="Which kettle?")
SECOND = MessageDraft(uuid="m2", role="assistant", content="The copper one.")


async def test_edited_item_is_a_conflict_only_if_its_edits_are_kept(ada: Library, ben: Library) -> None:
    for library in (ada, ben):
        await library.notes.upsert_many([TEA])
    await ada.notes.update("note-1", NoteDraft(content="My own words."))
    changed = replace(TEA, content="Steep for five minutes.")
    [kept] = await ada.notes.upsert_many([changed], keeps_edits=True)
    [updated] = await ben.notes.upsert_many([changed], keeps_edits=True)
    assert (kept.outcome, updated.outcome) == ("conflict", "updated")
    assert (await ada.notes.get("note-1")).content == "My own words."

    [same] = await ada.notes.upsert_many([replace(TEA, content="My own words.")], keeps_edits=True)
    [settled] = await ada.notes.upsert_many([changed], keeps_edits=True)
    assert (same.outcome, settled.outcome) == ("unchanged", "updated")


async def test_withdrawn_item_is_restored_but_a_deleted_one_is_not(ada: Library) -> None:
    other = replace(TEA, uuid="note-2")
    await ada.notes.upsert_many([TEA, other])
    await ada.notes.delete("note-2")
    assert await ada.notes.withdraw_many(["note-1", "note-2", "unknown"]) == []
    assert ids(await ada.notes.search(make_search("steep"))) == []
    results = await ada.notes.upsert_many([TEA, other])
    assert [result.outcome for result in results] == ["updated", "deleted"]
    assert ids(await ada.notes.search(make_search("steep"))) == ["note-1"]


async def test_edited_item_is_withdrawn_only_on_demand(ada: Library) -> None:
    await ada.notes.upsert_many([TEA])
    await ada.notes.update("note-1", NoteDraft(title="Green tea"))
    assert await ada.notes.withdraw_many(["note-1"]) == ["note-1"]
    assert await ada.notes.withdraw_many(["note-1"], keeps_edits=False) == []
    assert ids(await ada.notes.search(make_search("steep"))) == []


async def test_conversation_comes_back_with_the_messages_it_has_then(ada: Library) -> None:
    await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST, SECOND])])
    assert await ada.chats.withdraw_many(["talk-1"]) == []
    assert ids(await ada.chats.search(make_search("kettle"))) == []
    await ada.chats.upsert_many([ThreadDraft(TALK, [SECOND])])
    page = await ada.chats.messages("talk-1", 10, 0)
    assert [message.uuid for message in page.rows] == ["m2"]


async def test_conversation_with_a_message_of_its_owner_is_kept(ada: Library) -> None:
    await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST, SECOND])])
    await ada.chats.append("talk-1", [MessageDraft(role="user", content="Thanks!")])
    assert await ada.chats.withdraw_many(["talk-1"]) == ["talk-1"]
    assert await ada.chats.withdraw_messages(["m1", "m2"], outside=["talk-1"]) == []
    assert (await ada.chats.get("talk-1")).message_count == 3
    assert await ada.chats.withdraw_messages(["m1"]) == []
    assert (await ada.chats.get("talk-1")).message_count == 2
