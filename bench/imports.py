"""`make bench-import`: the cost of an import compared with the minimum of SQL statements, and its memory.

A file of notes and a file of conversations, one item per line, are imported into an empty library: read, compared with
existing items, validated, segmented, written and indexed. The floor writes the same finished rows with `executemany`
into the same tables, with the same indexes and full-text tables, in transactions of the same size. Both run in separate
processes. CPU time is compared, because it does not depend on how busy the machine is; rows per second are wall time.
"""

import argparse
import asyncio
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from auth.context import SCOPES, ClientId, Principal, build_context
from bench.large_formats import LARGE_FORMATS, ReadResult, read_large_file, write_large_file
from bench.library import OWNER, SEED
from bench.local_runtime import user_id_for
from bench.processes import Cores, child, python
from bench.prose import Prose
from config.paths import DataRoot
from config.settings import Settings
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft
from sources.importers.engine.discovery import DiscoveredFile
from sources.importers.engine.events import ImportedConversation, ImportedNote, ImportEvent, ReadPosition
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.import_runner import run_import
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits, ImportProgress, ProgressCallback
from sources.storage.sqlite import SqliteLibraries
from sources.storage.sqlite.index.text_index import apply_queue
from sources.storage.sqlite.schema.kinds import migrate
from sources.storage.sqlite.schema.tables import CHACHA
from sources.storage.tables.sql import CHATS_INDEX, NOTES_INDEX, TextIndex

NOTE_WORDS = 120
MESSAGE_WORDS = 40
MESSAGES_PER_CHAT = 25
MEGABYTE = 1_000_000
SETTINGS = Settings()


class Effort(Struct, frozen=True):
    notes: int
    messages: int
    # The size of the file of each large format.
    file_bytes: int


