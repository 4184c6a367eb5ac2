"""An authorization request (RFC 6749 section 4.1.1) and the response that leads back to the client."""

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from auth.audit import Audit
from auth.oauth import clients, grants
from auth.oauth.client_assertions import ClientAssertions, MetadataDocuments, document_fetch, is_document_url
from auth.oauth.clients import OAuthClient, OAuthClients
from auth.oauth.grants import GrantRecord, GrantRequest, OAuthError, OAuthGrants, RequestRejected, Resources
from auth.oauth.identity_assertions import IdentityAssertions
from auth.oauth.tokens import METHOD, DeviceCodes, OAuthTokens, is_challenge
from auth.openid import OpenIdSignIn
from auth.rate_limits import LimitRule, RateLimit
from auth.sharing import Sharing
from config.errors import FlorilegiumError, RateLimited, Unavailable
from config.settings import Settings
from server.console.browser import FORM_MAX_BYTES, client_address
from server.error_responses import retry_after
from server.rest.errors import MethodNotAllowed
from server.rest.forms import URLENCODED, media_type_of
from server.rest.handler import check_method
from server.rest.requests import read_body
from server.runtime import Runtime

# A request has about a dozen parameters.
_PARAMETERS_MAX = 50


class Parameters(Struct, frozen=True):
    """RFC 6749 section 3.1: each parameter occurs once, and an empty one counts as missing. Only `resource` may be
    repeated (RFC 8707 section 2)."""

    values: Mapping[str, str]
    resources: tuple[str, ...]
    repeated: str | None = None

    def get(self, name: str) -> str:
        return self.values.get(name, "")

    def require(self, name: str) -> str:
        value = self.get(name)
        if not value:
            raise grants.invalid_request(f"{name}: missing")
        return value

    def require_single(self) -> None:
        if self.repeated is not None:
            raise grants.invalid_request(f"{self.repeated[:60]}: expected one value, got several")


