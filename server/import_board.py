"""Where the processes of a deployment see each other's imports. A single process needs none: nothing is posted."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec
from loguru import logger
from msgspec import Struct, structs

from auth.context import Principal, RequestContext
from config.errors import FlorilegiumError
from config.paths import UserId
from sources.importers.engine.summary import ImportSummary
from sources.storage.contract import Libraries, Library

# -- import history ----------------------------------------------------------------------------------------------------
# What was imported: the results of a user's imports, kept in the user's library.
#
# Dry runs are not kept, because they leave nothing behind.

ImportState = Literal["waiting", "running", "done", "cancelled", "failed"]
ENDED_STATES: tuple[ImportState, ...] = ("done", "cancelled", "failed")

# Among the bookmarks of a library, whose other names are paths and ids of files.
_NAME = "import history"
# The count of problems is kept, so that readers know that there were more.
_PROBLEMS_MAX = 20


class ImportJob(Struct, frozen=True, kw_only=True):
    """The state of an import. A waiting one goes on when another has had its turn. `summary` is present once everything
    was read. `problem` says why a failed import failed; an import that could not read anything counts as failed."""

    id: str
    state: ImportState
    name: str
    dry_run: bool
    started_at: str
    ended_at: str | None
    bytes_read: int
    bytes_total: int
    items: int
    summary: ImportSummary | None = None
    problem: str = ""


_DECODER = msgspec.json.Decoder(list[ImportJob])


class ImportHistory:
    def __init__(self, libraries: Libraries, jobs_max: int) -> None:
        self._libraries = libraries
        self._jobs_max = jobs_max
        # Two imports of one user may end at the same time.
        self._lock = asyncio.Lock()

    async def list(self, context: RequestContext) -> Sequence[ImportJob]:
        """Returns the newest import first."""
        async with self._libraries.library(context) as library:
            return await _load(library)

    async def add(self, context: RequestContext, job: ImportJob) -> None:
        """Keeps an import that has ended. It counts as imported even if this fails."""
        if job.summary is not None:
            job = structs.replace(
                job, summary=structs.replace(job.summary, problems=job.summary.problems[:_PROBLEMS_MAX])
            )
        try:
            async with self._lock, self._libraries.library(context) as library:
                jobs = [job, *await _load(library)][: self._jobs_max]
                await library.bookmarks.set(_NAME, msgspec.json.encode(jobs).decode())
        except FlorilegiumError as error:
            logger.warning("cannot keep the result of an import: {}", error.message)


async def _load(library: Library) -> Sequence[ImportJob]:
    text = await library.bookmarks.get(_NAME)
    try:
        return _DECODER.decode(text) if text is not None else ()
    except msgspec.DecodeError:  # written by a version that describes imports differently
        return ()


# How long an import counts as running after its process last posted it.
LEASE_S = 10.0
POST_INTERVAL_S = 1.0


class PostedImport(Struct, frozen=True):
    """An import and what another process needs to continue it: the uploaded file is `folder / job.name`."""

    job: ImportJob
    principal: Principal
    folder: str
    format_name: str | None
    # The person who imports into the library of a group.
    manager_id: UserId | None = None

    @property
    def owner(self) -> UserId:
        return self.principal.user_id

    @property
    def is_active(self) -> bool:
        return self.job.state in ("waiting", "running")


class ImportBoard(Protocol):
    """What an import needs from the other processes. The bodies are what a single process does: nothing is posted."""

    is_shared: bool

    async def post(self, posted: PostedImport) -> bool:
        """Shows the state of an import that this process runs. It must be repeated while the import runs. Returns false
        if another process has claimed the import, and perhaps ended it, because it was not posted in time."""
        return True

    async def remove(self, posted: PostedImport) -> None:
        """Removes an import that has ended and is in the history of its owner."""
        return

    async def release(self, posted: PostedImport) -> None:
        """Lets another process continue the import at once, unless one does already."""
        return

    async def list(self, owner: UserId) -> Sequence[PostedImport]:
        """Raises SharedStateUnavailable."""
        return ()

    async def count_running(self, owner: UserId) -> int:
        """Returns how many imports of the user a process runs."""
        return 0

    async def claim_abandoned(self) -> Sequence[PostedImport]:
        """Returns imports whose process has ended, and whose file this process can read. They now belong to it."""
        return ()

    def request_cancel(self, job_id: str) -> None:
        """Asks the process that runs an import to stop it."""
        return

    def on_cancel(self, handler: Callable[[str], None]) -> None:
        return


class NoImportBoard(ImportBoard):
    is_shared = False
