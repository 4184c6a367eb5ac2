"""Stores the collection in a library, with ids that are the same in every run."""

from collections.abc import Mapping
from datetime import date, datetime, time
from uuid import NAMESPACE_URL, uuid5

from bench.quality.collection import Chat, Collection
from config.times import format_time
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.storage.contract import Library

ASSISTANT = "assistant"
# The name of an item in the collection, by its source and its id in the library.
ItemNames = Mapping[tuple[str, str], str]


async def store_collection(library: Library, collection: Collection) -> ItemNames:
    stored: dict[str, list[str] | list[int]] = {
        "notes": [note.id for note in await library.notes.create_many(_notes(collection))],
        "media": [media.id for media in await library.media.create_many(_media(collection))],
        "chats": [await _store_chat(library, chat) for chat in collection.chats],
        "characters": [card.id for card in await library.characters.create_many(_characters(collection))],
        "prompts": [prompt.id for prompt in await library.prompts.create_many(_prompts(collection))],
    }
    identities = ((source, str(identity)) for source, ids in stored.items() for identity in ids)
    return dict(zip(identities, collection.names, strict=True))


async def _store_chat(library: Library, chat: Chat) -> str:
    draft = ConversationDraft(title=chat.title, uuid=_uuid("chats", chat.key), created_at=_morning(chat.on))
    messages = [
        MessageDraft(
            sender=sender,
            role="assistant" if sender == ASSISTANT else "user",
            content=text,
            uuid=_uuid("messages", f"{chat.key}/{index}"),
            created_at=_morning(chat.on),
        )
        for index, (sender, text) in enumerate(chat.messages)
    ]
    return (await library.chats.create(draft, messages)).id


def _notes(collection: Collection) -> list[NoteDraft]:
    return [
        NoteDraft(
            title=note.title,
            content=note.text.strip(),
            tags=note.tags,
            uuid=_uuid("notes", note.key),
            created_at=_morning(note.on),
        )
        for note in collection.notes
    ]


def _media(collection: Collection) -> list[MediaDraft]:
    return [
        MediaDraft(
            title=media.title,
            media_type=media.type,
            author=media.author,
            content=media.text.strip(),
            tags=media.tags,
            uuid=_uuid("media", media.key),
            created_at=_morning(media.on),
        )
        for media in collection.media
    ]


def _characters(collection: Collection) -> list[CharacterDraft]:
    return [
        CharacterDraft(
            name=character.name,
            description=character.description,
            personality=character.personality,
            first_message=character.first_message,
            uuid=_uuid("characters", character.key),
            created_at=_morning(character.on),
        )
        for character in collection.characters
    ]


def _prompts(collection: Collection) -> list[PromptDraft]:
    return [
        PromptDraft(
            name=prompt.name,
            details=prompt.details,
            system_prompt=prompt.system,
            user_prompt=prompt.user,
            uuid=_uuid("prompts", prompt.key),
            created_at=_morning(prompt.on),
        )
        for prompt in collection.prompts
    ]


def _uuid(source: str, key: str) -> str:
    """Ties are broken by URI, so random ids would change the figures from run to run."""
    return str(uuid5(NAMESPACE_URL, f"florilegium-bench/{source}/{key}"))


def _morning(day: date) -> str:
    return format_time(datetime.combine(day, time(8)))
