"""Items as Markdown pages for people: front matter, then the text. These pages are not imported again."""

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from unicodedata import normalize

import msgspec

from sources.reading.documents import build_document
from sources.records import Character, Conversation, MediaItem, Message, Note, Observation, Record, SavedPrompt

_NAME_CHARS = 60
_NOT_IN_NAMES = re.compile(r"[\W_]+")
_CHARACTER_FIELDS = (
    *("description", "personality", "scenario", "first_message", "message_example", "system_prompt"),
    *("post_history_instructions", "creator_notes", "creator", "character_version", "nickname"),
)
_PROMPT_FIELDS = ("author", "details", "system_prompt", "user_prompt")


def file_name(title: str, uuid: str) -> str:
    """Returns a name that is valid on every file system. It ends with a hash of the id and is therefore unique."""
    words = _NOT_IN_NAMES.sub("-", normalize("NFC", title)).strip("-").lower()[:_NAME_CHARS].rstrip("-")
    digest = blake2b(uuid.encode(), digest_size=6).hexdigest()
    return f"{words}-{digest}.md" if words else f"{digest}.md"


def note_page(note: Note) -> Iterator[str]:
    yield front_matter(note, note.title)
    yield note.content


def media_page(item: MediaItem, content: str) -> Iterator[str]:
    yield front_matter(item, item.title, media_type=item.media_type, url=item.url, author=item.author)
    yield content


def character_page(character: Character) -> Iterator[str]:
    yield front_matter(character, character.name)
    yield from _fields(character, character.name, _CHARACTER_FIELDS)


def prompt_page(prompt: SavedPrompt) -> Iterator[str]:
    yield front_matter(prompt, prompt.name)
    yield from _fields(prompt, prompt.name, _PROMPT_FIELDS)


def observation_page(observation: Observation) -> Iterator[str]:
    yield front_matter(observation, observation.title, type=observation.type, project=observation.project)
    yield f"# {observation.title}\n"
    for text in (observation.subtitle, observation.narrative):
        if text:
            yield f"\n{text}\n"
    for name in ("facts", "concepts", "files_read", "files_modified"):
        if values := getattr(observation, name):
            yield f"\n## {name.replace('_', ' ').capitalize()}\n\n" + "".join(f"- {value}\n" for value in values)


def conversation_head(chat: Conversation) -> str:
    return f"{front_matter(chat, chat.title, namespace=chat.namespace)}# {chat.title}\n"


def message_section(message: Message) -> str:
    return f"\n## {message.sender}, {message.created_at}{message.labels}\n\n{message.content}\n"


def front_matter(row: Record, title: str, **more_fields: str) -> str:
    """Writes each value as JSON, which is valid YAML."""
    fields: Mapping[str, object] = {
        "title": title,
        "id": row.uuid,
        "created": row.created_at,
        "modified": row.last_modified,
        **{name: value for name, value in more_fields.items() if value},
        **({"tags": row.tags} if row.tags else {}),
    }
    lines = (f"{name}: {msgspec.json.encode(value).decode()}\n" for name, value in fields.items())
    return "".join(("---\n", *lines, "---\n\n"))


def _fields(row: Record, title: str, names: Iterable[str]) -> Iterator[str]:
    yield build_document("name", title, [(name, getattr(row, name)) for name in names]).text + "\n"
