"""Endpoints for operators and clients' start-up: health, readiness, metrics, OAuth metadata and WebSocket tickets."""

import asyncio
import hmac
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.context import ADMIN
from auth.rate_limits import resource_metadata
from auth.registry import Registry
from config.errors import StorageError
from config.paths import DataRoot
from server.admission import IncomingRequest
from server.metrics import Metrics
from server.registry_entry import icon_file, own_entry
from server.runtime import Runtime
from server.transports.headers import Headers
from server.version import VERSION

# -- readiness ---------------------------------------------------------------------------------------------------------
# Whether the server can do its work: the control database answers and the data directory can be written.

# A disk that does not answer in this time cannot be used.
_CHECK_MAX_S = 2.0
# Anyone may ask, so that a check is made at most once per second.
_VALID_S = 1.0


class Readiness:
    def __init__(self, data_root: DataRoot, registry: Registry, user_name: str) -> None:
        self._data_root = data_root
        self._registry = registry
        self._user_name = user_name
        self._checked_at = float("-inf")
        self._checking: asyncio.Task[bool] | None = None

    async def is_ready(self) -> bool:
        """Returns the result of the last check if it is recent. Concurrent callers share one check."""
        if self._checking is None or (self._checking.done() and time.monotonic() - self._checked_at >= _VALID_S):
            self._checking = asyncio.create_task(self._check())
        try:
            async with asyncio.timeout(_CHECK_MAX_S):
                return await asyncio.shield(self._checking)
        except TimeoutError:
            return False

    async def _check(self) -> bool:
        try:
            await asyncio.to_thread(self._data_root.check_writable)
            await self._registry.user_by_name(self._user_name)
        except StorageError:
            return False
        finally:
            self._checked_at = time.monotonic()
        return True


class ServiceEndpoints:
    def __init__(self, runtime: Runtime, metrics: Metrics) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._registry_entry = own_entry(runtime.settings)
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
        expected = self._metrics.token
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        is_bearer = bool(expected) and scheme.lower() == "bearer"
        if not is_bearer or not hmac.compare_digest(token.strip().encode(), expected.encode()):
            incoming = IncomingRequest.from_scope(request.scope)
            principal = await self._runtime.admission.authenticate(incoming, incoming.headers.authorization())
            principal.require_scope(ADMIN)
        from server.metric_families import CONTENT_TYPE_LATEST  # noqa: PLC0415 - see there

        return Response(await self._metrics.render(), media_type=CONTENT_TYPE_LATEST)

    async def resource_metadata(self, request: Request) -> Response:
        """Returns the authorization servers that issue tokens for this server (RFC 9728)."""
        profile = request.path_params.get("profile")
        if profile is not None:
            self._runtime.dispatcher.profiles.get(profile)
        metadata = resource_metadata(self._runtime.settings, profile)
        return JSONResponse(metadata, headers={"Cache-Control": "no-store"})

    async def registry_list(self, request: Request) -> Response:
        """Lists this server as the only one of a registry (MCP registry API v0.1). There is no second page."""
        entry, query = self._registry_entry, request.query_params
        is_listed = (
            "cursor" not in query
            and query.get("search", "").lower() in entry["server"]["name"]
            and query.get("version", "latest") in ("latest", VERSION)
        )
        servers = [entry] if is_listed else []
        return JSONResponse({"servers": servers, "metadata": {"count": len(servers)}})

    async def registry_server(self, request: Request) -> Response:
        """Returns all versions of a server of the registry, or one of them. This server knows its own."""
        entry, version = self._registry_entry, request.path_params.get("version")
        if request.path_params["name"] != entry["server"]["name"] or version not in (None, "latest", VERSION):
            return JSONResponse({"error": "Server not found"}, 404)
        return JSONResponse(entry if version else {"servers": [entry], "metadata": {"count": 1}})

    async def icon(self, request: Request) -> Response:
        return Response(icon_file(), 200, {"Cache-Control": "public, max-age=86400"}, "image/png")

    async def ticket(self, request: Request) -> Response:
        """Issues a single-use ticket for `/mcp/ws`, for clients that cannot set headers there."""
        admitted = await self._runtime.admission.admit(IncomingRequest.from_scope(request.scope))
        ticket, expires_in_s = await self._runtime.stores.tickets.issue(admitted.principal)
        body = {"ticket": ticket, "expires_in": expires_in_s}
        return JSONResponse(body, headers={"Cache-Control": "no-store"})

    def _check_host(self, request: Request) -> None:
        self._runtime.admission.check_probe(Headers(request.scope["headers"]))
