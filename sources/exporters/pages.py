"""Items as Markdown, for people: a head that names the item, then its text. Nothing here is read back."""

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from unicodedata import normalize

import msgspec

from sources.reading.documents import build_document
from sources.records import Character, Conversation, MediaItem, Message, Note, Observation, Record, SavedPrompt

_NAME_CHARS = 60
_NO_NAME = re.compile(r"[\W_]+")
_CHARACTER_FIELDS = (
    *("description", "personality", "scenario", "first_message", "message_example", "system_prompt"),
    *("post_history_instructions", "creator_notes", "creator", "character_version", "nickname"),
)
_PROMPT_FIELDS = ("author", "details", "system_prompt", "user_prompt")


def file_name(title: str, uuid: str) -> str:
    """A name that every file system takes; the end of it is made of the id, so no two items have the same."""
    words = _NO_NAME.sub("-", normalize("NFC", title)).strip("-").lower()[:_NAME_CHARS].rstrip("-")
    mark = blake2b(uuid.encode(), digest_size=6).hexdigest()
    return f"{words}-{mark}.md" if words else f"{mark}.md"


def note_page(note: Note) -> Iterator[str]:
    yield head(note, note.title)
    yield note.content


def media_page(item: MediaItem, content: str) -> Iterator[str]:
    yield head(item, item.title, media_type=item.media_type, url=item.url, author=item.author)
    yield content


def character_page(character: Character) -> Iterator[str]:
    yield head(character, character.name)
    yield from _fields(character, character.name, _CHARACTER_FIELDS)


def prompt_page(prompt: SavedPrompt) -> Iterator[str]:
    yield head(prompt, prompt.name)
    yield from _fields(prompt, prompt.name, _PROMPT_FIELDS)


def observation_page(learned: Observation) -> Iterator[str]:
    yield head(learned, learned.title, type=learned.type, project=learned.project)
    yield f"# {learned.title}\n"
    for text in (learned.subtitle, learned.narrative):
        if text:
            yield f"\n{text}\n"
    for name in ("facts", "concepts", "files_read", "files_modified"):
        if values := getattr(learned, name):
            yield f"\n## {name.replace('_', ' ').capitalize()}\n\n" + "".join(f"- {value}\n" for value in values)


def conversation_head(chat: Conversation) -> str:
    return f"{head(chat, chat.title, namespace=chat.namespace)}# {chat.title}\n"


def message_section(message: Message) -> str:
    return f"\n## {message.sender}, {message.created_at}{message.branch_label}\n\n{message.content}\n"


def head(row: Record, title: str, **more: str) -> str:
    """Front matter: each value as JSON, which is YAML too."""
    told: Mapping[str, object] = {
        "title": title,
        "id": row.uuid,
        "created": row.created_at,
        "modified": row.last_modified,
        **{name: value for name, value in more.items() if value},
        **({"tags": row.tags} if row.tags else {}),
    }
    lines = (f"{name}: {msgspec.json.encode(value).decode()}\n" for name, value in told.items())
    return "".join(("---\n", *lines, "---\n\n"))


def _fields(row: Record, title: str, names: Iterable[str]) -> Iterator[str]:
    yield build_document("name", title, [(name, getattr(row, name)) for name in names]).text + "\n"
