"""Reads single files: bytes, text or JSON, modification time, and the key by which a later import recognizes them.

Nothing larger than its limit is read, and pipes and devices are never opened.
"""

# About this package: Read first: `files.py`, what importers yield; `discovery.py`, which importer reads which file;
# `import_runner.py`. Containers: `archives.py` (zip, tar), `file_trees.py` (a zip or the folder it was unpacked to),
# `export_files.py` (JSON exports), `json_stream.py` (JSON larger than memory), `table_reader.py` (SQLite, CSV),
# `png_texts.py`. Values: `values.py` and `chat_messages.py` turn what other programs wrote into drafts. Process:
# `reader_process.py` is the server's side of `../reader.py`, with the messages in `reader_messages.py`. Every size and
# count is limited by `limits.py`: a file of a few megabytes can hold millions of records.

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b, file_digest, sha1
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from config.errors import InvalidParams, TooLarge
from config.times import format_timestamp
from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    ItemDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    NoteImage,
    ObservationDraft,
    PromptDraft,
)
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.encodings import DecodedText, detect_encoding
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.values import clean_tags, compact_metadata, parse_json, short_title

# -- imported items ----------------------------------------------------------------------------------------------------
# What an importer yields: items with stable ids, and reports of what it skipped or could not read.
#
# These are plain values; nothing here touches a library. Reading the same file twice yields the same items, and a
# newer export yields the same ids for the items it shares with an older one.

# The name of a source, "observations", or the name of a kind of another distribution.
ItemKind = str
# Must never change: with another namespace every re-import would create duplicates.
_NAMESPACE_BYTES = UUID("6f0d9c5e-0b5a-5d0f-9a63-5f2f3c1b7e41").bytes


