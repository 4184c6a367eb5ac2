"""The lines of an export: JSON objects with every field of an item and its `kind`, and their conversion back to drafts.

Numbers that a library assigns (to media, characters, prompts and messages) are not exported, because they mean nothing
in another library. A conversation refers to its character by uuid, and messages follow their conversation in order.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from sources.drafts import Bookkeeping, ConversationDraft, ItemDraft, MediaDraft, MessageDraft, NoteImage, make_draft
from sources.kinds import Kind, KindField, Record
from sources.records import CHARACTER, NOTE, OBSERVATION, PROMPT, Conversation, MediaChunk, MediaItem, Message, Segment

FORMAT = "florilegium-export"
FORMAT_VERSION = 1
MANIFEST = "florilegium.json"
# The name of the manifest until everything is written. It marks an export that was interrupted.
UNFINISHED_MANIFEST = "florilegium.json.unfinished"
# The file of the items of a source. Characters are imported before the conversations that refer to them, because files
# are read in the order of their names.
FILE_SUFFIX = ".jsonl"
# The saved searches of a person, as an array of JSON objects.
SAVED_SEARCHES_FILE = "saved-searches.json"
# The kinds whose lines have the fields of their records.
LINE_KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (NOTE, CHARACTER, PROMPT, OBSERVATION)}


class ExportLine(Struct, frozen=True, kw_only=True):
    """Fields of every item, besides its `kind`. The hash is for comparing items; it is recomputed on import. `arrived`
    is present only for imported items, and absent in older exports."""

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


class ConversationLine(ExportLine, frozen=True, kw_only=True, tag_field="kind", tag="conversation"):
    title: str
    namespace: str
    session_id: str
    character: str | None
    is_pinned: bool | UnsetType = UNSET
    is_archived: bool | UnsetType = UNSET


class MessageLine(ExportLine, frozen=True, kw_only=True, tag_field="kind", tag="message"):
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


class ExportedChunk(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`text` is present only if it differs from the item's text between `start` and `end`."""

    uuid: str
    start: int
    end: int
    start_ms: int | None = None
    end_ms: int | None = None
    speaker: str | None = None
    text: str | UnsetType = UNSET


class MediaLine(ExportLine, frozen=True, kw_only=True, tag_field="kind", tag="media"):
    """The text of a transcript consists of its segments and is not repeated in `content`."""

    title: str
    media_type: str
    url: str
    author: str
    content: str | UnsetType = UNSET
    segments: tuple[Segment, ...] = ()
    chunks: tuple[ExportedChunk, ...] = ()


class LineHead(Struct, frozen=True):
    """What says how to read the rest of a line."""

    kind: str


L = TypeVar("L", bound=ExportLine)
D = TypeVar("D", bound=Struct)


class ExportManifest(Struct, frozen=True, kw_only=True):
    """The format and contents of an export. It is written last, so an export without one is incomplete."""

    format: str
    format_version: int
    counts: Mapping[str, int]
    sha256: Mapping[str, str]


def encode(line: Struct | Mapping[str, Any]) -> bytes:
    """Keeps the order of keys, also in user-defined objects, because content hashes depend on it."""
    return msgspec.json.encode(line) + b"\n"


# -- items as lines ----------------------------------------------------------------------------------------------------


def item_line(kind: Kind, record: Record, **more: Any) -> dict[str, Any]:
    """Returns the line of an item whose fields are all in its record. `more` are fields besides those."""
    line = _line(ExportLine, record)
    common = {name: value for name in line.__struct_fields__ if (value := getattr(line, name)) is not UNSET}
    own = {field.name: getattr(record, field.name) for field in kind.fields}
    return {"kind": kind.name, **common, **own, **more}


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


