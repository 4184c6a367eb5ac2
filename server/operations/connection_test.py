"""The connection doctor: replays how a client connects to this server.

It only ever calls the address of the settings, so it cannot be used to reach anything else.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

from msgspec import Meta, Struct

from auth.context import READ, RequestContext
from config.errors import InvalidParams, Unavailable
from config.paths import UserId
from server.doctor.replay import FLOWS
from server.doctor.tokens import Check
from server.operations.operation import account_operation
from server.services import Services

# The key is deleted after the test; if the server is killed meanwhile, it expires.
_KEY_NAME = "Connection test"
_KEY_LIFETIME_S = 120.0
_RETRY_AFTER_S = 5.0
# The replay ends at the first hop that fails, so that a hop may take half of the time for all.
_HOP_SHARE = 0.5
# The users whose tests are running in this process: one test at a time for each.
_running: set[UserId] = set()


class ConnectionTestRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    client: Annotated[str, Meta(description=f"The client to replay: {', '.join(FLOWS)}.")] = "any"


class ConnectionReport(Struct, frozen=True):
    """The result of each hop, up to and including the first that fails."""

    url: str
    client: str
    checks: Sequence[Check]


@account_operation("POST /api/v1/connection-test", caller="unrestricted")
async def test_connection(
    context: RequestContext, services: Services, request: ConnectionTestRequest
) -> ConnectionReport:
    """Test the connection

    Replays how a client connects to the public address of this server: the call without a token, the hops of signing
    in, and a search. Says at which hop it fails, and what to change. Nothing else can be tested.
    """
    from server.doctor.replay import ConnectionReplay  # noqa: PLC0415 - only needed here

    settings, flow = services.settings, FLOWS.get(request.client)
    if flow is None:
        raise InvalidParams(f"client: expected one of {', '.join(FLOWS)}, got {request.client[:40]!r}")
    url, timeout_s = settings.resource_url, _HOP_SHARE * settings.call_deadline_ms / 1000
    if context.user_id in _running:
        raise Unavailable(f"a test is running; try again in {_RETRY_AFTER_S:.0f} s", _RETRY_AFTER_S)
    _running.add(context.user_id)
    try:
        async with _temporary_key(services, context.user_id) as secret:
            replay = ConnectionReplay(url, flow, secret, timeout_s, checks_sign_in=settings.has_oauth_server)
            return ConnectionReport(url, request.client, await replay.run())
    finally:
        _running.discard(context.user_id)


@asynccontextmanager
async def _temporary_key(services: Services, user_id: UserId) -> AsyncIterator[str]:
    """Yields the secret of a key that can only read, or nothing if the server needs no credential."""
    if not services.settings.is_auth_configured:
        yield ""
        return
    expires_at = time.time() + _KEY_LIFETIME_S
    key, secret = await services.registry.create_key(user_id, _KEY_NAME, [READ], expires_at)
    try:
        yield secret
    finally:
        await services.registry.delete_key(key.id)