def stable_uuid(importer: str, kind: str, key: str) -> str:
    """Derives an id from properties that do not change, for formats whose items have no globally unique id. It is the
    UUID of version 5 (RFC 9562, section 5.5), formatted here because `uuid.uuid5` takes five times as long, and large
    files have millions of items."""
    # SHA-1 because version 5 of UUIDs is defined with it; nothing depends on its security.
    digest = sha1(_NAMESPACE_BYTES + f"{importer}\0{kind}\0{key}".encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


class ImportedNote(Struct, frozen=True, tag=True, omit_defaults=True):
    """`images` replace those of the note; None leaves them as they are. `former_uuid` is the id that an earlier version
    derived for the note, if it was another one."""

    draft: NoteDraft
    images: Sequence[NoteImage] | None = None
    former_uuid: str = ""


class ImportedConversation(Struct, frozen=True, tag=True):
    """A conversation with its messages in order. A long conversation may be yielded in several parts: every part after
    the first has `continues` set, and its messages follow those of the previous part."""

    draft: ConversationDraft
    messages: Sequence[MessageDraft] = ()
    continues: bool = False


class ImportedMedia(Struct, frozen=True, tag=True):
    draft: MediaDraft


class ImportedCharacter(Struct, frozen=True, tag=True):
    draft: CharacterDraft


class ImportedPrompt(Struct, frozen=True, tag=True):
    draft: PromptDraft


class ImportedObservation(Struct, frozen=True, tag=True):
    draft: ObservationDraft


class ImportedRecord(Struct, frozen=True, tag=True):
    """An item of a kind that another distribution adds. `kind` is its name. The process that reads files does not know
    these kinds: what they hold is checked when it is written."""

    kind: str
    draft: ItemDraft


class SkippedItem(Struct, frozen=True, tag=True):
    """An item that is deliberately not imported. `reason` is a singular noun phrase without an article, such as
    "empty message" or "message of a deleted conversation"; equal reasons are counted together."""

    reason: str


class FailedItem(Struct, frozen=True, tag=True):
    """An item that could not be read; reading continues with the next one. `location` is a line, an archive entry or a
    row."""

    location: str
    problem: str


class DoubtfulItem(Struct, frozen=True, tag=True):
    """An item that was read and yielded, but may be wrong: the user should look at it. `location` is as in
    `FailedItem`, or empty for the whole file."""

    location: str
    doubt: str


class DeletedItem(Struct, frozen=True, tag=True):
    """An item that its source marks as deleted, so that a followed source withdraws it even if only the part of the
    file was read that changed. `uuid` is the id under which it would be yielded."""

    kind: ItemKind
    uuid: str


class ReadPosition(Struct, frozen=True):
    """How far a file that grows at its end has been read: the offset and number of the first unread line. `digest`
    covers bytes before the offset and tells whether the file is still the same. `counts` are the items before the
    offset, by kind."""

    digest: str
    offset: int
    line: int
    counts: Mapping[str, int] = {}


class Checkpoint(Struct, frozen=True):
    """Everything before the position has been yielded, so the next import may start there."""

    position: ReadPosition


class PreviouslyImported(Struct, frozen=True, tag=True):
    """Items before the position at which reading resumed, by kind. They are counted as unchanged and not read again."""

    counts: Mapping[str, int]


ImportedItem = (
    ImportedNote
    | ImportedConversation
    | ImportedMedia
    | ImportedCharacter
    | ImportedPrompt
    | ImportedObservation
    | ImportedRecord
)
ImportReport = SkippedItem | FailedItem | DoubtfulItem | DeletedItem | PreviouslyImported
ImportEvent = ImportedItem | ImportReport | Checkpoint
Events = Iterator[ImportEvent]
# Where an importer starts to read a file; None is its beginning.
StartPosition = ReadPosition | None


def imported_note(
    uuid: str,
    title: str,
    content: str,
    *,
    tags: Sequence[str] | None = None,
    created: str | UnsetType | None = None,
    modified: str | None = None,
    former_uuid: str = "",
    **metadata: Any,
) -> ImportedNote:
    """Empty metadata, and those that are False, are left out. With `modified`, an older export does not overwrite a
    newer note."""
    present = {name: value for name, value in metadata.items() if value is not False}
    draft = NoteDraft(
        uuid=uuid,
        title=short_title(title),
        content=content,
        tags=UNSET if tags is None else clean_tags(tags),
        metadata=compact_metadata(**present, updated=modified),
        created_at=created or UNSET,
        last_modified=modified or UNSET,
    )
    return ImportedNote(draft, former_uuid=former_uuid)


def report_failure(location: str, events: Events) -> Events:
    """Passes on what is read of one item. If that raises InvalidParams, the item failed and reading continues."""
    try:
        yield from events
    except InvalidParams as error:
        yield FailedItem(location, error.message)


_KINDS: dict[type[Struct], ItemKind] = {
    ImportedNote: "notes",
    ImportedConversation: "chats",
    ImportedMedia: "media",
    ImportedCharacter: "characters",
    ImportedPrompt: "prompts",
    ImportedObservation: "observations",
}


def kind_of(item: ImportedItem) -> ItemKind:
    return item.kind if isinstance(item, ImportedRecord) else _KINDS[type(item)]


# The longest UTF-8 form of a character.
_BYTES_PER_CHAR = 4
_TEXT_LIMIT = f"{_BYTES_PER_CHAR} for each of item_max_chars"
_BLOCK_BYTES = 1 << 16
# Texts are decoded deep inside an importer. The variable brings their doubts to the batch that is being read, without
# every importer having to pass them on.
_DOUBTS: ContextVar[list[DoubtfulItem] | None] = ContextVar("doubts", default=None)
_BYTE_ORDER_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def read_bytes(path: Path, max_bytes: int, limit_name: str = "") -> bytes:
    with open_file(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        # One byte more than allowed was requested, which shows that the file is larger.
        raise TooLarge(printable_name(path.name), max_bytes, limit_name)
    return data


def skip_line(file: IO[bytes]) -> int:
    """Reads to the end of a line, which may be longer than memory permits, and returns the number of bytes."""
    skipped = 0
    while part := file.readline(_BLOCK_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def read_decoded(path: Path, limits: ImportLimits) -> DecodedText:
    """Reads a file that holds the text of one item."""
    return decode_item(read_bytes(path, text_max_bytes(limits), _TEXT_LIMIT), limits)


def read_text(path: Path, limits: ImportLimits) -> str:
    return item_text(read_bytes(path, text_max_bytes(limits), _TEXT_LIMIT), limits)


def read_json(path: Path, limits: ImportLimits) -> Any:
    return parse_json(read_bytes(path, limits.line_max_bytes), limits)


def text_max_bytes(limits: ImportLimits) -> int:
    return limits.item_max_chars * _BYTES_PER_CHAR


def decode(data: bytes, limits: ImportLimits) -> DecodedText:
    """Decodes UTF-8, UTF-16 with a byte order mark, or else a detected encoding, and normalizes line endings to LF.
    Raises InvalidParams for a text with too many lines: parsing a line takes longer than reading it."""
    require_lines(data.count(b"\n"), limits)
    encoding = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        decoded = DecodedText(data.decode(encoding))
    except UnicodeDecodeError:
        decoded = detect_encoding(data)
    if "\0" in decoded.text:
        raise InvalidParams("expected text, got a NUL character")
    return replace(decoded, text=decoded.text.replace("\r\n", "\n").replace("\r", "\n"))


def decode_item(data: bytes, limits: ImportLimits) -> DecodedText:
    """Decodes the text of one item. Raises InvalidParams if it is too long for an item, before it is parsed."""
    decoded = decode(data, limits)
    if len(decoded.text) > limits.item_max_chars:
        raise InvalidParams(
            f"expected at most {limits.item_max_chars} characters (item_max_chars), got {len(decoded.text)}"
        )
    return decoded


def require_lines(count: int, limits: ImportLimits) -> None:
    if count > limits.lines_max:
        raise InvalidParams(f"expected at most {limits.lines_max} lines, got at least {count}")


@contextmanager
def collected_doubts() -> Iterator[list[DoubtfulItem]]:
    """Collects the doubts about texts that are decoded meanwhile, so that every importer reports them."""
    doubts: list[DoubtfulItem] = []
    token = _DOUBTS.set(doubts)
    try:
        yield doubts
    finally:
        _DOUBTS.reset(token)


def decode_text(data: bytes, limits: ImportLimits, location: str = "") -> str:
    """Decodes a text. If its encoding is uncertain, that is reported for `location`, such as an archive entry."""
    return doubted_text(decode(data, limits), location)


def item_text(data: bytes, limits: ImportLimits, location: str = "") -> str:
    """Decodes the text of one item, as `decode_item` does, and reports it if its encoding is uncertain."""
    return doubted_text(decode_item(data, limits), location)


def doubted_text(decoded: DecodedText, location: str = "") -> str:
    """Returns the text, and reports it if its encoding is uncertain."""
    doubts = _DOUBTS.get()
    if doubts is not None:
        doubts += encoding_doubts(location, decoded.encoding, is_doubtful=decoded.is_doubtful)
    return decoded.text


def encoding_metadata(encoding: str) -> dict[str, str]:
    """Returns the metadata of an item whose encoding was detected."""
    return {"encoding": encoding} if encoding else {}


def encoding_doubts(location: str, encoding: str, *, is_doubtful: bool) -> Iterator[DoubtfulItem]:
    """Yields a report if the encoding of a text is uncertain."""
    if is_doubtful:
        yield DoubtfulItem(location, f"encoding: guessed {encoding}; if the text is wrong, convert the file to UTF-8")


def is_text(head: bytes) -> bool:
    """Returns whether a file starts like text: with a UTF-16 byte order mark, or without a NUL."""
    return head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" not in head


def printable_name(name: str) -> str:
    """Returns a file name as text. Bytes that are not valid UTF-8 are written as \\xff."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def file_key(path: Path, limits: ImportLimits) -> str:
    """Returns what identifies a file that holds one item: its path, because names such as `readme` are not unique. Only
    a digest of the key ends up in an id, so the path is not disclosed. A file without a stable path is identified by
    its content: importing a changed file then creates a second item, but never overwrites an unrelated one."""
    if limits.has_stable_path:
        return printable_name(path.resolve().as_posix())
    with open_file(path) as file:
        return file_digest(file, "sha256").hexdigest()


def file_size(path: Path) -> int:
    """Returns the size in bytes, or 0 if the file has disappeared."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def modified_at(path: Path, limits: ImportLimits) -> str | UnsetType:
    """Returns the modification time, for items without a date of their own. An upload's time is meaningless."""
    if not limits.has_stable_path:
        return UNSET
    return format_timestamp(path.stat().st_mtime)


# -- ids ---------------------------------------------------------------------------------------------------------------
# Ids of observations, and of conversations archived by the conversation-memory plugin.
#
# Observation ids consist of digits: models need about one token for three digits, but one for every one or two
# hexadecimal characters, and a search result of layer 1 is little more than an id.

# The chance of a collision among 100,000 observations is 1 in 200,000; the second one would be rejected.
_DIGITS = 15


def observation_id(*parts: str) -> str:
    """Returns the same id for the same parts."""
    digest = blake2b("\0".join(parts).encode(), digest_size=16).digest()
    return f"obs-{int.from_bytes(digest) % 10**_DIGITS:0{_DIGITS}d}"


def imported_observation_id(original_id: str) -> str:
    """Returns the id of the observation that conversation-memory stored with another id."""
    return observation_id("imported", original_id)


def archived_conversation_id(path: str) -> str:
    """Returns the id of the conversation that conversation-memory archived under a path. The path itself is not stored,
    because it reveals where files are on the user's disk."""
    return stable_uuid("conversation_memory", "chats", path)
