"""Constructs the services of a server from its settings, and opens and closes them.

`server.http_services` adds those that only HTTP needs. No other module constructs services.
"""

# About this package: Start with `lifespan`, which constructs all services, and `admission`, the checks before any
# request is served. Then: HTTP: `app` (MCP, log lines), `web_routes` (all other routes), `error_responses`, `serving`
# (uvicorn, shutdown, reports of what blocks the event loop), `service_endpoints`. Limits: `admission`, and
# `transports/client_connections` for connections and memory. State: `stores` says what is kept in the process and what
# in Redis, `import_board`. Imports over HTTP: `import_jobs`. Processes: `worker_processes` starts several, `metrics`
# adds up what they do, `cli/serve` talks to systemd, `directory_lock` keeps a second server away from the files of the
# first. What clients see: `profiles` (lists of tools with instructions), `server_info`, `client_guides`.

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from loguru import logger

from aggregator.libraries import can_read
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
from server.admission import Admission, CallLimits
from server.compat.agentchatbus.service import MessageBus
from server.compat.agentchatbus.tools import add_agentchatbus_tools
from server.compat.conversation_memory.tools import add_conversation_memory_tools
from server.compat.letta.tools import add_letta_tools
from server.following.service import FollowService
from server.import_jobs import ImportJobs
from server.profiles import profiles_of
from server.protocol.call import DispatcherOptions, RequestStateSigner
from server.protocol.catalog import Catalog, ChangeFeed
from server.protocol.dispatcher import CallObserver, Dispatcher
from server.protocol.legacy_sessions import LegacySessions
from server.registry_entry import TITLE, presentation
from server.runtime import Runtime
from server.server_info import ServerInfoTool
from server.services import Services, build_knowledge
from server.stores import (
    control_location,
    open_audit_log,
    open_libraries,
    open_state_stores,
    require_finished_migration,
    share_changes,
    share_revision,
)
from server.tools.knowledge import add_knowledge_tools
from server.tools.source_tools import add_operations, add_sources
from server.transports.client_connections import OpenStreams
from server.version import VERSION
from sources.importers.registry import all_importers
from sources.semantic.service import SemanticService

# Last-used times of API keys need not be exact, and storing one is a write.
_KEY_LAST_USED_FLUSH_S = 60.0

# A call is answered with 503 within a second if another process holds the lock of the control database.
_CONTROL_BUSY_TIMEOUT_S = 0.5


