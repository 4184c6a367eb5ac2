"""The import page: files to upload, and the imports that this server remembers with their results.

With a script, the page uploads over the REST operations and shows the progress. Without one, its form uploads one file.
"""

import asyncio
import io
import mmap
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError, InvalidParams
from server.console.browser import CSRF_FIELD, see_other
from server.console.edit_page import bookmarklet
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import N_, _, ngettext, thousands
from server.following.deployments import FollowedDeployment
from server.following.status import FollowedSource
from server.import_board import ImportJob
from server.operations import follows, imports
from server.operations.operation import ManagedLibraryRequest, NoArguments, UploadRequest
from server.rest.forms import MULTIPART, PartHead, part_delimiter, read_part_head
from server.rest.requests import receive_upload
from server.transports.headers import Headers
from sources.importers.engine.summary import OUTCOMES, count_reason

# -- upload form -------------------------------------------------------------------------------------------------------
# Forms with one file, as browsers send them without JavaScript. The file may be large, so the body stays on disk.

# The form has a few short fields and one file.
_PARTS_MAX = 20
_HEAD_MAX_BYTES = 8 * 1024
_VALUE_MAX_BYTES = 8 * 1024


class FileRange(io.RawIOBase):
    """Some bytes of a file, as a file of their own."""

    def __init__(self, file: IO[bytes], start: int, end: int) -> None:
        super().__init__()
        self._file = file
        self._end = end
        file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]  # the buffers that io passes
        content = self._file.read(min(len(buffer), self._end - self._file.tell()))
        buffer[: len(content)] = content
        return len(content)


