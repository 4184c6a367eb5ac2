"""Writes what importers read into a library, batch by batch, and counts the results.

Every batch is committed as a whole and items are recognized by id, so an import that was interrupted at any point is
completed by running it again. An item that cannot be imported is reported and does not affect the others.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, structs

from config.errors import Conflict, InvalidParams, SourceTimeout
from config.settings import Settings
from sources.drafts import ItemDraft, MessageDraft, ThreadDraft, UpsertResult
from sources.importers.engine import events, known_files, reader_process
from sources.importers.engine.batches import Batch, BatchReader, batch_limits, limit_events, row_count
from sources.importers.engine.discovery import DiscoveredFile, DiscoveryResult, IgnoredFiles
from sources.importers.engine.limits import FileProgress, ImportLimits, ImportProgress, import_limits
from sources.importers.engine.summary import ImportProblem, ImportSummary
from sources.installed import ADDED_KINDS, ITEM_KINDS
from sources.records import OBSERVATION
from sources.saved_searches import SAVED_SEARCHES, SavedSearch, decode_searches, with_search
from sources.storage.contract import Library

_LABEL_CHARS = 80
# The sources of the kinds that other distributions add, by the name of the kind.
_SOURCES = {kind.name: kind.source for kind in ADDED_KINDS}
# The outcomes after which an item is as in the file.
_CURRENT = ("new", "updated", "unchanged")


class ItemIdentities(Protocol):
    """Decides under which ids the items of a followed file are stored."""

    # Whether items may exist that were not read this time, because reading resumed at a position.
    is_partial: bool

    async def assign(
        self, kind: events.ItemKind, items: Sequence[events.ImportedItem]
    ) -> Sequence[events.ImportedItem]:
        """Returns the items with the ids under which they are stored."""
        ...

    def add_deleted(self, kind: str, uuid: str) -> None:
        """Takes note of an item that its source marks as deleted."""
        ...


async def run_import(
    library: Library | None,
    results: Sequence[DiscoveryResult],
    settings: Settings,
    progress: ImportProgress,
    *,
    rereads_unchanged: bool = True,
    limits: ImportLimits | None = None,
) -> ImportSummary:
    """Imports the discovered files one after the other. Without a library it is a dry run: everything is read, nothing
    is written, and every readable item counts as new. A file that cannot be read does not stop the import; a library
    that cannot be written does."""
    files = [result for result in results if isinstance(result, DiscoveredFile)]
    progress.bytes_total = sum(file.size_bytes for file in files)
    # The process may open these paths and no others.
    paths = [file.path.resolve() for file in files]
    limits = limits or import_limits(settings)
    async with reader_process.open_reader_process(limits, paths) as process:
        runner = ImportRunner(library, settings, progress, process, rereads_unchanged=rereads_unchanged, limits=limits)
        runner.locations = {known_files.bookmark_key(file) for file in files}
        for result in results:
            match result:
                case ImportProblem():
                    runner.add_failed_file(result)
                case IgnoredFiles(reason, count):
                    runner.summary.skip(reason, count)
                case DiscoveredFile():
                    await runner.import_file(result)
    return runner.summary


class ImportRunner:
    """Imports files into one library and sums up the results. `rereads_unchanged` also reads files that were imported
    completely before. With `keeps_edits`, items that were edited in the library are not overwritten."""

    def __init__(
        self,
        library: Library | None,
        settings: Settings,
        progress: ImportProgress,
        process: reader_process.ReaderProcess,
        *,
        rereads_unchanged: bool = True,
        keeps_edits: bool = False,
        limits: ImportLimits | None = None,
    ) -> None:
        self.summary = ImportSummary()
        # The bookmarks of all files of the import.
        self.locations: Set[str] = frozenset()
        self.keeps_edits = keeps_edits
        self.process = process
        self.library = library
        self.limits = limits or import_limits(settings)
        self.batch_limits = batch_limits(settings)
        self.progress = progress
        self._problems_max = settings.fixed.import_problems_max
        self._rereads_unchanged = rereads_unchanged

    async def import_file(
        self, file: DiscoveredFile, identities: ItemIdentities | None = None, *, from_start: bool = False
    ) -> ImportSummary:
        """Returns the summary of this file. `from_start` ignores the position up to which it was read before."""
        self.progress.file = file.name
        file_progress = FileProgress(self.progress)
        importing = _FileImport(self, file, identities, from_start=from_start)
        # The identities of a followed source replace those of the bookmarks.
        bookmarks = None if self.library is None or identities is not None else self.library.bookmarks
        digest = None if bookmarks is None else await known_files.content_digest(file, self.limits.file_max_bytes)
        known = None
        if bookmarks is not None and digest is not None and not self._rereads_unchanged:
            # The digest of a large export is computed in a fraction of the time in which it is read.
            known = await known_files.load_known_file(bookmarks, known_files.bookmark_key(file))
        if known is not None and known.digest == digest:
            importing.count_unchanged(known.kinds)
            importing.summary.skipped = known.skipped
        elif bookmarks is None or digest is None:
            await importing.run(file_progress)
        else:
            if file.importer.recognizes_moved_files:
                importing.identity = known_files.DocumentIdentity(bookmarks, file, digest, self.locations)
            await importing.run(file_progress)
            # A file with failures is read again next time.
            if not importing.summary.failures:
                item = importing.identity.item if importing.identity is not None else ""
                kinds = {kind: counts.total for kind, counts in importing.summary.kinds.items()}
                known = known_files.KnownFile(digest, kinds, importing.summary.skipped, item)
                await known_files.store_known_file(bookmarks, known_files.bookmark_key(file), known)
                if importing.identity is not None:
                    await importing.identity.save()
        file_progress.finish(file.size_bytes)
        self.summary.add(importing.summary)
        return importing.summary

    def add_failed_file(self, problem: ImportProblem) -> None:
        """Counts a file that could not be opened."""
        self.summary.add(ImportSummary(failed_files=1, problems=[problem][: self.problems_left]))

    @property
    def problems_left(self) -> int:
        return self._problems_max - len(self.summary.problems)


class _FileImport:
    """The import of one file."""

    def __init__(
        self, runner: ImportRunner, file: DiscoveredFile, identities: ItemIdentities | None, *, from_start: bool
    ) -> None:
        self.summary = ImportSummary(files=1)
        self.file = file
        self.identity: known_files.DocumentIdentity | None = None
        self._runner = runner
        self._library = runner.library
        self._progress = runner.progress
        self._problems_max = runner.problems_left
        self._identities = identities
        self._from_start = from_start

    async def run(self, file_progress: FileProgress) -> None:
        """Reads the next batch while the previous one is written."""
        limits = structs.replace(self._runner.limits, has_stable_path=self.file.has_stable_path)
        batches, process = self._runner.batch_limits, self._runner.process
        importer, path = self.file.importer, self.file.path
        position = None
        # A format with an output version is read as a whole; its files are recognized by their digest instead.
        keeps_position = self.file.has_stable_path and not importer.output_version
        if self._library is not None and keeps_position and not self._from_start:
            bookmark = await self._library.bookmarks.get(known_files.bookmark_key(self.file))
            position = None if bookmark is None else msgspec.json.decode(bookmark, type=events.ReadPosition)
        reader: BatchReader | reader_process.ProcessBatchReader
        if reader_process.is_read_in_a_process(importer):
            reader = reader_process.ProcessBatchReader(
                process, importer, path, limits, batches, file_progress, position
            )
        else:
            reader = BatchReader(limit_events(importer.read(path, limits, file_progress, position), limits), batches)
        next_batch = asyncio.create_task(asyncio.to_thread(reader.next_batch))
        try:
            while not (batch := await asyncio.shield(next_batch)).is_last:
                next_batch = asyncio.create_task(asyncio.to_thread(reader.next_batch))
                await self._write(batch)
            await self._write(batch)
        finally:
            # A thread cannot be cancelled. The file may be closed only after the thread has finished its batch.
            reader.stop()
            await asyncio.wait([next_batch])
            reader.close()
        if batch.failure:
            self.summary.failed_files += 1
            self._add_problem("", batch.failure)

    def count_unchanged(self, kinds: Mapping[str, int]) -> None:
        """Counts items that were imported earlier and are not read again."""
        for kind, count in kinds.items():
            self.summary.counts(kind).add("unchanged", count)
            self._progress.items += count

    async def _write(self, batch: Batch) -> None:
        # A running import passes its slot on here while others wait.
        if self._progress.before_batch is not None:
            await self._progress.before_batch()
        for report in batch.reports:
            if isinstance(report, events.ImportedSearch):
                await self._add_search(report.search)
            else:
                self._add_report(report)
        for name, items in batch.items.items():
            kind = _SOURCES.get(name, name)
            assigned: Sequence[events.ImportedItem] = items
            if self._library is not None:
                assigned = await known_files.keep_former_ids(self._library, items)
            if self._identities is not None:
                assigned = await self._identities.assign(kind, assigned)
            await self._upsert(kind, assigned)
        if batch.position is not None and self._library is not None and self.file.has_stable_path:
            # After the items. If the process is killed in between, they are read again and recognized by their ids.
            bookmark = msgspec.json.encode(batch.position).decode()
            await self._library.bookmarks.set(known_files.bookmark_key(self.file), bookmark)

    async def _add_search(self, search: SavedSearch) -> None:
        def add(text: str | None) -> str:
            current = next((one for one in decode_searches(text) if one.name == search.name), None)
            if current not in (None, search):
                self.summary.skip("saved search whose name is in use")
            return with_search(text, current or search)

        if self._library is not None:
            try:
                await self._library.bookmarks.change(SAVED_SEARCHES, add)
            except Conflict as error:
                self._add_report(events.FailedItem(search.name, error.message))

    def _add_report(self, report: events.ImportReport) -> None:
        match report:
            case events.SkippedItem(reason):
                self.summary.skip(reason)
            case events.PreviouslyImported(counts):
                self.count_unchanged(counts)
                if self._identities is not None:
                    self._identities.is_partial = True
            case events.DeletedItem(kind, uuid):
                if self._identities is not None:
                    self._identities.add_deleted(kind, uuid)
            case events.FailedItem(location, problem):
                self.summary.failed_items += 1
                self._add_problem(location[:_LABEL_CHARS], problem)
            case events.DoubtfulItem(location, doubt):
                self.summary.doubtful_items += 1
                if len(self.summary.doubts) < self._problems_max:
                    self.summary.doubts.append(ImportProblem(self.file.name, location[:_LABEL_CHARS], doubt))

    def _add_problem(self, location: str, problem: str) -> None:
        if len(self.summary.problems) < self._problems_max:
            self.summary.problems.append(ImportProblem(self.file.name, location, problem))

    async def _upsert(self, kind: events.ItemKind, items: Sequence[events.ImportedItem]) -> None:
        if self.identity is not None:
            items = [await self.identity.resolve(item) for item in items]
        try:
            results = await _upsert_many(self._library, kind, items, keeps_edits=self._runner.keeps_edits)
        except (SourceTimeout, InvalidParams) as error:
            # The machine is busy, or PostgreSQL cannot index a value, which only its own transaction should fail for:
            # write smaller parts, until one fits into the deadline and the value is alone.
            if len(items) > 1:
                half = len(items) // 2
                await self._upsert(kind, items[:half])
                await self._upsert(kind, items[half:])
                return
            if isinstance(error, SourceTimeout):
                raise
            results = [(UpsertResult("refused", error.message), ())]
        # Only of notes that are now as in the file: others keep the images of their own text.
        images = {
            str(item.draft.uuid): item.images
            for item, (result, _) in zip(items, results, strict=True)
            if isinstance(item, events.ImportedNote) and item.images is not None and result.outcome in _CURRENT
        }
        if images and self._library is not None:
            await self._library.notes.set_images(images)
        for item, (result, message_results) in zip(items, results, strict=True):
            self._count(kind, item, result)
            if isinstance(item, events.ImportedConversation):
                for message, message_result in zip(item.messages, message_results, strict=False):
                    self._count("messages", message, message_result)
        self._progress.items += sum(map(row_count, items))

    def _count(self, kind: str, item: events.ImportedItem | MessageDraft, result: UpsertResult) -> None:
        is_refused = result.outcome == "refused"
        # A conversation in several parts is counted once.
        if isinstance(item, events.ImportedConversation) and item.continues and not is_refused:
            return
        self.summary.counts(kind).add(result.outcome)
        if is_refused:
            self.summary.failed_items += 1
            # Names an item by its kind, its title or name if it has one, and its id.
            draft = item if isinstance(item, MessageDraft) else item.draft
            values = draft.values if isinstance(draft, ItemDraft) else {}
            title = values.get("title") or getattr(draft, "title", UNSET) or getattr(draft, "name", UNSET)
            quoted_title = f"{title[:_LABEL_CHARS]!r} " if isinstance(title, str) and title else ""
            self._add_problem(f"{kind}: {quoted_title}({str(draft.uuid)[:_LABEL_CHARS]})", result.problem)


async def _upsert_many(
    library: Library | None, kind: events.ItemKind, items: Sequence[Any], *, keeps_edits: bool
) -> Sequence[tuple[UpsertResult, Sequence[UpsertResult]]]:
    """Returns the result for each item, and for a conversation also those for its messages."""
    if library is None:
        # A dry run.
        new = UpsertResult("new")
        return [(new, [new] * len(getattr(item, "messages", ()))) for item in items]
    if kind == "chats":
        threads = [ThreadDraft(item.draft, item.messages) for item in items]
        thread_results = await library.chats.upsert_many(threads, keeps_edits=keeps_edits)
        return [(result.conversation, result.messages) for result in thread_results]
    if kind not in ITEM_KINDS and kind != OBSERVATION.source:
        # An export of a library with a plugin that is not installed here.
        problem = f"no installed distribution adds the kind {kind[:_LABEL_CHARS]!r}"
        return [(UpsertResult("refused", problem), ())] * len(items)
    results = await library.collection(kind).upsert_many([item.draft for item in items], keeps_edits=keeps_edits)
    return [(result, ()) for result in results]