def build_catalog(services: Services, bus: MessageBus) -> Catalog:
    """Registers all tools, resources and prompts."""
    settings, libraries, knowledge = services.settings, services.libraries, services.knowledge
    catalog = Catalog(services.changes)
    add_knowledge_tools(catalog, knowledge, settings)
    add_sources(catalog, libraries, knowledge, settings)
    add_letta_tools(catalog, libraries, settings)
    add_agentchatbus_tools(catalog, bus, settings)
    add_conversation_memory_tools(catalog, libraries, settings)
    add_operations(catalog, services)
    catalog.add_tool(ServerInfoTool(settings, knowledge.sources, libraries, services.quotas).as_tool())
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
    data_root = DataRoot(Path(settings.data_dir))
    data_root.prepare()
    # Closed in reverse order: what another service uses is closed after it.
    async with (
        tracing(settings, VERSION),
        Registry.open(control_location(settings, data_root), busy_timeout_s=_CONTROL_BUSY_TIMEOUT_S) as registry,
        _closing(SemanticService(settings)) as semantic,
        _closing(
            open_libraries(settings, data_root, semantic, quotas := Quotas(registry.database, settings))
        ) as libraries,
        open_state_stores(settings) as stores,
        ImportJobs(
            settings, data_root, libraries, all_importers, stores.import_board, registry=registry
        ).open() as imports,
        FollowService(settings, data_root, registry, libraries, stores.peers.acquire).open() as following,
        _closing(Audit(open_audit_log(settings, data_root), settings)) as audit,
    ):
        await require_finished_migration(settings, data_root, registry.database)
        profiles, limits = profiles_of(settings), RateLimits.from_settings(settings, stores.make_limit)
        call_limits = CallLimits(libraries, limits)
        browser_sessions = BrowserSessions(registry.database, settings)
        if authenticator is None:
            keys = load_signing_keys(settings)
            authenticator = RegistryAuthenticator(
                settings,
                registry,
                limits.failures,
                JwtVerifier(settings, keys) if keys is not None else None,
                oauth_tokens=OAuthTokens(registry.database, settings) if settings.has_oauth_server else None,
                browser_sessions=browser_sessions,
                audit=audit,
            )
        streams = OpenStreams(authenticator, settings.stream_max_per_user, settings.fixed.access_recheck_s)
        knowledge = build_knowledge(settings, libraries, stores.session_states)
        bus = MessageBus(libraries, settings, reply_token_store=stores.reply_tokens)
        services = Services(
            settings=settings,
            data_root=data_root,
            registry=registry,
            libraries=libraries,
            knowledge=knowledge,
            audit=audit,
            quotas=quotas,
            oauth_grants=OAuthGrants(registry.database, settings),
            changes=ChangeFeed() if catalog is None else catalog.changes,
        )
        # A change in a library of someone else is sent only to those who may still use it.
        services.changes.recheck = authenticator.recheck
        services.changes.can_read = partial(can_read, libraries, data_root)
        catalog = catalog or build_catalog(services, bus)
        options = DispatcherOptions(
            name="florilegium",
            title=TITLE,
            version=VERSION,
            deadline_ms=settings.call_deadline_ms,
            recheck_s=settings.fixed.access_recheck_s,
            has_dotted_names=settings.tool_names == "dotted",
            presentation=presentation(settings),
        )
        signer = RequestStateSigner(stores.state_keys)
        runtime = Runtime(
            **{name: getattr(services, name) for name in Services.__struct_fields__},
            stores=stores,
            browser_sessions=browser_sessions,
            authenticator=authenticator,
            limits=limits,
            call_limits=call_limits,
            admission=Admission(
                settings, data_root, authenticator, call_limits, stores.tickets, profiles, streams, audit
            ),
            open_streams=streams,
            sessions=LegacySessions(stores.sessions, stores.session_states, profiles),
            dispatcher=Dispatcher(
                catalog, options, signer, call_limits, streams, observer, profiles, stores.recent_calls
            ),
            imports=imports,
            following=following,
            bus=bus,
            exports=Counter(),
            background=set(),
        )
        # Other processes of the deployment have open streams and cached credentials of their own.
        if settings.session_url:
            share_changes(runtime.changes, stores.peers)
            share_revision(registry.database, stores.peers)
        async with _flushing(runtime):
            try:
                yield runtime
            finally:
                runtime.open_streams.stop()
                for task in (running := tuple(runtime.background)):
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)


class _Closable(Protocol):
    async def close(self) -> None: ...


_ClosableT = TypeVar("_ClosableT", bound=_Closable)


@asynccontextmanager
async def _closing(service: _ClosableT) -> AsyncIterator[_ClosableT]:
    try:
        yield service
    finally:
        await service.close()


@asynccontextmanager
async def _flushing(runtime: Runtime) -> AsyncIterator[None]:
    """Stores when API keys were last used and records rejected credentials: periodically, and once more at the end."""

    async def flush() -> None:
        # Serving does not depend on it: times that cannot be stored now are kept for the next attempt.
        try:
            await runtime.authenticator.flush()
        except StorageError as error:
            logger.warning("cannot store when API keys were last used: {}", error.message)

    async def flush_periodically() -> None:
        while True:
            await asyncio.sleep(_KEY_LAST_USED_FLUSH_S)
            await flush()
            runtime.admission.record_rejections()

    flushing = asyncio.create_task(flush_periodically())
    try:
        yield
    finally:
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        await flush()
        runtime.admission.record_rejections(is_last=True)
