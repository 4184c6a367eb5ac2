"""The endpoints for programs: metadata (RFC 8414), registration (RFC 7591), tokens, revocation (RFC 7009) and device
authorization (RFC 8628).
"""

import base64
import binascii
from typing import Any
from urllib.parse import unquote_plus

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from auth.oauth import clients
from auth.oauth.client_assertions import ASSERTION_TYPE
from auth.oauth.grants import InvalidClient, OAuthError, invalid_request
from auth.oauth.tokens import OAUTH_DEVICE_CODE_TTL_S, CredentialReused, IssuedTokens, TokenRequest, format_user_code
from server.console.browser import FORM_MAX_BYTES, client_network
from server.console.page_handler import PageFunction, PageHandler
from server.http_services import HttpServices
from server.oauth import code_request
from server.oauth.authorize_page import AuthorizePage, DevicePage
from server.oauth.code_request import NO_STORE, OAuthServices, Parameters, read_form_parameters
from server.rest.requests import read_body
from server.runtime import Runtime

# -- client authentication ---------------------------------------------------------------------------------------------
# How clients prove who they are at the token endpoint: by a secret, in a header or in the form, by a signed token, or
# not at all.


class ClientIdentity(Struct, frozen=True):
    """A client that proved its identity, or a public client, which cannot. `is_verified` says whether it did. For a
    client with a metadata document, only its grants say whether it must."""

    id: str
    grant_types: tuple[str, ...]
    is_verified: bool = False


async def authenticate_client(services: OAuthServices, request: Request, parameters: Parameters) -> ClientIdentity:
    """Raises InvalidClient, which counts as a failed sign-in of the address."""
    try:
        if assertion := parameters.get("client_assertion"):
            # RFC 7523 section 2.2.
            if "authorization" in request.headers or parameters.get("client_secret"):
                raise invalid_request("expected the client to authenticate in one way, got several")
            if parameters.get("client_assertion_type") != ASSERTION_TYPE:
                raise invalid_request(f"client_assertion_type: expected {ASSERTION_TYPE}")
            client_id = parameters.get("client_id") or services.assertions.client_of(assertion)
            if not services.is_document(client_id):
                raise InvalidClient("client_assertion: expected a client with a metadata document")
            # A client without a grant is not verified, because strangers must not make this server fetch its document;
            # it cannot have a code or token either.
            is_connected = await services.assertions.is_connected(client_id)
            if is_connected:
                await services.assertions.verify(client_id, assertion)
            return ClientIdentity(client_id, clients.GRANT_TYPES, is_verified=is_connected)
        client_id, secret = _credentials(request.headers.get("authorization"), parameters)
        # The document of a client that has one is not needed here: the code or token is bound to its URL.
        if services.is_document(client_id):
            if secret:
                raise InvalidClient("client_secret: a client with a metadata document has none")
            return ClientIdentity(client_id, clients.GRANT_TYPES)
        client = await services.clients.find(client_id)
        if client is None:
            raise InvalidClient("client_id: unknown")
        # A public client must not send a secret, and a confidential one must send the right one.
        if client.is_public == bool(secret) or not (client.is_public or client.is_secret(secret)):
            raise InvalidClient("client_secret: not accepted")
        return ClientIdentity(client.id, client.metadata.grant_types, is_verified=not client.is_public)
    except InvalidClient:
        await services.failure_limit.take(client_network(request))
        raise


def _credentials(authorization: str | None, parameters: Parameters) -> tuple[str, str]:
    client_id, secret = parameters.get("client_id"), parameters.get("client_secret")
    if authorization is None:
        if not client_id:
            raise invalid_request("client_id: missing")
        return client_id, secret
    scheme, _, encoded = authorization.partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
    except (binascii.Error, ValueError):
        text = ""
    if ":" not in text:
        raise InvalidClient("Authorization: expected Basic with client id and secret")
    # RFC 6749 section 2.3.1: both parts are form-encoded.
    basic_id, basic_secret = (unquote_plus(part) for part in text.split(":", 1))
    if secret or client_id not in ("", basic_id):
        raise invalid_request("expected the client in the Authorization header or in the form, not both")
    return basic_id, basic_secret


