"""tldw's HTTP endpoints for MCP. They call the dispatcher as `/mcp` does: with the same tools, scopes and limits."""

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from aggregator.libraries import own_only
from auth.context import ADMIN, Owner, Principal, SessionId
from config.errors import FlorilegiumError, InvalidParams, InvalidRequest, SessionNotFound
from config.times import format_timestamp
from server.admission import AdmittedRequest, IncomingRequest, with_config_defaults
from server.error_responses import PRIVATE_HEADERS, json_error
from server.metrics import Metrics, ToolCalls
from server.protocol import messages
from server.protocol.call import Call, NullPeer, legacy_call, with_handshake_defaults
from server.protocol.legacy_sessions import SESSION_METHODS
from server.protocol.listing import as_tldw_tools
from server.protocol.schema import read_arguments
from server.rest.errors import MethodNotAllowed, Unprocessable
from server.runtime import Runtime
from server.transports.client_connections import decode_body
from server.transports.headers import SESSION, query_value
from server.transports.http import HttpStatusError, error_and_status, read_body
from server.transports.websocket import WebSocketTransport
from server.version import VERSION
from sessions.store import Session, new_session_id

# -- sessions ----------------------------------------------------------------------------------------------------------
# Sessions of tldw's clients: optional, opened without a handshake, and named by the client if it likes.

# Clients that cannot set headers, such as browsers for a WebSocket, use the query string.
_PARAMETERS = ("mcp-session-id", "mcp_session_id")
_ID_MAX_CHARS = 200


def session_name(incoming: IncomingRequest) -> str | None:
    """Returns the session id of a request, from the header or the query string.

    An id in the query string is no credential: `_id_for` binds it to the caller.
    """
    values = [incoming.headers.get(SESSION), *(query_value(incoming.query, name) for name in _PARAMETERS)]
    name = next((value for value in values if value), None)
    if name is not None and len(name) > _ID_MAX_CHARS:
        raise InvalidRequest(f"mcp-session-id: expected at most {_ID_MAX_CHARS} characters, got {len(name)}")
    return name


def _id_for(name: str, owner: Owner) -> SessionId:
    """Returns the id under which a named session is stored. It depends on the owner, so that two users or clients who
    choose the same name have different sessions."""
    text = "\0".join((owner.user_id, owner.client_id, str(owner.epoch), name))
    return SessionId(hashlib.sha256(text.encode()).hexdigest())


PREFIX = "/api/v1/mcp"
_LISTS = {"tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list"}
# A list has a few pages. The limit ends a loop over cursors that would never end.
_PAGES_MAX = 100
# The profile of a list that is empty, because it asked for an unknown catalog and nothing else.
_NO_CATALOG = ""
# tldw's scopes of tool catalogs.
_CATALOG_SCOPES = ("all", "global", "org", "team")
# tldw's clients read every field of its results, and parse their text.
CONFIG_DEFAULTS: Mapping[str, Any] = {"hit_fields": "all", "result_text": "json"}

Endpoint = Callable[[HttpRequest, IncomingRequest, AdmittedRequest], Awaitable[Response]]


class ToolExecution(Struct, forbid_unknown_fields=True):
    tool_name: str
    arguments: dict[str, Any] = {}


def tldw_routes(runtime: Runtime, metrics: Metrics) -> list[BaseRoute]:
    endpoints = TldwEndpoints(runtime, metrics)
    websocket = WebSocketTransport(runtime, CONFIG_DEFAULTS, is_for_tldw=True)
    runtime.dispatcher.add_legacy_method("modules/list", endpoints.list_modules)
    return [
        WebSocketRoute(f"{PREFIX}/ws", websocket),
        endpoints.route("/request", {"POST": endpoints.request, "DELETE": endpoints.end_session}),
        endpoints.route("/request/batch", {"POST": endpoints.batch}),
        endpoints.route("/tools/execute", {"POST": endpoints.execute}),
        endpoints.route("/modules", {"GET": endpoints.modules}),
        endpoints.route("/metrics", {"GET": endpoints.metrics}),
        endpoints.route("/tool_catalogs", {"GET": endpoints.tool_catalogs}),
        *(endpoints.route(f"/{name}", {"GET": endpoints.list_of(name)}) for name in _LISTS),
        Route(f"{PREFIX}/health", endpoints.health),
        Route(f"{PREFIX}/status", endpoints.health),
    ]


