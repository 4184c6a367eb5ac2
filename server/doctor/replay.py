"""Replays the hops of a client's connection, and says at which one it fails and what to change.

Only the registration leaves something behind on the server: a client named "Florilegium doctor", which expires unused.
"""

# This package exists because people who add a server to a hosted client see only "failed to connect". The doctor
# sends the same requests as the client, and names the first that fails with the setting to change. Read first:
# `replay.py` (the clients, and the hops in their order). `tokens.py` sends requests and says why a credential is
# refused. The checks of the machine and the settings, without a connection, are in `server/cli/doctor.py`.

import base64
import hashlib
import ipaddress
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import urlencode, urljoin, urlsplit

from msgspec import Struct

from config.settings import is_loopback
from server.doctor.tokens import (
    Check,
    ExpectedToken,
    HopFailed,
    HopResponse,
    Requests,
    describe_refusal,
    response_problem,
)

# -- oauth hops --------------------------------------------------------------------------------------------------------
# The hops by which a client finds the authorization server, registers, and sends people to the sign-in page.

# -- flows -------------------------------------------------------------------------------------------------------------
# How each client connects: what it sends, and what it insists on.

Registration = Literal["document", "dynamic"]

# The names that the apps of Anthropic and OpenAI accept.
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ClientFlow(Struct, frozen=True, kw_only=True):
    """The connection of one client.

    A hosted client calls from its vendor's network, so the server must be reachable from the internet. A client with a
    redirect URI can sign in with OAuth; `registrations` are the ways in which it introduces itself, the preferred one
    first. `origin` is set for clients that run in a browser.
    """

    title: str
    redirect_uri: str = ""
    registrations: tuple[Registration, ...] = ("document", "dynamic")
    is_hosted: bool = False
    accepts_keys: bool = True
    origin: str = ""
    required_tools: frozenset[str] = frozenset()

    @property
    def has_oauth(self) -> bool:
        return bool(self.redirect_uri)


FLOWS: Mapping[str, ClientFlow] = {
    "any": ClientFlow(title="any client", redirect_uri="http://127.0.0.1:33418/callback"),
    "chatgpt": ClientFlow(
        title="ChatGPT",
        redirect_uri="https://chatgpt.com/connector_platform_oauth_redirect",
        is_hosted=True,
        accepts_keys=False,
        required_tools=frozenset(("search", "fetch")),
    ),
    "claude-ai": ClientFlow(
        title="claude.ai", redirect_uri="https://claude.ai/api/mcp/auth_callback", is_hosted=True, accepts_keys=False
    ),
    "claude-code": ClientFlow(title="Claude Code", redirect_uri="http://localhost:33418/callback"),
    "claude-desktop": ClientFlow(title="Claude Desktop, through `florilegium stdio --remote`"),
    "codex": ClientFlow(title="Codex", redirect_uri="http://127.0.0.1:33418/callback"),
    "cursor": ClientFlow(
        title="Cursor", redirect_uri="cursor://anysphere.cursor-mcp/oauth/callback", registrations=("dynamic",)
    ),
    "gemini-cli": ClientFlow(
        title="Gemini CLI", redirect_uri="http://localhost:7777/oauth/callback", registrations=("dynamic",)
    ),
    "inspector": ClientFlow(
        title="MCP Inspector", redirect_uri="http://localhost:6274/oauth/callback", origin="http://localhost:6274"
    ),
    "librechat": ClientFlow(title="LibreChat"),
    "lm-studio": ClientFlow(title="LM Studio"),
    "mcp-remote": ClientFlow(
        title="mcp-remote", redirect_uri="http://localhost:3334/oauth/callback", registrations=("dynamic",)
    ),
    "open-webui": ClientFlow(title="Open WebUI"),
    "openai-responses": ClientFlow(title="OpenAI Responses API", is_hosted=True),
    "vscode": ClientFlow(title="VS Code", redirect_uri="http://127.0.0.1:33418/"),
    "windsurf": ClientFlow(title="Windsurf"),
    "zed": ClientFlow(title="Zed", redirect_uri="http://127.0.0.1:33418/callback"),
}


