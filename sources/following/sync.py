"""Brings a library up to date with a followed folder or file: imports what changed, and withdraws the items of files
that disappeared.

Items are written before the state of their file is, and both are idempotent, so that a process that is killed at any
moment repeats its last file and nothing else.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import Struct

from auth.follows import FollowRecord
from config.errors import InvalidParams
from config.settings import Settings
from sources.following.database_copy import copy_database
from sources.following.identities import FileIdentities
from sources.following.layout import SourceLayout, source_layout
from sources.following.scan import (
    FolderScan,
    SourceMissing,
    fingerprint,
    is_database_file,
    is_settled,
    scan_folder,
)
from sources.following.state import SourceState, SyncReport
from sources.following.write_back import write_notes
from sources.importers.engine.discovery import DiscoveredFile, DiscoveryResult, IgnoredFiles
from sources.importers.engine.import_runner import ImportRunner
from sources.importers.engine.limits import import_limits
from sources.importers.engine.progress import ImportProgress
from sources.importers.engine.reader_process import ReaderProcess, open_reader_process
from sources.importers.engine.summary import ImportProblem, ImportSummary
from sources.storage.contract import FollowedFile, FollowedItem, Library

# A file that an editor replaces is missing for a moment. Deleted is what is still missing after this time.
_DELETION_PAUSE_S = 0.3
_PROBED_FILES = 200
_WITHDRAWN_ITEMS = 100
_PROBLEM_CHARS = 300
_DELETED_BUT_EDITED = "deleted at its origin, but edited here; the edited item was kept"
_NOT_RECOGNIZED = "no longer in a supported format; its items were kept"
_REPLACED = (
    "most of its files are missing and the folder is not the one that was followed; nothing was deleted. If this is "
    "intended, run `florilegium follow run --accept`"
)


class _ChangedFile(Struct, frozen=True):
    name: bytes
    path: Path
    signature: str
    fingerprint: str
    is_database: bool
    moved_from: bytes | None = None


class SourceSync:
    """One run for one followed source. `work_folder` is a private folder for copies of databases."""

    def __init__(
        self,
        library: Library,
        record: FollowRecord,
        settings: Settings,
        progress: ImportProgress,
        work_folder: Path,
        *,
        keeps_edits: bool = True,
        accepts_replacement: bool = False,
    ) -> None:
        self.report = SyncReport()
        self._library = library
        self._record = record
        self._settings = settings
        self._limits = import_limits(settings)
        self._progress = progress
        self._work_folder = work_folder
        self._keeps_edits = keeps_edits
        self._accepts_replacement = accepts_replacement
        self._files = library.followed_files

    async def run(self, state: SourceState, scope: Sequence[bytes] | None = None) -> SourceState:
        """Looks at the whole source, or at the files and folders that `scope` names. Returns the new state."""
        layout = await asyncio.to_thread(source_layout, Path(self._record.location), self._record.format, self._limits)
        if layout.unit_name is not None:
            return await self._run_unit(layout, layout.unit_name, state)
        if scope is not None:
            # A file that was created in a new folder before that was watched caused no event.
            self.report.retries |= await asyncio.to_thread(_new_folders, layout, scope)
            scope = [name.rstrip(b"/") for name in scope]
        scan = await self._scan(layout, scope)
        if scope is not None and scan.root_id != state.root_id:
            scope, scan = None, await self._scan(layout, None)
        known = {file.name: file for file in await self._known_files(scope)}
        if scope is None:
            self._require_same_folder(scan, state, known)
        missing = await self._confirm_missing(layout, self._missing_names(scan, state, known))
        changed = [name for name, signature in scan.files.items() if _is_changed(known.get(name), signature)]
        files = await asyncio.to_thread(self._inspect, layout, changed, scan.files)
        files = _match_moves(files, known, missing)
        await self._import(layout, files)
        moved = {file.moved_from for file in files}
        for name in missing:
            if name not in moved:
                await self._withdraw_file(known[name])
        if self._record.writes_back:
            state = await self._write_back(layout, state)
        mounts = sorted(map(os.fsdecode, scan.mounts)) if scope is None else state.mounts
        return msgspec.structs.replace(
            state, root_id=scan.root_id, mounts=mounts, problem=_unmounted(scan, state, scope)
        )

    async def resolve(self, name: bytes, *, keeps_library: bool) -> None:
        """Settles the conflicts of a file: either the edits in the library stay, or the file overwrites them."""
        [row] = await self._files.find(self._record.id, [name])
        items = await self._files.items(self._record.id, name)
        if row.signature and keeps_library:
            await self._files.save(self._record.id, msgspec.structs.replace(row, conflicts=0), items)
        elif row.signature:
            self._keeps_edits = False
            layout = await asyncio.to_thread(
                source_layout, Path(self._record.location), self._record.format, self._limits
            )
            signature = {name: layout.signature_of(name)}
            await self._import(layout, await asyncio.to_thread(self._inspect, layout, [name], signature))
        else:
            if not keeps_library:
                self._keeps_edits = False
                await self._withdraw([name], items)
            await self._files.remove(self._record.id, [name])

    async def _write_back(self, layout: SourceLayout, state: SourceState) -> SourceState:
        """Writes edited notes to their files and reads these again, so that both are known to agree."""
        written = await write_notes(self._library, self._record, layout, state.written_until, self._limits)
        self.report.written += len(written.names)
        self.report.retries.update(written.pending)
        self._keeps_edits = False
        signatures = {name: layout.signature_of(name) for name in written.names}
        await self._import(layout, await asyncio.to_thread(self._inspect, layout, written.names, signatures))
        return msgspec.structs.replace(state, written_until=written.until)

    # -- what changed --------------------------------------------------------------------------------------------------

    async def _run_unit(self, layout: SourceLayout, name: bytes, state: SourceState) -> SourceState:
        """A single file, or a folder that is read as a whole. If it is missing, nothing is deleted."""
        signature = await asyncio.to_thread(layout.unit_signature)
        known = {file.name: file for file in await self._files.files(self._record.id)}
        if _is_changed(known.get(name), signature):
            files = await asyncio.to_thread(self._inspect, layout, [name], {name: signature})
            await self._import(layout, files)
        for other in known.keys() - {name}:
            # The folder was read file by file before, or this is a conflict of a file that no longer exists.
            await self._withdraw_file(known[other])
        return msgspec.structs.replace(state, problem="")

    async def _scan(self, layout: SourceLayout, scope: Sequence[bytes] | None) -> FolderScan:
        def scan() -> FolderScan:
            started_at = time.thread_time()
            result = scan_folder(layout.root, layout.is_wanted, scope)
            self.report.scan_s += time.thread_time() - started_at
            return result

        return await asyncio.to_thread(scan)

    async def _known_files(self, scope: Sequence[bytes] | None) -> Sequence[FollowedFile]:
        if scope is None:
            return await self._files.files(self._record.id)
        in_folders = [await self._files.files(self._record.id, name + b"/") for name in scope if name]
        return [*await self._files.find(self._record.id, scope), *(file for files in in_folders for file in files)]

    def _require_same_folder(self, scan: FolderScan, state: SourceState, known: Mapping[bytes, FollowedFile]) -> None:
        """An unmounted file system leaves an empty folder, and another one may be mounted in its place."""
        is_same = not state.root_id or state.root_id == scan.root_id
        present = sum(name in scan.files for name in known)
        if not is_same and not self._accepts_replacement and 2 * present < len(known):
            raise SourceMissing(_REPLACED)

    def _missing_names(self, scan: FolderScan, state: SourceState, known: Mapping[bytes, FollowedFile]) -> list[bytes]:
        unmounted = [os.fsencode(mount) for mount in state.mounts if os.fsencode(mount) not in scan.mounts]
        return [
            name
            for name in known
            if name not in scan.files and not scan.is_unknown(name) and not any(map(name.startswith, unmounted))
        ]

    async def _confirm_missing(self, layout: SourceLayout, names: Sequence[bytes]) -> list[bytes]:
        if not names:
            return []
        await asyncio.sleep(_DELETION_PAUSE_S)
        missing = await asyncio.to_thread(lambda: [name for name in names if not os.path.lexists(layout.path_of(name))])
        self.report.retries.update(set(names) - set(missing))
        return missing

    def _inspect(
        self, layout: SourceLayout, names: Sequence[bytes], signatures: Mapping[bytes, str]
    ) -> list[_ChangedFile]:
        paths = [layout.path_of(name) for name in names]
        return [
            _ChangedFile(name, path, signatures[name], fingerprint(path), is_database_file(path))
            for name, path in zip(names, paths, strict=True)
        ]

    # -- importing -----------------------------------------------------------------------------------------------------

    async def _import(self, layout: SourceLayout, files: Sequence[_ChangedFile]) -> None:
        if not files:
            return
        plain = [file for file in files if not file.is_database]
        async with open_reader_process(self._limits, [layout.root, self._work_folder]) as process:
            runner = ImportRunner(
                self._library,
                self._settings,
                self._progress,
                process,
                rereads_unchanged=True,
                keeps_edits=self._keeps_edits,
            )
            for start in range(0, len(plain), _PROBED_FILES):
                part = plain[start : start + _PROBED_FILES]
                results = await _probe(process, layout, [file.path for file in part])
                for file, result in zip(part, results, strict=True):
                    await self._import_file(runner, file, result)
            for file in files:
                if file.is_database:
                    await self._import_database(runner, process, layout, file)

    async def _import_database(
        self, runner: ImportRunner, process: ReaderProcess, layout: SourceLayout, file: _ChangedFile
    ) -> None:
        """Reads a copy, because the owner may write at any time. The copy has the same path each time: importers derive
        ids from it."""
        folder = self._work_folder / blake2b(os.fsencode(file.path), digest_size=8).hexdigest()
        copy = folder / file.path.name
        try:
            await asyncio.to_thread(folder.mkdir)
            await copy_database(
                file.path, copy, self._settings.import_max_bytes, self._settings.import_reader_deadline_s
            )
            [result] = await _probe(process, layout, [copy])
            await self._import_file(runner, file, result)
        except InvalidParams as error:
            await self._save_failed(file, error.message)
            self.report.retries.add(file.name)
        finally:
            await asyncio.to_thread(_remove_copy, folder)

    async def _import_file(self, runner: ImportRunner, file: _ChangedFile, result: DiscoveryResult) -> None:
        if not is_settled(file.signature):
            self.report.retries.add(file.name)
        match result:
            case IgnoredFiles():
                has_items = bool(await self._files.items(self._record.id, file.name))
                await self._save_failed(file, _NOT_RECOGNIZED if has_items else "")
            case ImportProblem():
                await self._save_failed(file, result.problem)
            case DiscoveredFile():
                await self._import_discovered(runner, file, result)

    async def _import_discovered(self, runner: ImportRunner, file: _ChangedFile, discovered: DiscoveredFile) -> None:
        names = [file.name] if file.moved_from is None else [file.name, file.moved_from]
        known = await self._files.items(self._record.id, names[-1])
        identities = FileIdentities(self._files, self._record.id, names, known)
        is_new = not await self._files.find(self._record.id, [file.name])
        summary = await runner.import_file(discovered, identities, from_start=is_new)
        self.report.add_summary(summary)
        is_complete = not summary.failures
        kept = await self._withdraw(names, identities.missing()) if is_complete else []
        items = identities.all_items(keeps_known=identities.is_partial or not is_complete)
        conflicts = sum(counts.conflict for counts in summary.kinds.values()) + len(kept)
        row = FollowedFile(
            name=file.name,
            signature=file.signature,
            fingerprint=file.fingerprint,
            conflicts=conflicts,
            problem=_first_problem(summary),
        )
        await self._files.save(self._record.id, row, [*items, *kept], moved_from=file.moved_from)

    async def _save_failed(self, file: _ChangedFile, problem: str) -> None:
        """Keeps the items of a file that cannot be read."""
        self.report.failed += bool(problem)
        row = FollowedFile(
            name=file.name,
            signature=file.signature,
            fingerprint=file.fingerprint,
            problem=problem[:_PROBLEM_CHARS],
        )
        items = await self._files.items(self._record.id, file.moved_from or file.name)
        await self._files.save(self._record.id, row, items, moved_from=file.moved_from)

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
            await self._files.remove(self._record.id, [file.name])

    async def _withdraw(self, names: Sequence[bytes], items: Sequence[FollowedItem]) -> list[FollowedItem]:
        """Withdraws items that no other file contains. Returns those that are kept because they were edited here."""
        if self._record.keeps_deleted:
            return []
        kept: list[FollowedItem] = []
        conversations = [item.uuid for item in items if item.kind == "chats"]
        # Conversations first: the messages of one that is kept are kept, too.
        for kind in sorted({item.kind for item in items}):
            of_kind = [item for item in items if item.kind == kind]
            for start in range(0, len(of_kind), _WITHDRAWN_ITEMS):
                kept += await self._withdraw_some(names, kind, of_kind[start : start + _WITHDRAWN_ITEMS], conversations)
        return kept

    async def _withdraw_some(
        self, names: Sequence[bytes], kind: str, items: Sequence[FollowedItem], conversations: Sequence[str]
    ) -> list[FollowedItem]:
        elsewhere = await self._files.other_owners(self._record.id, names, [item.uuid for item in items])
        uuids = [item.uuid for item in items if (kind, item.uuid) not in elsewhere]
        if kind == "messages":
            kept = await self._library.chats.withdraw_messages(
                uuids, outside=conversations, keeps_edits=self._keeps_edits
            )
        else:
            kept = await getattr(self._library, kind).withdraw_many(uuids, keeps_edits=self._keeps_edits)
            self.report.deleted += len(uuids) - len(kept)
        return [item for item in items if item.uuid in kept]


def _is_changed(known: FollowedFile | None, signature: str) -> bool:
    return known is None or known.signature != signature or not is_settled(signature)


def _match_moves(
    files: Sequence[_ChangedFile], known: Mapping[bytes, FollowedFile], missing: Sequence[bytes]
) -> list[_ChangedFile]:
    """A new file with the content of a missing one was renamed or moved. Of several, one with the same base name is
    preferred."""
    candidates: dict[str, list[bytes]] = {}
    for name in sorted(missing):
        if known[name].fingerprint:
            candidates.setdefault(known[name].fingerprint, []).append(name)
    matched = []
    for file in sorted(files, key=lambda file: file.name):
        names = candidates.get(file.fingerprint, []) if file.name not in known else []
        moved_from = min(names, key=lambda name: (_base_name(name) != _base_name(file.name), name), default=None)
        if moved_from is not None:
            names.remove(moved_from)
        matched.append(msgspec.structs.replace(file, moved_from=moved_from))
    return matched


def _base_name(name: bytes) -> bytes:
    return name.rpartition(b"/")[2]


def _new_folders(layout: SourceLayout, scope: Sequence[bytes]) -> set[bytes]:
    """Returns the names of folders, with a slash at the end: those are not looked at once more."""
    return {name + b"/" for name in scope if not name.endswith(b"/") and layout.path_of(name).is_dir()}


def _unmounted(scan: FolderScan, state: SourceState, scope: Sequence[bytes] | None) -> str:
    if scope is not None:
        return state.problem
    missing = [mount for mount in state.mounts if os.fsencode(mount) not in scan.mounts]
    if missing:
        return f"{missing[0].rstrip('/')}: not mounted; its items were kept"
    if scan.unreadable:
        return f"{len(scan.unreadable)} folders or files cannot be read; their items were kept"
    return ""


def _first_problem(summary: ImportSummary) -> str:
    if not summary.failures:
        return ""
    problem = next(iter(summary.problems), None)
    text = "" if problem is None else ": ".join(filter(None, (problem.location, problem.problem)))
    return (text or "not all items could be read")[:_PROBLEM_CHARS]


def _remove_copy(folder: Path) -> None:
    with suppress(OSError):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


async def _probe(process: ReaderProcess, layout: SourceLayout, paths: Sequence[Path]) -> list[DiscoveryResult]:
    probing = asyncio.create_task(asyncio.to_thread(process.probe_files, layout.root, paths, layout.format_name))
    try:
        return await asyncio.shield(probing)
    finally:
        if not probing.done():
            process.kill()
            await asyncio.gather(probing, return_exceptions=True)
