"""Where the processes of a deployment see each other's imports. A single process needs none: nothing is posted."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from auth.principal import Principal
from config.paths import UserId
from server.import_history import ImportJob

# How long an import counts as running after its process last posted it.
LEASE_S = 10.0
POST_INTERVAL_S = 1.0


class PostedImport(Struct, frozen=True):
    """An import and what another process needs to continue it: the uploaded file is `folder / job.name`."""

    job: ImportJob
    principal: Principal
    folder: str
    format_name: str | None

    @property
    def owner(self) -> UserId:
        return self.principal.user_id

    @property
    def is_active(self) -> bool:
        return self.job.state in ("waiting", "running")


class ImportBoard(Protocol):
    is_shared: bool

    async def post(self, posted: PostedImport) -> bool:
        """Shows the state of an import that this process runs. It must be repeated while the import runs. Returns false
        if another process has claimed the import, and perhaps ended it, because it was not posted in time."""
        ...

    async def remove(self, posted: PostedImport) -> None:
        """Removes an import that has ended and is in the history of its owner."""
        ...

    async def release(self, posted: PostedImport) -> None:
        """Lets another process continue the import at once, unless one does already."""
        ...

    async def list(self, owner: UserId) -> Sequence[PostedImport]:
        """Raises SharedStateUnavailable."""
        ...

    async def count_running(self, owner: UserId) -> int:
        """Returns how many imports of the user a process runs."""
        ...

    async def claim_abandoned(self) -> Sequence[PostedImport]:
        """Returns imports whose process has ended, and whose file this process can read. They now belong to it."""
        ...

    def request_cancel(self, job_id: str) -> None:
        """Asks the process that runs an import to stop it."""
        ...

    def on_cancel(self, handler: Callable[[str], None]) -> None: ...


class NoImportBoard:
    is_shared = False

    async def post(self, posted: PostedImport) -> bool:
        return True

    async def remove(self, posted: PostedImport) -> None:
        pass

    async def release(self, posted: PostedImport) -> None:
        pass

    async def list(self, owner: UserId) -> Sequence[PostedImport]:
        return ()

    async def count_running(self, owner: UserId) -> int:
        return 0

    async def claim_abandoned(self) -> Sequence[PostedImport]:
        return ()

    def request_cancel(self, job_id: str) -> None:
        pass

    def on_cancel(self, handler: Callable[[str], None]) -> None:
        pass
