"""Reads the messages of a thread in pages of limited length and size."""

from msgspec import Struct

from sources.records import Message
from sources.storage.contract import Chats, MetadataFilter


class MessagePage(Struct, frozen=True):
    messages: tuple[Message, ...]
    has_more: bool


class MessagePageLimits(Struct, frozen=True, kw_only=True):
    """`batch` is the number of messages that are read from the storage at a time."""

    messages: int
    text_bytes: int
    batch: int


async def read_page(
    chats: Chats, thread_id: str, after_seq: int, metadata: MetadataFilter | None, limits: MessagePageLimits
) -> MessagePage:
    """Returns messages up to both limits, but at least one if there is any."""
    messages: list[Message] = []
    remaining_bytes, batch_size = limits.text_bytes, min(limits.batch, limits.messages + 1)
    while True:
        batch = await chats.messages_after(thread_id, after_seq, batch_size, metadata)
        for message in batch:
            remaining_bytes -= len(message.content.encode())
            if len(messages) == limits.messages or (remaining_bytes < 0 and messages):
                return MessagePage(tuple(messages), has_more=True)
            messages.append(message)
        if len(batch) < batch_size:
            return MessagePage(tuple(messages), has_more=False)
        after_seq = batch[-1].number