_RESOURCE_METADATA = re.compile(r'resource_metadata="([^"]*)"')
# The client that a registration leaves behind has this name in the list of clients.
_REGISTERED_NAME = "Florilegium doctor"


class ProtectedResource(Struct, frozen=True):
    """What a client learns from the metadata of RFC 9728."""

    resource: str
    authorization_server: str
    scopes: tuple[str, ...]


class AuthorizationRequest(Struct, frozen=True):
    """A client that is known to the authorization server, and the metadata of that server."""

    client_id: str
    metadata: Mapping[str, Any]


async def read_resource(requests: Requests, url: str, challenge: str) -> ProtectedResource:
    """Reads the metadata of the resource, and compares its `resource` with the address as clients do."""
    match = _RESOURCE_METADATA.search(challenge)
    metadata_url = match[1] if match else ""
    if not metadata_url:
        raise HopFailed(
            "the response 401 has no resource_metadata in WWW-Authenticate, so clients cannot find the sign-in; "
            "let the proxy pass this header through"
        )
    # Behind a proxy, the server names the address that it listens on unless public_url is set.
    if urlsplit(metadata_url).netloc != urlsplit(url).netloc:
        raise HopFailed(
            f"the challenge leads to {metadata_url}, but clients use {_base(url)}: set public_url to {_base(url)}"
        )
    response = await requests.get(metadata_url)
    if response.status != 200:
        raise HopFailed(
            f"{metadata_url} answers {response.describe()}; let the proxy forward /.well-known/ to the server"
        )
    document = response.json_object(metadata_url)
    resource = str(document.get("resource", ""))
    # The resource has to be the address or an ancestor of it, compared as text.
    if not resource or (url != resource and not url.startswith(resource.rstrip("/") + "/")):
        raise HopFailed(
            f"the metadata is for {resource or 'no resource'}, but clients use {url} and compare the two: "
            f"set public_url to {_base(url)}"
        )
    servers = document.get("authorization_servers") or []
    if not servers:
        raise HopFailed(
            "the server names no authorization server: set oauth_server to on, name your identity provider in "
            "authorization_servers, or give the client an API key"
        )
    return ProtectedResource(resource, str(servers[0]), tuple(document.get("scopes_supported") or ()))


