"""The import page: files to upload, and the imports that this server remembers with their results.

With a script, the page uploads over the REST operations and shows the progress. Without one, its form uploads one file.
"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError, InvalidParams
from server.console.browser import CSRF_FIELD, BrowserGuard, see_other
from server.console.follow_forms import FollowForms
from server.console.upload_form import UploadForm, read_upload_form
from server.console.viewer import LibraryPage, Viewer
from server.import_history import ImportJob
from server.rest.forms import MULTIPART
from server.rest.imports import (
    ImportEndpoints,
    ImportJobRequest,
    ListImportsRequest,
    StartImportRequest,
    cancel_import_operation,
    list_imports_operation,
    start_import_operation,
)
from server.rest.inputs import receive_upload
from server.rest.operation import Upload, UploadRequest
from server.runtime import Runtime
from server.transports.headers import Headers
from sources.importers.engine.summary import OUTCOMES, ImportSummary, count_reason

IMPORT_PATH = "/import"
# The fields of the form and the delimiters around the file.
_FORM_OVERHEAD_BYTES = 64 * 1024
_OUTCOME_WORDS = {
    "new": "new",
    "updated": "updated",
    "unchanged": "unchanged",
    "kept": "newer here, kept",
    "deleted": "deleted earlier",
    "refused": "refused",
    "total": "found",
}
_MAIN_OUTCOMES = OUTCOMES[:3]


class ImportRow(Struct, frozen=True):
    """An import as the page shows it: its result in one line, and a table of counts by kind of item."""

    job: ImportJob
    result: str
    columns: Sequence[str] = ()
    kinds: Sequence[tuple[str, Sequence[int]]] = ()
    skipped: Sequence[str] = ()
    problems_left_out: int = 0


class ImportPage(LibraryPage):
    def __init__(self, runtime: Runtime, browser: BrowserGuard) -> None:
        super().__init__(runtime, browser)
        self._endpoints = endpoints = ImportEndpoints(runtime.imports, runtime.open_streams)
        self._start = start_import_operation(endpoints, runtime.settings)
        self._list = list_imports_operation(endpoints)
        self._cancel = cancel_import_operation(endpoints)
        self.follows = FollowForms(runtime, browser)

    async def show(self, request: Request) -> Response:
        return await self._page(request, await self.admit(request, self._list))

    async def upload(self, request: Request) -> Response:
        viewer = await self.admit(request, self._start)
        self._browser.check_sender(request)
        limits = await self._runtime.quotas.limits(viewer.context.user_id)
        upload, headers = (
            Upload(MULTIPART, limits.import_max_bytes + _FORM_OVERHEAD_BYTES),
            Headers(request.scope["headers"]),
        )
        with self._runtime.open_streams.enter(viewer.context.principal):
            async with receive_upload(upload, request, headers) as body:
                form = await asyncio.to_thread(read_upload_form, request.headers["content-type"], body)
                await self._browser.check_form_token(request, form.values.get(CSRF_FIELD, ""))
                try:
                    job = await self._import(viewer, form)
                except FlorilegiumError as error:
                    return await self._page(request, viewer, error=error)
        return see_other(f"{IMPORT_PATH}?job={job.id}#import-{job.id}")

    async def cancel(self, request: Request) -> Response:
        viewer = await self.admit(request, self._cancel)
        values = await self._browser.check_form(request)
        job: ImportJob = await self.run(viewer, self._cancel, ImportJobRequest(id=values.get("job", "")))
        return see_other(f"{IMPORT_PATH}?job={job.id}#import-{job.id}")

    async def follow(self, request: Request) -> Response:
        viewer, values = await self.follows.admit_addition(request)
        try:
            await self.follows.add(viewer, values)
        except FlorilegiumError as error:
            return await self._page(request, viewer, error=error, location=values.get("location", ""))
        return see_other(f"{IMPORT_PATH}#follows")

    async def _import(self, viewer: Viewer, form: UploadForm) -> ImportJob:
        if not form.filename:
            raise InvalidParams("file: expected a file, got none")
        args = StartImportRequest(
            name=form.filename,
            format=form.values.get("format") or None,
            dry_run=form.values.get("dry_run") == "true",
        )
        job: ImportJob = await self.run(viewer, self._start, UploadRequest(args, form.file))
        return job

    async def _page(
        self, request: Request, viewer: Viewer, error: FlorilegiumError | None = None, location: str = ""
    ) -> Response:
        # Not charged to the caller's limit: it is the same for everyone.
        formats = await self._endpoints.list_formats(viewer.context, ListImportsRequest())
        jobs = (await self.run(viewer, self._list, ListImportsRequest())).imports
        return await self.render(
            request,
            viewer,
            "import.html",
            status=error.status if error else 200,
            section="import",
            formats=formats.formats,
            suffixes=sorted({suffix for one in formats.formats for suffix in one.suffixes}),
            rows=[import_row(job) for job in jobs],
            is_busy=any(job.ended_at is None for job in jobs),
            opened=request.query_params.get("job", ""),
            max_bytes=self._runtime.settings.import_max_bytes,
            error=error.message if error else "",
            location=location,
            follows=await self.follows.list(viewer),
            deployments=await self.follows.deployments(viewer),
        )


def import_row(job: ImportJob) -> ImportRow:
    summary = job.summary
    if summary is None:
        return ImportRow(job, _progress_text(job))
    # A dry run compares nothing with the library.
    names = _shown_outcomes(summary) if not job.dry_run else ["total"]
    return ImportRow(
        job,
        _result_text(job, summary),
        [_OUTCOME_WORDS[name] for name in names],
        [(kind, [getattr(counts, name) for name in names]) for kind, counts in sorted(summary.kinds.items())],
        [count_reason(count, reason) for reason, count in sorted(summary.skipped.items())],
        max(0, summary.failures - len(summary.problems)),
    )


def _shown_outcomes(summary: ImportSummary) -> list[str]:
    counts = summary.kinds.values()
    return [name for name in OUTCOMES if name in _MAIN_OUTCOMES or any(getattr(one, name) for one in counts)]


def _progress_text(job: ImportJob) -> str:
    match job.state:
        case "waiting":
            return "waiting for other imports"
        case "running":
            return f"{job.items:,} items so far"
        case "cancelled":
            return f"stopped after {job.items:,} items"
        case _:
            return job.problem


def _result_text(job: ImportJob, summary: ImportSummary) -> str:
    """Returns `12 new, 3 updated, 2 problems`, or in short why nothing was imported: details and advice are listed
    below it."""
    if job.state == "failed":
        return job.problem.partition(";")[0]
    names = ("total",) if job.dry_run else OUTCOMES
    totals = {name: sum(getattr(counts, name) for counts in summary.kinds.values()) for name in names}
    parts = [f"{count:,} {_OUTCOME_WORDS[name]}" for name, count in totals.items() if count]
    if summary.failures:
        parts.append("1 problem" if summary.failures == 1 else f"{summary.failures:,} problems")
    return ", ".join(parts) or "nothing to import"
