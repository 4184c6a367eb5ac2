"""The connection doctor over REST: replays how a client connects to this server.

It only ever calls the address of the settings, so it cannot be used to reach anything else.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

from msgspec import Meta, Struct

from auth.context import RequestContext
from auth.principal import READ
from auth.registry import Registry
from config.errors import InvalidParams, Unavailable
from config.paths import UserId
from config.settings import Settings
from server.doctor.check import Check
from server.doctor.flows import FLOWS
from server.rest.audit import ACCOUNT_TOOLS
from server.rest.operation import Operation
from server.runtime import Runtime

_KEY_NAME = "Connection test"
_KEY_LIFETIME_S = 120.0
_RETRY_AFTER_S = 5.0
# The replay ends at the first hop that fails, so that a hop may take half of the time for all.
_HOP_SHARE = 0.5


class ConnectionTestRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    client: Annotated[str, Meta(description=f"The client to replay: {', '.join(FLOWS)}.")] = "any"


class ConnectionReport(Struct, frozen=True):
    """The result of each hop, up to and including the first that fails."""

    url: str
    client: str
    checks: Sequence[Check]


class ConnectionTests:
    """Runs one test at a time for each user. A test uses a key that can only read, and that is deleted afterwards."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._running: set[UserId] = set()

    async def run(self, context: RequestContext, request: ConnectionTestRequest) -> ConnectionReport:
        from server.doctor.replay import ConnectionReplay  # noqa: PLC0415 - only needed here

        flow = FLOWS.get(request.client)
        if flow is None:
            raise InvalidParams(f"client: expected one of {', '.join(FLOWS)}, got {request.client[:40]!r}")
        url, timeout_s = self._settings.resource_url, _HOP_SHARE * self._settings.call_deadline_ms / 1000
        async with self._turn(context.user_id), self._key(context.user_id) as secret:
            replay = ConnectionReplay(url, flow, secret, timeout_s, checks_sign_in=self._settings.has_oauth_server)
            return ConnectionReport(url, request.client, await replay.run())

    @asynccontextmanager
    async def _turn(self, user_id: UserId) -> AsyncIterator[None]:
        if user_id in self._running:
            raise Unavailable(f"a test is running; try again in {_RETRY_AFTER_S:.0f} s", _RETRY_AFTER_S)
        self._running.add(user_id)
        try:
            yield
        finally:
            self._running.discard(user_id)

    @asynccontextmanager
    async def _key(self, user_id: UserId) -> AsyncIterator[str]:
        """Yields the secret of a key, or nothing if the server needs no credential."""
        if not self._settings.is_auth_configured:
            yield ""
            return
        expires_at = time.time() + _KEY_LIFETIME_S
        key, secret = await self._registry.create_key(user_id, _KEY_NAME, [READ], expires_at)
        try:
            yield secret
        finally:
            await self._registry.delete_key(key.id)


def connection_test_operation(runtime: Runtime) -> Operation:
    return Operation(
        id="test_connection",
        method="POST",
        path="/api/v1/connection-test",
        summary="Test the connection",
        description=(
            "Replays how a client connects to the public address of this server: the call without a token, the hops of "
            "signing in, and a search. Says at which hop it fails, and what to change. Nothing else can be tested."
        ),
        input=ConnectionTestRequest,
        response=ConnectionReport,
        handler=ConnectionTests(runtime.settings, runtime.registry).run,
        caller="unrestricted",
        tools=ACCOUNT_TOOLS,
        needs_all_sources=True,
    )
