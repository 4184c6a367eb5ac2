"""Our own export: the folder that `florilegium export` wrote, or a zip of it. Only its lines are read, not its pages.
What is no line of ours is told and passed over; numbers are given anew, ids and versions stay.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.exporters import lines
from sources.exporters.lines import (
    FILES,
    MANIFEST,
    AnyLine,
    CharacterLine,
    ConversationLine,
    MediaLine,
    MessageLine,
    NoteLine,
    ObservationLine,
    PromptLine,
)
from sources.importers.engine.exports import base_name, export_elements, place_of
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedCharacter,
    ImportedConversation,
    ImportedItem,
    ImportedMedia,
    ImportedNote,
    ImportedObservation,
    ImportedPrompt,
    ImportEvent,
    ReadPosition,
)
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.json_stream import decode

# Of a JSON text, for one character of an item's; a media item has its text twice where its chunks are of another text.
_LINE_BYTES_PER_CHAR = 12
_SHAPE: type[AnyLine] = AnyLine  # type: ignore[assignment] # a union is no class, but msgspec reads it as one
# Messages of one arrival.
_ARRIVAL_MESSAGES = 500


def _recognizes(probe: FileProbe) -> float:
    names = {base_name(name) for name in probe.names}
    return 1.0 if MANIFEST in names and names & set(FILES) else 0.0


def _is_wanted(name: str) -> bool:
    return base_name(name) in FILES


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    """An item as large as an item may be is one line, so the limit on lines follows from that on items."""
    room = max(limits.line_max_bytes, limits.item_max_chars * _LINE_BYTES_PER_CHAR)
    found = export_elements(path, replace(limits, line_max_bytes=room), progress, _is_wanted)
    talk = _Talk()
    for file, element in found:
        place = place_of(file, f"line {element.number}")
        try:
            if element.problem:
                raise InvalidParams(element.problem)
            yield from _arrivals(decode(element.data, _SHAPE), talk)
        except InvalidParams as error:
            yield FailedItem(place, error.message)
    yield from talk.end()


def _arrivals(line: AnyLine, talk: "_Talk") -> Iterator[ImportedItem]:
    match line:
        case MessageLine():
            yield from talk.add(line)
        case ConversationLine():
            yield from talk.begin(line)
        case NoteLine():
            yield ImportedNote(lines.note_draft(line))
        case MediaLine():
            yield ImportedMedia(lines.media_draft(line))
        case CharacterLine():
            yield ImportedCharacter(lines.character_draft(line))
        case PromptLine():
            yield ImportedPrompt(lines.prompt_draft(line))
        case ObservationLine():
            yield ImportedObservation(lines.observation_draft(line))


class _Talk:
    """The conversation whose messages are being read; a long one leaves in several arrivals."""

    def __init__(self) -> None:
        self._draft: ConversationDraft | None = None
        self._messages: list[MessageDraft] = []
        self._continues = False

    def begin(self, line: ConversationLine) -> Iterator[ImportedConversation]:
        yield from self.end()
        self._draft, self._messages, self._continues = lines.conversation_draft(line), [], False

    def add(self, line: MessageLine) -> Iterator[ImportedConversation]:
        """A message whose conversation could not be read belongs to no other."""
        if self._draft is None or self._draft.uuid != line.conversation_id:
            raise InvalidParams("got a message without its conversation, expected that above it")
        self._messages.append(lines.message_draft(line))
        if len(self._messages) == _ARRIVAL_MESSAGES:
            yield self._arrival(self._draft)
            self._messages, self._continues = [], True

    def end(self) -> Iterator[ImportedConversation]:
        if self._draft is not None and (self._messages or not self._continues):
            yield self._arrival(self._draft)
        self._draft = None

    def _arrival(self, draft: ConversationDraft) -> ImportedConversation:
        return ImportedConversation(draft, tuple(self._messages), self._continues)


IMPORTER = Importer(
    name="own_export",
    title="Our own export (a folder, or a zip of it)",
    recognizes=_recognizes,
    read=_read,
    edition=1,
)
