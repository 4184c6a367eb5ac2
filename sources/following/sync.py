"""Brings a library up to date with a followed folder, file or URL: imports what changed, and withdraws the items of
files that disappeared.

Items are written before the state of their file is, and both are idempotent, so that a process that is killed at any
moment repeats its last file and nothing else.
"""

# About this package: `sync.py` is one run over a folder, a file or a URL, and the place to start. A run looks at files
# (`scan.py`), recognizes renamed ones and decides how a folder is read (`note_files.py`), gives items their ids and
# writes edited notes back (`identities.py`), and copies databases in a process of their own (`database_copy.py`,
# `copy_process.py`, `changed_rows.py`). `state.py` has what is remembered between runs. `server/following` decides when
# to run.

import asyncio
import mimetypes
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import UNSET, structs

from auth.follows import FollowRecord
from config.errors import InvalidParams
from config.public_http import OutgoingRequestError, PublicFetch
from config.settings import Settings
from sources.following import database_copy
from sources.following.copy_process import DatabaseCopy
from sources.following.identities import FileIdentities, PartIdentities, write_notes
from sources.following.note_files import ChangedFile, SourceLayout, match_moves, source_layout
from sources.following.scan import (
    SETTLING_PAUSE_S,
    FolderScan,
    SourceMissing,
    fingerprint,
    is_database_file,
    is_folder,
    is_settled,
    missing_names,
    scan_folder,
    unsettled,
)
from sources.following.state import DatabaseState, SourceState, SyncReport, withdraw_items
from sources.importers.engine.confined_files import reading_confined_to
from sources.importers.engine.discovery import DiscoveredFile, DiscoveryResult, IgnoredFiles
from sources.importers.engine.events import ImportedItem, ImportedMedia, ItemKind
from sources.importers.engine.files import printable_name
from sources.importers.engine.import_runner import ImportRunner
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.reader_process import ReaderProcess, find_files, open_reader_process
from sources.importers.engine.summary import ImportProblem, ImportSummary
from sources.storage.collections.library import FollowedFiles
from sources.storage.contract import FollowedFile, FollowedItem, Library

# A file that an editor replaces is missing for a moment. Deleted is what is still missing after this time.
_DELETION_PAUSE_S = 0.3
# Files that the reader process is asked about at once.
_PROBED_FILES = 200
_PROBLEM_CHARS = 300
_DELETED_BUT_EDITED = "deleted in its source, but edited in the library; the edited item was kept"
_NOT_RECOGNIZED = "no longer in a supported format; its items were kept"
_REPLACED = (
    "most of its files are missing and the folder is not the one that was followed; nothing was deleted. If this is "
    "intended, stop the server and run `florilegium follow run {} --accept`"
)
# Deleted files whose ids are remembered, the newest ones.
_FORMER_FILES_MAX = 1_000