class OAuthEndpoints:
    def __init__(self, services: OAuthServices) -> None:
        self._services = services
        self._settings = services.settings

    async def metadata(self, request: Request) -> Response:
        return JSONResponse(clients.authorization_server_metadata(self._settings), headers=NO_STORE)

    async def register(self, request: Request) -> Response:
        # Registration needs no credential, so that only the number of clients per address limits it.
        await self._services.registration_limit.take(client_network(request))
        if not self._settings.oauth_registration:
            raise OAuthError("access_denied", "clients cannot register themselves here; ask the operator for a client")
        body = await read_body(request, request.headers.get("content-length"), FORM_MAX_BYTES)
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise OAuthError("invalid_client_metadata", "expected a JSON object") from error
        if not isinstance(document, dict):
            raise OAuthError("invalid_client_metadata", "expected a JSON object")
        client, secret = await self._services.clients.register(document)
        # The client information response of RFC 7591 section 3.2.1.
        metadata = client.metadata
        registration_body: dict[str, Any] = {
            "client_id": client.id,
            "client_id_issued_at": int(client.created_at),
            "redirect_uris": list(metadata.redirect_uris),
            "token_endpoint_auth_method": metadata.token_endpoint_auth_method,
            "grant_types": list(metadata.grant_types),
            "response_types": list(metadata.response_types),
            "application_type": "native" if metadata.is_native else "web",
        }
        registration_body |= {
            name: getattr(metadata, name) for name in ("client_name", "client_uri", "scope") if getattr(metadata, name)
        }
        # 0: the secret does not expire.
        registration = registration_body | ({"client_secret": secret, "client_secret_expires_at": 0} if secret else {})
        return JSONResponse(registration, 201, NO_STORE)

    async def token(self, request: Request) -> Response:
        parameters = await self._read_limited(request, "code", "refresh_token", "device_code")
        client = await authenticate_client(self._services, request, parameters)
        grant_type = parameters.require("grant_type")
        if grant_type == clients.JWT_BEARER and self._services.identity_assertions.is_enabled:
            return _token_response(await self._exchange_assertion(request, parameters, client))
        exchanges = {
            clients.AUTHORIZATION_CODE: (self._services.tokens.redeem, "code"),
            clients.REFRESH: (self._services.tokens.refresh, "refresh_token"),
            clients.DEVICE: (self._services.device_codes.poll, "device_code"),
        }
        if grant_type not in exchanges:
            raise OAuthError("unsupported_grant_type", f"grant_type: not supported: {grant_type[:60]!r}")
        exchange, field = exchanges[grant_type]
        credential = parameters.require(field)
        if grant_type not in client.grant_types:
            raise OAuthError("unauthorized_client", f"grant_types: the client did not register {grant_type}")
        # RFC 8707 section 2.2: a resource that is named must be that of the grant, which applies if none is named.
        resource = self._services.resources.find(parameters.resources).url if parameters.resources else None
        token_request = TokenRequest(
            client_id=client.id,
            is_client_verified=client.is_verified,
            resource=resource,
            redirect_uri=parameters.get("redirect_uri") or None,
            code_verifier=parameters.get("code_verifier"),
            scopes=clients.known_scopes(parameters.get("scope")) or None,
            has_refresh_token=clients.REFRESH in client.grant_types,
        )
        try:
            tokens = await exchange(credential, token_request)
        except CredentialReused as error:
            # RFC 9700 section 2.2.2: a code or refresh token that is used twice was stolen. Its grant has ended.
            self._services.record("connection.misuse", error.grant, request)
            raise
        return _token_response(tokens)

    async def _exchange_assertion(
        self, request: Request, parameters: Parameters, client: ClientIdentity
    ) -> IssuedTokens:
        """Exchanges an assertion of an identity provider (ID-JAG). Only clients that prove their identity may: anyone
        else could use an assertion that was stolen."""
        services = self._services
        try:
            if clients.JWT_BEARER not in client.grant_types:
                raise OAuthError(
                    "unauthorized_client", f"grant_types: the client did not register {clients.JWT_BEARER}"
                )
            assertion = await services.identity_assertions.verify(parameters.require("assertion"), client.id)
            if not client.is_verified:
                # The provider has named the client, so that its document may be fetched now (`authenticate_client`).
                if not services.is_document(client.id):
                    raise InvalidClient("expected a client with a secret or a key")
                await services.assertions.verify(client.id, parameters.require("client_assertion"))
            known = await services.find_client(client.id)
        except OAuthError:
            await services.request_limit.take(client_network(request))
            raise
        await services.request_limit.take(("owner", assertion.identity))
        tokens = await services.identity_assertions.exchange(assertion, known, parameters.values, parameters.resources)
        if tokens.grant.last_used_at is None:
            services.record("connection.create", tokens.grant, request)
        return tokens

    async def revoke(self, request: Request) -> Response:
        """Answers 200 whether the token exists or not (RFC 7009 section 2.2)."""
        parameters = await self._read_limited(request, "token")
        client = await authenticate_client(self._services, request, parameters)
        grant = await self._services.tokens.revoke(
            parameters.require("token"), client.id, is_client_verified=client.is_verified
        )
        if grant is not None:
            self._services.record("connection.revoke", grant, request)
        return Response(status_code=200, headers=NO_STORE)

    async def _read_limited(self, request: Request, *credentials: str) -> Parameters:
        """Reads a form and counts it: for the user whose code or token it has, or else for its address. All users of a
        hosted assistant come from one address, and must not use up each other's limit."""
        parameters = await read_form_parameters(request)
        is_assertion = parameters.get("grant_type") == clients.JWT_BEARER
        if is_assertion and self._services.identity_assertions.is_enabled:
            return parameters  # counted once the assertion says whose it is
        credential = next(filter(None, map(parameters.get, credentials)), "")
        owner = await self._services.tokens.owner_of(credential) if credential else None
        await self._services.request_limit.take(("owner", owner) if owner else client_network(request))
        return parameters

    async def device_authorization(self, request: Request) -> Response:
        await self._services.registration_limit.take(client_network(request))
        parameters = await read_form_parameters(request)
        client = await authenticate_client(self._services, request, parameters)
        if clients.DEVICE not in client.grant_types:
            raise OAuthError("unauthorized_client", f"grant_types: the client did not register {clients.DEVICE}")
        resource = self._services.resources.find(parameters.resources)
        scopes = clients.requested_scopes(parameters.get("scope"))
        device_code, user_code = await self._services.device_codes.create(client.id, scopes, resource)
        page, shown_code = self._settings.base_url + clients.DEVICE_PATH, format_user_code(user_code)
        # RFC 8628 section 3.2.
        body = {
            "device_code": device_code,
            "user_code": shown_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={shown_code}",
            "expires_in": int(OAUTH_DEVICE_CODE_TTL_S),
            "interval": int(self._settings.fixed.oauth_device_interval_s),
        }
        return JSONResponse(body, headers=NO_STORE)


