"""Brings a library up to date with a document that is fetched from a URL, if it has changed since the last time."""

import asyncio
import mimetypes
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from msgspec import UNSET, structs

from auth.follows import FollowRecord
from config.errors import InvalidParams
from config.public_http import OutgoingRequestError, PublicFetch
from config.settings import Settings
from sources.following.identities import FileIdentities
from sources.following.state import SourceState, SyncReport
from sources.importers.engine.discovery import DiscoveredFile
from sources.importers.engine.events import ImportedItem, ImportedMedia, ItemKind
from sources.importers.engine.import_runner import ImportRunner
from sources.importers.engine.limits import ImportProgress, import_limits
from sources.importers.engine.reader_process import find_files, open_reader_process
from sources.importers.engine.summary import ImportProblem
from sources.storage.contract import FollowedFile, FollowedFiles, FollowedItem, Library

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
