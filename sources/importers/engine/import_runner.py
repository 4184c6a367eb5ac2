"""Writes what importers read into a library, batch by batch, and counts the results.

Every batch is committed as a whole and items are recognized by id, so an import that was interrupted at any point is
completed by running it again. An item that cannot be imported is reported and does not affect the others.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from hashlib import blake2b, sha256
from hashlib import file_digest as hash_file
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct, structs

from config.errors import Conflict, InvalidParams, NotFound, QuotaExceeded, SourceTimeout, StorageError
from config.settings import Settings
from sources.drafts import ItemDraft, ThreadDraft, UpsertOutcome, UpsertResult
from sources.importers.engine import events, reader_process
from sources.importers.engine.batches import Batch, BatchReader, batch_limits, limit_events, row_count
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.discovery import DiscoveredFile, DiscoveryResult, IgnoredFiles
from sources.importers.engine.events import ImportedItem, ImportedMedia, ImportedNote, stable_uuid
from sources.importers.engine.limits import FileProgress, ImportLimits, ImportProgress, import_limits
from sources.importers.engine.summary import ImportProblem, ImportSummary
from sources.importers.registry import is_registered
from sources.installed import ADDED_KINDS, ITEM_KINDS
from sources.records import OBSERVATION
from sources.saved_searches import SAVED_SEARCHES, SavedSearch, decode_searches, with_search
from sources.storage.collections.items import Bookmarks
from sources.storage.contract import Library

# -- known files -------------------------------------------------------------------------------------------------------
# Recognizes files that were imported completely, by digest, so that they need not be read again.


class KnownFile(Struct, frozen=True):
    """A completely imported file: its digest, its items by kind, and what was skipped by reason. `item` is the id of
    its only item, for documents."""

    digest: str
    kinds: dict[str, int]
    skipped: dict[str, int]
    item: str = ""


def bookmark_key(file: DiscoveredFile) -> str:
    """Identifies the file in the library's bookmarks. The path is hashed so that the library does not store it."""
    return sha256(file.importer.name.encode() + b"\0" + os.fsencode(file.path.resolve())).hexdigest()


async def content_digest(file: DiscoveredFile, max_bytes: int) -> str | None:
    """Returns the file's digest, prefixed with the importer's output version. Returns None if the file cannot be
    recognized again, or is too large to be read anyway."""
    # An upload has a new path every time, so that no bookmark could be found again.
    if not file.importer.output_version or not file.has_stable_path or file.size_bytes > max_bytes:
        return None

    def digest() -> str:
        with open_file(file.path) as content:
            return hash_file(content, blake2b).hexdigest()

    try:
        return f"{file.importer.output_version} {await asyncio.to_thread(digest)}"
    except OSError:
        return None


async def load_known_file(bookmarks: Bookmarks, key: str) -> KnownFile | None:
    bookmark = await bookmarks.get(key)
    return None if bookmark is None else msgspec.json.decode(bookmark, type=KnownFile)


async def store_known_file(bookmarks: Bookmarks, key: str, known: KnownFile) -> None:
    await bookmarks.set(key, msgspec.json.encode(known).decode())


# -- moved files -------------------------------------------------------------------------------------------------------
# Recognizes items that were imported under another id: documents that were moved or renamed, by their bytes, and notes
# of formats whose ids an earlier version derived differently.
#
# A document is identified by its location. The library also remembers, for every imported document, which item it
# became and which location owns that item. A document at a new location whose bytes are known takes the item over;
# another document that is later saved at the old location gets an item of its own. Locations are stored as digests.


class DocumentIdentity:
    """Finds the item that a document becomes. `locations` are those of all files of this import: a document that is
    still at its old location is a copy, and not moved."""

    def __init__(self, bookmarks: Bookmarks, file: DiscoveredFile, digest: str, locations: Set[str]) -> None:
        self._bookmarks = bookmarks
        self._location = bookmark_key(file)
        self._importer = file.importer.name
        self._digest = digest
        self._locations = locations
        self._old_location = ""
        self.item = ""

    async def resolve(self, item: ImportedItem) -> ImportedItem:
        """Returns the item with the id under which it is stored."""
        if not isinstance(item, ImportedMedia) or item.draft.uuid is UNSET:
            return item
        natural = item.draft.uuid
        # A document that was imported from this location before keeps its item, whatever it contains now.
        known = await load_known_file(self._bookmarks, self._location)
        if known is not None and known.digest:
            self.item = known.item or natural
        else:
            # Next, the same bytes at a location that no longer has a file of this import.
            old = await self._bookmarks.get(self._content_key)
            is_moved = old is not None and old != self._location and old not in self._locations
            moved = await load_known_file(self._bookmarks, old) if old is not None and is_moved else None
            owner = await self._bookmarks.get(_key("item", natural))
            if old is not None and moved is not None and moved.digest == self._digest and moved.item:
                self._old_location, self.item = old, moved.item
            elif owner in (None, self._location):
                self.item = natural
            else:
                # The item of this location was taken over by the document that moved away: this is another document.
                self.item = stable_uuid(self._importer, "media", f"{natural}\0{self._digest}")
        return ImportedMedia(structs.replace(item.draft, uuid=self.item))

    async def save(self) -> None:
        """Remembers who owns the item, and forgets its old location. Called after the item was written."""
        if self.item:
            await self._bookmarks.set(self._content_key, self._location)
            await self._bookmarks.set(_key("item", self.item), self._location)
        if self._old_location:
            # An empty digest: another document at the old location is not taken for the one that moved.
            await store_known_file(self._bookmarks, self._old_location, KnownFile("", {}, {}))

    @property
    def _content_key(self) -> str:
        return _key("content", f"{self._importer}\0{self._digest}")


