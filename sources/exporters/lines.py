"""The lines of an export: JSON objects with every field of an item and its `kind`, and their conversion back to drafts.

Numbers that a library assigns (to media, characters, prompts and messages) are not exported, because they mean nothing
in another library. A conversation refers to its character by uuid, and messages follow their conversation in order.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from sources.drafts import (
    Bookkeeping,
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    NoteImage,
    ObservationDraft,
    PromptDraft,
)
from sources.kinds import Record
from sources.records import (
    Character,
    Conversation,
    MediaChunk,
    MediaItem,
    Message,
    Note,
    Observation,
    Origin,
    SavedPrompt,
    SavedPromptArgument,
    Segment,
)

FORMAT = "florilegium-export"
FORMAT_VERSION = 1
MANIFEST = "florilegium.json"
# The name of the manifest until everything is written. It marks an export that was interrupted.
UNFINISHED_MANIFEST = "florilegium.json.unfinished"
# In the order of import: characters before the conversations that refer to them.
FILES = ("characters.jsonl", "chats.jsonl", "media.jsonl", "notes.jsonl", "observations.jsonl", "prompts.jsonl")


class ExportLine(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Fields of every item. The hash is for comparing items; it is recomputed on import. `arrived` is present only for
    imported items, and absent in older exports."""

    uuid: str
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    created_at: str
    last_modified: str
    version: int
    client_id: str
    content_hash: str
    arrived: str | UnsetType = UNSET

    @property
    def bookkeeping(self) -> Bookkeeping:
        arrived = None if self.arrived is UNSET else self.arrived
        return Bookkeeping(
            version=self.version, last_modified=self.last_modified, client_id=self.client_id, arrived=arrived
        )


class NoteLine(ExportLine, frozen=True, kw_only=True, tag="note"):
    """The data of images is in Base64. Notes without images have no such field, and nor have older exports."""

    title: str
    content: str
    images: tuple[NoteImage, ...] | UnsetType = UNSET


class ConversationLine(ExportLine, frozen=True, kw_only=True, tag="conversation"):
    title: str
    namespace: str
    session_id: str
    character: str | None
    is_pinned: bool | UnsetType = UNSET
    is_archived: bool | UnsetType = UNSET


class MessageLine(ExportLine, frozen=True, kw_only=True, tag="message"):
    conversation_id: str
    role: str
    sender: str
    content: str
    model: str | None
    tool: str | None
    attachments: tuple[Mapping[str, Any], ...]
    citations: tuple[Mapping[str, Any], ...]
    parent_id: str | None
    is_canonical: bool


class CharacterLine(ExportLine, frozen=True, kw_only=True, tag="character"):
    name: str
    description: str
    personality: str
    scenario: str
    first_message: str
    message_example: str
    system_prompt: str
    post_history_instructions: str
    creator_notes: str
    creator: str
    character_version: str
    nickname: str
    alternate_greetings: tuple[str, ...]
    group_only_greetings: tuple[str, ...]
    card: Mapping[str, Any]


class PromptLine(ExportLine, frozen=True, kw_only=True, tag="prompt"):
    name: str
    author: str
    details: str
    system_prompt: str
    user_prompt: str
    arguments: tuple[SavedPromptArgument, ...]


