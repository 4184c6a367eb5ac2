"""Imports a file and is killed while it does, then imports it again: `python -m ... root rounds`, one line a round.

Every round has a data directory of its own, into which an older file was imported before. A child is forked that
imports the newer one and tells of each arrival it reads; after some tellings it is killed with SIGKILL, wherever its
threads are. Then it is imported again, to the end. The lines say after how many tellings each child was killed.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from config.settings import Settings
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft
from sources.importers.engine.import_runner import ImportProgress, ImportSummary, run_import
from sources.importers.engine.imported_items import ImportEvent, ReadPosition
from sources.importers.engine.importer import DiscoveredFile, Importer, ImportLimits, ProgressCallback
from tests.sources.importers.lines import LINES, Line, write_lines
from tests.sources.storage.library_fixture import Clock, open_sqlite

OWNERS = ("ada", "ben")
SETTINGS = Settings(import_batch_items=20)
NOTES, CHATS, MESSAGES = 150, 20, 10
_AT = "2024-05-06T07:08:09Z"


def write_exports(folder: Path) -> tuple[Path, Path]:
    """An older one, and a newer one in which some items changed and all chats are longer."""
    older = write_lines(folder / "older.lines", *_lines(NOTES // 2, MESSAGES // 2, "before"))
    return older, write_lines(folder / "newer.lines", *_lines(NOTES, MESSAGES, "after"))


def _lines(notes: int, messages: int, word: str) -> Iterator[Line]:
    for number in range(notes):
        text = f"kettle {word if number % 3 == 0 else number} 東京"
        yield Line(note=NoteDraft(uuid=f"n{number}", title=f"Note {number}", content=text, tags=["t"], created_at=_AT))
    for number in range(CHATS):
        drafts = tuple(
            MessageDraft(uuid=f"m{number}-{place}", content=f"{word if place == 2 else 'same'} {place}", created_at=_AT)
            for place in range(messages)
        )
        yield Line(chat=ConversationDraft(uuid=f"c{number}", title=f"Chat {number}", created_at=_AT), messages=drafts)


async def import_file(root: Path, file: Path, importer: Importer = LINES) -> list[ImportSummary]:
    """For both owners, one after the other."""
    summaries = []
    async with open_sqlite(root, Clock()) as libraries:
        for owner in OWNERS:
            async with libraries.library(owner) as library:
                found = DiscoveredFile(file, file.name, importer, file.stat().st_size)
                summaries.append(await run_import(library, [found], SETTINGS, ImportProgress()))
    return summaries


def import_until_killed(root: Path, file: Path, tellings: int) -> int:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.run(import_file(root, file, _telling(writing)))
        os._exit(0)
    os.close(writing)
    told = 0
    while told < tellings and os.read(reading, 1):
        told += 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    return told


def _telling(writing: int) -> Importer:
    def read(
        path: Path, limits: ImportLimits, progress: ProgressCallback, mark: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        for arrival in LINES.read(path, limits, progress, mark):
            os.write(writing, b".")
            yield arrival

    return Importer(name="lines", title="", recognizes=LINES.recognizes, read=read)


def main(root: Path, rounds: int) -> None:
    chance = random.Random(root.name)
    older, newer = write_exports(root)
    for number in range(rounds):
        place = root / f"round{number}"
        asyncio.run(import_file(place, older))
        # Each owner's import reads every line, and some marks.
        told = import_until_killed(place, newer, chance.randrange(1, len(OWNERS) * (NOTES + CHATS)))
        asyncio.run(import_file(place, newer))
        print(told, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
