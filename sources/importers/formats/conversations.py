"""What the conversations API gives out: the zip of all conversations, or the JSON of one, from here or from AgentKit.

It is read as `POST /conversations/import` reads it, and kept as imports keep things: what is there is known again by
its id, and updated where it changed.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.archives import Archive, is_zip, open_archive
from sources.importers.engine.exports import beginning, counted
from sources.importers.engine.files import plain_name
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedConversation,
    ImportEvent,
    ReadPosition,
    SkippedItem,
)
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.formats.conversation_archive.archive import (
    FORMAT,
    MANIFEST,
    MANIFEST_MAX_BYTES,
    ArchiveLimits,
    ConversationFiles,
    Part,
    Passage,
    is_conversation_file,
    read_manifest,
)
from sources.importers.formats.conversation_archive.drafts import RESERVED_IDS, conversation_draft, message_draft

# Messages of one arrival.
_ARRIVAL_MESSAGES = 500
# Of a line of JSON, for one character of a message: its longest escape, with room for what stands beside the text.
_LINE_BYTES_PER_CHAR = 12
# One that everybody has, so that it needs no conversation to be made.
_DEFAULT_NAMESPACE = "default"
_MARKS = tuple(re.compile(mark) for mark in (rb'"session_id"\s*:', rb'"namespace"\s*:\s*"', rb'"messages"\s*:\s*\['))


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder:
        return 0.0
    if MANIFEST in probe.names and FORMAT.encode() in beginning(probe, lambda name: name == MANIFEST):
        return 1.0
    head = beginning(probe, is_conversation_file)
    return (
        0.9
        if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" and all(mark.search(head) for mark in _MARKS)
        else 0.0
    )


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    files = ConversationFiles(_archive_limits(limits), _ARRIVAL_MESSAGES)
    with path.open("rb") as file:
        if not is_zip(file.read(4)):
            file.seek(0)
            yield from _arrivals(files.parts(plain_name(path.name), lambda: counted(file, limits, progress)))
            return
    with open_archive(path, limits, progress) as archive:
        yield from _in_archive(archive, files)


def _in_archive(archive: Archive, files: ConversationFiles) -> Iterator[ImportEvent]:
    named = frozenset[str]()
    if MANIFEST in archive.names:
        named = frozenset(read_manifest(archive.read(MANIFEST, MANIFEST_MAX_BYTES)).namespaces)
    met = {_DEFAULT_NAMESPACE}
    for name in archive.names:
        if name != MANIFEST:
            for arrival in _in_entry(archive, name, files):
                if isinstance(arrival, ImportedConversation):
                    met.add(str(arrival.draft.namespace))
                yield arrival
    yield from (SkippedItem("a namespace without a conversation") for _ in named - met)


def _in_entry(archive: Archive, name: str, files: ConversationFiles) -> Iterator[ImportEvent]:
    if not is_conversation_file(name):
        yield SkippedItem("a file of the archive that is no conversation")
        return
    try:
        yield from _arrivals(files.parts(name, partial(archive.open, name)))
    except InvalidParams as error:
        yield FailedItem(name, error.message)


def _arrivals(parts: Iterator[Part]) -> Iterator[ImportEvent]:
    for part in parts:
        if not isinstance(part, Passage):
            yield FailedItem(part.entry, part.reason)
        elif part.conversation.id not in RESERVED_IDS:
            messages = tuple(map(message_draft, part.messages))
            yield ImportedConversation(conversation_draft(part.conversation), messages, continues=part.first > 0)
        elif part.first == 0:
            yield FailedItem(
                part.entry, f"id: got {part.conversation.id!r}, expected another: it is part of an address"
            )


def _archive_limits(limits: ImportLimits) -> ArchiveLimits:
    return ArchiveLimits(
        max_files=limits.entries_max,
        unpacked_max_bytes=limits.unpacked_max_bytes,
        line_max_bytes=max(limits.line_max_bytes, limits.item_max_chars * _LINE_BYTES_PER_CHAR),
        whole_file_max_bytes=limits.line_max_bytes,
    )


IMPORTER = Importer(
    name="conversations",
    title="The conversations API: its zip, or the JSON of one conversation",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".zip", ".json"),
    edition=1,
)
