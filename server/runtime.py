"""The services of a running server. Only `server.lifespan` constructs them."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from auth.authenticator import Authenticator, local_principal
from auth.browser_sessions import BrowserSessions
from auth.context import build_context
from auth.rate_limits import RateLimits
from config.paths import DataRoot, UserId
from server.admission import Admission, CallLimits
from server.compat.agentchatbus.service import MessageBus
from server.following.service import FollowService
from server.import_jobs import UPLOADS_FOLDER, ImportJobs
from server.protocol.dispatcher import Dispatcher
from server.protocol.legacy_sessions import LegacySessions
from server.services import Services
from server.stores import StateStores
from server.transports.client_connections import OpenStreams

T = TypeVar("T")


class Runtime(Services, frozen=True, kw_only=True):
    """All services of a running server."""

    stores: StateStores
    browser_sessions: BrowserSessions
    authenticator: Authenticator
    limits: RateLimits
    call_limits: CallLimits
    admission: Admission
    open_streams: OpenStreams
    sessions: LegacySessions
    dispatcher: Dispatcher
    imports: ImportJobs
    following: FollowService
    bus: MessageBus
    # How many exports each user is making or reading.
    exports: Counter[UserId]
    # Work that goes on after its request; cancelled when the server stops.
    background: set[asyncio.Task[Any]]

    async def run_in_background(self, work: Coroutine[Any, Any, T]) -> T | None:
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return None

    async def forget_user(self, user_id: UserId) -> None:
        # A waiting import would create the library again.
        if (owner := await self.registry.user_by_id(user_id)) is not None:
            await self.imports.forget(build_context(local_principal(owner), self.data_root, "deletion"))
        await self.following.forget(user_id)
        await self.stores.recent_calls.forget(user_id)


# -- leftovers ---------------------------------------------------------------------------------------------------------
# Removes what a killed process left behind. Only the process that holds the lock of the data directory may do this.


def remove_leftovers(root: Path) -> None:
    """Removes unfinished copies of databases and the uploads of imports that have ended with their process."""
    from sources.storage.sqlite.maintenance.backups import finish_restores  # noqa: PLC0415 - `serve --help` needs none

    for path in (*root.glob("control.db*.unfinished"), *root.glob("users/*/*/*.unfinished")):
        with suppress(OSError):
            path.unlink()
    finish_restores(DataRoot(root))
    DataRoot(root).undo_moves()
    shutil.rmtree(root / UPLOADS_FOLDER, ignore_errors=True)
