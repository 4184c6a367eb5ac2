"""Exports of the conversations API, from Florilegium or AgentKit: the zip of all conversations, or the JSON of one.

The format is that of `POST /conversations/import`, but items are stored as in every import: an existing conversation is
recognized by its id and updated where it changed.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import count_reads, first_bytes
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, ImportedConversation, SkippedItem, printable_name
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.formats.conversation_archive.reader import (
    FORMAT,
    MANIFEST,
    MANIFEST_MAX_BYTES,
    ArchiveLimits,
    ArchivePart,
    ConversationFileReader,
    ConversationPart,
    conversation_draft,
    is_conversation_file,
    message_draft,
    parse_manifest,
    require_allowed_id,
)

_PART_MESSAGES = 500
# Bytes of a JSON line per character of a message: the longest escape, with room for the other fields.
_LINE_BYTES_PER_CHAR = 12
# Every library has this namespace, so it needs no conversation to be created.
_DEFAULT_NAMESPACE = "default"
_FIELDS = tuple(re.compile(mark) for mark in (rb'"session_id"\s*:', rb'"namespace"\s*:\s*"', rb'"messages"\s*:\s*\['))


class ConversationsImporter(Importer):
    name = "conversations"
    title = "The conversations API: its zip, or the JSON of one conversation"
    suffixes = (".zip", ".json")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        if MANIFEST in probe.names and FORMAT.encode() in first_bytes(probe, lambda name: name == MANIFEST):
            return 1.0
        head = first_bytes(probe, is_conversation_file)
        is_object = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
        return 0.9 if is_object and all(field.search(head) for field in _FIELDS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        archive_limits = ArchiveLimits(
            max_files=limits.entries_max,
            unpacked_max_bytes=limits.unpacked_max_bytes,
            # A message of the maximum length must fit into its line.
            line_max_bytes=max(limits.line_max_bytes, limits.item_max_chars * _LINE_BYTES_PER_CHAR),
            whole_file_max_bytes=limits.line_max_bytes,
        )
        reader = ConversationFileReader(archive_limits, _PART_MESSAGES)
        with open_file(path) as file:
            if not is_zip(file.read(4)):
                file.seek(0)
                yield from _events(reader.read(printable_name(path.name), lambda: count_reads(file, limits, progress)))
                return
        with open_archive(path, limits, progress) as archive:
            listed = frozenset[str]()
            if MANIFEST in archive.names:
                listed = frozenset(parse_manifest(archive.read(MANIFEST, MANIFEST_MAX_BYTES)).namespaces)
            used = {_DEFAULT_NAMESPACE}
            for name in archive.names:
                if name == MANIFEST:
                    continue
                if not is_conversation_file(name):
                    yield SkippedItem("file in the archive not containing a conversation")
                    continue
                try:
                    for event in _events(reader.read(name, partial(archive.open, name))):
                        if isinstance(event, ImportedConversation):
                            used.add(str(event.draft.namespace))
                        yield event
                except InvalidParams as error:
                    yield FailedItem(name, error.message)
            yield from (SkippedItem("namespace without conversations") for _ in listed - used)


IMPORTER = ConversationsImporter()


def _events(parts: Iterator[ArchivePart]) -> Iterator[ImportEvent]:
    for part in parts:
        if not isinstance(part, ConversationPart):
            yield FailedItem(part.entry, part.reason)
            continue
        try:
            require_allowed_id(part.conversation.id)
        except InvalidParams as error:
            # Once for a conversation, whose other parts follow.
            if part.first == 0:
                yield FailedItem(part.entry, error.message)
            continue
        messages = tuple(map(message_draft, part.messages))
        yield ImportedConversation(conversation_draft(part.conversation), messages, continues=part.first > 0)
