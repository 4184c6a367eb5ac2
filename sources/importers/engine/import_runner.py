"""Takes what importers read into one library, batch after batch, and says what became of it.

Every batch is committed whole, and what came before is known again: an import that was interrupted at any moment is
completed by the next one. An item that cannot be taken is told and keeps no other from coming.
"""

import asyncio
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import FlorilegiumError, SourceTimeout
from config.numbers import clamp
from config.settings import Settings
from sources.drafts import MessageDraft, ThreadDraft, UpsertOutcome, UpsertResult
from sources.importers.engine.imported_items import (
    KINDS,
    Checkpoint,
    FailedItem,
    ImportedCharacter,
    ImportedConversation,
    ImportedItem,
    ImportedMedia,
    ImportedNote,
    ImportedObservation,
    ImportedPrompt,
    ImportEvent,
    Kind,
    PreviouslyImported,
    ReadPosition,
    SkippedItem,
)
from sources.importers.engine.importer import DiscoveredFile, ImportLimits
from sources.importers.engine.known_files import Known, bookmark_of, digest_of, find_known, remember
from sources.storage.contract import Library

OUTCOMES: tuple[UpsertOutcome, ...] = get_args(UpsertOutcome)
_SHOWN_CHARS = 80


class BatchLimits(Struct, frozen=True):
    """How much is written in one transaction, and how many problems are told in full; all are counted."""

    rows: int
    chars: int
    problems_max: int


class ImportProblem(Struct, frozen=True):
    """Something that did not come, and where it stands."""

    file: str
    place: str
    problem: str


class IgnoredFiles(Struct, frozen=True):
    """Files that were left out on purpose before anybody read them; `reason` follows their number."""

    reason: str
    count: int


class OutcomeCounts(Struct):
    """What became of the items of one kind. Those that were deleted here stay so."""

    new: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    refused: int = 0

    @property
    def total(self) -> int:
        return self.new + self.updated + self.unchanged + self.deleted + self.refused

    def add(self, outcome: UpsertOutcome, count: int = 1) -> None:
        setattr(self, outcome, getattr(self, outcome) + count)


class ImportSummary(Struct, kw_only=True):
    """What became of everything. Messages are counted beside the chats they stand in. `broken` counts the problems of
    items, `unread` the files that could not be read, or not to their end."""

    files: int = 0
    unread: int = 0
    broken: int = 0
    kinds: dict[str, OutcomeCounts] = {}
    skipped: dict[str, int] = {}
    problems: list[ImportProblem] = []

    @property
    def missing(self) -> int:
        return self.unread + self.broken

    @property
    def is_in_vain(self) -> bool:
        """Whether nothing could be read of all there was."""
        if not self.missing:
            return not self.files
        return all(counts.total == counts.refused for counts in self.kinds.values())

    def counts(self, kind: str) -> OutcomeCounts:
        return self.kinds.setdefault(kind, OutcomeCounts())

    def skip(self, reason: str, count: int = 1) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + count

    def add(self, other: "ImportSummary") -> None:
        self.files += other.files
        self.unread += other.unread
        self.broken += other.broken
        self.problems += other.problems
        for reason, count in other.skipped.items():
            self.skip(reason, count)
        for kind, counts in other.kinds.items():
            for outcome in OUTCOMES:
                self.counts(kind).add(outcome, getattr(counts, outcome))


# What a search for files comes to.
DiscoveryResult = DiscoveredFile | ImportProblem | IgnoredFiles


class ImportProgress(Struct):
    """How far an import has come, for whoever wants to look."""

    bytes_total: int = 0
    bytes_read: int = 0
    items: int = 0
    file: str = ""