async def keep_former_ids(library: Library, items: Sequence[ImportedItem]) -> Sequence[ImportedItem]:
    """Returns notes that an earlier version imported with the ids that it gave them. It gave equal ids to notes of
    different files that have the same title and time. Of these, one keeps the id, and the others get new ones."""
    uuids = {
        uuid
        for item in items
        if isinstance(item, ImportedNote) and item.former_uuid
        for uuid in (item.former_uuid, str(item.draft.uuid))
    }
    if not uuids:
        return items
    known = await library.notes.known_ids(list(uuids))
    return [
        await _with_former_id(library, item)
        if isinstance(item, ImportedNote) and item.former_uuid in known and item.draft.uuid not in known
        else item
        for item in items
    ]


async def _with_former_id(library: Library, item: ImportedNote) -> ImportedNote:
    """The owner of a former id is remembered by its new one, so that it stays the owner when its text changes."""
    name, draft, new_id = _key("former", item.former_uuid), item.draft, str(item.draft.uuid)
    owner = await library.bookmarks.get(name)
    if owner is None:
        try:
            stored = await library.notes.get(item.former_uuid)
        except NotFound:
            # Deleted, and stays so.
            is_owner = True
        else:
            # The note with the former id has the same text, or an older version of it.
            modified = draft.created_at if draft.last_modified is UNSET else draft.last_modified
            stored_at = str(stored.metadata.get("updated", stored.created_at))
            is_owner = stored.content == draft.content or (isinstance(modified, str) and modified >= stored_at)
        if is_owner:
            await library.bookmarks.set(name, new_id)
            owner = new_id
    return structs.replace(item, draft=structs.replace(draft, uuid=item.former_uuid)) if owner == new_id else item


def _key(kind: str, value: str) -> str:
    return sha256(f"{kind}\0{value}".encode()).hexdigest()


# -- runs --------------------------------------------------------------------------------------------------------------

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
        runner.locations = {bookmark_key(file) for file in files}
        for result in results:
            match result:
                case ImportProblem():
                    failed = ImportSummary(failed_files=1, problems=[result][: runner.problems_left])
                    runner.summary.add(failed)
                case IgnoredFiles(reason, count):
                    runner.summary.skip(reason, count)
                case DiscoveredFile():
                    try:
                        await runner.import_file(result)
                    except (StorageError, QuotaExceeded) as error:
                        if library is not None and progress.items:
                            reason = error.message.removesuffix("; nothing was written")
                            error.message = f"{reason}; at least {progress.items:,} items were imported and kept"
                        raise
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
        digest = None if bookmarks is None else await content_digest(file, self.limits.file_max_bytes)
        known = None
        if bookmarks is not None and digest is not None and not self._rereads_unchanged:
            # The digest of a large export is computed in a fraction of the time in which it is read.
            known = await load_known_file(bookmarks, bookmark_key(file))
        if known is not None and known.digest == digest:
            importing.count_unchanged(known.kinds)
            importing.summary.skipped = known.skipped
        elif bookmarks is None or digest is None:
            await importing.run(file_progress)
        else:
            if file.importer.recognizes_moved_files:
                importing.identity = DocumentIdentity(bookmarks, file, digest, self.locations)
            await importing.run(file_progress)
            # A file with failures is read again next time.
            if not importing.summary.failures:
                item = importing.identity.item if importing.identity is not None else ""
                kinds = {kind: counts.total for kind, counts in importing.summary.kinds.items()}
                known = KnownFile(digest, kinds, importing.summary.skipped, item)
                await store_known_file(bookmarks, bookmark_key(file), known)
                if importing.identity is not None:
                    await importing.identity.save()
        file_progress.finish(file.size_bytes)
        self.summary.add(importing.summary)
        return importing.summary

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
        self.identity: DocumentIdentity | None = None
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
            bookmark = await self._library.bookmarks.get(bookmark_key(self.file))
            position = None if bookmark is None else msgspec.json.decode(bookmark, type=events.ReadPosition)
        reader: BatchReader | reader_process.ProcessBatchReader
        if is_registered(importer):
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
                assigned = await keep_former_ids(self._library, items)
            if self._identities is not None:
                assigned = await self._identities.assign(kind, assigned)
            await self._upsert(kind, assigned)
        if batch.position is not None and self._library is not None and self.file.has_stable_path:
            # After the items. If the process is killed in between, they are read again and recognized by their ids.
            bookmark = msgspec.json.encode(batch.position).decode()
            await self._library.bookmarks.set(bookmark_key(self.file), bookmark)

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
        if kind != "chats":
            self._count(kind, [item.draft for item in items], [result for result, _ in results])
        for item, (result, message_results) in zip(items, results, strict=True):
            if isinstance(item, events.ImportedConversation):
                # A conversation in several parts is counted once.
                if not item.continues or result.outcome == "refused":
                    self._count(kind, [item.draft], [result])
                self._count("messages", item.messages, message_results)
        self._progress.items += sum(map(row_count, items))

    def _count(self, kind: str, drafts: Sequence[Any], results: Sequence[UpsertResult]) -> None:
        """A refused conversation has no results for its messages."""
        outcomes: Counter[UpsertOutcome] = Counter([result.outcome for result in results])
        for outcome, count in outcomes.items():
            self.summary.counts(kind).add(outcome, count)
        if not outcomes["refused"]:
            return
        self.summary.failed_items += outcomes["refused"]
        for draft, result in zip(drafts, results, strict=False):
            if result.outcome == "refused":
                # Names an item by its kind, its title or name if it has one, and its id.
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
