"""A format of our own for tests of the intake: a line is an arrival, as JSON. It grows at its end, and keeps marks."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft
from sources.importers.engine.imported_items import (
    Checkpoint,
    FailedItem,
    ImportedConversation,
    ImportedNote,
    ImportEvent,
    ReadPosition,
    SkippedItem,
)
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback

HEADER = b"arrivals"
_MARKED_EVERY = 10


class Line(Struct, omit_defaults=True):
    note: NoteDraft | None = None
    chat: ConversationDraft | None = None
    messages: tuple[MessageDraft, ...] = ()
    continues: bool = False
    skip: str = ""
    end: str = ""


def write_lines(path: Path, *lines: Line) -> Path:
    encoded = [HEADER, *(msgspec.json.encode(line) for line in lines)]
    path.write_bytes(b"\n".join(encoded) + b"\n")
    return path


def recognizes(probe: FileProbe) -> float:
    return 1.0 if probe.head.startswith(HEADER) else 0.0


def read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    with path.open("rb") as file:
        digest = sha256(file.readline()).hexdigest()
        if mark is not None and mark.digest == digest:
            file.seek(mark.offset)
        number = mark.line if mark is not None else 1
        while line := file.readline():
            progress(file.tell())
            yield from _arrivals(line, number)
            number += 1
            if number % _MARKED_EVERY == 0:
                yield Checkpoint(ReadPosition(digest, file.tell(), number))
        yield Checkpoint(ReadPosition(digest, file.tell(), number))


def _arrivals(line: bytes, number: int) -> Iterator[ImportEvent]:
    try:
        read = msgspec.json.decode(line, type=Line)
    except msgspec.MsgspecError as error:
        yield FailedItem(f"line {number}", f"got something else: {error}")
        return
    if read.end:
        raise InvalidParams(read.end)
    if read.skip:
        yield SkippedItem(read.skip)
    if read.note is not None:
        yield ImportedNote(read.note)
    if read.chat is not None:
        yield ImportedConversation(read.chat, read.messages, read.continues)


LINES = Importer(name="lines", title="Lines of a test", recognizes=recognizes, read=read, suffixes=(".lines",))
