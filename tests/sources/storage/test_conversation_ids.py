"""Listing all conversation ids in a stable order."""

from sources.drafts import ConversationDraft
from sources.storage.contract import Library


async def test_ids_are_returned_in_order_after_any_id_without_deleted_ones(ada: Library, ben: Library) -> None:
    for uuid in ("d", "b", "a", "c", "e"):
        await ada.chats.create(ConversationDraft(title="T", uuid=uuid))
    await ben.chats.create(ConversationDraft(title="T", uuid="bb"))
    await ada.chats.delete("c")

    assert list(await ada.chats.ids("", 3)) == ["a", "b", "d"]
    assert list(await ada.chats.ids("d", 3)) == ["e"]
    assert list(await ada.chats.ids("bb", 9)) == ["d", "e"]
    assert list(await ada.chats.ids("e", 3)) == []
    assert list(await ben.chats.ids("", 9)) == ["bb"]
