"""Where a deployment keeps its data: in SQLite files of the data directory, or in PostgreSQL (`storage_url`)."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, structs

from auth.audit import AuditFile, AuditLog, PostgresAuditLog
from auth.control_database import ControlDatabase
from auth.quotas import Quotas
from auth.rate_limits import MakeLimit, in_process_limits
from auth.registry import ControlLocation
from auth.tickets import InProcessTickets, StateKeys, Tickets
from auth.tokens import InProcessUsedTokens, UsedTokens
from config.errors import ConfigurationError
from config.paths import DataRoot, UserId
from config.postgres.connection import ConnectionOptions
from config.settings import STORAGE_ENGINES, Settings
from server.compat.agentchatbus.agents import ReplyTokenStore
from server.import_board import ImportBoard, NoImportBoard
from server.protocol.catalog import LIST_KINDS, Change, ChangeFeed
from server.protocol.dispatcher import InProcessRecentCalls, RecentCalls
from sessions.state import InProcessSessionStates, SessionStateLimits, SessionStates
from sessions.store import InProcessSessionStore, SessionStore

if TYPE_CHECKING:
    from sources.semantic.service import SemanticService
    from sources.storage.contract import Libraries


# Statements wait only for locks of other calls of the same user, which are short.
_POSTGRES_LOCK_TIMEOUT_MS = 2_000

# Items, queries and defaults that are kept for the sessions of all users in this process, and of one user.
_SESSION_STATE_MAX = 1_000_000
_SESSION_STATE_MAX_PER_USER = 50_000

# Recent queries explain a session to its user; older ones tell nothing.
_SESSION_QUERIES_MAX = 20

# A statement that is not answered this long after its own time limit means that the server or the network hangs, and
# the connection counts as lost.
_POSTGRES_SILENCE_MAX_MS = 5000

# PostgreSQL ends a transaction that sends no statement for this time. Ours never wait for clients inside one.
_POSTGRES_IDLE_TIMEOUT_MS = 10_000

# Connections move to a new primary or a new host behind a name within ten minutes.
_POSTGRES_CONNECTION_LIFETIME_S = 600.0


def control_location(settings: Settings, data_root: DataRoot) -> ControlLocation:
    return connection_options(settings) if _is_in_postgres(settings) else data_root.control_path


# Set in a target of `florilegium migrate-store` until it is complete: a file of the data directory, or a row of the
# table of copied libraries, in place of a user.
UNFINISHED_MIGRATION_FILE = "migrate-store.unfinished"
UNFINISHED_MIGRATION = ""


async def require_finished_migration(settings: Settings, data_root: DataRoot, database: ControlDatabase) -> None:
    """Raises ConfigurationError if the data is the target of a migration that has not ended: a server would show
    libraries that are incomplete, and lose what is written to them."""
    if _is_in_postgres(settings):
        query = "SELECT 1 FROM store_copies WHERE user_id = ?"
        rows = await database.read(lambda connection: connection.execute(query, (UNFINISHED_MIGRATION,)).fetchall())
        is_unfinished, what = bool(rows), "the database of storage_url"
    else:
        is_unfinished, what = (data_root.root / UNFINISHED_MIGRATION_FILE).exists(), f"{data_root.root}"
    if is_unfinished:
        raise ConfigurationError(
            f"{what} is the target of an unfinished `florilegium migrate-store`; run that command again until it ends "
            "without a warning"
        )


def has_control_data(settings: Settings, data_root: DataRoot) -> bool:
    """Whether there may be users. The tables of PostgreSQL are created on first use."""
    return _is_in_postgres(settings) or data_root.has_control()


def _is_in_postgres(settings: Settings) -> bool:
    """An engine that another distribution adds stores libraries only: users and keys are then in files."""
    return bool(settings.storage_url) and _added_engine(settings) is None


def _added_engine(settings: Settings) -> EntryPoint | None:
    """Returns the engine of another distribution that has the scheme of the URL."""
    scheme, separator, _ = settings.storage_url.partition("://")
    points = (point for point in entry_points(group=STORAGE_ENGINES) if separator and point.name == scheme)
    return next(points, None)


def open_audit_log(settings: Settings, data_root: DataRoot) -> AuditLog:
    if _is_in_postgres(settings):
        return PostgresAuditLog(connection_options(settings))
    return AuditFile(data_root.audit_path)


def open_libraries(
    settings: Settings,
    data_root: DataRoot,
    semantic: "SemanticService | None" = None,
    quotas: Quotas | None = None,
    *,
    embeds_in_background: bool = True,
) -> "Libraries":
    if not settings.storage_url:
        from sources.storage.sqlite import SqliteLibraries  # noqa: PLC0415 - commands that need no library start faster

        return SqliteLibraries(
            data_root, settings, semantic=semantic, quotas=quotas, embeds_in_background=embeds_in_background
        )
    if (engine := _added_engine(settings)) is not None:
        added: Libraries = engine.load()(
            data_root, settings, semantic=semantic, quotas=quotas, embeds_in_background=embeds_in_background
        )
        return added
    from sources.storage.postgres import PostgresLibraries, PostgresOptions  # noqa: PLC0415 - as above

    options = PostgresOptions(
        **structs.asdict(connection_options(settings)),
        connections=settings.postgres_connections,
        lock_timeout_ms=_POSTGRES_LOCK_TIMEOUT_MS,
        idle_timeout_ms=_POSTGRES_IDLE_TIMEOUT_MS,
    )
    return PostgresLibraries(
        options, settings, semantic=semantic, quotas=quotas, embeds_in_background=embeds_in_background
    )


async def stored_bytes(settings: Settings, data_root: DataRoot, user_ids: Sequence[UserId]) -> Mapping[UserId, int]:
    """Returns how much each user stores."""
    libraries = open_libraries(settings, data_root)
    try:
        return await libraries.stored_bytes(user_ids)
    finally:
        await libraries.close()


def require_sqlite(settings: Settings, command: str, alternative: str) -> None:
    """Raises if the data is not in files. `alternative` says what to do then."""
    if settings.storage_url:
        reason = "works on SQLite files, but storage_url is set"
        raise ConfigurationError(f"`florilegium {command}` {reason}: {alternative}")


def connection_options(settings: Settings) -> ConnectionOptions:
    return ConnectionOptions(
        url=settings.storage_url,
        connect_timeout_s=settings.fixed.postgres_connect_timeout_s,
        statement_cache=settings.postgres_statement_cache,
        lifetime_s=_POSTGRES_CONNECTION_LIFETIME_S,
        silence_max_s=_POSTGRES_SILENCE_MAX_MS / 1000,
    )


# -- peers -------------------------------------------------------------------------------------------------------------
# Messages between the processes of a deployment. A single process has no peers: nothing is sent, nothing arrives.

PeerHandler = Callable[[Any], object]
# The kind of a message that a process gets from itself after messages of others may have been lost.
RECONNECTED = "reconnected"


class Peers(Protocol):
    """The bodies are what a single process does, which has no peers."""

    id: str

    def handle(self, kind: str, handler: PeerHandler) -> None:
        """Calls the handler with the content of every message of this kind that another process sends."""
        return

    def publish(self, kind: str, content: Any) -> None:
        """Sends a message to all other processes without waiting. It is lost for a process that is not connected."""
        return

    async def tell(self, kind: str, content: Any) -> None:
        """Like `publish`, but returns when the message is on its way to the other processes, or cannot be sent."""
        return

    async def send(self, peer: str, kind: str, content: Any) -> bool:
        """Sends a message to one process. Returns whether it arrived there."""
        return False

    async def hold(self, name: str, lifetime_s: float) -> None:
        """Makes known that this process has something, such as an open stream, for as long as it is repeated."""
        return

    async def release(self, name: str) -> None:
        return

    async def acquire(self, name: str, lifetime_s: float) -> bool:
        """Takes or extends a lease that one process at a time has. Returns whether this process has it."""
        return True

    async def holder(self, name: str) -> str | None:
        """Returns the process that has it."""
        return None


class NoPeers(Peers):
    id = ""


# -- state stores ------------------------------------------------------------------------------------------------------
# State between calls that is in no database: kept in this process, or in Redis if `session_url` is set.
#
# docs/scaling.md lists what is shared and what each process has of its own.


class StateStores(Struct, frozen=True, kw_only=True):
    sessions: SessionStore
    session_states: SessionStates
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
    from server.redis_stores import open_redis_stores  # noqa: PLC0415 - only with session_url

    async with open_redis_stores(settings) as stores:
        yield stores


def in_process_stores(settings: Settings) -> StateStores:
    return StateStores(
        sessions=InProcessSessionStore(
            settings.session_ttl_s, settings.session_max, settings.fixed.session_max_per_user
        ),
        session_states=InProcessSessionStates(session_state_limits(settings)),
        make_limit=in_process_limits(),
        tickets=InProcessTickets(settings),
        used_tokens=InProcessUsedTokens(),
        state_keys=StateKeys(),
        recent_calls=InProcessRecentCalls(),
        peers=NoPeers(),
        import_board=NoImportBoard(),
    )


def session_state_limits(settings: Settings) -> SessionStateLimits:
    return SessionStateLimits(
        ttl_s=settings.session_ttl_s,
        seen_max=settings.session_seen_max,
        queries_max=_SESSION_QUERIES_MAX,
        total_max=_SESSION_STATE_MAX,
        user_max=_SESSION_STATE_MAX_PER_USER,
    )


# -- peer messages -----------------------------------------------------------------------------------------------------
# What processes tell each other: changes for open streams, and that the control database was changed.

_CHANGED = "library changed"
_CONTROL_CHANGED = "control database changed"


def share_changes(changes: ChangeFeed, peers: Peers) -> None:
    """Notifies streams of changes that another process makes. After a lost connection every list counts as changed."""

    def deliver_all(_content: object) -> None:
        for kind in LIST_KINDS:
            changes.deliver(Change(kind))

    changes.relay = lambda change: peers.publish(_CHANGED, change)
    peers.handle(_CHANGED, lambda content: changes.deliver(msgspec.convert(content, Change)))
    peers.handle(RECONNECTED, deliver_all)


def share_revision(database: ControlDatabase, peers: Peers) -> None:
    """Makes a revocation by one process known to the others at once. SQLite needs no message: every process notices a
    changed file by itself."""
    from auth.postgres_control import PostgresControlDatabase  # noqa: PLC0415 - needs what PostgreSQL needs

    if isinstance(database, PostgresControlDatabase):
        database.announce = partial(peers.tell, _CONTROL_CHANGED)
        peers.handle(_CONTROL_CHANGED, database.advance)
