"""Constructs the services of a server from its settings, and opens and closes them.

`server.http_services` adds those that only HTTP needs. No other module constructs services.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from loguru import logger
from msgspec import Struct

from aggregator.fanout import SearchQueue
from aggregator.retrieval import Retriever
from aggregator.search import Aggregator
from aggregator.similar import SimilarItems
from auth.audit import Audit
from auth.authenticator import Authenticator, RegistryAuthenticator
from auth.browser_sessions import BrowserSessions
from auth.oauth.grants import OAuthGrants
from auth.oauth.tokens import OAuthTokens
from auth.quotas import Quotas
from auth.rate_limits import RateLimits
from auth.registry import Registry
from auth.signing_keys import load_signing_keys
from auth.tokens import JwtVerifier
from config.errors import StorageError
from config.paths import DataRoot
from config.settings import Settings
from config.tracing import tracing
from server.admission import Admission
from server.call_limits import CallLimits
from server.compat.agentchatbus.service import MessageBus, build_message_bus
from server.compat.agentchatbus.tools import add_agentchatbus_tools
from server.compat.conversation_memory.tools import add_conversation_memory_tools
from server.compat.letta.tools import add_letta_tools
from server.following.service import FollowService, open_follow_service
from server.import_jobs import ImportJobs, open_import_jobs
from server.profiles import profiles_of
from server.protocol.call import DispatcherOptions, RequestStateSigner
from server.protocol.catalog import Catalog
from server.protocol.dispatcher import CallObserver, Dispatcher
from server.protocol.legacy_sessions import LegacySessions
from server.runtime import Knowledge, Runtime
from server.server_info import ServerInfoTool
from server.stores import (
    StateStores,
    control_location,
    in_process_stores,
    open_audit_log,
    open_libraries,
    open_state_stores,
    share_changes,
    share_revision,
)
from server.tools.knowledge import add_knowledge_tools, add_similar_tool
from server.tools.source_tools import add_sources
from server.tools.writing import add_writing_tools
from server.transports.open_streams import OpenStreams
from server.version import VERSION
from sessions.state import SessionStates
from sources.importers.registry import all_importers
from sources.registry import load_sources
from sources.semantic.service import SemanticService
from sources.storage.contract import Libraries

# Last-used times of API keys need not be exact, and storing one is a write.
_KEY_LAST_USED_FLUSH_S = 60.0

# A call is answered with 503 within a second if another process holds the lock of the control database.
_CONTROL_BUSY_TIMEOUT_S = 0.5


def build_knowledge(settings: Settings, libraries: Libraries, session_states: SessionStates | None = None) -> Knowledge:
    """Without `session_states`, they are kept in this process."""
    sources = load_sources(settings)
    session_states = session_states or in_process_stores(settings).session_states
    retriever, queue = Retriever(libraries, sources, session_states), SearchQueue(settings)
    return Knowledge(
        sources=sources,
        session_states=session_states,
        aggregator=Aggregator(libraries, sources, session_states, settings, queue=queue),
        retriever=retriever,
        similar=SimilarItems(libraries, sources, retriever, settings, queue),
    )


def build_catalog(
    settings: Settings, libraries: Libraries, knowledge: Knowledge, bus: MessageBus, quotas: Quotas | None = None
) -> Catalog:
    """Registers all tools, resources and prompts."""
    catalog = Catalog()
    add_knowledge_tools(catalog, knowledge, settings)
    add_similar_tool(catalog, knowledge.similar, settings)
    add_sources(catalog, libraries, knowledge, settings)
    add_letta_tools(catalog, libraries, settings)
    add_agentchatbus_tools(catalog, bus, settings)
    add_conversation_memory_tools(catalog, libraries, settings)
    add_writing_tools(catalog, libraries, settings)
    catalog.add_tool(ServerInfoTool(settings, knowledge.sources, libraries, quotas).as_tool())
    catalog.remove_tools_of(settings.sources_off)
    return catalog


@asynccontextmanager
async def open_runtime(
    settings: Settings,
    *,
    catalog: Catalog | None = None,
    authenticator: Authenticator | None = None,
    observer: CallObserver | None = None,
) -> AsyncIterator[Runtime]:
    """Yields the runtime, which is open for the duration of the block.

    Start-up is cheap: a user's databases are not opened before that user's first call.
    """
    async with _open_resources(settings) as resources:
        runtime = _build_runtime(settings, resources, catalog, authenticator, observer)
        if settings.session_url:
            share_changes(runtime.dispatcher.catalog.changes, runtime.stores.peers)
            share_revision(runtime.registry.database, runtime.stores.peers)
        async with _flushing(runtime):
            try:
                yield runtime
            finally:
                runtime.open_streams.stop()


class _Resources(Struct, frozen=True, kw_only=True):
    """The services that hold files, connections or tasks, and are therefore closed when the server stops."""

    data_root: DataRoot
    registry: Registry
    quotas: Quotas
    libraries: Libraries
    imports: ImportJobs
    following: FollowService
    audit: Audit
    stores: StateStores


@asynccontextmanager
async def _open_resources(settings: Settings) -> AsyncIterator[_Resources]:
    data_root = DataRoot(Path(settings.data_dir))
    data_root.prepare()
    async with (
        tracing(settings, VERSION),
        Registry.open(control_location(settings, data_root), busy_timeout_s=_CONTROL_BUSY_TIMEOUT_S) as registry,
        _semantic(settings) as semantic,
        _libraries(data_root, settings, semantic, quotas := Quotas(registry.database, settings)) as libraries,
        open_state_stores(settings) as stores,
        open_import_jobs(settings, data_root, libraries, all_importers, stores.import_board) as imports,
        open_follow_service(settings, data_root, registry, libraries, stores.peers.acquire) as following,
        _audit(data_root, settings) as audit,
    ):
        yield _Resources(
            data_root=data_root,
            registry=registry,
            quotas=quotas,
            libraries=libraries,
            imports=imports,
            following=following,
            audit=audit,
            stores=stores,
        )


def _build_runtime(
    settings: Settings,
    resources: _Resources,
    catalog: Catalog | None,
    authenticator: Authenticator | None,
    observer: CallObserver | None,
) -> Runtime:
    data_root, registry, libraries = resources.data_root, resources.registry, resources.libraries
    stores, profiles = resources.stores, profiles_of(settings)
    limits, tickets, recent_calls = (
        RateLimits.from_settings(settings, stores.make_limit),
        stores.tickets,
        stores.recent_calls,
    )
    call_limits = CallLimits(libraries, limits)
    browser_sessions = BrowserSessions(registry.database, settings)
    authenticator = authenticator or _authenticator(settings, registry, limits, browser_sessions)
    streams = OpenStreams(authenticator, settings.stream_max_per_user, settings.fixed.access_recheck_s)
    knowledge = build_knowledge(settings, libraries, stores.session_states)
    bus = build_message_bus(libraries, settings, reply_token_store=stores.reply_tokens)
    catalog = catalog or build_catalog(settings, libraries, knowledge, bus, resources.quotas)
    options, signer = _dispatcher_options(settings), RequestStateSigner(stores.state_keys)
    return Runtime(
        settings=settings,
        data_root=data_root,
        registry=registry,
        stores=stores,
        browser_sessions=browser_sessions,
        oauth_grants=OAuthGrants(registry.database, settings),
        libraries=libraries,
        knowledge=knowledge,
        authenticator=authenticator,
        limits=limits,
        call_limits=call_limits,
        tickets=tickets,
        admission=Admission(
            settings, data_root, authenticator, call_limits, tickets, profiles, streams, resources.audit
        ),
        audit=resources.audit,
        quotas=resources.quotas,
        open_streams=streams,
        sessions=LegacySessions(stores.sessions, stores.session_states, profiles),
        dispatcher=Dispatcher(catalog, options, signer, call_limits, streams, observer, profiles, recent_calls),
        recent_calls=recent_calls,
        imports=resources.imports,
        following=resources.following,
        bus=bus,
    )


@asynccontextmanager
async def _libraries(
    data_root: DataRoot, settings: Settings, semantic: SemanticService, quotas: Quotas
) -> AsyncIterator[Libraries]:
    libraries = open_libraries(settings, data_root, semantic, quotas)
    try:
        yield libraries
    finally:
        await libraries.close()


@asynccontextmanager
async def _audit(data_root: DataRoot, settings: Settings) -> AsyncIterator[Audit]:
    audit = Audit(open_audit_log(settings, data_root), settings)
    try:
        yield audit
    finally:
        await audit.close()


@asynccontextmanager
async def _semantic(settings: Settings) -> AsyncIterator[SemanticService]:
    semantic = SemanticService(settings)
    try:
        yield semantic
    finally:
        await semantic.close()


def _authenticator(
    settings: Settings, registry: Registry, limits: RateLimits, browser_sessions: BrowserSessions
) -> RegistryAuthenticator:
    keys = load_signing_keys(settings)
    verifier = JwtVerifier(settings, keys) if keys is not None else None
    oauth_tokens = OAuthTokens(registry.database, settings) if settings.has_oauth_server else None
    return RegistryAuthenticator(
        settings,
        registry,
        limits.failures,
        verifier,
        oauth_tokens=oauth_tokens,
        browser_sessions=browser_sessions,
    )


def _dispatcher_options(settings: Settings) -> DispatcherOptions:
    return DispatcherOptions(
        name="florilegium",
        title="Florilegium",
        version=VERSION,
        deadline_ms=settings.call_deadline_ms,
        recheck_s=settings.fixed.access_recheck_s,
        has_dotted_names=settings.tool_names == "dotted",
    )


@asynccontextmanager
async def _flushing(runtime: Runtime) -> AsyncIterator[None]:
    """Flushes periodically, and once more at the end."""
    flushing = asyncio.create_task(_flush_periodically(runtime))
    try:
        yield
    finally:
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        await _flush(runtime)
        runtime.admission.record_rejections(is_last=True)


async def _flush_periodically(runtime: Runtime) -> None:
    """Stores the times at which API keys were last used, and records rejected credentials."""
    while True:
        await asyncio.sleep(_KEY_LAST_USED_FLUSH_S)
        await _flush(runtime)
        runtime.admission.record_rejections()


async def _flush(runtime: Runtime) -> None:
    """Serving does not depend on it: times that cannot be stored now are kept for the next attempt."""
    try:
        await runtime.authenticator.flush()
    except StorageError as error:
        logger.warning("cannot store when API keys were last used: {}", error.message)