def parse_parameters(text: str) -> Parameters:
    try:
        pairs = parse_qsl(text, encoding="utf-8", errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError as error:
        raise grants.invalid_request(f"expected at most {_PARAMETERS_MAX} parameters in UTF-8") from error
    values: dict[str, str] = {}
    resources, repeated = [], None
    for name, value in pairs:
        if name == "resource":
            resources.append(value)
        elif name in values:
            # Not raised here: whether the error is a page or leads back depends on which parameter it is.
            repeated = repeated or name
        else:
            values[name] = value
    return Parameters(values, tuple(resources), repeated)


async def read_form_parameters(request: Request) -> Parameters:
    """Reads the body of a request. Parameters in the query string are ignored, because URLs are logged."""
    if media_type_of(request.headers.get("content-type", "")) != URLENCODED:
        raise grants.invalid_request(f"Content-Type: expected {URLENCODED}")
    body = await read_body(request, request.headers.get("content-length"), FORM_MAX_BYTES)
    parameters = parse_parameters(body.decode("latin-1"))
    parameters.require_single()
    return parameters


class ReturnAddress(Struct, frozen=True):
    """Where the response is sent. It is used only after the redirect URI was found among those of the client."""

    client: OAuthClient
    redirect_uri: str
    state: str
    issuer: str

    def success(self, code: str) -> str:
        return self._location({"code": code})

    def failure(self, error: OAuthError) -> str:
        return self._location({"error": error.error, "error_description": error.message})

    def _location(self, values: dict[str, str]) -> str:
        """`iss` tells clients of several servers which of them answered (RFC 9207)."""
        state = {"state": self.state} if self.state else {}
        separator = "&" if "?" in self.redirect_uri else "?"
        return self.redirect_uri + separator + urlencode({**values, **state, "iss": self.issuer})


class AuthorizationCodeRequest(Struct, frozen=True):
    address: ReturnAddress
    scopes: frozenset[str]
    resource: grants.TokenResource
    code_challenge: str
    is_consent_required: bool

    @property
    def can_be_remembered(self) -> bool:
        """Whether an earlier decision may be applied without asking. Any program on the device can pretend to be a
        client whose id is public and whose redirect stays on the device, so such a client has to ask each time."""
        uri, is_public_id = self.address.redirect_uri, self.address.client.kind == "document"
        is_local = grants.is_loopback_uri(uri) or grants.is_private_use(uri)
        return not self.is_consent_required and not (is_public_id and is_local)


def find_return_address(client: OAuthClient, parameters: Parameters, issuer: str) -> ReturnAddress:
    """Raises RequestRejected if the redirect URI does not belong to the client: nothing may be sent there."""
    uris, requested = client.metadata.redirect_uris, parameters.get("redirect_uri")
    if parameters.repeated in ("redirect_uri", "client_id"):
        raise RequestRejected(f"the application sent {parameters.repeated} more than once")
    # RFC 6749 section 3.1.2.3: it may be left out if the client has registered one.
    if not requested and len(uris) == 1:
        requested = uris[0]
    if not requested or not grants.is_registered(requested, uris):
        raise RequestRejected("the application wants to be answered at an address that it did not register")
    return ReturnAddress(client, requested, parameters.get("state"), issuer)


def read_code_request(address: ReturnAddress, parameters: Parameters, resources: Resources) -> AuthorizationCodeRequest:
    """Raises OAuthError, which is sent to the client."""
    parameters.require_single()
    if parameters.get("request") or parameters.get("request_uri"):
        raise OAuthError("request_not_supported", "request objects are not supported")
    if parameters.require("response_type") != "code":
        raise OAuthError("unsupported_response_type", "response_type: expected code")
    if parameters.get("response_mode") not in ("", "query"):
        raise grants.invalid_request("response_mode: expected query")
    if clients.AUTHORIZATION_CODE not in address.client.metadata.grant_types:
        raise OAuthError(
            "unauthorized_client", f"grant_types: the client did not register {clients.AUTHORIZATION_CODE}"
        )
    # OAuth 2.1 requires PKCE of every client. `plain` is not offered, because the challenge would be the verifier.
    challenge = parameters.require("code_challenge")
    if parameters.get("code_challenge_method") != METHOD:
        raise grants.invalid_request(f"code_challenge_method: expected {METHOD}")
    if not is_challenge(challenge):
        raise grants.invalid_request("code_challenge: expected 43 characters of base64url")
    return AuthorizationCodeRequest(
        address=address,
        scopes=clients.requested_scopes(parameters.get("scope")),
        resource=resources.find(parameters.resources),
        code_challenge=challenge,
        is_consent_required="consent" in parameters.get("prompt").split(),
    )


# -- public endpoint ---------------------------------------------------------------------------------------------------
# Endpoints for programs of any origin: they use no cookies, so pages of other sites may call them (CORS).

# RFC 6749 section 5.1: responses with tokens must not be cached.
NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_CORS = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "WWW-Authenticate, Retry-After"}
# The wildcard does not cover Authorization, which has to be named (Fetch standard, CORS protocol).
_PREFLIGHT = {"Access-Control-Allow-Headers": "*, Authorization", "Access-Control-Max-Age": "600"}
EndpointFunction = Callable[[Request], Awaitable[Response]]


class PublicEndpoint:
    """The ASGI application of one path. Errors have the form of RFC 6749 section 5.2."""

    def __init__(self, method: str, function: EndpointFunction) -> None:
        self._method = method
        self._function = function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            response = Response(status_code=204, headers={**_PREFLIGHT, "Access-Control-Allow-Methods": self._method})
        else:
            try:
                request = Request(scope, receive)
                check_method(request.method, (self._method,))
                response = await self._function(request)
            except FlorilegiumError as error:
                response = oauth_error(error)
        response.headers.update(_CORS)
        await response(scope, receive, send)


