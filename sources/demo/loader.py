"""Adds the demo library to a user's library. Its ids are fixed, so items that exist or were deleted are skipped, and
other items are not touched."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from uuid import NAMESPACE_URL, uuid5

from msgspec import UNSET, Struct
from msgspec.structs import asdict

from config.errors import Conflict
from config.times import format_time
from sources.demo.collection import (
    DemoCharacter,
    DemoCollection,
    DemoConversation,
    DemoMedia,
    DemoNote,
    DemoPrompt,
    read_demo,
)
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.records import MediaChunk
from sources.storage.contract import Library

_ASSISTANT = "Assistant"
_BETWEEN_MESSAGES = timedelta(minutes=2)

Write = Callable[[], Awaitable[object]]


class FillResult(Struct, frozen=True):
    """The number of demo items of each source, and how many of all were added."""

    items: Mapping[str, int]
    new: int

    @property
    def total(self) -> int:
        return sum(self.items.values())


async def fill(library: Library) -> FillResult:
    """Items are added one by one; if the call is interrupted, the next one adds the rest."""
    writes = {source: list(pending) for source, pending in _writes(library, read_demo())}
    new = [await _is_new(write) for pending in writes.values() for write in pending]
    return FillResult({source: len(pending) for source, pending in writes.items()}, sum(new))


async def fill_once(library: Library) -> None:
    """Fills the library only if it has no prompts, which are added last. Cheap enough for every start of a command."""
    if not (await library.prompts.list(1, 0)).total:
        await fill(library)


async def _is_new(write: Write) -> bool:
    try:
        await write()
    except Conflict:
        return False
    return True


def _writes(library: Library, demo: DemoCollection) -> Iterator[tuple[str, Iterator[Write]]]:
    yield "notes", (_deferred(library.notes.create, _note(item)) for item in demo.notes)
    yield "media", (_deferred(library.media.create, _media(item)) for item in demo.media)
    yield "chats", (_deferred(library.chats.create, _conversation(item), _messages(item)) for item in demo.chats)
    yield "characters", (_deferred(library.characters.create, _character(item)) for item in demo.characters)
    yield "prompts", (_deferred(library.prompts.create, _prompt(item)) for item in demo.prompts)


def _deferred(create: Callable[..., Awaitable[object]], *drafts: object) -> Write:
    return lambda: create(*drafts)


def _note(item: DemoNote) -> NoteDraft:
    return NoteDraft(
        title=item.title,
        content=item.text.strip(),
        tags=item.tags,
        uuid=demo_uuid("notes", item.key),
        created_at=format_time(item.on),
    )


def _media(item: DemoMedia) -> MediaDraft:
    return MediaDraft(
        title=item.title,
        media_type=item.type,
        author=item.author,
        url=item.url,
        content=item.text.strip() if item.text else UNSET,
        segments=item.segments if item.transcript else UNSET,
        chunks=list(_chunks(item)) if item.transcript else UNSET,
        tags=item.tags,
        uuid=demo_uuid("media", item.key),
        created_at=format_time(item.on),
    )


def _chunks(item: DemoMedia) -> Iterator[MediaChunk]:
    """The chunks of a transcript, whose text is its lines joined by line breaks."""
    start = 0
    for index, lines in enumerate(item.passages):
        text = "\n".join(line.text for line in lines)
        speakers = {line.speaker for line in lines}
        yield MediaChunk(
            index=index,
            uuid=demo_uuid("media", f"{item.key}/{index}"),
            text=text,
            start=start,
            end=start + len(text),
            start_ms=lines[0].start_ms,
            end_ms=lines[-1].end_ms,
            speaker=speakers.pop() if len(speakers) == 1 else None,
        )
        start += len(text) + 1


def _conversation(item: DemoConversation) -> ConversationDraft:
    return ConversationDraft(
        title=item.title,
        tags=item.tags,
        uuid=demo_uuid("chats", item.key),
        created_at=format_time(item.on),
    )


def _messages(item: DemoConversation) -> list[MessageDraft]:
    return [
        MessageDraft(
            sender=sender,
            role="assistant" if sender == _ASSISTANT else "user",
            content=words,
            uuid=demo_uuid("chats", f"{item.key}/{index}"),
            created_at=format_time(item.on + index * _BETWEEN_MESSAGES),
        )
        for index, (sender, words) in enumerate(item.messages)
    ]


def _character(item: DemoCharacter) -> CharacterDraft:
    fields = {name: value for name, value in asdict(item).items() if name not in ("key", "on")}
    return CharacterDraft(**fields, uuid=demo_uuid("characters", item.key), created_at=format_time(item.on))


def _prompt(item: DemoPrompt) -> PromptDraft:
    return PromptDraft(
        name=item.name,
        author=item.author,
        details=item.details,
        system_prompt=item.system,
        user_prompt=item.user.strip(),
        arguments=item.arguments,
        tags=item.tags,
        uuid=demo_uuid("prompts", item.key),
        created_at=format_time(item.on),
    )


def demo_uuid(source: str, key: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"florilegium-demo/{source}/{key}"))
