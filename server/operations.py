"""What operators and their tools ask: is it alive, is it ready, how is it doing, and where do tokens come from."""

import hmac
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.challenge import resource_metadata
from auth.principal import ADMIN, READ
from config.errors import Forbidden, StorageError, Unavailable
from server.metrics import CONTENT_TYPE, Metrics
from server.runtime import Runtime
from server.version import VERSION


class Operations:
    """Handlers for the paths beside `/mcp`."""

    def __init__(self, runtime: Runtime, metrics: Metrics) -> None:
        self._runtime = runtime
        self._metrics = metrics

    async def healthz(self, request: Request) -> Response:
        """Alive: the process answers. Nothing else is looked at, so a probe never costs more."""
        return JSONResponse({"status": "ok", "version": VERSION})

    async def readyz(self, request: Request) -> Response:
        """Ready: not stopping, the control database answers, the data directory can be written."""
        try:
            if self._runtime.open_streams.is_stopping:
                raise Unavailable("stopping")
            self._runtime.data_root.prepare()
            await self._runtime.registry.user_by_name(self._runtime.settings.single_user_name)
        except (Unavailable, StorageError):
            return JSONResponse({"status": "unavailable"}, status_code=503, headers={"Retry-After": "1"})
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """For the metrics token, or for a principal with the scope `admin`."""
        if not self._holds_metrics_token(request):
            principal = await self._runtime.authenticator.authenticate(
                request.headers.get("authorization"), address=request.client.host if request.client else ""
            )
            principal.require_scope(ADMIN)
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    async def resource_metadata(self, request: Request) -> Response:
        """RFC 9728: which authorization servers issue tokens for us."""
        return JSONResponse(resource_metadata(self._runtime.settings), headers={"Cache-Control": "max-age=3600"})

    async def ticket(self, request: Request) -> Response:
        """A short-lived single-use ticket for `/mcp/ws`, for clients that cannot set headers there."""
        self._runtime.origins.check(request.headers.get("host"), request.headers.get("origin"))
        principal = await self._runtime.authenticator.authenticate(
            request.headers.get("authorization"), address=request.client.host if request.client else ""
        )
        if not principal.scopes:
            raise Forbidden(READ)
        self._runtime.limits.user.take(principal.user_id)
        ticket, expires_in_s = self._runtime.tickets.issue(principal, time.time())
        body = {"ticket": ticket, "expires_in": expires_in_s}
        return JSONResponse(body, headers={"Cache-Control": "no-store"})

    def _holds_metrics_token(self, request: Request) -> bool:
        token = self._runtime.settings.metrics_token
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        presented = bool(token) and scheme.lower() == "bearer"
        return presented and hmac.compare_digest(sent.strip().encode(), token.encode())