async def read_authorization_server(requests: Requests, issuer: str) -> Mapping[str, Any]:
    """Reads the metadata of the authorization server at the addresses that clients try, in their order."""
    tried = []
    for metadata_url in authorization_server_urls(issuer):
        response = await requests.get(metadata_url)
        if response.status == 200:
            metadata = response.json_object(metadata_url)
            # RFC 8414 section 3.3: clients must not use metadata of another issuer.
            if str(metadata.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
                raise HopFailed(
                    f"the metadata has the issuer {metadata.get('issuer')!r}, but clients expect {issuer!r}"
                )
            missing = [name for name in ("authorization_endpoint", "token_endpoint") if not metadata.get(name)]
            if missing:
                raise HopFailed(f"the metadata of {issuer} has no {' and no '.join(missing)}")
            if "S256" not in (metadata.get("code_challenge_methods_supported") or ()):
                raise HopFailed(f"{issuer} does not offer PKCE with S256, so clients refuse it")
            return metadata
        tried.append(f"{metadata_url} ({response.status})")
    raise HopFailed(f"no metadata of the authorization server found; tried {', '.join(tried)}")


def authorization_server_urls(issuer: str) -> Iterator[str]:
    """Yields the well-known addresses of RFC 8414 and OpenID Connect Discovery for an issuer."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    yield f"{base}/.well-known/oauth-authorization-server{path}"
    yield f"{base}/.well-known/openid-configuration{path}"
    if path:
        yield f"{base}{path}/.well-known/openid-configuration"


async def register(requests: Requests, metadata: Mapping[str, Any], flow: ClientFlow) -> AuthorizationRequest | None:
    """Registers a client as this one would. Returns None if it uses a metadata document of its vendor instead."""
    accepts_documents = metadata.get("client_id_metadata_document_supported") is True
    endpoint = metadata.get("registration_endpoint")
    if not endpoint:
        if accepts_documents and "document" in flow.registrations:
            return None
        raise HopFailed(
            f"{flow.title} cannot introduce itself: the authorization server offers none of its ways to register; "
            "register the client there, and enter its id in the client"
        )
    response = await requests.post_json(
        str(endpoint),
        {
            "client_name": _REGISTERED_NAME,
            "redirect_uris": [flow.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            # A public client, as programs on a device are: PKCE protects the code.
            "token_endpoint_auth_method": "none",
            "application_type": "web" if flow.is_hosted else "native",
        },
    )
    if response.status not in (200, 201):
        raise HopFailed(f"{endpoint} refuses the registration: {response.error_message() or response.describe()}")
    client_id = response.json_object("the registration").get("client_id")
    if not isinstance(client_id, str) or not client_id:
        raise HopFailed(f"{endpoint} returned no client_id")
    return AuthorizationRequest(client_id, metadata)


async def authorize(
    requests: Requests, request: AuthorizationRequest, resource: ProtectedResource, flow: ClientFlow
) -> str:
    """Opens the authorization endpoint as a browser would, and returns where people would be asked to sign in."""
    endpoint = str(request.metadata["authorization_endpoint"])
    challenge = hashlib.sha256(secrets.token_urlsafe(32).encode()).digest()
    query = {
        "response_type": "code",
        "client_id": request.client_id,
        "redirect_uri": flow.redirect_uri,
        "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
        "code_challenge_method": "S256",
        "state": secrets.token_urlsafe(16),
        # RFC 8707: MCP clients must say for which server they want a token.
        "resource": resource.resource,
        **({"scope": " ".join(resource.scopes)} if resource.scopes else {}),
    }
    url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
    # The headers with which a browser opens a page.
    headers = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    response = await requests.send("GET", url, headers)
    if response.status in (301, 302, 303, 307, 308):
        target = urljoin(endpoint, response.headers.get("location", ""))
        # Back at the client without a person having signed in: only an error can be in the answer.
        if target.startswith(flow.redirect_uri):
            raise HopFailed(f"the authorization server sends people back with an error: {urlsplit(target).query}")
        return target.partition("?")[0]
    if response.status != 200:
        raise HopFailed(f"{endpoint} refuses the request: {response.error_message() or response.describe()}")
    return endpoint


async def try_token_endpoint(requests: Requests, request: AuthorizationRequest, flow: ClientFlow) -> None:
    """Sends a code that was never issued, which must be refused with the error that clients understand."""
    endpoint = str(request.metadata["token_endpoint"])
    form = {
        "grant_type": "authorization_code",
        "code": secrets.token_urlsafe(16),
        "redirect_uri": flow.redirect_uri,
        "client_id": request.client_id,
        "code_verifier": secrets.token_urlsafe(48),
    }
    response = await requests.send(
        "POST",
        endpoint,
        {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
        urlencode(form).encode(),
    )
    if response.status != 400 or response.json_object("the response").get("error") != "invalid_grant":
        raise HopFailed(f"{endpoint} answers an unknown code with {response.describe()} instead of invalid_grant")


async def preflight(requests: Requests, url: str, origin: str) -> None:
    """Asks for permission as a browser does before it calls another origin (CORS)."""
    response = await requests.send(
        "OPTIONS",
        url,
        {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version",
        },
    )
    if response.headers.get("access-control-allow-origin") not in ("*", origin):
        raise HopFailed(f"the server does not allow pages of {origin} to call it: add {origin} to allowed_origins")


def _base(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


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
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        if flow.is_hosted and (parts.scheme != "https" or parts.port not in (None, 443)):
            raise HopFailed(f"{flow.title} connects from the internet and only to https:// at port 443")
        if flow.is_hosted and _is_private(host):
            raise HopFailed(f"{flow.title} connects from the internet and cannot reach {host}; use a public name")
        if parts.scheme == "http" and not is_loopback(host):
            raise HopFailed(f"{parts.netloc} is not this machine, and without TLS others can read tokens; use https://")
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