class SourceSync:
    """One run for one followed source, whose location has no links. `work_folder` is a private folder for copies of
    databases."""

    def __init__(
        self,
        library: Library,
        record: FollowRecord,
        settings: Settings,
        progress: ImportProgress,
        work_folder: Path,
        *,
        accepts_replacement: bool = False,
    ) -> None:
        self.report = SyncReport()
        self._library = library
        self._record = record
        self._settings = settings
        self._limits = import_limits(settings)
        self._progress = progress
        self._location = Path(record.location)
        self._work_folder = work_folder
        # Nothing else is read, wherever links in the source lead.
        self._paths = [self._location, work_folder]
        self._keeps_edits = True
        self._accepts_replacement = accepts_replacement
        self._files = library.followed_files
        self._layout: SourceLayout
        self._databases: dict[str, DatabaseState] = {}
        self._former: dict[str, Sequence[FollowedItem]] = {}

    async def run(self, state: SourceState, scope: Sequence[bytes] | None = None) -> SourceState:
        """Looks at the whole source, or at the files and folders that `scope` names. Returns the new state."""
        with reading_confined_to(self._paths):
            layout = await self._find_layout()
            self._databases, self._former = dict(state.databases), dict(state.former_items)
            if layout.unit_name is not None:
                # A single file, or a folder that is read as a whole. If it is missing, nothing is deleted.
                name, signature = layout.unit_name, await asyncio.to_thread(layout.unit_signature)
                known = {file.name: file for file in await self._files.files(self._record.id)}
                if _is_changed(known.get(name), signature):
                    await self._import([name], {name: signature})
                for other in known.keys() - {name}:
                    # The folder was read file by file before, or this is a conflict of a file that no longer exists.
                    await self._withdraw_file(known[other])
                state = msgspec.structs.replace(state, problem="")
            elif layout.names:
                # A folder with files of known names. If one is missing, nothing is deleted.
                scan = await self._scan(layout.names)
                known = {file.name: file for file in await self._files.files(self._record.id)}
                missing = sorted(known.keys() - scan.files.keys())
                if not scan.files:
                    raise SourceMissing("the folder has none of the expected files; their items were kept")
                changed = [name for name, signature in scan.files.items() if _is_changed(known.get(name), signature)]
                await self._import(changed, scan.files)
                problem = f"{printable_name(os.fsdecode(missing[0]))}: missing; its items were kept" if missing else ""
                state = msgspec.structs.replace(state, root_id=scan.root_id, problem=problem)
            else:
                state = await self._run_folder(state, scope)
            # The newest ones are kept.
            former = dict(list(self._former.items())[-_FORMER_FILES_MAX:])
            return msgspec.structs.replace(state, databases=self._databases, former_items=former)

    async def _run_folder(self, state: SourceState, scope: Sequence[bytes] | None) -> SourceState:
        layout = self._layout
        if scope is not None:
            # A file that was created in a new folder before that was watched caused no event.
            # The names of folders have a slash at the end: those are not looked at once more.
            names = [name for name in scope if not name.endswith(b"/")]
            folders = await asyncio.to_thread(lambda: [name for name in names if is_folder(layout.path_of(name))])
            self.report.retries |= {name + b"/" for name in folders}
            scope = [name.rstrip(b"/") for name in scope]
        scan = await self._scan(scope)
        if scope is not None and scan.root_id != state.root_id:
            scope, scan = None, await self._scan(None)
        known = {file.name: file for file in await self._known_files(scope)}
        if scope is None:
            # An unmounted file system leaves an empty folder, and another one may be mounted in its place.
            is_same = not state.root_id or state.root_id == scan.root_id
            present = sum(name in scan.files for name in known)
            if not is_same and not self._accepts_replacement and 2 * present < len(known):
                raise SourceMissing(_REPLACED.format(self._record.id))
        # The files below a folder on another file system that is not mounted now may still exist.
        unmounted = [os.fsencode(mount) for mount in state.mounts if os.fsencode(mount) not in scan.mounts]
        unknown = (*unmounted, *scan.unreadable)
        absent = [name for name in known if name not in scan.files and not name.startswith(unknown)]
        missing: list[bytes] = []
        if absent:
            await asyncio.sleep(_DELETION_PAUSE_S)
            missing = await asyncio.to_thread(missing_names, layout.root, absent)
            self.report.retries.update(set(absent) - set(missing))
        changed = [name for name, signature in scan.files.items() if _is_changed(known.get(name), signature)]
        files = match_moves(await self._inspect(changed, scan.files), known, missing)
        await self._import_files(files)
        moved = {file.moved_from for file in files}
        for name in missing:
            if name not in moved:
                await self._withdraw_file(known[name])
        if self._record.writes_back:
            if self._progress.before_batch is not None:
                await self._progress.before_batch()
            # Writes edited notes to their files and reads these again, so that both are known to agree.
            written = await write_notes(self._library, self._record, layout, state.written_until, self._limits)
            self.report.written += len(written.names)
            self.report.retries.update(written.pending)
            self._keeps_edits = False
            signatures = {name: layout.signature_of(name) for name in written.names}
            await self._import(written.names, signatures)
            state = msgspec.structs.replace(state, written_until=written.until)
        if scope is not None:
            return msgspec.structs.replace(state, root_id=scan.root_id)
        problem = ""
        if unmounted:
            problem = f"{os.fsdecode(unmounted[0]).rstrip('/')}: not mounted; its items were kept"
        elif scan.unreadable:
            problem = f"{len(scan.unreadable)} folders or files cannot be read; their items were kept"
        mounts = sorted(map(os.fsdecode, scan.mounts))
        return msgspec.structs.replace(state, root_id=scan.root_id, mounts=mounts, problem=problem)

    async def resolve(self, name: bytes, *, keeps_library: bool) -> None:
        """Settles the conflicts of a file: either the edits in the library stay, or the file overwrites them."""
        with reading_confined_to(self._paths):
            [row] = await self._files.find(self._record.id, [name])
            items = await self._files.items(self._record.id, name)
            if row.signature and keeps_library:
                await self._files.save(self._record.id, msgspec.structs.replace(row, conflicts=0), items)
            elif row.signature:
                self._keeps_edits = False
                layout = await self._find_layout()
                await self._import([name], {name: layout.signature_of(name)})
            else:
                if not keeps_library:
                    self._keeps_edits = False
                    await self._withdraw([name], items)
                await self._files.remove(self._record.id, [name])

    # -- what changed --------------------------------------------------------------------------------------------------

    async def _find_layout(self) -> SourceLayout:
        self._layout = await asyncio.to_thread(source_layout, self._location, self._record.format, self._limits)
        return self._layout

    async def _scan(self, scope: Sequence[bytes] | None) -> FolderScan:
        def scan() -> FolderScan:
            started_at = time.thread_time()
            result = scan_folder(self._layout.root, self._layout.is_wanted, scope)
            self.report.scan_s += time.thread_time() - started_at
            return result

        return await asyncio.to_thread(scan)

    async def _known_files(self, scope: Sequence[bytes] | None) -> Sequence[FollowedFile]:
        if scope is None:
            return await self._files.files(self._record.id)
        in_folders = [await self._files.files(self._record.id, name + b"/") for name in scope if name]
        return [*await self._files.find(self._record.id, scope), *(file for files in in_folders for file in files)]

    async def _inspect(self, names: Sequence[bytes], signatures: Mapping[bytes, str]) -> list[ChangedFile]:
        def inspect(name: bytes) -> ChangedFile:
            path, signature = self._layout.path_of(name), signatures[name]
            is_database = is_database_file(path)
            if is_database and not is_settled(signature):
                # Waiting for a moment is cheaper than reading it twice.
                time.sleep(SETTLING_PAUSE_S)
                with suppress(SourceMissing):
                    signature = self._layout.signature_of(name)
            return ChangedFile(name, path, signature, fingerprint(path), is_database)

        return await asyncio.to_thread(lambda: [inspect(name) for name in names])

    # -- importing -----------------------------------------------------------------------------------------------------

    async def _import(self, names: Sequence[bytes], signatures: Mapping[bytes, str]) -> None:
        await self._import_files(await self._inspect(names, signatures))

    async def _import_files(self, files: Sequence[ChangedFile]) -> None:
        if not files:
            return
        plain = [file for file in files if not file.is_database]
        max_bytes, deadline_s = self._settings.import_max_bytes, self._settings.fixed.import_reader_deadline_s
        async with (
            open_reader_process(self._limits, self._paths) as process,
            database_copy.open_database_copier(max_bytes, deadline_s) as copier,
        ):
            runner = ImportRunner(self._library, self._settings, self._progress, process, keeps_edits=self._keeps_edits)
            for start in range(0, len(plain), _PROBED_FILES):
                part = plain[start : start + _PROBED_FILES]
                results = await self._probe(process, [file.path for file in part])
                for file, result in zip(part, results, strict=True):
                    await self._import_file(runner, file, result)
            for file in files:
                if file.is_database:
                    reader = database_copy.DatabaseReader(copier, self._work_folder, file.path)
                    await self._import_database(runner, reader, file)

    async def _import_database(
        self, runner: ImportRunner, reader: database_copy.DatabaseReader, file: ChangedFile
    ) -> None:
        """Reads what changed, if that can be told, and everything otherwise."""
        name = os.fsdecode(file.name)
        state = self._databases.get(name)
        try:
            if state is not None and reader.is_part_enough(state):
                async with reader.copy(state) as copy:
                    if await self._import_part(runner, file, reader.copy_path, copy, state):
                        return
            async with reader.copy() as copy:
                before = self.report.changes
                [result] = await self._probe(runner.process, [reader.copy_path])
                is_read = await self._import_file(runner, file, result)
                self._databases.pop(name, None)
                if is_read and copy.position is not None:
                    has_changes = self.report.changes != before
                    after = database_copy.after_complete_read(copy.position, state, has_changes=has_changes)
                    self._databases[name] = after
        except InvalidParams as error:
            await self._save_failed(file, error.message)
            self.report.retries.add(file.name)

    async def _import_part(
        self, runner: ImportRunner, file: ChangedFile, path: Path, copy: DatabaseCopy, state: DatabaseState
    ) -> bool:
        """Returns False if the whole database must be read: a part does not tell how many conflicts and problems there
        are, and if nothing changed although the file did, something else may have."""
        if not copy.is_partial or copy.position is None:
            return False
        if copy.items:
            [discovered] = await self._probe(runner.process, [path])
            if not isinstance(discovered, DiscoveredFile):
                return False
            identities = PartIdentities(self._files, self._record, file.name)
            summary = await runner.import_file(discovered, identities, from_start=True)
            deleted = await identities.find_deleted()
            conflicts = sum(counts.conflict for counts in summary.kinds.values())
            if summary.failures or conflicts or await self._withdraw([file.name], deleted):
                return False
            self.report.add_summary(summary)
            if not is_settled(file.signature):
                self.report.retries.add(file.name)
            [row] = await self._files.find(self._record.id, [file.name])
            row = msgspec.structs.replace(row, signature=file.signature, fingerprint=file.fingerprint)
            await self._files.save_part(self._record.id, row, list(identities.items.values()), deleted)
        elif pause_s := database_copy.remaining_pause_s(state):
            self.report.doubts[file.name] = pause_s
        else:
            return False
        self._databases[os.fsdecode(file.name)] = msgspec.structs.replace(state, position=copy.position)
        return True

    async def _probe(self, process: ReaderProcess, paths: Sequence[Path]) -> list[DiscoveryResult]:
        probe = partial(process.probe_files, self._layout.root, paths, self._layout.format_name)
        probing = asyncio.create_task(asyncio.to_thread(probe))
        try:
            return await asyncio.shield(probing)
        finally:
            if not probing.done():
                process.kill()
                await asyncio.gather(probing, return_exceptions=True)

    async def _import_file(self, runner: ImportRunner, file: ChangedFile, result: DiscoveryResult) -> bool:
        """Returns whether the file was read to its end."""
        if not is_settled(file.signature):
            self.report.retries.add(file.name)
        match result:
            case IgnoredFiles():
                has_items = bool(await self._files.items(self._record.id, file.name))
                await self._save_failed(file, _NOT_RECOGNIZED if has_items else "")
            case ImportProblem():
                await self._save_failed(file, result.problem)
            case DiscoveredFile():
                names = [file.name] if file.moved_from is None else [file.name, file.moved_from]
                known = await self._files.items(self._record.id, names[-1])
                if not known:
                    # A deleted file that comes back gets its items again, unless another file has them by now.
                    former = self._former.pop(_former_key(file.name), ())
                    owned = await self._files.other_owners(self._record.id, [file.name], [one.uuid for one in former])
                    known = [item for item in former if (item.kind, item.uuid) not in owned]
                identities = FileIdentities(self._files, self._record, names, known)
                is_new = not await self._files.find(self._record.id, [file.name])
                summary = await runner.import_file(result, identities, from_start=is_new)
                self.report.add_summary(summary)
                is_complete = not summary.failures
                kept = await self._withdraw(names, identities.missing()) if is_complete else []
                items = identities.all_items(keeps_known=identities.is_partial or not is_complete)
                conflicts = sum(counts.conflict for counts in summary.kinds.values()) + len(kept)
                signature = file.signature if is_complete else await self._failed_signature(file)
                row = FollowedFile(
                    name=file.name,
                    signature=signature,
                    fingerprint=file.fingerprint,
                    conflicts=conflicts,
                    problem=_first_problem(summary),
                )
                await self._files.save(self._record.id, row, [*items, *kept], moved_from=file.moved_from)
                return not summary.failed_files
        return False

    async def _save_failed(self, file: ChangedFile, problem: str) -> None:
        """Keeps the items of a file that cannot be read."""
        self.report.failed += bool(problem)
        row = FollowedFile(
            name=file.name,
            signature=await self._failed_signature(file) if problem else file.signature,
            fingerprint=file.fingerprint,
            problem=problem[:_PROBLEM_CHARS],
        )
        items = await self._files.items(self._record.id, file.moved_from or file.name)
        await self._files.save(self._record.id, row, items, moved_from=file.moved_from)

    async def _failed_signature(self, file: ChangedFile) -> str:
        """Has the file read once more, unless that failed as well: its folder may have been missing for a moment, which
        the signature does not show."""
        rows = await self._files.find(self._record.id, [file.name])
        again = unsettled(file.signature)
        if any(row.signature == again and row.problem for row in rows):
            return file.signature
        self.report.retries.add(file.name)
        return again

    async def _withdraw(self, names: Sequence[bytes], items: Sequence[FollowedItem]) -> list[FollowedItem]:
        """Returns the items that are kept because they were edited in the library."""
        return await withdraw_items(
            self._library, self._record, self.report, names, items, keeps_edits=self._keeps_edits
        )

    # -- withdrawing ---------------------------------------------------------------------------------------------------

    async def _withdraw_file(self, file: FollowedFile) -> None:
        items = await self._files.items(self._record.id, file.name)
        # The messages of a conversation disappear with it.
        kept = await self._withdraw([file.name], [item for item in items if item.kind != "messages"])
        if kept:
            row = msgspec.structs.replace(file, signature="", conflicts=len(kept), problem=_DELETED_BUT_EDITED)
            await self._files.save(self._record.id, row, kept)
            self.report.conflicts += len(kept)
        else:
            # The items of a file that was renamed have ids that cannot be derived from its name, if it comes back.
            translated = [item for item in items if item.key != item.uuid]
            if translated:
                self._former[_former_key(file.name)] = translated
            await self._files.remove(self._record.id, [file.name])