class ImportRunner:
    """Into one library; without one (a rehearsal) everything is read and nothing is written, and all that could come
    counts as new."""

    def __init__(
        self,
        library: Library | None,
        limits: ImportLimits,
        batching: BatchLimits,
        meter: ImportProgress,
        *,
        reads_again: bool,
    ) -> None:
        self.total = ImportSummary()
        self._library = library
        self._reads_again = reads_again
        self._limits = limits
        self._batching = batching
        self._meter = meter
        # Of the file that is being taken.
        self._summary = ImportSummary()

    async def take(self, found: DiscoveredFile) -> None:
        """One file; nothing of it, where it is known to have come whole."""
        self._meter.file = found.name
        before = self._meter.bytes_read
        self._summary = ImportSummary(files=1)
        bookmarks = None if self._library is None or self._reads_again else self._library.bookmarks
        digest = None if bookmarks is None else await digest_of(found, self._limits.file_max_bytes)
        if bookmarks is None or digest is None:
            await self._read(found, before)
        elif known := await find_known(bookmarks, found, digest):
            self._count_known(known)
        else:
            await self._read(found, before)
            if not self._summary.missing:
                await remember(bookmarks, found, _known(digest, self._summary))
        self._meter.bytes_read = before + found.size_bytes
        self.total.add(self._summary)

    def _count_known(self, known: Known) -> None:
        self._summary.skipped = known.skipped
        self._count_unread(known.kinds)

    def _count_unread(self, kinds: Mapping[str, int]) -> None:
        for kind, count in kinds.items():
            self._summary.counts(kind).add("unchanged", count)
            self._meter.items += count

    async def _read(self, found: DiscoveredFile, before: int) -> None:
        """The next batch is read while the last one is written."""
        limits = replace(self._limits, has_place=found.has_place)
        reading = _Reading(found, limits, self._batching, await self._mark(found), _Moved(self._meter, before))
        ahead = asyncio.create_task(asyncio.to_thread(reading.next_batch))
        try:
            while not (batch := await asyncio.shield(ahead)).is_last:
                ahead = asyncio.create_task(asyncio.to_thread(reading.next_batch))
                await self._write(found, batch)
            await self._write(found, batch)
        finally:
            # A thread cannot be stopped; it ends with its batch, and only then may the file be closed.
            await asyncio.wait([ahead])
            reading.close()
        if batch.failure:
            self._summary.unread += 1
            self._tell(ImportProblem(found.name, "", batch.failure))

    def miss(self, problem: ImportProblem) -> None:
        """A file that was looked for in vain."""
        self._summary = ImportSummary(unread=1)
        self._tell(problem)
        self.total.add(self._summary)

    def leave_out(self, passed: IgnoredFiles) -> None:
        self.total.skip(passed.reason, passed.count)

    def _tell(self, problem: ImportProblem) -> None:
        if len(self.total.problems) + len(self._summary.problems) < self._batching.problems_max:
            self._summary.problems.append(problem)

    async def _mark(self, found: DiscoveredFile) -> ReadPosition | None:
        """How far a file that grows was read before."""
        if self._library is None or not found.has_place or found.importer.edition:
            return None
        kept = await self._library.bookmarks.get(bookmark_of(found))
        return None if kept is None else msgspec.json.decode(kept, type=ReadPosition)

    async def _write(self, found: DiscoveredFile, batch: "Batch") -> None:
        for one in batch.asides:
            self._note(found, one)
        for kind, items in batch.items.items():
            await self._put(found, kind, items)
        if batch.mark is not None and self._library is not None and found.has_place:
            await self._library.bookmarks.set(bookmark_of(found), msgspec.json.encode(batch.mark).decode())

    def _note(self, found: DiscoveredFile, one: SkippedItem | FailedItem | PreviouslyImported) -> None:
        match one:
            case SkippedItem(reason):
                self._summary.skip(reason)
            case PreviouslyImported(kinds):
                self._count_unread(kinds)
            case FailedItem(place, problem):
                self._summary.broken += 1
                self._tell(ImportProblem(found.name, place[:_SHOWN_CHARS], problem))

    async def _put(self, found: DiscoveredFile, kind: Kind, items: Sequence[ImportedItem]) -> None:
        try:
            puts = await _upsert_many(self._library, kind, items)
        except SourceTimeout:
            # A machine that is busy with something else: less at a time, until it is done within its deadline.
            if len(items) == 1:
                raise
            half = len(items) // 2
            await self._put(found, kind, items[:half])
            await self._put(found, kind, items[half:])
            return
        for item, (own, parts) in zip(items, puts, strict=True):
            self._count(found, kind, item, own)
            if isinstance(item, ImportedConversation):
                for message, put in zip(item.messages, parts, strict=False):
                    self._count(found, "messages", message, put)
        self._meter.items += sum(map(_rows, items))

    def _count(self, found: DiscoveredFile, kind: str, item: "ImportedItem | MessageDraft", put: UpsertResult) -> None:
        if kind == "chats" and isinstance(item, ImportedConversation) and item.continues and put.outcome != "refused":
            return
        self._summary.counts(kind).add(put.outcome)
        if put.outcome == "refused":
            self._summary.broken += 1
            self._tell(ImportProblem(found.name, _place(kind, item), put.problem))


