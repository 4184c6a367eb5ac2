"""Endpoints for operators and clients' start-up: health, readiness, metrics, OAuth metadata and WebSocket tickets."""

import hmac

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.challenge import resource_metadata
from auth.principal import ADMIN
from server.admission import IncomingRequest
from server.metrics import CONTENT_TYPE, Metrics
from server.readiness import Readiness
from server.runtime import Runtime
from server.transports.headers import Headers
from server.version import VERSION


class ServiceEndpoints:
    def __init__(self, runtime: Runtime, metrics: Metrics) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._readiness = Readiness(runtime.data_root, runtime.registry, runtime.settings.single_user_name)

    async def healthz(self, request: Request) -> Response:
        """Returns 200 while the process runs. Nothing else is checked, so a probe stays cheap."""
        self._check_host(request)
        return JSONResponse({"status": "ok", "version": VERSION})

    async def readyz(self, request: Request) -> Response:
        """Returns 200 if the server is not stopping, and its control database and data directory can be used."""
        self._check_host(request)
        streams = self._runtime.open_streams
        if streams.is_draining or not await self._readiness.is_ready():
            return JSONResponse({"status": "unavailable"}, status_code=503, headers={"Retry-After": "1"})
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """Requires the metrics token, or a credential with the scope `admin`."""
        self._check_host(request)
        if not self._has_metrics_token(request):
            incoming = IncomingRequest.from_scope(request.scope)
            principal = await self._runtime.admission.authenticate(incoming, incoming.authorization)
            principal.require_scope(ADMIN)
        return Response(await self._metrics.render(), media_type=CONTENT_TYPE)

    async def resource_metadata(self, request: Request) -> Response:
        """Returns the authorization servers that issue tokens for this server (RFC 9728)."""
        profile = request.path_params.get("profile")
        if profile is not None:
            self._runtime.dispatcher.profiles.get(profile)
        metadata = resource_metadata(self._runtime.settings, profile)
        return JSONResponse(metadata, headers={"Cache-Control": "no-store"})

    async def ticket(self, request: Request) -> Response:
        """Issues a single-use ticket for `/mcp/ws`, for clients that cannot set headers there."""
        admitted = await self._runtime.admission.admit(IncomingRequest.from_scope(request.scope))
        ticket, expires_in_s = await self._runtime.tickets.issue(admitted.principal)
        body = {"ticket": ticket, "expires_in": expires_in_s}
        return JSONResponse(body, headers={"Cache-Control": "no-store"})

    def _check_host(self, request: Request) -> None:
        self._runtime.admission.check_probe(Headers(request.scope["headers"]))

    def _has_metrics_token(self, request: Request) -> bool:
        expected = self._metrics.token
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not expected or scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(token.strip().encode(), expected.encode())
