"""Exports all conversations of a user as a zip archive, and imports such an archive."""

from starlette.responses import Response

from auth.context import RequestContext
from config.errors import InvalidParams, Unavailable
from config.paths import UserId
from config.settings import Settings
from server.compat.agentkit.conversations import conversation_exporter, line_max_bytes
from server.compat.agentkit.schemas import ExportArchiveRequest
from server.rest.operation import UploadRequest, stream
from server.transports.open_streams import OpenStreams
from sources.importers.engine.limits import UNPACKED_TIMES
from sources.importers.formats.conversation_archive.archive_import import ArchiveImportResult, import_archive
from sources.importers.formats.conversation_archive.reader import ArchiveLimits, ArchiveReader
from sources.storage.contract import Libraries

ZIP = "application/zip"
_DISPOSITION = {"Content-Disposition": 'attachment; filename="conversations.zip"'}
_RETRY_AFTER_S = 5.0


class ArchiveService:
    """Each user can run one import at a time."""

    def __init__(self, libraries: Libraries, open_streams: OpenStreams, settings: Settings) -> None:
        self._libraries = libraries
        self._open_streams = open_streams
        self._settings = settings
        self._importing: set[UserId] = set()

    async def export_all(self, context: RequestContext, request: ExportArchiveRequest) -> Response:
        if request.format != "json":
            raise InvalidParams("Invalid format. Supported: json")
        exporter = conversation_exporter(self._libraries, context, self._settings)
        context.record_read("chats://")  # all conversations
        return await stream(self._open_streams, context, exporter.as_archive(), ZIP, _DISPOSITION)

    async def import_all(self, context: RequestContext, uploaded: UploadRequest) -> ArchiveImportResult:
        if context.user_id in self._importing:
            raise Unavailable("another import of this user is running", _RETRY_AFTER_S)
        self._importing.add(context.user_id)
        try:
            settings = self._settings
            limits = ArchiveLimits(
                max_files=settings.import_max_conversations + 1,  # the manifest is a file too
                unpacked_max_bytes=UNPACKED_TIMES * settings.import_max_bytes,
                line_max_bytes=line_max_bytes(settings),
                whole_file_max_bytes=settings.fixed.import_file_max_bytes,
            )
            page_messages = min(settings.message_page_max, settings.batch_max_items)
            reader = ArchiveReader(uploaded.file, limits, page_messages)
            async with self._libraries.library(context) as library:
                return await import_archive(library.chats, reader, settings.fixed.import_problems_max)
        finally:
            self._importing.discard(context.user_id)
