"""Replays the hops of a client's connection, and says at which one it fails and what to change.

Only the registration leaves something behind on the server: a client named "Florilegium doctor", which expires unused.
"""

# This package exists because people who add a server to a hosted client see only "failed to connect". The doctor
# sends the same requests as the client, and names the first that fails with the setting to change. Read first:
# `replay.py` (the hops in their order). `oauth_hops.py` has the clients and the hops of signing in, and `tokens.py`
# sends requests and says why a credential is refused. The checks of the machine and the settings, without a
# connection, are in `server/cli/checks.py`.

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from config.settings import is_loopback
from server.doctor.oauth_hops import (
    TOOL_NAME,
    ClientFlow,
    authorize,
    preflight,
    read_authorization_server,
    read_resource,
    register,
    try_token_endpoint,
)
from server.doctor.tokens import (
    Check,
    ExpectedToken,
    HopFailed,
    HopResponse,
    Requests,
    describe_refusal,
    response_problem,
)

# A revision with an `initialize` handshake, whose first request is the same for all clients.
_PROTOCOL_VERSION = "2025-11-25"
_INITIALIZE = {
    "protocolVersion": _PROTOCOL_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "florilegium-doctor", "version": "1"},
}


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
        self._checks: list[Check] = []
        # The current hop. A HopFailed that is raised anywhere is its failure.
        self._hop = ""
        self._session_id = ""

    async def run(self) -> list[Check]:
        """Returns the result of each hop, up to and including the first that fails."""
        try:
            await self._connect()
        except HopFailed as failure:
            self._checks.append(Check(self._hop, "fail", str(failure)))
        return self._checks

    def _passed(self, message: str) -> None:
        self._checks.append(Check(self._hop, "ok", message))

    async def _connect(self) -> None:
        flow = self._flow
        self._hop = "address"
        self._require_usable_address()
        self._passed(f"{self._url} can be used by {flow.title}")

        # Clients learn from the first response whether they need a token, and where to get one (RFC 9728 section 5).
        self._hop = "challenge"
        response = await self._send("initialize", _INITIALIZE, token="")
        needs_token = response.status != 200 or _result(response) is None
        if needs_token and response.status != 401:
            raise HopFailed(response_problem(response, self._url, flow.origin))
        challenge = response.headers.get("www-authenticate", "") if needs_token else ""
        self._passed("a call without a token is answered with 401" if needs_token else "no credential is required")

        if flow.origin:
            self._hop = "cors"
            await preflight(self._requests, self._url, flow.origin)
            self._passed(f"pages of {flow.origin} may call the server")

        # A client uses a token that it was given, instead of signing in.
        is_given = bool(self._token) and flow.accepts_keys and not self._checks_sign_in
        if needs_token and flow.has_oauth and not is_given:
            await self._sign_in(challenge)
        if self._token or not needs_token:
            await self._call(challenge)
            return
        key = "an API key" if flow.accepts_keys else "a token"
        need = "the rest needs a person who signs in" if flow.has_oauth else f"{flow.title} needs an API key"
        advice = f"pass {key} with --token - to check the calls that follow"
        self._checks.append(Check("sign-in", "warn", f"{need}; {advice}"))

    def _require_usable_address(self) -> None:
        parts, flow = urlsplit(self._url), self._flow
        host = parts.hostname or ""
        if flow.is_hosted and (parts.scheme != "https" or parts.port not in (None, 443)):
            raise HopFailed(f"{flow.title} connects from the internet and only to https:// at port 443")
        if flow.is_hosted and _is_private(host):
            raise HopFailed(f"{flow.title} connects from the internet and cannot reach {host}; use a public name")
        if parts.scheme == "http" and not is_loopback(host):
            raise HopFailed(f"{parts.netloc} is not this machine, and without TLS others can read tokens; use https://")

    async def _sign_in(self, challenge: str) -> None:
        """Replays the hops up to the page on which a person signs in."""
        self._hop = "resource metadata"
        resource = await read_resource(self._requests, self._url, challenge)
        self._passed(f"{resource.resource} is protected by {resource.authorization_server}")

        self._hop = "server metadata"
        metadata = await read_authorization_server(self._requests, resource.authorization_server)
        self._passed(f"{resource.authorization_server} offers sign-in with PKCE")

        self._hop = "registration"
        request = await register(self._requests, metadata, self._flow)
        if request is None:
            # The authorization page would fetch the document from the vendor, which the doctor cannot stand in for.
            self._passed(f"{self._flow.title} introduces itself with its metadata document")
            return
        self._passed("a client can register")

        self._hop = "authorize"
        self._passed(f"people sign in at {await authorize(self._requests, request, resource, self._flow)}")

        self._hop = "token"
        await try_token_endpoint(self._requests, request, self._flow)
        self._passed("the token endpoint answers")

    async def _call(self, challenge: str) -> None:
        """Replays what the client does once it has a token, or without one if none is needed."""
        self._hop = "initialize"
        response = await self._send("initialize", _INITIALIZE)
        if response.status in (401, 403) and self._token:
            # Compares the token with what the server publishes, or with the address if it publishes nothing usable.
            try:
                resource = await read_resource(self._requests, self._url, challenge)
                expected = ExpectedToken(resource.resource, resource.authorization_server)
            except HopFailed:
                expected = ExpectedToken(self._url)
            raise HopFailed(describe_refusal(self._token, response, expected))
        server = self._result_of(response, "initialize").get("serverInfo") or {}
        # A server without sessions sends no id, and then the calls that follow have none either.
        self._session_id = response.headers.get("mcp-session-id", "")
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._requests.post_json(self._url, message, self._headers(self._token))
        self._passed(f"{server.get('name', 'the server')} {server.get('version', '')} answers".replace("  ", " "))

        self._hop = "tools"
        result = self._result_of(await self._send("tools/list", {}), "tools/list")
        tools = [tool for tool in result.get("tools", ()) if isinstance(tool, dict)]
        names = [str(tool.get("name", "")) for tool in tools]
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
        self._passed(f"{len(names)} tools are listed")

        self._hop = "call"
        tool = next((name for name in ("knowledge_search", "search") if name in names), None)
        if tool is None:
            return
        params = {"name": tool, "arguments": {"query": "florilegium"}}
        result = self._result_of(await self._send("tools/call", params), tool)
        if result.get("isError"):
            content = result.get("content") or [{}]
            raise HopFailed(f"{tool} fails: {content[0].get('text', 'no reason given')}")
        self._passed(f"{tool} answers")

    async def _send(self, method: str, params: dict[str, Any], token: str | None = None) -> HopResponse:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self._requests.post_json(
            self._url, message, self._headers(self._token if token is None else token)
        )

    def _headers(self, token: str) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if self._session_id:
            headers |= {"Mcp-Session-Id": self._session_id, "MCP-Protocol-Version": _PROTOCOL_VERSION}
        return headers

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
    # Names are judged by their form. What they resolve to on this machine may not be what the client would get.
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".internal", ".lan", ".home.arpa"))
