"""The services of a running server. Only `server.lifespan` constructs them."""

from collections.abc import Sequence

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
from config.paths import DataRoot
from config.settings import Settings
from server.admission import Admission
from server.call_limits import CallLimits
from server.compat.agentchatbus.service import MessageBus
from server.following.service import FollowService
from server.import_jobs import ImportJobs
from server.protocol.dispatcher import Dispatcher
from server.protocol.legacy_sessions import LegacySessions
from server.recent_calls import RecentCalls
from server.state_stores import StateStores
from server.transports.open_streams import OpenStreams
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
