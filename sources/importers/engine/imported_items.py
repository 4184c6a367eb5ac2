"""What an importer yields: items with stable ids, and reports of what it skipped or could not read.

These are plain values; nothing here touches a library. Reading the same file twice yields the same items, and a newer
export yields the same ids for the items it shares with an older one.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha1
from typing import Literal
from uuid import UUID

from msgspec import Struct

from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    NoteImage,
    ObservationDraft,
    PromptDraft,
)

ItemKind = Literal["notes", "media", "chats", "characters", "prompts", "observations"]
# Must never change: with another namespace every re-import would create duplicates.
_NAMESPACE_BYTES = UUID("6f0d9c5e-0b5a-5d0f-9a63-5f2f3c1b7e41").bytes


def stable_uuid(importer: str, kind: str, key: str) -> str:
    """Derives an id from properties that do not change, for formats whose items have no globally unique id. It is the
    UUID of version 5 (RFC 9562, section 5.5), formatted here because `uuid.uuid5` takes five times as long, and large
    files have millions of items."""
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

    kind: ItemKind | Literal["messages"]
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
    ImportedNote | ImportedConversation | ImportedMedia | ImportedCharacter | ImportedPrompt | ImportedObservation
)
ImportReport = SkippedItem | FailedItem | DoubtfulItem | DeletedItem | PreviouslyImported
ImportEvent = ImportedItem | ImportReport | Checkpoint

KINDS: dict[type[Struct], ItemKind] = {
    ImportedNote: "notes",
    ImportedConversation: "chats",
    ImportedMedia: "media",
    ImportedCharacter: "characters",
    ImportedPrompt: "prompts",
    ImportedObservation: "observations",
}
