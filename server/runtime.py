"""Everything a running server consists of, in one frozen value. It is built in `server.lifespan` and nowhere else."""

from collections.abc import Sequence

from msgspec import Struct

from aggregator.retrieval import Retriever
from aggregator.search import Aggregator
from auth.authenticator import Authenticator
from auth.rate_limits import RateLimits
from auth.registry import Registry
from auth.tickets import Tickets
from config.paths import DataRoot
from config.settings import Settings
from server.compat.agentchatbus.service import MessageBus
from server.compat.agentkit.services import AgentKit
from server.import_jobs import ImportJobs
from server.protocol.dispatcher import Dispatcher
from server.protocol.legacy_sessions import LegacySessions
from server.transports.open_streams import OpenStreams
from server.transports.origin import OriginGuard
from sessions.state import SessionStates
from sources.source import Source
from sources.storage.contract import Libraries


class Knowledge(Struct, frozen=True, kw_only=True):
    """What answers questions about libraries, behind whichever door they are asked."""

    sources: Sequence[Source]
    session_states: SessionStates
    aggregator: Aggregator
    retriever: Retriever


class Runtime(Struct, frozen=True, kw_only=True):
    settings: Settings
    data_root: DataRoot
    registry: Registry
    libraries: Libraries
    knowledge: Knowledge
    authenticator: Authenticator
    limits: RateLimits
    tickets: Tickets
    origins: OriginGuard
    open_streams: OpenStreams
    sessions: LegacySessions
    dispatcher: Dispatcher
    imports: ImportJobs
    agentkit: AgentKit
    bus: MessageBus
