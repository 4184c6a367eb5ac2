"""Going through all conversations in an order that nothing changes."""

from sources.drafts import ConversationDraft
from sources.storage.contract import Library


async def test_ids_are_given_in_their_order_from_anywhere_without_those_that_were_deleted(
    ada: Library, ben: Library
) -> None:
    for identity in ("d", "b", "a", "c", "e"):
        await ada.chats.create(ConversationDraft(title="T", uuid=identity))
    await ben.chats.create(ConversationDraft(title="T", uuid="bb"))
    await ada.chats.delete("c")

    assert list(await ada.chats.ids("", 3)) == ["a", "b", "d"]
    assert list(await ada.chats.ids("d", 3)) == ["e"]
    assert list(await ada.chats.ids("bb", 9)) == ["d", "e"]
    assert list(await ada.chats.ids("e", 3)) == []
    assert list(await ben.chats.ids("", 9)) == ["bb"]
