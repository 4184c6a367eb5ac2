"""What an importer reads out of a file: drafts of items with ids that stay the same, and what could not be read.

An arrival is a value; nothing here touches a library. The same file read twice gives the same arrivals, and a newer
export gives the same ids for the items that were in the older one.
"""

from collections.abc import Mapping, Sequence
from typing import Literal
from uuid import UUID, uuid5

from msgspec import Struct

from sources.drafts import (
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    ObservationDraft,
    PromptDraft,
)

Kind = Literal["notes", "media", "chats", "characters", "prompts", "observations"]
# Fixed for ever: a different one would make every import a second copy.
_NAMESPACE = UUID("6f0d9c5e-0b5a-5d0f-9a63-5f2f3c1b7e41")


def stable_uuid(importer: str, kind: str, key: str) -> str:
    """The id of an item whose format has none that is unique on its own: of what is always the same about it."""
    return str(uuid5(_NAMESPACE, f"{importer}\0{kind}\0{key}"))


class ImportedNote(Struct, frozen=True):
    draft: NoteDraft


class ImportedConversation(Struct, frozen=True):
    """Messages in their order. A long conversation may come in several arrivals: those after the first have
    `continues`, and their messages follow the ones before."""

    draft: ConversationDraft
    messages: Sequence[MessageDraft] = ()
    continues: bool = False


class ImportedMedia(Struct, frozen=True):
    draft: MediaDraft


class ImportedCharacter(Struct, frozen=True):
    draft: CharacterDraft


class ImportedPrompt(Struct, frozen=True):
    draft: PromptDraft


class ImportedObservation(Struct, frozen=True):
    draft: ObservationDraft


class SkippedItem(Struct, frozen=True):
    """Left out on purpose: a row that was deleted, an empty conversation. `reason` is counted, so it names no item."""

    reason: str


class FailedItem(Struct, frozen=True):
    """An item that could not be read; the rest goes on. `place` says where in the file: a line, an entry, an index."""

    place: str
    problem: str


class ReadPosition(Struct, frozen=True):
    """How far a file that grows at its end was read: its first bytes by their digest, which say that it is still the
    same file, and the offset and number of the first line that was not read. `before` counts what stands before it."""

    digest: str
    offset: int
    line: int
    before: Mapping[str, int] = {}


class Checkpoint(Struct, frozen=True):
    """All that stands before the mark has arrived."""

    mark: ReadPosition


class PreviouslyImported(Struct, frozen=True):
    """What stands before the mark from which a file is read on, by kind: it came before, and is not read again."""

    kinds: Mapping[str, int]


ImportedItem = (
    ImportedNote | ImportedConversation | ImportedMedia | ImportedCharacter | ImportedPrompt | ImportedObservation
)
ImportEvent = ImportedItem | SkippedItem | FailedItem | Checkpoint | PreviouslyImported

KINDS: dict[type[Struct], Kind] = {
    ImportedNote: "notes",
    ImportedConversation: "chats",
    ImportedMedia: "media",
    ImportedCharacter: "characters",
    ImportedPrompt: "prompts",
    ImportedObservation: "observations",
}