FULL = Effort(notes=100_000, messages=1_000_000, file_bytes=25 * MEGABYTE)
QUICK = Effort(notes=200, messages=1_000, file_bytes=MEGABYTE // 50)


class Kind(Struct, frozen=True):
    """`tables` are written by the floor: a parent table and the table with its parts, which is written in the same
    batch.

    `counted` is the table whose rows are counted.
    """

    name: str
    index: TextIndex
    tables: tuple[str, ...]
    counted: str


NOTES = Kind("notes", NOTES_INDEX, ("notes", "notes_tags"), "notes")
CHATS = Kind("messages", CHATS_INDEX, ("conversations", "messages"), "messages")
KINDS = {kind.name: kind for kind in (NOTES, CHATS)}


class RunResult(Struct, frozen=True):
    """The cost of one process."""

    rows: int
    cpu_s: float
    wall_s: float
    peak_bytes: int


class Comparison(Struct, frozen=True):
    kind: str
    imported: RunResult
    floor: RunResult

    @property
    def ratio(self) -> float:
        return self.imported.cpu_s / self.floor.cpu_s

    def as_line(self) -> str:
        imported, floor = self.imported, self.floor
        return (
            f"{self.kind:9} {imported.rows:>9,} {imported.rows / imported.wall_s:>10,.0f} "
            f"{floor.rows / floor.wall_s:>10,.0f} "
            f"{imported.cpu_s / imported.rows * 1e6:>9.1f} {floor.cpu_s / floor.rows * 1e6:>9.1f} {self.ratio:>6.2f} "
            f"{imported.peak_bytes / MEGABYTE:>7.0f}"
        )


# The files


class ChatLine(Struct, frozen=True):
    chat: ConversationDraft
    messages: tuple[MessageDraft, ...]


def write_notes(path: Path, count: int) -> None:
    prose = Prose(SEED, stream="imported notes")
    with path.open("wb") as file:
        for number in range(count):
            draft = NoteDraft(
                uuid=f"note-{number}",
                title=prose.title(),
                content=prose.text(NOTE_WORDS),
                tags=prose.tags(),
                created_at=prose.time(),
            )
            file.write(msgspec.json.encode(draft) + b"\n")


def write_chats(path: Path, messages: int) -> None:
    prose = Prose(SEED, stream="imported chats")
    with path.open("wb") as file:
        for number in range(messages // MESSAGES_PER_CHAT):
            chat = ConversationDraft(uuid=f"chat-{number}", title=prose.title(), created_at=prose.time())
            line = ChatLine(chat, tuple(_message(prose, number, index) for index in range(MESSAGES_PER_CHAT)))
            file.write(msgspec.json.encode(line) + b"\n")


def _message(prose: Prose, chat: int, index: int) -> MessageDraft:
    return MessageDraft(
        uuid=f"message-{chat}-{index}",
        role="assistant" if index % 2 else "user",
        content=prose.text(MESSAGE_WORDS),
        parent_id=f"message-{chat}-{index - 1}" if index else None,
        created_at=prose.time(),
    )


class NotesImporter(Importer):
    name = "bench"
    title = "Benchmark notes"

    def recognizes(self, probe: FileProbe) -> float:
        return 1.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        decoder = msgspec.json.Decoder(NoteDraft)
        for line in _lines(path, progress):
            yield ImportedNote(decoder.decode(line))


class ChatsImporter(Importer):
    name = "bench"
    title = "Benchmark chats"

    def recognizes(self, probe: FileProbe) -> float:
        return 1.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        decoder = msgspec.json.Decoder(ChatLine)
        for line in _lines(path, progress):
            conversation = decoder.decode(line)
            yield ImportedConversation(conversation.chat, conversation.messages)


def _lines(path: Path, progress: ProgressCallback) -> Iterator[bytes]:
    done = 0
    with path.open("rb") as file:
        for line in file:
            done += len(line)
            progress(done)
            yield line


IMPORTERS: dict[str, Importer] = {"notes": NotesImporter(), "messages": ChatsImporter()}


# The child processes


def import_file(kind: Kind, file: Path, root: Path) -> RunResult:
    started_at, cpu = time.monotonic(), time.process_time()
    rows = asyncio.run(_import(kind, DiscoveredFile(file, file.name, IMPORTERS[kind.name], file.stat().st_size), root))
    return RunResult(rows, time.process_time() - cpu, time.monotonic() - started_at, _peak_bytes())


async def _import(kind: Kind, file: DiscoveredFile, root: Path) -> int:
    data_root = DataRoot(root)
    data_root.prepare()
    owner = Principal(user_id_for(OWNER), OWNER, ClientId("bench"), frozenset(SCOPES), "local", "bench")
    libraries = SqliteLibraries(data_root, SETTINGS)
    try:
        async with libraries.library(build_context(owner, data_root, "bench")) as library:
            summary = await run_import(library, [file], SETTINGS, ImportProgress())
    finally:
        await libraries.close()
    counts = summary.kinds[kind.counted]
    assert counts.new == counts.total, summary
    return counts.new


def write_floor(kind: Kind, imported: Path, root: Path) -> RunResult:
    """Measures only the writing. The rows are read, batch by batch, from the imported library."""
    wall_s = cpu_s = 0.0
    rows = 0
    with sqlite3.connect(chacha_path(imported)) as source, sqlite3.connect(root / "floor.db") as target:
        target.isolation_level = None
        _prepare(target)
        for batch in _batches(source, kind):
            started_at, cpu = time.monotonic(), time.process_time()
            _write(target, kind, batch)
            wall_s, cpu_s = wall_s + time.monotonic() - started_at, cpu_s + time.process_time() - cpu
            rows += len(batch[kind.counted][1])
    return RunResult(rows, cpu_s, wall_s, _peak_bytes())


Rows = tuple[Sequence[str], list[tuple[Any, ...]]]


def _prepare(target: sqlite3.Connection) -> None:
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "temp_store = MEMORY"):
        target.execute(f"PRAGMA {pragma}")
    target.execute(f"PRAGMA cache_size = -{SETTINGS.library_cache_kib}")
    target.execute("BEGIN IMMEDIATE")
    migrate(CHACHA, target)
    target.execute("COMMIT")


def _batches(source: sqlite3.Connection, kind: Kind) -> Iterator[dict[str, Rows]]:
    """Yields as many rows at a time as an import writes in one transaction."""
    parent, part = kind.tables
    owner = "conversation_id" if part == "messages" else "id"
    size = SETTINGS.fixed.import_batch_items // (MESSAGES_PER_CHAT if kind is CHATS else 1)
    last = source.execute(f"SELECT max(id) FROM {parent}").fetchone()[0]
    for first in range(1, last + 1, size):
        span = (first, first + size - 1)
        yield {
            parent: _rows(source, f"SELECT * FROM {parent} WHERE id BETWEEN ? AND ? ORDER BY id", span),
            part: _rows(source, f"SELECT * FROM {part} WHERE {owner} BETWEEN ? AND ? ORDER BY id", span),
        }


def _rows(source: sqlite3.Connection, sql: str, span: tuple[int, int]) -> Rows:
    cursor = source.execute(sql, span)
    return [column[0] for column in cursor.description], cursor.fetchall()


def _write(target: sqlite3.Connection, kind: Kind, batch: dict[str, Rows]) -> None:
    target.execute("BEGIN IMMEDIATE")
    for table, (columns, rows) in batch.items():
        marks = ", ".join("?" * len(columns))
        target.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
    apply_queue(target, kind.index)
    target.execute("COMMIT")


def chacha_path(root: Path) -> Path:
    return DataRoot(root).paths_of(user_id_for(OWNER)).chacha


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# The comparison


def measure(effort: Effort, directory: Path) -> Iterator[Comparison]:
    for kind, write, count in ((NOTES, write_notes, effort.notes), (CHATS, write_chats, effort.messages)):
        file, root, floor = (directory / f"{kind.name}{suffix}" for suffix in (".jsonl", "", ".floor"))
        write(file, count)
        floor.mkdir()
        imported = _in_child("import", kind, file, root)
        yield Comparison(kind.name, imported, _in_child("floor", kind, root, floor))


def measure_large_formats(effort: Effort, directory: Path) -> Iterator[ReadResult]:
    for name in LARGE_FORMATS:
        file = directory / f"large.{name}"
        write_large_file(name, file, effort.file_bytes)
        command = python("bench.imports", "--child", "read", name, str(file), str(directory))
        with child(command, Cores.choose().servers | Cores.choose().others, directory / "log") as process:
            yield msgspec.json.decode(process.receive(), type=ReadResult)
        file.unlink()


def _in_child(what: str, kind: Kind, source: Path, target: Path) -> RunResult:
    command = python("bench.imports", "--child", what, kind.name, str(source), str(target))
    with child(command, Cores.choose().servers | Cores.choose().others, target.parent / "log") as process:
        return msgspec.json.decode(process.receive(), type=RunResult)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.imports", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="import little data: checks that the benchmark works, the figures are meaningless",
    )
    parser.add_argument("--child", nargs=4, metavar=("WHAT", "KIND", "SOURCE", "TARGET"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        what, kind, source, target = options.child
        if what == "read":
            print(msgspec.json.encode(read_large_file(kind, Path(source))).decode(), flush=True)
            return
        measure_kind = import_file if what == "import" else write_floor
        print(msgspec.json.encode(measure_kind(KINDS[kind], Path(source), Path(target))).decode(), flush=True)
        return
    print("kind           rows     rows/s    floor/s    us/row  floor us  ratio  peak MB", flush=True)
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as directory:
        rows = []
        for row in measure(QUICK if options.quick else FULL, Path(directory)):
            rows.append(row)
            print(row.as_line(), flush=True)
        reads = []
        for result in measure_large_formats(QUICK if options.quick else FULL, Path(directory)):
            reads.append(result)
            print(result.as_line(), flush=True)
    worst, peak = max(row.ratio for row in rows), max(row.imported.peak_bytes for row in rows)
    slowest, read_peak = min(read.megabytes_per_s for read in reads), max(read.peak_bytes for read in reads)
    print(
        f"RESULT worst_ratio={worst:.2f} peak_rss_mb={peak / MEGABYTE:.0f} slowest_read_mb_s={slowest:.1f} "
        f"read_peak_rss_mb={read_peak / MEGABYTE:.0f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
