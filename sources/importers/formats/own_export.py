"""Florilegium's own export: the folder that `florilegium export` wrote, or a zip of it. The JSON lines are read; the
Markdown pages are not. Invalid lines are reported. Ids and versions are kept, but items get new numbers."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import structs

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.exporters import lines
from sources.exporters.lines import FILE_SUFFIX, MANIFEST, UNFINISHED_MANIFEST
from sources.importers.engine import events
from sources.importers.engine.archives import open_archive
from sources.importers.engine.importer import Events, FileImporter, FileProbe, InputFile
from sources.importers.engine.input_file import base_name, read_export
from sources.importers.engine.json_stream import decode_object
from sources.saved_searches import SavedSearch, checked

# Bytes of JSON per character of an item. A media item holds its text twice if its chunks differ from it.
_LINE_BYTES_PER_CHAR = 12
_PART_MESSAGES = 500
_ITEMS = {
    "characters": events.ImportedCharacter,
    "prompts": events.ImportedPrompt,
    "observations": events.ImportedObservation,
}


class OwnExportImporter(FileImporter):
    name = "own_export"
    title = "Florilegium export (a folder, or a zip of it)"
    output_version = 2

    def recognizes(self, probe: FileProbe) -> float:
        names = {base_name(name) for name in probe.names}
        if UNFINISHED_MANIFEST in names:  # otherwise its Markdown pages would be taken for notes
            return 1.0
        return 1.0 if MANIFEST in names and any(map(_is_export_file, names)) else 0.0

    def read_file(self, file: InputFile) -> Events:
        """The limit on lines follows from that on items: an item of the maximum size is one line."""
        limits, conversation = file.limits, _ConversationBuilder()
        if file.is_folder:
            is_unfinished = (file.path / UNFINISHED_MANIFEST).exists()
        elif file.is_zip:
            with open_archive(file.path, limits) as archive:
                is_unfinished = any(base_name(name) == UNFINISHED_MANIFEST for name in archive.names)
        else:
            is_unfinished = False
        if is_unfinished:
            raise InvalidParams("the export is incomplete because it was interrupted; export again")
        line_max_bytes = max(limits.line_max_bytes, limits.item_max_chars * _LINE_BYTES_PER_CHAR)
        file = structs.replace(file, limits=structs.replace(limits, line_max_bytes=line_max_bytes))

        def read(data: bytes, location: str) -> Events:
            if base_name(location.partition(",")[0]) == lines.SAVED_SEARCHES_FILE:
                yield events.ImportedSearch(checked(decode_object(data, SavedSearch)))
                return
            match decode_object(data, lines.LineHead).kind:
                case "message":
                    yield from conversation.add(decode_object(data, lines.MessageLine))
                case "conversation":
                    # Messages follow their conversation, so that they need not be collected from the whole file.
                    yield from conversation.begin(decode_object(data, lines.ConversationLine))
                case "media":
                    yield events.ImportedMedia(lines.media_draft(decode_object(data, lines.MediaLine)))
                case _:
                    fields = decode_object(data, dict[str, Any])
                    try:
                        source, draft = lines.item_draft(fields)
                        images = lines.note_images(fields) if source == "notes" else None
                    except msgspec.ValidationError as error:
                        raise InvalidParams(f"unexpected structure: {error}") from error
                    if source == "notes":
                        yield events.ImportedNote(draft, images)
                    else:
                        yield _ITEMS[source](draft) if source in _ITEMS else events.ImportedRecord(source, draft)

        yield from read_export(file, _is_export_file, "line", read)
        yield from conversation.end()


def _is_export_file(name: str) -> bool:
    return base_name(name).endswith((FILE_SUFFIX, lines.SAVED_SEARCHES_FILE))


class _ConversationBuilder:
    """Collects the messages of the current conversation; a long one is yielded in several parts."""

    def __init__(self) -> None:
        self._draft: ConversationDraft | None = None
        self._messages: list[MessageDraft] = []
        self._continues = False

    def begin(self, line: lines.ConversationLine) -> Iterator[events.ImportedConversation]:
        yield from self.end()
        self._draft, self._messages, self._continues = lines.conversation_draft(line), [], False

    def add(self, line: lines.MessageLine) -> Iterator[events.ImportedConversation]:
        """Raises InvalidParams for a message whose conversation could not be read."""
        if self._draft is None or self._draft.uuid != line.conversation_id:
            raise InvalidParams("message does not follow its conversation")
        self._messages.append(lines.message_draft(line))
        if len(self._messages) == _PART_MESSAGES:
            yield self._part(self._draft)
            self._messages, self._continues = [], True

    def end(self) -> Iterator[events.ImportedConversation]:
        if self._draft is not None and (self._messages or not self._continues):
            yield self._part(self._draft)
        self._draft = None

    def _part(self, draft: ConversationDraft) -> events.ImportedConversation:
        return events.ImportedConversation(draft, tuple(self._messages), self._continues)