class _Moved:
    """Told by a reader how far it has come in its file; it may look back, but a meter does not run backwards."""

    def __init__(self, meter: ImportProgress, before: int) -> None:
        self._meter = meter
        self._before = before

    def __call__(self, bytes_read: int) -> None:
        self._meter.bytes_read = max(self._meter.bytes_read, self._before + bytes_read)


class Batch(Struct):
    """What is written at once. `failure` says why a file could not be read on."""

    items: dict[Kind, list[ImportedItem]] = {}
    asides: list[SkippedItem | FailedItem | PreviouslyImported] = []
    mark: ReadPosition | None = None
    is_last: bool = False
    failure: str = ""


class _Reading:
    """A file that is being read, on whichever thread asks for its next batch."""

    def __init__(
        self,
        found: DiscoveredFile,
        limits: ImportLimits,
        batching: BatchLimits,
        mark: ReadPosition | None,
        moved: _Moved,
    ) -> None:
        self._batching = batching
        self._arrivals = _pieces(found.importer.read(found.path, limits, moved, mark), batching)

    def next_batch(self) -> Batch:
        batch, rows, chars = Batch(), 0, 0
        try:
            for arrival in self._arrivals:
                match arrival:
                    case SkippedItem() | FailedItem() | PreviouslyImported():
                        batch.asides.append(arrival)
                        rows += 1
                    case Checkpoint(mark):
                        batch.mark = mark
                    case _:
                        batch.items.setdefault(KINDS[type(arrival)], []).append(arrival)
                        rows += _rows(arrival)
                        chars += _chars(arrival)
                if rows >= self._batching.rows or chars >= self._batching.chars:
                    return batch
        except FlorilegiumError as error:
            batch.failure = error.message
        except OSError as error:
            batch.failure = f"it cannot be read: {error.strerror or 'the disk failed'}"
        batch.is_last = True
        return batch

    def close(self) -> None:
        """The file as well, in the importer's own `with`."""
        self._arrivals.close()


def _pieces(arrivals: Iterator[ImportEvent], batching: BatchLimits) -> Generator[ImportEvent, None, None]:
    """A conversation that is more than one transaction should write comes in several."""
    try:
        for arrival in arrivals:
            if not isinstance(arrival, ImportedConversation) or not arrival.messages:
                yield arrival
                continue
            continues = arrival.continues
            for part in _parts(arrival.messages, batching):
                yield ImportedConversation(arrival.draft, part, continues)
                continues = True
    finally:
        if isinstance(arrivals, Generator):
            arrivals.close()


def _parts(messages: Sequence[MessageDraft], batching: BatchLimits) -> Iterator[Sequence[MessageDraft]]:
    first, chars = 0, 0
    for place, message in enumerate(messages):
        chars += _length(message.content)
        if place > first and (place - first >= batching.rows or chars > batching.chars):
            yield messages[first:place]
            first, chars = place, _length(message.content)
    yield messages[first:]