class TldwEndpoints:
    def __init__(self, runtime: Runtime, metrics: Metrics) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._dispatcher = runtime.dispatcher

    def route(self, path: str, methods: dict[str, Endpoint]) -> Route:
        async def serve(http: HttpRequest) -> Response:
            try:
                incoming = IncomingRequest.from_scope(http.scope)
                admitted = with_config_defaults(await self._runtime.admission.admit(incoming), CONFIG_DEFAULTS)
                if (endpoint := methods.get(http.method)) is None:
                    raise MethodNotAllowed(http.method, sorted(methods))
                return await endpoint(http, incoming, admitted)
            except HttpStatusError as error:
                # The body cannot be read as JSON-RPC, so that the error has no id.
                return _json(messages.error_message(None, error), error.http_status)
            except FlorilegiumError as error:
                return json_error(self._runtime.settings, error)

        return Route(f"{PREFIX}{path}", serve, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])

    async def health(self, http: HttpRequest) -> Response:
        self._runtime.admission.check_probe(IncomingRequest.from_scope(http.scope).headers)
        return _json({"status": "healthy", "version": VERSION})

    # -- JSON-RPC -----------------------------------------------------------------------------------------------

    async def request(self, http: HttpRequest, incoming: IncomingRequest, admitted: AdmittedRequest) -> Response:
        """Serves one JSON-RPC message. As in tldw, its errors have status 200, and a notification is answered 204."""
        value = await self._read_json(http, admitted)
        body, headers = await self._respond(value, incoming, admitted)
        return Response(status_code=204) if body is None else _json(body, headers=headers)

    async def batch(self, http: HttpRequest, incoming: IncomingRequest, admitted: AdmittedRequest) -> Response:
        """Serves JSON-RPC messages one after the other. A session that the batch opens holds for the rest of it."""
        values, batch_max = await self._read_json(http, admitted), self._runtime.settings.fixed.connection_in_flight_max
        if not isinstance(values, list) or not 0 < len(values) <= batch_max:
            got = f"{len(values)} messages" if isinstance(values, list) else type(values).__name__
            raise InvalidRequest(f"batch: expected an array of 1 to {batch_max} messages, got {got}")
        await self._runtime.admission.charge(admitted.principal, len(values) - 1)  # admission charged for one
        responses: list[Any] = []
        headers: dict[str, str] = dict(PRIVATE_HEADERS)
        for value in values:
            body, sent = await self._respond(value, incoming, admitted, headers.get("Mcp-Session-Id"))
            headers.update(sent)
            responses.extend(() if body is None else (body,))
        return _json(responses, headers=headers) if responses else Response(status_code=204)

    async def end_session(self, http: HttpRequest, incoming: IncomingRequest, admitted: AdmittedRequest) -> Response:
        name = session_name(incoming)
        if name is None:
            raise InvalidRequest("the mcp-session-id header is missing")
        # Opening one in order to end it could evict another, or fail at the limit.
        session = await self._find_session(admitted, name)
        if session is not None:
            await self._runtime.sessions.end(session)
        return Response(status_code=204)

    async def _respond(
        self, value: Any, incoming: IncomingRequest, admitted: AdmittedRequest, opened: str | None = None
    ) -> tuple[dict[str, Any] | None, dict[str, str]]:
        """Returns the response to a message, if it gets one, and the headers to send with it."""
        headers, request_id = dict(PRIVATE_HEADERS), None
        try:
            message = messages.read_message(value)
            if not isinstance(message, messages.Request):
                if isinstance(message, messages.Notification):
                    return None, headers
                problem = InvalidRequest("expected a request or a notification, got a response")
                return messages.error_message(None, problem), headers
            request_id, name = message.id, session_name(incoming) or opened
            if message.method == "initialize":
                session = await self._open_session(admitted, name, message.params)
                headers["Mcp-Session-Id"] = name or session.id
                return messages.result_message(message.id, self._dispatcher.initialize_result(session)), headers
            session = self._one_call(admitted)
            if name:
                session = await self._find_session(admitted, name) or await self._open_session(admitted, name, {})
            result = await self._call(admitted, session, message, has_session=name is not None)
            return messages.result_message(message.id, result), headers
        except messages.MalformedMessage as error:
            return messages.error_message(error.request_id, error), headers
        except FlorilegiumError as error:
            return messages.error_message(request_id, error), headers
        except Exception as error:
            # One message of a batch must not take the responses of the others with it.
            known, _ = error_and_status(f"POST {PREFIX}/request", error)
            return messages.error_message(request_id, known), headers

    async def _open_session(self, admitted: AdmittedRequest, name: str | None, params: dict[str, object]) -> Session:
        session_id = None if name is None else _id_for(name, admitted.principal.owner())
        return await self._runtime.sessions.open(
            admitted.principal, with_handshake_defaults(params), admitted.profile, session_id=session_id
        )

    async def _find_session(self, admitted: AdmittedRequest, name: str) -> Session | None:
        """Returns the session with this id: one that `initialize` returned, or one that the client has named."""
        for session_id in (name, _id_for(name, admitted.principal.owner())):
            with suppress(SessionNotFound):
                return await self._runtime.sessions.find(session_id, admitted.principal, admitted.profile)
        return None

    # -- tools and lists as plain HTTP --------------------------------------------------------------------------

    async def execute(self, http: HttpRequest, _: IncomingRequest, admitted: AdmittedRequest) -> Response:
        started_at = time.perf_counter()
        value = await self._read_json(http, admitted)
        arguments = read_arguments(value if isinstance(value, dict) else {}, ToolExecution)
        # As a JSON-RPC message, so that the call has the same checks, limits and logs as one over MCP.
        message = messages.Request(
            "execute", "tools/call", {"name": arguments.tool_name, "arguments": arguments.arguments}
        )
        result = await self._call(admitted, self._one_call(admitted), message)
        if result.get("isError"):
            # Plain HTTP has no failed results, only error responses.
            raise InvalidParams(_first_text(result))
        return _json(
            {
                "result": _first_text(result),
                "execution_time_ms": (time.perf_counter() - started_at) * 1000,
                "module": _module_of(arguments.tool_name),
            },
            headers=PRIVATE_HEADERS,
        )

    def list_of(self, name: str) -> Endpoint:
        async def respond(_: HttpRequest, incoming: IncomingRequest, admitted: AdmittedRequest) -> Response:
            catalog = self._catalog(incoming, admitted.principal) if name == "tools" else admitted.profile
            entries = [] if catalog == _NO_CATALOG else await self._list(admitted, name, catalog)
            return _json({name: entries}, headers=PRIVATE_HEADERS)

        return respond

    async def modules(self, _: HttpRequest, __: IncomingRequest, admitted: AdmittedRequest) -> Response:
        return _json(self._modules(admitted.principal), headers=PRIVATE_HEADERS)

    async def list_modules(self, call: Call, _: Mapping[str, Any]) -> dict[str, Any]:
        """The method `modules/list` of tldw's protocol."""
        return self._modules(call.context.principal)

    def _modules(self, principal: Principal) -> dict[str, Any]:
        """Returns the sources that the caller may use, as tldw's registrations and with our `id` and `name`. A source
        that is skipped for the caller after repeated failures is inactive."""
        modules = []
        for source in self._runtime.knowledge.sources:
            if not principal.permits_source(source.name):
                continue
            is_healthy = self._runtime.knowledge.aggregator.status_of(source.name, principal) == "healthy"
            modules.append(
                {
                    "module_id": source.name,
                    "id": source.name,
                    "name": source.title,
                    "status": "active" if is_healthy else "inactive",
                    "registered_at": format_timestamp(self._metrics.started_at),
                    "last_health_check": None,
                    "error_message": None if is_healthy else "skipped after repeated failures",
                    "config": {"name": source.title, "version": VERSION, "enabled": True},
                }
            )
        return {"modules": modules}

    async def metrics(self, _: HttpRequest, __: IncomingRequest, admitted: AdmittedRequest) -> Response:
        """Calls of all users by module, so only administrators may read them, as in tldw. The module of a tool is the
        first part of its name."""
        admitted.principal.require_scope(ADMIN)
        by_module: dict[str, ToolCalls] = {source.name: ToolCalls() for source in self._runtime.knowledge.sources}
        everything = ToolCalls()
        for tool, calls in (await self._metrics.read_tool_calls()).items():
            of_tool = by_module.setdefault(_module_of(tool), ToolCalls()) if tool else ToolCalls()
            for total in (of_tool, everything):
                total.total += calls.total
                total.failed += calls.failed
                total.seconds += calls.seconds
        connections = {
            "active": sum(worker.streams for worker in (await self._metrics.read_states()).values()),
            "total_messages": everything.total,
            "total_errors": everything.failed,
        }
        modules = {
            name: {
                "requests": calls.total,
                "errors": calls.failed,
                "error_rate": calls.failed / max(calls.total, 1),
                "avg_latency_ms": calls.seconds * 1000 / max(calls.total, 1),
            }
            for name, calls in by_module.items()
        }
        return _json({"connections": connections, "modules": modules}, headers=PRIVATE_HEADERS)

    async def tool_catalogs(self, _: HttpRequest, incoming: IncomingRequest, admitted: AdmittedRequest) -> Response:
        """Lists the profiles as tldw lists tool catalogs. All are global: there are no organizations and teams."""
        scope = (query_value(incoming.query, "scope") or "all").strip().lower()
        if scope not in _CATALOG_SCOPES:
            raise Unprocessable(f"scope: expected one of {', '.join(_CATALOG_SCOPES)}, got {scope[:60]!r}")
        catalogs = [
            {
                "id": number,
                "name": name,
                "description": self._dispatcher.profiles.get(name).instructions,
                "org_id": None,
                "team_id": None,
                "is_active": True,
                "created_at": None,
                "updated_at": None,
            }
            for number, name in self._catalogs(admitted.principal).items()
            if scope in ("all", "global")
        ]
        return _json(catalogs, headers=PRIVATE_HEADERS)

    def _catalogs(self, principal: Principal) -> dict[int, str]:
        """Returns the names of the profiles by their ids in tldw's lists. A restricted key has one."""
        names = enumerate(self._dispatcher.profiles.names, 1)
        return {number: name for number, name in names if principal.profile in (None, name)}

    def _catalog(self, incoming: IncomingRequest, principal: Principal) -> str | None:
        """Returns the profile that a list of tools asks for as `catalog_id` or `catalog`. As in tldw, an unknown one
        changes nothing, unless `catalog_strict` is set: then the list is empty."""
        number, name, is_strict = (
            query_value(incoming.query, parameter) for parameter in ("catalog_id", "catalog", "catalog_strict")
        )
        if number is None and name is None:
            return None
        for known_number, known_name in self._catalogs(principal).items():
            if (number == str(known_number)) if number is not None else (name == known_name):
                return known_name
        return _NO_CATALOG if (is_strict or "").lower() in ("1", "true", "yes", "on") else None

    async def _list(self, admitted: AdmittedRequest, name: str, profile: str | None) -> list[dict[str, Any]]:
        """Returns all pages of a list: these endpoints have no cursor."""
        entries: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        session = self._one_call(admitted, profile)
        for _ in range(_PAGES_MAX):
            result = await self._call(admitted, session, messages.Request("list", _LISTS[name], params))
            entries.extend(result[name])
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        return entries

    # -- calls --------------------------------------------------------------------------------------------------

    async def _call(
        self, admitted: AdmittedRequest, session: Session, message: messages.Request, *, has_session: bool = False
    ) -> dict[str, Any]:
        # tldw knows of one library.
        context = own_only(self._runtime.admission.context(admitted, session.id if has_session else None))
        result = dict(await self._dispatcher.dispatch(legacy_call(session, message, context, NullPeer()), message))
        # These change the state of the session, such as what it has subscribed to.
        if has_session and message.method in SESSION_METHODS:
            await self._runtime.sessions.save(session)
        if message.method == "tools/list":
            return as_tldw_tools(result)
        return result

    def _one_call(self, admitted: AdmittedRequest, profile: str | None = None) -> Session:
        """Returns a session for a call without one. It is not stored."""
        profile = self._dispatcher.profiles.choose(admitted.principal, profile or admitted.profile)
        owner = admitted.principal.owner()
        return Session(new_session_id(), owner, messages.LEGACY_VERSIONS[0], "", "", {}, used_at=0, profile=profile)

    async def _read_json(self, http: HttpRequest, admitted: AdmittedRequest) -> Any:
        headers, settings = admitted.headers, self._runtime.settings
        if not headers.has_json_body():
            raise HttpStatusError("the body must be application/json", 415)
        body = await read_body(http.receive, headers, settings.body_max_bytes)
        return decode_body(body, admitted.connection)


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(messages.encode(body), status, headers, "application/json")


def _module_of(tool: str) -> str:
    return tool.replace(".", "_").partition("_")[0]


def _first_text(result: dict[str, Any]) -> str:
    return next((part["text"] for part in result.get("content", ()) if part.get("type") == "text"), "")
