"""State between calls that is in no database: kept in this process, or in Redis if `session_url` is set.

docs/several-processes.md lists what is shared and what each process has of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from auth.rate_limits import MakeLimit, in_process_limits
from auth.state_keys import StateKeys
from auth.tickets import InProcessTickets, Tickets
from auth.used_tokens import InProcessUsedTokens, UsedTokens
from config.settings import Settings
from server.compat.agentchatbus.reply_tokens import ReplyTokenStore
from server.import_board import ImportBoard, NoImportBoard
from server.peers import NoPeers, Peers
from server.read_ahead import NoReadAhead, ReadAhead
from server.recent_calls import InProcessRecentCalls, RecentCalls
from sessions.state import InProcessSessionStates, SessionStateLimits, SessionStates
from sessions.store import InProcessSessionStore, SessionStore


class StateStores(Struct, frozen=True, kw_only=True):
    sessions: SessionStore
    session_states: SessionStates
    read_ahead: ReadAhead
    make_limit: MakeLimit
    tickets: Tickets
    used_tokens: UsedTokens
    state_keys: StateKeys
    recent_calls: RecentCalls
    peers: Peers
    import_board: ImportBoard
    # None: those of the message bus.
    reply_tokens: ReplyTokenStore | None = None


@asynccontextmanager
async def open_state_stores(settings: Settings) -> AsyncIterator[StateStores]:
    if not settings.session_url:
        yield in_process_stores(settings)
        return
    from server.redis.stores import open_redis_stores  # noqa: PLC0415 - only with session_url

    async with open_redis_stores(settings) as stores:
        yield stores


def in_process_stores(settings: Settings) -> StateStores:
    return StateStores(
        sessions=InProcessSessionStore(settings.session_ttl_s, settings.session_max, settings.session_max_per_user),
        session_states=InProcessSessionStates(session_state_limits(settings)),
        read_ahead=NoReadAhead(),
        make_limit=in_process_limits(settings),
        tickets=InProcessTickets(settings),
        used_tokens=InProcessUsedTokens(),
        state_keys=StateKeys(),
        recent_calls=InProcessRecentCalls(settings),
        peers=NoPeers(),
        import_board=NoImportBoard(),
    )


def session_state_limits(settings: Settings) -> SessionStateLimits:
    return SessionStateLimits(
        ttl_s=settings.session_ttl_s,
        seen_max=settings.session_seen_max,
        queries_max=settings.session_queries_max,
        total_max=settings.session_state_max,
        user_max=settings.session_state_max_per_user,
    )
