"""A simple format for tests of the import runner: one event per line, as JSON. Files grow at their end and have
checkpoints."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft
from sources.importers.engine.events import (
    Checkpoint,
    FailedItem,
    ImportedConversation,
    ImportedNote,
    ImportEvent,
    ReadPosition,
    SkippedItem,
)
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits, ProgressCallback

HEADER = b"lines"
_CHECKPOINT_EVERY = 10


class Line(Struct, omit_defaults=True):
    note: NoteDraft | None = None
    chat: ConversationDraft | None = None
    messages: tuple[MessageDraft, ...] = ()
    continues: bool = False
    skip: str = ""
    error: str = ""


def write_lines(path: Path, *lines: Line) -> Path:
    encoded = [HEADER, *(msgspec.json.encode(line) for line in lines)]
    path.write_bytes(b"\n".join(encoded) + b"\n")
    return path


class LineImporter(Importer):
    name = "lines"
    title = "Lines for tests"
    suffixes = (".lines",)

    def recognizes(self, probe: FileProbe) -> float:
        return 1.0 if probe.head.startswith(HEADER) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with path.open("rb") as file:
            digest = sha256(file.readline()).hexdigest()
            if position is not None and position.digest == digest:
                file.seek(position.offset)
            number = position.line if position is not None else 1
            while line := file.readline():
                progress(file.tell())
                yield from _events(line, number)
                number += 1
                if number % _CHECKPOINT_EVERY == 0:
                    yield Checkpoint(ReadPosition(digest, file.tell(), number))
            yield Checkpoint(ReadPosition(digest, file.tell(), number))


def _events(data: bytes, number: int) -> Iterator[ImportEvent]:
    try:
        line = msgspec.json.decode(data, type=Line)
    except msgspec.MsgspecError as error:
        yield FailedItem(f"line {number}", f"invalid line: {error}")
        return
    if line.error:
        raise InvalidParams(line.error)
    if line.skip:
        yield SkippedItem(line.skip)
    if line.note is not None:
        yield ImportedNote(line.note)
    if line.chat is not None:
        yield ImportedConversation(line.chat, line.messages, line.continues)


LINES = LineImporter()
