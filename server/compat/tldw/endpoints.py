"""tldw's HTTP endpoints for MCP. They call the dispatcher as `/mcp` does: with the same tools, scopes and limits."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from config.errors import FlorilegiumError, InvalidParams, InvalidRequest
from server.admission import AdmittedRequest, IncomingRequest, with_config_defaults
from server.compat.tldw.sessions import TldwSessions, session_name
from server.error_responses import PRIVATE_HEADERS, json_error
from server.protocol.call import NullPeer
from server.protocol.legacy_sessions import SESSION_METHODS
from server.protocol.messages import (
    MalformedMessage,
    Notification,
    Request,
    encode,
    error_message,
    read_message,
    result_message,
)
from server.protocol.request_meta import legacy_call
from server.protocol.schema import read_arguments
from server.protocol.versions import LEGACY_VERSIONS
from server.rest.errors import MethodNotAllowed
from server.runtime import Runtime
from server.transports.client_connections import decode_body
from server.transports.http_messages import HttpStatusError, error_and_status, read_body
from server.transports.websocket import WebSocketTransport
from server.version import VERSION
from sessions.session import Session, new_session_id

PREFIX = "/api/v1/mcp"
_LISTS = {"tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list"}
_PAGES_MAX = 100
# tldw's clients read every field of its results, and parse their text.
CONFIG_DEFAULTS: Mapping[str, Any] = {"hit_fields": "all", "result_text": "json"}

Endpoint = Callable[[HttpRequest, IncomingRequest, AdmittedRequest], Awaitable[Response]]


class ToolExecution(Struct, forbid_unknown_fields=True):
    tool_name: str
    arguments: dict[str, Any] = {}


def tldw_routes(runtime: Runtime) -> list[BaseRoute]:
    endpoints, websocket = (
        TldwEndpoints(runtime),
        WebSocketTransport(runtime, CONFIG_DEFAULTS, is_handshake_optional=True),
    )
    return [
        WebSocketRoute(f"{PREFIX}/ws", websocket),
        endpoints.route("/request", {"POST": endpoints.request, "DELETE": endpoints.end_session}),
        endpoints.route("/request/batch", {"POST": endpoints.batch}),
        endpoints.route("/tools/execute", {"POST": endpoints.execute}),
        endpoints.route("/modules", {"GET": endpoints.modules}),
        *(endpoints.route(f"/{name}", {"GET": endpoints.list_of(name)}) for name in _LISTS),
        Route(f"{PREFIX}/health", endpoints.health),
        Route(f"{PREFIX}/status", endpoints.health),
    ]


class TldwEndpoints:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._dispatcher = runtime.dispatcher
        self._sessions = TldwSessions(runtime.sessions)

    def route(self, path: str, methods: dict[str, Endpoint]) -> Route:
        async def serve(http: HttpRequest) -> Response:
            try:
                incoming = IncomingRequest.from_scope(http.scope)
                admitted = with_config_defaults(await self._runtime.admission.admit(incoming), CONFIG_DEFAULTS)
                if (endpoint := methods.get(http.method)) is None:
                    raise MethodNotAllowed(http.method, sorted(methods))
                return await endpoint(http, incoming, admitted)
            except HttpStatusError as error:
                return _json(error_message(None, error), error.http_status)
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
        values, batch_max = await self._read_json(http, admitted), self._runtime.settings.connection_in_flight_max
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
        await self._sessions.end(admitted, name)
        return Response(status_code=204)

    async def _respond(
        self, value: Any, incoming: IncomingRequest, admitted: AdmittedRequest, opened: str | None = None
    ) -> tuple[dict[str, Any] | None, dict[str, str]]:
        """Returns the response to a message, if it gets one, and the headers to send with it."""
        headers, request_id = dict(PRIVATE_HEADERS), None
        try:
            message = read_message(value)
            if not isinstance(message, Request):
                return (None if isinstance(message, Notification) else _unexpected_response()), headers
            request_id, name = message.id, session_name(incoming) or opened
            if message.method == "initialize":
                session = await self._sessions.initialize(admitted, name, message.params)
                headers["Mcp-Session-Id"] = name or session.id
                return result_message(message.id, self._dispatcher.initialize_result(session)), headers
            session = await self._sessions.find_or_open(admitted, name) if name else self._one_call(admitted)
            result = await self._call(admitted, session, message, has_session=name is not None)
            return result_message(message.id, result), headers
        except MalformedMessage as error:
            return error_message(error.request_id, error), headers
        except FlorilegiumError as error:
            return error_message(request_id, error), headers
        except Exception as error:
            known, _ = error_and_status(f"POST {PREFIX}/request", error)
            return error_message(request_id, known), headers

    # -- tools and lists as plain HTTP --------------------------------------------------------------------------

    async def execute(self, http: HttpRequest, _: IncomingRequest, admitted: AdmittedRequest) -> Response:
        started_at = time.perf_counter()
        value = await self._read_json(http, admitted)
        arguments = read_arguments(value if isinstance(value, dict) else {}, ToolExecution)
        message = Request("execute", "tools/call", {"name": arguments.tool_name, "arguments": arguments.arguments})
        result = await self._call(admitted, self._one_call(admitted), message)
        if result.get("isError"):
            raise InvalidParams(_first_text(result))
        return _json(
            {
                "result": _first_text(result),
                "execution_time_ms": (time.perf_counter() - started_at) * 1000,
                "module": arguments.tool_name.replace(".", "_").partition("_")[0],
            },
            headers=PRIVATE_HEADERS,
        )

    def list_of(self, name: str) -> Endpoint:
        async def respond(_: HttpRequest, __: IncomingRequest, admitted: AdmittedRequest) -> Response:
            return _json({name: await self._list(admitted, name)}, headers=PRIVATE_HEADERS)

        return respond

    async def modules(self, _: HttpRequest, __: IncomingRequest, admitted: AdmittedRequest) -> Response:
        knowledge, principal = self._runtime.knowledge, admitted.principal
        modules = [
            {"id": source.name, "name": source.title, "status": knowledge.aggregator.status_of(source.name, principal)}
            for source in knowledge.sources
            if principal.permits_source(source.name)
        ]
        return _json({"modules": modules}, headers=PRIVATE_HEADERS)

    async def _list(self, admitted: AdmittedRequest, name: str) -> list[dict[str, Any]]:
        """Returns all pages of a list: these endpoints have no cursor."""
        entries: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        for _ in range(_PAGES_MAX):
            result = await self._call(admitted, self._one_call(admitted), Request("list", _LISTS[name], params))
            entries.extend(result[name])
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        return entries

    # -- calls --------------------------------------------------------------------------------------------------

    async def _call(
        self, admitted: AdmittedRequest, session: Session, message: Request, *, has_session: bool = False
    ) -> dict[str, Any]:
        context = self._runtime.admission.context(admitted, session.id if has_session else None)
        result = dict(await self._dispatcher.dispatch(legacy_call(session, message, context, NullPeer()), message))
        if has_session and message.method in SESSION_METHODS:
            await self._runtime.sessions.save(session)
        if message.method == "tools/list":
            result["tools"] = [_as_tldw_lists(tool) for tool in result["tools"]]
        return result

    def _one_call(self, admitted: AdmittedRequest) -> Session:
        """Returns a session for a call without one. It is not stored."""
        profile = self._dispatcher.profiles.choose(admitted.principal, admitted.profile)
        owner = admitted.principal.owner()
        return Session(new_session_id(), owner, LEGACY_VERSIONS[0], "", "", {}, used_at=0, profile=profile)

    async def _read_json(self, http: HttpRequest, admitted: AdmittedRequest) -> Any:
        headers, settings = admitted.headers, self._runtime.settings
        if not headers.has_json_body():
            raise HttpStatusError("the body must be application/json", 415)
        body = await read_body(http.receive, headers.get(b"content-length"), settings.body_max_bytes)
        return decode_body(body, admitted.connection)


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(body), status, headers, "application/json")


def _as_tldw_lists(tool: dict[str, Any]) -> dict[str, Any]:
    """Lists a tool under its dotted name, and as one that the caller may run: others are not listed."""
    return {**tool, "name": tool["name"].replace("_", ".", 1), "canExecute": True}


def _first_text(result: dict[str, Any]) -> str:
    return next((part["text"] for part in result.get("content", ()) if part.get("type") == "text"), "")


def _unexpected_response() -> dict[str, Any]:
    return error_message(None, InvalidRequest("expected a request or a notification, got a response"))
