"""Imports a file, is killed during the import, and imports the file again: `python -m ... root rounds`.

Every round has its own data directory, into which an older file was imported before. A forked child imports the newer
one and reports each event that it reads; after a random number of events it is killed with SIGKILL. Then the file is
imported again, to the end. The program prints one line per round: the number of events before the kill.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from sources.drafts import ConversationDraft, MessageDraft, NoteDraft
from sources.importers.engine.discovery import DiscoveredFile
from sources.importers.engine.events import ImportEvent, ReadPosition
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits, ImportProgress, ProgressCallback
from sources.importers.engine.summary import ImportSummary
from tests.build_settings import build_settings
from tests.sources.importers.line_format import LINES, Line, LineImporter, write_lines
from tests.sources.storage.library_fixture import Clock, open_library_fixture

OWNERS = ("ada", "ben")
SETTINGS = build_settings(import_batch_items=20)
NOTES, CHATS, MESSAGES = 150, 20, 10
_CREATED_AT = "2024-05-06T07:08:09Z"


def write_exports(folder: Path) -> tuple[Path, Path]:
    """Writes an older file, and a newer one with some changed items and longer chats."""
    older = write_lines(folder / "older.lines", *_lines(NOTES // 2, MESSAGES // 2, "before"))
    return older, write_lines(folder / "newer.lines", *_lines(NOTES, MESSAGES, "after"))


def _lines(notes: int, messages: int, word: str) -> Iterator[Line]:
    for number in range(notes):
        text = f"kettle {word if number % 3 == 0 else number} 東京"
        title = f"Note {number}"
        yield Line(note=NoteDraft(uuid=f"n{number}", title=title, content=text, tags=["t"], created_at=_CREATED_AT))
    for number in range(CHATS):
        drafts = tuple(
            MessageDraft(
                uuid=f"m{number}-{index}",
                content=f"{word if index == 2 else 'same'} {index}",
                created_at=_CREATED_AT,
            )
            for index in range(messages)
        )
        conversation = ConversationDraft(uuid=f"c{number}", title=f"Chat {number}", created_at=_CREATED_AT)
        yield Line(chat=conversation, messages=drafts)


async def import_file(root: Path, path: Path, importer: Importer = LINES) -> list[ImportSummary]:
    """Imports the file for one owner after the other."""
    summaries = []
    async with open_library_fixture(root, Clock()) as libraries:
        for owner in OWNERS:
            async with libraries.library(owner) as library:
                file = DiscoveredFile(path, path.name, importer, path.stat().st_size)
                summaries.append(await run_import(library, [file], SETTINGS, ImportProgress()))
    return summaries


def import_until_killed(root: Path, path: Path, events_max: int) -> int:
    """Returns the number of events after which the child was killed."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.run(import_file(root, path, _ReportingImporter(write_end)))
        os._exit(0)
    os.close(write_end)
    events = 0
    while events < events_max and os.read(read_end, 1):
        events += 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read_end)
    return events


class _ReportingImporter(LineImporter):
    """Writes a byte to a pipe for each event."""

    def __init__(self, write_end: int) -> None:
        self._write_end = write_end

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        for event in super().read(path, limits, progress, position):
            os.write(self._write_end, b".")
            yield event


def main(root: Path, rounds: int) -> None:
    chance = random.Random(root.name)
    older, newer = write_exports(root)
    for number in range(rounds):
        round_root = root / f"round{number}"
        asyncio.run(import_file(round_root, older))
        # Each owner reads every line once, plus some checkpoints.
        events = import_until_killed(round_root, newer, chance.randrange(1, len(OWNERS) * (NOTES + CHATS)))
        asyncio.run(import_file(round_root, newer))
        print(events, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
