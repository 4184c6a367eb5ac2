"""All conversations of a user at once: out as a zip, and back in."""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from auth.context import RequestContext
from auth.principal import WRITE
from config.errors import InvalidParams, Unavailable
from config.paths import UserId
from config.settings import Settings
from server.compat.agentkit.conversations import LISTING_TOOLS, WRITING_TOOLS, conversation_operation, exporter_for
from server.compat.agentkit.exporting import line_max_bytes
from server.rest.operation import Operation, Upload, UploadRequest
from server.rest.streams import stream
from server.runtime import Runtime
from sources.importers.formats.conversation_archive.archive import ArchiveLimits, ArchiveReader
from sources.importers.formats.conversation_archive.drafts import ArchiveImportResult, import_archive

ZIP = "application/zip"
_DISPOSITION = {"Content-Disposition": 'attachment; filename="conversations.zip"'}
_RETRY_AFTER_S = 5.0


class BulkExportRequest(Struct, frozen=True, kw_only=True):
    format: Annotated[str, Meta(description="json: what the files in the zip are.")] = "json"


class ImportRequest(Struct, frozen=True, kw_only=True):
    """Everything is in the archive."""


def archive_operations(runtime: Runtime) -> list[Operation]:
    return [_export(runtime), _import(runtime)]


def _export(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: BulkExportRequest) -> Response:
        if given.format != "json":
            raise InvalidParams("Invalid format. Supported: json")
        return await stream(runtime, context, exporter_for(runtime, context).as_archive(), ZIP, _DISPOSITION)

    return conversation_operation(
        id="export_conversations",
        method="GET",
        path="/conversations/export",
        summary="Export all conversations",
        description=(
            "Every conversation of the user as a zip, streamed: a JSON file for each, and a manifest. The same "
            "conversations make the same bytes."
        ),
        input=BulkExportRequest,
        response=ZIP,
        handler=run,
        tools=LISTING_TOOLS,
    )


def _import(runtime: Runtime) -> Operation:
    settings, busy = runtime.settings, set[UserId]()

    async def run(context: RequestContext, uploaded: UploadRequest) -> ArchiveImportResult:
        if context.user_id in busy:
            raise Unavailable("an import of this user is at work", _RETRY_AFTER_S)
        busy.add(context.user_id)
        try:
            reader = ArchiveReader(uploaded.file, _limits(settings), _batch(settings))
            async with runtime.libraries.library(context) as library:
                return await import_archive(library.chats, reader, settings.import_problems_max)
        finally:
            busy.discard(context.user_id)

    return conversation_operation(
        id="import_conversations",
        method="POST",
        path="/conversations/import",
        summary="Import conversations",
        description=(
            "Take in what export_conversations gave, of this user or another server. Conversations that are there stay "
            "as they are; repeated, an import that was broken off goes on."
        ),
        input=ImportRequest,
        response=ArchiveImportResult,
        handler=run,
        tools=WRITING_TOOLS,
        scope=WRITE,
        upload=Upload(ZIP, settings.import_max_bytes),
        deadline_ms=round(settings.import_deadline_s * 1000),
    )


def _limits(settings: Settings) -> ArchiveLimits:
    return ArchiveLimits(
        max_files=settings.import_max_conversations + 1,  # and the manifest
        unpacked_max_bytes=settings.import_unpacked_max_bytes,
        line_max_bytes=line_max_bytes(settings),
        whole_file_max_bytes=settings.import_file_max_bytes,
    )


def _batch(settings: Settings) -> int:
    """As many messages as are read at a time elsewhere."""
    return min(settings.chat_page_max, settings.batch_max_items)