def _former_key(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _is_changed(known: FollowedFile | None, signature: str) -> bool:
    return known is None or known.signature != signature or not is_settled(signature)


def _first_problem(summary: ImportSummary) -> str:
    if not summary.failures:
        return ""
    problem = next(iter(summary.problems), None)
    text = "" if problem is None else ": ".join(filter(None, (problem.location, problem.problem)))
    return (text or "not all items could be read")[:_PROBLEM_CHARS]


# -- URLs --------------------------------------------------------------------------------------------------------------
# A document is fetched, and imported if it has changed since the last time.

# Time limit for fetching a followed URL, which may be slow but must not occupy a reader for long.
_FOLLOW_URL_TIMEOUT_S = 30.0

# The name under which the document is stored among the followed files.
_NAME = b"."
# Of the end, which has the suffix.
_NAME_MAX_CHARS = 80


class UrlSync:
    """One run for one followed URL. The document is imported like a file; its first item keeps the same id, whatever
    the importer derives one from."""

    def __init__(
        self, library: Library, record: FollowRecord, settings: Settings, progress: ImportProgress, work_folder: Path
    ) -> None:
        self.report = SyncReport()
        self._library = library
        self._record = record
        self._settings = settings
        self._progress = progress
        self._work_folder = work_folder
        self._files = library.followed_files

    async def run(self, state: SourceState) -> SourceState:
        settings = self._settings
        fetch = PublicFetch(_FOLLOW_URL_TIMEOUT_S, settings.import_max_bytes, settings.follow_url_hosts)
        try:
            document = await fetch.get_document(self._record.location, state.etag, state.last_modified)
        except OutgoingRequestError as error:
            raise InvalidParams(f"the URL {error.reason}") from error
        if document is None:  # not modified
            return structs.replace(state, problem="")
        path = self._work_folder / file_name(self._record.location, document.media_type)
        await asyncio.to_thread(path.write_bytes, document.body)
        [result, *_] = await find_files([path], import_limits(settings), self._record.format)
        if isinstance(result, ImportProblem):
            raise InvalidParams(f"the document cannot be imported: {result.problem}")
        if not isinstance(result, DiscoveredFile):
            raise InvalidParams("the document is in an unsupported format")
        known = await self._files.items(self._record.id, _NAME)
        identities = _DocumentIdentities(self._files, self._record, known)
        async with open_reader_process(import_limits(settings), [path]) as process:
            runner = ImportRunner(self._library, settings, self._progress, process, keeps_edits=True)
            file = structs.replace(result, name=self._record.location[:200], has_stable_path=False)
            summary = await runner.import_file(file, identities, from_start=True)
        self.report.add_summary(summary)
        if summary.failures:
            raise InvalidParams(f"the document cannot be imported: {summary.problems[0].problem}")
        conflicts = sum(counts.conflict for counts in summary.kinds.values())
        row = FollowedFile(name=_NAME, signature=self._record.location, conflicts=conflicts)
        await self._files.save(self._record.id, row, identities.all_items(keeps_known=True))
        return structs.replace(state, etag=document.etag, last_modified=document.last_modified, problem="")


class _DocumentIdentities(FileIdentities):
    """Adds the URL to a document that does not name its own."""

    def __init__(self, files: FollowedFiles, record: FollowRecord, known: Sequence[FollowedItem]) -> None:
        super().__init__(files, record, [_NAME], known, fixed_key=record.location)
        self._url = record.location

    async def assign(self, kind: ItemKind, items: Sequence[ImportedItem]) -> Sequence[ImportedItem]:
        return [
            ImportedMedia(structs.replace(item.draft, url=self._url))
            if isinstance(item, ImportedMedia) and item.draft.url is UNSET
            else item
            for item in await super().assign(kind, items)
        ]


def file_name(url: str, media_type: str) -> str:
    """Returns a name for the document, whose suffix tells some formats apart. It becomes the title of a document
    without one."""
    parts = urlsplit(url)
    name = "".join(
        character if character.isalnum() or character in "._- " else "_"
        for character in PurePosixPath(unquote(parts.path)).name
    ).lstrip(".")[-_NAME_MAX_CHARS:]
    guessed = mimetypes.guess_extension(media_type) or ""
    name = name or (parts.hostname or "document")[:_NAME_MAX_CHARS]
    return name if PurePosixPath(name).suffix and parts.path.strip("/") else f"{name}{guessed or '.html'}"