def read_upload_form(content_type: str, body: IO[bytes]) -> tuple[Mapping[str, str], str, IO[bytes]]:
    """Reads a body of `multipart/form-data`. Searches all of it, so it must not run on the event loop. Returns the
    fields, and the name and content of the file, both empty if none was chosen."""
    values: dict[str, str] = {}
    filename, file = "", (0, 0)
    delimiter = part_delimiter(content_type)
    body.seek(0, io.SEEK_END)
    if not body.tell():
        raise InvalidParams("form data: expected at least one part, got an empty body")
    with mmap.mmap(body.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for head, start, end in _parts(content, delimiter):
            if head.filename is None:
                value = content[start : min(end, start + _VALUE_MAX_BYTES + 1)]
                try:
                    text = value.decode()
                except UnicodeDecodeError as error:
                    raise InvalidParams(f"{head.name[:60]}: expected UTF-8 text, got other bytes") from error
                if len(value) > _VALUE_MAX_BYTES:
                    raise InvalidParams(f"{head.name[:60]}: expected at most {_VALUE_MAX_BYTES} bytes")
                values[head.name] = text
            elif head.filename:
                filename, file = head.filename, (start, end)
    return values, filename, io.BufferedReader(FileRange(body, *file))


def _parts(content: mmap.mmap, delimiter: bytes) -> Iterator[tuple[PartHead, int, int]]:
    """Yields the head of each part, and where its content begins and ends."""
    if content[: len(delimiter) - 2] != delimiter[2:]:
        raise InvalidParams("form data: expected the boundary at the start of the body")
    # The first delimiter has no line break before it.
    start = len(delimiter) - 2
    for _number in range(_PARTS_MAX):
        if content[start : start + 2] == b"--":  # the end (RFC 2046, section 5.1.1)
            return
        end = content.find(delimiter, start)
        blank_line = content.find(b"\r\n\r\n", start, start + _HEAD_MAX_BYTES)
        if blank_line < 0 or end < blank_line + 4:
            raise InvalidParams("form data: expected complete parts, got a truncated body")
        yield read_part_head(content[start:blank_line]), blank_line + 4, end
        start = end + len(delimiter)
    raise InvalidParams(f"form data: expected at most {_PARTS_MAX} parts")


FOLLOWS_PATH = "/import/follows"
_FOLLOWS_SECTION = "/import#follows"
# Each source with problems is read once more for the names of its files.
_DETAILS_MAX = 10
IMPORT_PATH = "/import"
# The fields of the form and the delimiters around the file.
_FORM_OVERHEAD_BYTES = 64 * 1024
_OUTCOME_WORDS = {
    "new": N_("new"),
    "updated": N_("updated"),
    "unchanged": N_("unchanged"),
    "kept": N_("newer here, kept"),
    "deleted": N_("deleted earlier"),
    "refused": N_("refused"),
    "total": N_("found"),
}
_MAIN_OUTCOMES = OUTCOMES[:3]


class ImportPage(LibraryPage):
    async def show(self, request: Request) -> Response:
        return await self._page(await self.admit(request, imports.list_imports))

    async def upload(self, request: Request) -> Response:
        viewer = await self.admit(request, imports.import_file)
        self._browser.check_sender(request)
        limits = await self._runtime.quotas.limits(viewer.context.user_id)
        max_bytes = limits.import_max_bytes + _FORM_OVERHEAD_BYTES
        headers = Headers(request.scope["headers"])
        with self._runtime.open_streams.enter(viewer.context.principal):
            async with receive_upload(MULTIPART, max_bytes, request, headers) as body:
                content_type = request.headers["content-type"]
                values, filename, file = await asyncio.to_thread(read_upload_form, content_type, body)
                # The token is in the body, so that it can be checked only now. The sender was checked before.
                await self._browser.check_form_token(request, values.get(CSRF_FIELD, ""))
                try:
                    if not filename:
                        raise InvalidParams("file: expected a file, got none")
                    args = imports.StartImportRequest(
                        name=filename,
                        format=values.get("format") or None,
                        dry_run=values.get("dry_run") == "true",
                    )
                    job: ImportJob = await self.run(viewer, imports.import_file, UploadRequest(args, file))
                except FlorilegiumError as error:
                    return await self._page(viewer, error=error)
        return see_other(f"{IMPORT_PATH}?job={job.id}#import-{job.id}")

    async def cancel(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, imports.cancel_import)
        job: ImportJob = await self.run(
            viewer, imports.cancel_import, imports.ImportJobRequest(id=values.get("job", ""))
        )
        return see_other(f"{IMPORT_PATH}?job={job.id}#import-{job.id}")

    async def follow(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, follows.add_follow)
        location = values.get("location", "")
        new = follows.FollowRequest(location=location.strip(), format=values.get("format") or None)
        try:
            await self.run(viewer, follows.add_follow, new)
        except FlorilegiumError as error:
            return await self._page(viewer, error=error, location=location)
        return see_other(_FOLLOWS_SECTION)

    async def change_follow(self, request: Request) -> Response:
        """Does what the button says that was pressed."""
        values = await self._browser.check_form(request)
        follow, action = values.get("follow", ""), values.get("action", "")
        operation, args = follows.run_follow, follows.FollowIdRequest(id=follow)
        match action:
            case "pause" | "resume":
                operation = follows.update_follow
                args = follows.UpdateFollowRequest(id=follow, paused=action == "pause")
            case "library" | "file":
                operation = follows.resolve_follow_conflict
                args = follows.ResolveConflictRequest(id=follow, file=values.get("file", ""), keep=action)
            case "remove":
                operation = follows.remove_follow
        await self.run(await self.admit(request, operation), operation, args)
        return see_other(_FOLLOWS_SECTION)

    async def _page(self, viewer: Viewer, error: FlorilegiumError | None = None, location: str = "") -> Response:
        # Not charged to the caller's limit: it is the same for everyone.
        formats = await imports.list_import_formats.handler(viewer.context, self._runtime, NoArguments())
        jobs = (await self.run(viewer, imports.list_imports, ManagedLibraryRequest())).imports
        listed: follows.FollowedSources = await self.run(viewer, follows.list_follows, ManagedLibraryRequest())
        # With the files that have problems, which only the operation for one source names.
        troubled = [source.id for source in listed.follows if source.conflicts or source.failed][:_DETAILS_MAX]
        details: dict[str, FollowedSource] = {
            id_: await self.run(viewer, follows.get_follow, follows.FollowIdRequest(id=id_)) for id_ in troubled
        }
        deployments: Sequence[FollowedDeployment] = ()
        if viewer.is_admin:
            deployments = (await self.run(viewer, follows.list_follow_deployments, NoArguments())).deployments
        return await self.render(
            viewer,
            "import.html",
            status=error.status if error else 200,
            bookmarklet=bookmarklet(self._browser.own_origin(viewer.request)),
            section="import",
            formats=formats.formats,
            suffixes=sorted({suffix for one in formats.formats for suffix in one.suffixes}),
            rows=[import_row(job) for job in jobs],
            is_busy=any(job.ended_at is None for job in jobs),
            opened=viewer.request.query_params.get("job", ""),
            max_bytes=self._runtime.settings.import_max_bytes,
            error=error.message if error else "",
            location=location,
            follows=[details.get(source.id, source) for source in listed.follows],
            deployments=deployments,
        )


def import_row(job: ImportJob) -> Mapping[str, Any]:
    """Returns an import as the page shows it: a result such as `12 new, 3 updated, 2 problems`, a table of counts
    by kind of item, and how many problems the summary leaves out."""
    summary = job.summary
    row: dict[str, Any] = {"job": job, "columns": (), "kinds": (), "skipped": (), "problems_left_out": 0}
    if summary is None:
        progress = {
            "waiting": _("waiting for other imports"),
            "running": ngettext("%(num)s item so far", "%(num)s items so far", job.items),
            "cancelled": ngettext("stopped after %(num)s item", "stopped after %(num)s items", job.items),
        }
        return row | {"result": progress.get(job.state, job.problem)}
    names = ["total"]
    if not job.dry_run:  # which compares nothing with the library
        counted = summary.kinds.values()
        names = [name for name in OUTCOMES if name in _MAIN_OUTCOMES or any(getattr(one, name) for one in counted)]
    totals = {name: sum(getattr(counts, name) for counts in summary.kinds.values()) for name in names}
    parts = [f"{thousands(count)} {_(_OUTCOME_WORDS[name])}" for name, count in totals.items() if count]
    if summary.failures:
        parts.append(ngettext("%(num)s problem", "%(num)s problems", summary.failures))
    result = ", ".join(parts) or _("nothing to import")
    if job.state == "failed":  # in short why nothing was imported: details and advice are listed below it
        result = job.problem.partition(";")[0]
    return row | {
        "result": result,
        "columns": [_(_OUTCOME_WORDS[name]) for name in names],
        "kinds": [(kind, [getattr(counts, name) for name in names]) for kind, counts in sorted(summary.kinds.items())],
        "skipped": [count_reason(count, reason) for reason, count in sorted(summary.skipped.items())],
        "problems_left_out": max(0, summary.failures - len(summary.problems)),
    }
