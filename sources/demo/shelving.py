"""Puts the demo library into somebody's library. Its ids are the same everywhere, so what is there already, or was
there and was deleted, is left alone; other items are never looked at."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from uuid import NAMESPACE_URL, uuid5

from msgspec import UNSET, Struct
from msgspec.structs import asdict

from config.errors import Conflict
from config.times import format_time
from sources.demo.collection import Character, Chat, Collection, Media, Note, Prompt, read_collection
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.records import MediaChunk
from sources.storage.contract import Library

_ASSISTANT = "Assistant"
_BETWEEN_MESSAGES = timedelta(minutes=2)

Write = Callable[[], Awaitable[object]]


class Filled(Struct, frozen=True):
    """How many items of each source the demo library has, and how many of them were not there before."""

    items: Mapping[str, int]
    new: int

    @property
    def total(self) -> int:
        return sum(self.items.values())


async def fill(library: Library) -> Filled:
    """Interrupted at any point, it leaves whole items behind, and the next call adds the rest."""
    writes = {source: list(made) for source, made in _writes(library, read_collection())}
    new = [await _is_new(write) for made in writes.values() for write in made]
    return Filled({source: len(made) for source, made in writes.items()}, sum(new))


async def fill_once(library: Library) -> None:
    """For a reader in a hurry: looks at the source that is filled last, and fills the library if that is empty."""
    if not (await library.prompts.list(1, 0)).total:
        await fill(library)


async def _is_new(write: Write) -> bool:
    try:
        await write()
    except Conflict:
        return False
    return True


def _writes(library: Library, told: Collection) -> Iterator[tuple[str, Iterator[Write]]]:
    yield "notes", (_later(library.notes.create, _note(one)) for one in told.notes)
    yield "media", (_later(library.media.create, _media(one)) for one in told.media)
    yield "chats", (_later(library.chats.create, _conversation(one), _messages(one)) for one in told.chats)
    yield "characters", (_later(library.characters.create, _character(one)) for one in told.characters)
    yield "prompts", (_later(library.prompts.create, _prompt(one)) for one in told.prompts)


def _later(create: Callable[..., Awaitable[object]], *given: object) -> Write:
    return lambda: create(*given)


def _note(told: Note) -> NoteDraft:
    return NoteDraft(
        title=told.title,
        content=told.text.strip(),
        tags=told.tags,
        uuid=demo_uuid("notes", told.key),
        created_at=format_time(told.on),
    )


def _media(told: Media) -> MediaDraft:
    return MediaDraft(
        title=told.title,
        media_type=told.type,
        author=told.author,
        url=told.url,
        content=told.text.strip() if told.text else UNSET,
        segments=told.segments if told.transcript else UNSET,
        chunks=list(_chunks(told)) if told.transcript else UNSET,
        tags=told.tags,
        uuid=demo_uuid("media", told.key),
        created_at=format_time(told.on),
    )


def _chunks(told: Media) -> Iterator[MediaChunk]:
    """The passages of a transcript where they stand in its text, which is its lines one below the other."""
    start = 0
    for index, lines in enumerate(told.passages):
        text = "\n".join(line.text for line in lines)
        speakers = {line.speaker for line in lines}
        yield MediaChunk(
            index=index,
            uuid=demo_uuid("media", f"{told.key}/{index}"),
            text=text,
            start=start,
            end=start + len(text),
            start_ms=lines[0].start_ms,
            end_ms=lines[-1].end_ms,
            speaker=speakers.pop() if len(speakers) == 1 else None,
        )
        start += len(text) + 1


def _conversation(told: Chat) -> ConversationDraft:
    return ConversationDraft(
        title=told.title,
        tags=told.tags,
        uuid=demo_uuid("chats", told.key),
        created_at=format_time(told.on),
    )


def _messages(told: Chat) -> list[MessageDraft]:
    return [
        MessageDraft(
            sender=sender,
            role="assistant" if sender == _ASSISTANT else "user",
            content=words,
            uuid=demo_uuid("chats", f"{told.key}/{place}"),
            created_at=format_time(told.on + place * _BETWEEN_MESSAGES),
        )
        for place, (sender, words) in enumerate(told.messages)
    ]


def _character(told: Character) -> CharacterDraft:
    fields = {name: value for name, value in asdict(told).items() if name not in ("key", "on")}
    return CharacterDraft(**fields, uuid=demo_uuid("characters", told.key), created_at=format_time(told.on))


def _prompt(told: Prompt) -> PromptDraft:
    return PromptDraft(
        name=told.name,
        author=told.author,
        details=told.details,
        system_prompt=told.system,
        user_prompt=told.user.strip(),
        arguments=told.arguments,
        tags=told.tags,
        uuid=demo_uuid("prompts", told.key),
        created_at=format_time(told.on),
    )


def demo_uuid(source: str, key: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"florilegium-demo/{source}/{key}"))
