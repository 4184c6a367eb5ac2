"""Replays the hops of a client's connection, and says at which one it fails and what to change.

Only the registration leaves something behind on the server: a client named "Florilegium doctor", which expires unused.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from config.settings import is_loopback
from server.doctor.oauth_hops import (
    TOOL_NAME,
    AuthorizationRequest,
    ClientFlow,
    ProtectedResource,
    authorize,
    preflight,
    read_authorization_server,
    read_resource,
    register,
    try_token_endpoint,
)
from server.doctor.requests import HopFailed, HopResponse, Requests, response_problem
from server.doctor.tokens import Check, ExpectedToken, describe_refusal

_PROTOCOL_VERSION = "2025-11-25"
_DESCRIPTION_MAX_CHARS = 2048
_INITIALIZE = {
    "protocolVersion": _PROTOCOL_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "florilegium-doctor", "version": "1"},
}


class _Session(Struct):
    """What the hops have learned so far."""

    challenge: str = ""
    needs_token: bool = False
    resource: ProtectedResource | None = None
    request: AuthorizationRequest | None = None
    session_id: str = ""
    tools: tuple[str, ...] = ()


class ConnectionReplay:
    """The connection of one client to one server. With `checks_sign_in`, the hops of signing in are replayed although
    the client could use the token."""

    def __init__(
        self, url: str, flow: ClientFlow, token: str = "", timeout_s: float = 10.0, *, checks_sign_in: bool = False
    ) -> None:
        self._url = url
        self._flow = flow
        self._token = token
        self._checks_sign_in = checks_sign_in
        self._requests = Requests(timeout_s, flow.origin)
        self._state = _Session()

    async def run(self) -> list[Check]:
        """Returns the result of each hop, up to and including the first that fails."""
        checks: list[Check] = []
        for name, hop in self._hops():
            try:
                message = await hop()
            except HopFailed as failure:
                return [*checks, Check(name, "fail", str(failure))]
            if message:
                checks.append(Check(name, "ok", message))
        if self._state.needs_token and not self._token:
            key = "an API key" if self._flow.accepts_keys else "a token"
            advice = f"pass {key} with --token - to check the calls that follow"
            if not self._flow.has_oauth:
                what_remains = f"{self._flow.title} needs an API key; {advice}"
            else:
                what_remains = f"the rest needs a person who signs in; {advice}"
            checks.append(Check("sign-in", "warn", what_remains))
        return checks

    def _hops(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        return [
            ("address", self._check_address),
            ("challenge", self._call_without_token),
            ("cors", self._check_cors),
            ("resource metadata", self._find_resource),
            ("server metadata", self._find_authorization_server),
            ("registration", self._register),
            ("authorize", self._authorize),
            ("token", self._try_token),
            ("initialize", self._initialize),
            ("tools", self._list_tools),
            ("call", self._call_tool),
        ]

    async def _check_address(self) -> str:
        parts, flow = urlsplit(self._url), self._flow
        host = parts.hostname or ""
        if flow.is_hosted and (parts.scheme != "https" or parts.port not in (None, 443)):
            raise HopFailed(f"{flow.title} connects from the internet and only to https:// at port 443")
        if flow.is_hosted and _is_private(host):
            raise HopFailed(f"{flow.title} connects from the internet and cannot reach {host}; use a public name")
        if parts.scheme == "http" and not is_loopback(host):
            raise HopFailed(f"{parts.netloc} is not this machine, and without TLS others can read tokens; use https://")
        return f"{self._url} can be used by {flow.title}"

    async def _call_without_token(self) -> str:
        response = await self._send("initialize", _INITIALIZE, token="")
        if response.status == 200 and _result(response) is not None:
            return "no credential is required"
        if response.status != 401:
            raise HopFailed(response_problem(response, self._url, self._flow.origin))
        self._state.needs_token = True
        self._state.challenge = response.headers.get("www-authenticate", "")
        return "a call without a token is answered with 401"

    async def _check_cors(self) -> str:
        if not self._flow.origin:
            return ""
        await preflight(self._requests, self._url, self._flow.origin)
        return f"pages of {self._flow.origin} may call the server"

    async def _find_resource(self) -> str:
        if not self._signs_in:
            return ""
        resource = await read_resource(self._requests, self._url, self._state.challenge)
        self._state.resource = resource
        return f"{resource.resource} is protected by {resource.authorization_server}"

    async def _find_authorization_server(self) -> str:
        if (resource := self._state.resource) is None:
            return ""
        metadata = await read_authorization_server(self._requests, resource.authorization_server)
        self._state.request = AuthorizationRequest("", metadata)
        return f"{resource.authorization_server} offers sign-in with PKCE"

    async def _register(self) -> str:
        if (request := self._state.request) is None:
            return ""
        self._state.request = await register(self._requests, request.metadata, self._flow)
        if self._state.request is None:
            return f"{self._flow.title} introduces itself with its metadata document"
        return "a client can register"

    async def _authorize(self) -> str:
        request, resource = self._state.request, self._state.resource
        if request is None or resource is None:
            return ""
        page = await authorize(self._requests, request, resource, self._flow)
        return f"people sign in at {page}"

    async def _try_token(self) -> str:
        if self._state.request is None:
            return ""
        await try_token_endpoint(self._requests, self._state.request, self._flow)
        return "the token endpoint answers"

    async def _initialize(self) -> str:
        if not self._can_call:
            return ""
        response = await self._send("initialize", _INITIALIZE)
        if response.status in (401, 403) and self._token:
            raise HopFailed(describe_refusal(self._token, response, await self._expected_token()))
        server = self._result_of(response, "initialize").get("serverInfo") or {}
        self._state.session_id = response.headers.get("mcp-session-id", "")
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._requests.post_json(self._url, message, self._call_headers(None))
        return f"{server.get('name', 'the server')} {server.get('version', '')} answers".replace("  ", " ")

    async def _list_tools(self) -> str:
        if not self._can_call:
            return ""
        result = self._result_of(await self._send("tools/list", {}), "tools/list")
        tools = [tool for tool in result.get("tools", ()) if isinstance(tool, dict)]
        names = tuple(str(tool.get("name", "")) for tool in tools)
        unusable = [name for name in names if not TOOL_NAME.fullmatch(name)]
        if unusable:
            raise HopFailed(f"clients refuse the tool name {unusable[0]!r}: set tool_names to underscore")
        if missing := self._flow.required_tools.difference(names):
            raise HopFailed(
                f"{self._flow.title} needs the tools {' and '.join(sorted(missing))}: use the address of a profile "
                "that lists them, such as /mcp or /mcp/research"
            )
        if not names:
            raise HopFailed("the credential may use no tool: give it the scope knowledge:read")
        self._state.tools = names
        return f"{len(names)} tools are listed"

    async def _call_tool(self) -> str:
        tool = next((name for name in ("knowledge_search", "search") if name in self._state.tools), None)
        if tool is None:
            return ""
        params = {"name": tool, "arguments": {"query": "florilegium"}}
        result = self._result_of(await self._send("tools/call", params), tool)
        if result.get("isError"):
            content = result.get("content") or [{}]
            raise HopFailed(f"{tool} fails: {content[0].get('text', 'no reason given')}")
        return f"{tool} answers"

    async def _expected_token(self) -> ExpectedToken:
        """Returns what the server publishes about its tokens, or the address if it publishes nothing usable."""
        try:
            resource = self._state.resource or await read_resource(self._requests, self._url, self._state.challenge)
        except HopFailed:
            return ExpectedToken(self._url)
        return ExpectedToken(resource.resource, resource.authorization_server)

    @property
    def _signs_in(self) -> bool:
        """Whether the client has to get a token: it would use one that it was given."""
        is_given = bool(self._token) and self._flow.accepts_keys and not self._checks_sign_in
        return self._state.needs_token and self._flow.has_oauth and not is_given

    @property
    def _can_call(self) -> bool:
        return bool(self._token) or not self._state.needs_token

    async def _send(self, method: str, params: dict[str, Any], token: str | None = None) -> HopResponse:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self._requests.post_json(self._url, message, self._call_headers(token))

    def _call_headers(self, token: str | None) -> dict[str, str]:
        credential = self._token if token is None else token
        return {
            **({"Authorization": f"Bearer {credential}"} if credential else {}),
            **({"Mcp-Session-Id": self._state.session_id} if self._state.session_id else {}),
            **({"MCP-Protocol-Version": _PROTOCOL_VERSION} if self._state.session_id else {}),
        }

    def _result_of(self, response: HopResponse, what: str) -> dict[str, Any]:
        result = _result(response)
        if result is None:
            message = response.error_message() or response_problem(response, self._url, self._flow.origin)
            raise HopFailed(f"{what} fails: {message}")
        return result


def _result(response: HopResponse) -> dict[str, Any] | None:
    value = response.json() if response.status == 200 else None
    result = value.get("result") if isinstance(value, dict) else None
    return result if isinstance(result, dict) else None


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".internal", ".lan", ".home.arpa"))