def oauth_error(error: FlorilegiumError) -> Response:
    match error:
        case OAuthError():
            code = error.error
        case RateLimited() | Unavailable():
            code = "temporarily_unavailable"
        case _:
            code = "server_error" if error.status >= 500 else "invalid_request"
    headers = dict(NO_STORE)
    if (seconds := retry_after(error)) is not None:
        headers["Retry-After"] = str(seconds)
    # RFC 6749 section 5.2: a client that tried to authenticate in the header gets the scheme.
    if isinstance(error, grants.InvalidClient):
        headers["WWW-Authenticate"] = 'Basic realm="florilegium"'
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    return JSONResponse({"error": code, "error_description": error.message}, error.status, headers)


# Requests of one address that are allowed at once, and those for one that registers a client or a device.
_BURST = 100
_REQUESTS_PER_REGISTRATION = 60

# New clients and device codes are stored, so there are fewer of them than of other requests.
_REGISTRATION_BURST = 20


class OAuthServices(Struct, frozen=True, kw_only=True):
    settings: Settings
    resources: Resources
    clients: OAuthClients
    documents: MetadataDocuments
    assertions: ClientAssertions
    grants: OAuthGrants
    tokens: OAuthTokens
    device_codes: DeviceCodes
    identity_assertions: IdentityAssertions
    # Of the requests of one user, or of one address without a user; of the new clients of one address, and of its
    # failed attempts to guess a secret or a code.
    request_limit: RateLimit
    registration_limit: RateLimit
    failure_limit: RateLimit
    audit: Audit
    sharing: Sharing
    sources: tuple[str, ...]

    def record(self, action: str, grant: GrantRequest | GrantRecord, request: Request) -> None:
        """Records an event of a connection in the audit log of its user."""
        self.audit.record(
            action,
            grant.user.id,
            client=grant.client_id,
            target=grant.client_name,
            address=client_address(request),
            detail=clients.format_scopes(grant.scopes),
        )

    def is_document(self, client_id: str) -> bool:
        return self.settings.oauth_client_metadata and is_document_url(client_id)

    async def find_client(self, client_id: str) -> OAuthClient:
        """Returns a client for a person who is signed in: its metadata document is fetched if it has one."""
        # The id of such a client is the URL of its metadata document; nothing about it is stored here.
        if self.is_document(client_id):
            return (await self.documents.find(client_id))[0]
        client = await self.clients.find(client_id)
        if client is None:
            raise RequestRejected(
                "this application is not registered here, or no longer; remove the connection in the application and "
                "add it again"
            )
        return client


def build_oauth_services(runtime: Runtime, openid: OpenIdSignIn) -> OAuthServices:
    settings, database = runtime.settings, runtime.registry.database
    resources, tokens = Resources(settings, runtime.dispatcher.profiles.names), OAuthTokens(database, settings)
    # Documents and keys of clients are fetched under the same rules.
    fetch = document_fetch(settings)
    documents = MetadataDocuments(fetch)
    make_limit, per_minute = runtime.stores.make_limit, settings.rate_oauth_per_minute
    registrations = (per_minute / _REQUESTS_PER_REGISTRATION, _REGISTRATION_BURST)
    return OAuthServices(
        settings=settings,
        resources=resources,
        clients=OAuthClients(database, settings),
        documents=documents,
        assertions=ClientAssertions(database, settings, documents, fetch),
        grants=runtime.oauth_grants,
        tokens=tokens,
        device_codes=DeviceCodes(database, settings, resources, tokens),
        identity_assertions=IdentityAssertions(settings, database, openid, resources, tokens),
        request_limit=make_limit(LimitRule("oauth", "OAuth requests", per_minute, _BURST)),
        registration_limit=make_limit(LimitRule("oauth registration", "new OAuth clients", *registrations)),
        failure_limit=runtime.limits.failures,
        audit=runtime.audit,
        sharing=Sharing(database),
        sources=tuple(source.name for source in runtime.knowledge.sources),
    )
