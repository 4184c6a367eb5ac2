"""The hops by which a client finds the authorization server, registers, and sends people to the sign-in page."""

import base64
import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import urlencode, urljoin, urlsplit

from msgspec import Struct

from server.doctor.tokens import HopFailed, Requests

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
