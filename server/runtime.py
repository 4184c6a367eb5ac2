"""The services of a running server. Only `server.lifespan` constructs them."""

import shutil
from contextlib import suppress
from pathlib import Path

from auth.authenticator import Authenticator
from auth.browser_sessions import BrowserSessions
from auth.rate_limits import RateLimits
from auth.tickets import Tickets
from config.paths import DataRoot, UserId
from server.admission import Admission, CallLimits
from server.compat.agentchatbus.service import MessageBus
from server.following.service import FollowService
from server.import_jobs import UPLOADS_FOLDER, ImportJobs
from server.protocol.dispatcher import Dispatcher
from server.protocol.legacy_sessions import LegacySessions
from server.services import Services
from server.stores import RecentCalls, StateStores
from server.transports.client_connections import OpenStreams


class Runtime(Services, frozen=True, kw_only=True):
    """All services of a running server."""

    stores: StateStores
    browser_sessions: BrowserSessions
    authenticator: Authenticator
    limits: RateLimits
    call_limits: CallLimits
    tickets: Tickets
    admission: Admission
    open_streams: OpenStreams
    sessions: LegacySessions
    dispatcher: Dispatcher
    recent_calls: RecentCalls
    imports: ImportJobs
    following: FollowService
    bus: MessageBus

    async def forget_user(self, user_id: UserId) -> None:
        await self.following.forget(user_id)
        await self.recent_calls.forget(user_id)


# -- leftovers ---------------------------------------------------------------------------------------------------------
# Removes what a killed process left behind. Only the process that holds the lock of the data directory may do this.


def remove_leftovers(root: Path) -> None:
    """Removes unfinished copies of databases and the uploads of imports that have ended with their process."""
    for path in (*root.glob("control.db*.unfinished"), *root.glob("users/*/*/*.unfinished")):
        with suppress(OSError):
            path.unlink()
    DataRoot(root).undo_moves()
    shutil.rmtree(root / UPLOADS_FOLDER, ignore_errors=True)