def _token_response(tokens: IssuedTokens) -> Response:
    # RFC 6749 section 5.1. The scope may be less than what was asked for, so that it is always named.
    body: dict[str, Any] = {
        "access_token": tokens.access_token,
        "token_type": "Bearer",
        "expires_in": tokens.expires_in_s,
        "scope": clients.format_scopes(tokens.scopes),
    }
    if tokens.refresh_token:
        body["refresh_token"] = tokens.refresh_token
    return JSONResponse(body, headers=NO_STORE)


def oauth_routes(runtime: Runtime, http_services: HttpServices) -> list[BaseRoute]:
    if not runtime.settings.has_oauth_server:
        return []
    browser = http_services.browser
    services = code_request.build_oauth_services(runtime, http_services.openid)
    endpoints = OAuthEndpoints(services)
    authorize, device = AuthorizePage(services, browser), DevicePage(services, browser)

    def endpoint(path: str, method: str, function: code_request.EndpointFunction) -> Route:
        return Route(path, code_request.PublicEndpoint(method, function))

    def page(path: str, get: PageFunction, post: PageFunction) -> Route:
        return Route(path, PageHandler(runtime.settings, browser, get=get, post=post))

    return [
        endpoint(clients.METADATA_PATH, "GET", endpoints.metadata),
        # Some clients append the path of the MCP address, or that of a public URL with a path (RFC 8414 section 3.1).
        # `/.well-known/openid-configuration` does not exist: this server is no OpenID provider, and clients that try
        # it first go on to this one.
        endpoint(clients.METADATA_PATH + "/{path:path}", "GET", endpoints.metadata),
        endpoint(clients.REGISTRATION_PATH, "POST", endpoints.register),
        endpoint(clients.TOKEN_PATH, "POST", endpoints.token),
        endpoint(clients.REVOCATION_PATH, "POST", endpoints.revoke),
        endpoint(clients.DEVICE_AUTHORIZATION_PATH, "POST", endpoints.device_authorization),
        page(clients.AUTHORIZE_PATH, authorize.show, authorize.decide),
        page(clients.DEVICE_PATH, device.show, device.submit),
    ]