class ExportedChunk(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`text` is present only if it differs from the item's text between `start` and `end`."""

    uuid: str
    start: int
    end: int
    start_ms: int | None = None
    end_ms: int | None = None
    speaker: str | None = None
    text: str | UnsetType = UNSET


class MediaLine(ExportLine, frozen=True, kw_only=True, tag="media"):
    """The text of a transcript consists of its segments and is not repeated in `content`."""

    title: str
    media_type: str
    url: str
    author: str
    content: str | UnsetType = UNSET
    segments: tuple[Segment, ...] = ()
    chunks: tuple[ExportedChunk, ...] = ()


class ObservationLine(ExportLine, frozen=True, kw_only=True, tag="observation"):
    type: str
    title: str
    subtitle: str
    narrative: str
    facts: tuple[str, ...]
    concepts: tuple[str, ...]
    files_read: tuple[str, ...]
    files_modified: tuple[str, ...]
    project: str
    session_id: str
    origin: Origin
    conversation_id: str | None
    line_start: int | None
    line_end: int | None


AnyLine = NoteLine | ConversationLine | MessageLine | CharacterLine | PromptLine | MediaLine | ObservationLine
L = TypeVar("L", bound=ExportLine)
D = TypeVar("D", bound=Struct)


class ExportManifest(Struct, frozen=True, kw_only=True):
    """The format and contents of an export. It is written last, so an export without one is incomplete."""

    format: str
    format_version: int
    counts: Mapping[str, int]
    sha256: Mapping[str, str]


def encode(line: Struct) -> bytes:
    """Keeps the order of keys, also in user-defined objects, because content hashes depend on it."""
    return msgspec.json.encode(line) + b"\n"


# -- items as lines ----------------------------------------------------------------------------------------------------


def note_line(note: Note, images: Sequence[NoteImage] = ()) -> NoteLine:
    return _line(NoteLine, note, images=tuple(images) or UNSET)


def conversation_line(chat: Conversation, character: str | None) -> ConversationLine:
    return _line(
        ConversationLine,
        chat,
        character=character,
        is_pinned=chat.is_pinned or UNSET,
        is_archived=chat.is_archived or UNSET,
    )


def message_line(message: Message) -> MessageLine:
    return _line(MessageLine, message)


def character_line(character: Character) -> CharacterLine:
    return _line(CharacterLine, character)


def prompt_line(prompt: SavedPrompt) -> PromptLine:
    return _line(PromptLine, prompt)


def observation_line(observation: Observation) -> ObservationLine:
    return _line(ObservationLine, observation)


def media_line(item: MediaItem, content: str, segments: Sequence[Segment], chunks: Sequence[MediaChunk]) -> MediaLine:
    return _line(
        MediaLine,
        item,
        content=UNSET if segments else content,
        segments=tuple(segments),
        chunks=tuple(_exported_chunk(chunk, content) for chunk in chunks),
    )


def _line(line_type: type[L], row: Record, **fields: Any) -> L:
    fields |= {"arrived": row.arrived or UNSET}
    names = (name for name in line_type.__struct_fields__ if name not in fields)
    return line_type(**{name: getattr(row, name) for name in names}, **fields)


def _exported_chunk(chunk: MediaChunk, content: str) -> ExportedChunk:
    return ExportedChunk(
        uuid=chunk.uuid,
        start=chunk.start,
        end=chunk.end,
        start_ms=chunk.start_ms,
        end_ms=chunk.end_ms,
        speaker=chunk.speaker,
        text=UNSET if content[chunk.start : chunk.end] == chunk.text else chunk.text,
    )


# -- lines as drafts ---------------------------------------------------------------------------------------------------


def note_draft(line: NoteLine) -> NoteDraft:
    return _draft(NoteDraft, line)


def conversation_draft(line: ConversationLine) -> ConversationDraft:
    """Leaves `last_modified` unset, because the bookkeeping contains it."""
    character: dict[str, Any] = {"character": UNSET, "character_id": None} if line.character is None else {}
    return _draft(ConversationDraft, line, **character, last_modified=UNSET)


def message_draft(line: MessageLine) -> MessageDraft:
    return _draft(MessageDraft, line)


def character_draft(line: CharacterLine) -> CharacterDraft:
    return _draft(CharacterDraft, line)


def prompt_draft(line: PromptLine) -> PromptDraft:
    return _draft(PromptDraft, line)


def observation_draft(line: ObservationLine) -> ObservationDraft:
    return _draft(ObservationDraft, line)


def media_draft(line: MediaLine) -> MediaDraft:
    content = line.content
    if content is UNSET:
        content = "\n".join(segment.text for segment in line.segments)
    chunks = tuple(_media_chunk(index, chunk, content) for index, chunk in enumerate(line.chunks))
    return _draft(MediaDraft, line, content=content, segments=line.segments, chunks=chunks)


def _draft(draft_type: type[D], line: ExportLine, **fields: Any) -> D:
    names = (name for name in draft_type.__struct_fields__ if name not in fields)
    return draft_type(**{name: getattr(line, name) for name in names if hasattr(line, name)}, **fields)


def _media_chunk(index: int, chunk: ExportedChunk, content: str) -> MediaChunk:
    return MediaChunk(
        index=index,
        uuid=chunk.uuid,
        text=content[max(0, chunk.start) : max(0, chunk.end)] if chunk.text is UNSET else chunk.text,
        start=chunk.start,
        end=chunk.end,
        start_ms=chunk.start_ms,
        end_ms=chunk.end_ms,
        speaker=chunk.speaker,
    )