def media_line(item: MediaItem, content: str, segments: Sequence[Segment], chunks: Sequence[MediaChunk]) -> MediaLine:
    exported = []
    for chunk in chunks:
        text = UNSET if content[chunk.start : chunk.end] == chunk.text else chunk.text
        exported.append(ExportedChunk(**{**_chunk_fields(chunk), "text": text}))
    own_content = UNSET if segments else content
    return _line(MediaLine, item, content=own_content, segments=tuple(segments), chunks=tuple(exported))


def _line(line_type: type[L], row: Record, **fields: Any) -> L:
    # What the import found, so that the next import of the same file still tells edits of the user from changes of the
    # file.
    fields |= {"arrived": row.arrived or UNSET}
    names = (name for name in line_type.__struct_fields__ if name not in fields)
    return line_type(**{name: getattr(row, name) for name in names}, **fields)


def _chunk_fields(chunk: MediaChunk | ExportedChunk) -> dict[str, Any]:
    return {name: getattr(chunk, name) for name in ExportedChunk.__struct_fields__}


# -- lines as drafts ---------------------------------------------------------------------------------------------------


def item_draft(data: Mapping[str, Any]) -> tuple[str, Any]:
    """Returns the source and the draft of a line whose fields are those of a record. The values of a kind that another
    distribution adds are checked when they are written, and its name is returned instead of that of its source.
    Raises msgspec.ValidationError."""
    name = data["kind"]
    common = msgspec.convert(data, ExportLine)
    fields: dict[str, Any] = {name: getattr(common, name) for name in ("tags", "metadata", "uuid", "created_at")}
    kind = LINE_KINDS.get(name)
    if kind in (None, NOTE):  # drafts of other kinds have no modification time of their own
        fields["last_modified"] = common.last_modified
    if kind is None:
        values = {key: value for key, value in data.items() if key not in _COMMON}
        return name, ItemDraft(values=values, **fields, bookkeeping=common.bookkeeping)
    missing = next((field.name for field in kind.fields if field.name not in data), None)
    if missing is not None:
        raise msgspec.ValidationError(f"Object missing required field `{missing}`")
    values = {field.name: _read(field, data[field.name]) for field in kind.fields}
    return kind.source, make_draft(kind.source, values, **fields, bookkeeping=common.bookkeeping)


def note_images(data: Mapping[str, Any]) -> tuple[NoteImage, ...] | None:
    """Returns the images of the line of a note. Their data is in Base64. Notes without images have no such field, and
    nor have older exports."""
    return msgspec.convert(data["images"], tuple[NoteImage, ...]) if "images" in data else None


_COMMON = frozenset(("kind", *ExportLine.__struct_fields__))


def _read(field: KindField, value: Any) -> Any:
    if value is None and field.is_optional:
        return None
    try:
        return msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{problem} - at `$.{field.name}{path or '`'}") from None


def conversation_draft(line: ConversationLine) -> ConversationDraft:
    """Leaves `last_modified` unset, because the bookkeeping contains it."""
    character: dict[str, Any] = {"character": UNSET, "character_id": None} if line.character is None else {}
    return _draft(ConversationDraft, line, **character, last_modified=UNSET)


def message_draft(line: MessageLine) -> MessageDraft:
    return _draft(MessageDraft, line)


def media_draft(line: MediaLine) -> MediaDraft:
    content = line.content
    if content is UNSET:
        content = "\n".join(segment.text for segment in line.segments)
    chunks = []
    for index, chunk in enumerate(line.chunks):
        text = content[max(0, chunk.start) : max(0, chunk.end)] if chunk.text is UNSET else chunk.text
        chunks.append(MediaChunk(**{**_chunk_fields(chunk), "index": index, "text": text}))
    return _draft(MediaDraft, line, content=content, segments=line.segments, chunks=tuple(chunks))


def _draft(draft_type: type[D], line: ExportLine, **fields: Any) -> D:
    names = (name for name in draft_type.__struct_fields__ if name not in fields)
    return draft_type(**{name: getattr(line, name) for name in names if hasattr(line, name)}, **fields)
