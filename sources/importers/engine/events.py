"""What an importer yields: items with stable ids, and reports of what it skipped or could not read.

These are plain values; nothing here touches a library. Reading the same file twice yields the same items, and a newer
export yields the same ids for the items it shares with an older one.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b, sha1
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from config.errors import InvalidParams
from sources import drafts
from sources.importers.engine.values import clean_tags, compact_metadata, short_title
from sources.saved_searches import SavedSearch

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

    draft: drafts.NoteDraft
    images: Sequence[drafts.NoteImage] | None = None
    former_uuid: str = ""


class ImportedConversation(Struct, frozen=True, tag=True):
    """A conversation with its messages in order. A long conversation may be yielded in several parts: every part after
    the first has `continues` set, and its messages follow those of the previous part."""

    draft: drafts.ConversationDraft
    messages: Sequence[drafts.MessageDraft] = ()
    continues: bool = False


class ImportedMedia(Struct, frozen=True, tag=True):
    draft: drafts.MediaDraft


class ImportedCharacter(Struct, frozen=True, tag=True):
    draft: drafts.CharacterDraft


class ImportedPrompt(Struct, frozen=True, tag=True):
    draft: drafts.PromptDraft


class ImportedObservation(Struct, frozen=True, tag=True):
    draft: drafts.ObservationDraft


class ImportedRecord(Struct, frozen=True, tag=True):
    """An item of a kind that another distribution adds. `kind` is its name. The process that reads files does not know
    these kinds: what they hold is checked when it is written."""

    kind: str
    draft: drafts.ItemDraft


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


class ImportedSearch(Struct, frozen=True, tag=True):
    """A search that a person saved. It is not an item: one of the same name in the library is kept."""

    search: SavedSearch


ImportedItem = (
    ImportedNote
    | ImportedConversation
    | ImportedMedia
    | ImportedCharacter
    | ImportedPrompt
    | ImportedObservation
    | ImportedRecord
)
ImportReport = SkippedItem | FailedItem | DoubtfulItem | DeletedItem | PreviouslyImported | ImportedSearch
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
    draft = drafts.NoteDraft(
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