async def _upsert_many(
    library: Library | None, kind: Kind, items: Sequence[Any]
) -> Sequence[tuple[UpsertResult, Sequence[UpsertResult]]]:
    if library is None:
        new = UpsertResult("new")
        return [(new, [new] * len(getattr(item, "messages", ()))) for item in items]
    if kind == "chats":
        threads = [ThreadDraft(item.draft, item.messages) for item in items]
        return [(put.conversation, put.messages) for put in await library.chats.upsert_many(threads)]
    collection: Any = getattr(library, kind)
    return [(put, ()) for put in await collection.upsert_many([item.draft for item in items])]


def _known(digest: str, summary: ImportSummary) -> Known:
    return Known(digest, {kind: counts.total for kind, counts in summary.kinds.items()}, summary.skipped)


def _rows(item: ImportedItem) -> int:
    return 1 + len(item.messages) if isinstance(item, ImportedConversation) else 1


def _chars(item: ImportedItem) -> int:
    match item:
        case ImportedConversation(_, messages):
            return sum(_length(message.content) for message in messages)
        case ImportedNote(draft):
            return _length(draft.content)
        case ImportedMedia(draft):
            lines = () if draft.segments is UNSET else draft.segments
            return _length(draft.content) + sum(len(line.text) for line in lines)
        case ImportedCharacter() | ImportedPrompt() | ImportedObservation():
            return sum(len(value) for value in msgspec.structs.astuple(item.draft) if isinstance(value, str))


def _length(text: Any) -> int:
    return len(text) if isinstance(text, str) else 0


def _place(kind: str, item: "ImportedItem | MessageDraft") -> str:
    """What the item calls itself, and its id."""
    draft = item if isinstance(item, MessageDraft) else item.draft
    called = getattr(draft, "title", UNSET) or getattr(draft, "name", UNSET)
    shown = f"{called[:_SHOWN_CHARS]!r} " if isinstance(called, str) and called else ""
    return f"{kind}: {shown}({str(draft.uuid)[:_SHOWN_CHARS]})"


def limits_of(settings: Settings) -> ImportLimits:
    return ImportLimits(
        file_max_bytes=settings.import_max_bytes,
        unpacked_max_bytes=settings.import_unpacked_max_bytes,
        unpacked_ratio_max=settings.import_unpacked_ratio_max,
        entries_max=settings.import_max_conversations,
        line_max_bytes=settings.import_line_max_bytes,
        depth_max=settings.import_depth_max,
        item_max_chars=settings.item_max_chars,
        parser_cpu_s=settings.import_parser_cpu_s,
        parser_memory_max_bytes=settings.import_parser_memory_mib << 20,
        parser_deadline_s=settings.import_parser_deadline_s,
    )


def batching_of(settings: Settings) -> BatchLimits:
    # A conversation that begins in a batch that is nearly full makes it at most twice as long.
    rows = clamp(settings.import_batch_items, 1, settings.batch_max_items // 2)
    return BatchLimits(rows=rows, chars=settings.import_batch_chars, problems_max=settings.import_problems_max)


async def run_import(
    library: Library | None,
    founds: Sequence[DiscoveryResult],
    settings: Settings,
    meter: ImportProgress,
    *,
    reads_again: bool = True,
) -> ImportSummary:
    """Everything that was found, file after file: also files that came before and are the same, or not. A file that
    cannot be read keeps no other from being read; a library that cannot be written ends it."""
    intake = ImportRunner(library, limits_of(settings), batching_of(settings), meter, reads_again=reads_again)
    meter.bytes_total = sum(found.size_bytes for found in founds if isinstance(found, DiscoveredFile))
    for found in founds:
        match found:
            case ImportProblem():
                intake.miss(found)
            case IgnoredFiles():
                intake.leave_out(found)
            case DiscoveredFile():
                await intake.take(found)
    return intake.total
