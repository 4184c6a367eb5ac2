"""The services of a running server. Only `server.lifespan` constructs them."""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from aggregator.retrieval import Retriever
from aggregator.search import Aggregator
from aggregator.similar import SimilarItems
from auth.audit import Audit
from auth.authenticator import Authenticator
from auth.browser_sessions import BrowserSessions
from auth.oauth.grants import OAuthGrants
from auth.quotas import Quotas
from auth.rate_limits import RateLimits
from auth.registry import Registry
from auth.tickets import Tickets
from config.errors import InvalidParams
from config.paths import DataRoot
from config.settings import Settings
from server.admission import Admission, CallLimits
from server.compat.agentchatbus.service import MessageBus
from server.following.service import FollowService
from server.import_jobs import UPLOADS_FOLDER, ImportJobs
from server.protocol.dispatcher import Dispatcher
from server.protocol.legacy_sessions import LegacySessions
from server.stores import RecentCalls, StateStores
from server.transports.client_connections import OpenStreams
from sessions.state import SessionStates
from sources.source import Source
from sources.storage.contract import Libraries


class Knowledge(Struct, frozen=True, kw_only=True):
    """The services that search and read libraries, shared by all transports."""

    sources: Sequence[Source]
    session_states: SessionStates
    aggregator: Aggregator
    retriever: Retriever
    similar: SimilarItems


class Runtime(Struct, frozen=True, kw_only=True):
    settings: Settings
    data_root: DataRoot
    registry: Registry
    stores: StateStores
    browser_sessions: BrowserSessions
    oauth_grants: OAuthGrants
    libraries: Libraries
    knowledge: Knowledge
    authenticator: Authenticator
    limits: RateLimits
    call_limits: CallLimits
    tickets: Tickets
    admission: Admission
    audit: Audit
    quotas: Quotas
    open_streams: OpenStreams
    sessions: LegacySessions
    dispatcher: Dispatcher
    recent_calls: RecentCalls
    imports: ImportJobs
    following: FollowService
    bus: MessageBus


# -- leftovers ---------------------------------------------------------------------------------------------------------
# Removes what a killed process left behind. Only the process that holds the lock of the data directory may do this.


def remove_leftovers(root: Path) -> None:
    """Removes unfinished copies of databases and the uploads of imports that have ended with their process."""
    for path in (*root.glob("control.db*.unfinished"), *root.glob("users/*/*/*.unfinished")):
        with suppress(OSError):
            path.unlink()
    shutil.rmtree(root / UPLOADS_FOLDER, ignore_errors=True)


# -- source names ------------------------------------------------------------------------------------------------------
# The names of the sources to which a credential can be restricted.


def require_known_sources(settings: Settings, names: Iterable[str]) -> None:
    """Raises InvalidParams for a name that no source has. Loads the sources only if a name is given."""
    requested = tuple(names)
    if not requested:
        return
    from sources.registry import load_sources  # noqa: PLC0415 - most commands do not need the sources

    known = [source.name for source in load_sources(settings)]
    unknown = next((name for name in requested if name not in known), None)
    if unknown is not None:
        raise InvalidParams(f"sources: expected one of {', '.join(known)}, got {unknown[:40]!r}")
