"""The endpoints for programs: metadata (RFC 8414), registration (RFC 7591), tokens, revocation (RFC 7009) and device
authorization (RFC 8628)."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from auth.oauth.clients import AUTHORIZATION_CODE, DEVICE, REFRESH, OAuthClient
from auth.oauth.device_codes import format_user_code
from auth.oauth.errors import OAuthError
from auth.oauth.metadata import DEVICE_PATH, authorization_server_metadata
from auth.oauth.scopes import format_scopes, known_scopes, requested_scopes
from auth.oauth.tokens import CredentialReused, IssuedTokens, TokenRequest
from server.console.browser import client_address
from server.oauth.client_authentication import ClientIdentity, authenticate_client
from server.oauth.parameters import Parameters, read_form_parameters
from server.oauth.public_endpoint import NO_STORE
from server.oauth.services import OAuthServices
from server.rest.inputs import read_body


class OAuthEndpoints:
    def __init__(self, services: OAuthServices) -> None:
        self._services = services
        self._settings = services.settings

    async def metadata(self, request: Request) -> Response:
        return JSONResponse(authorization_server_metadata(self._settings), headers=NO_STORE)

    async def register(self, request: Request) -> Response:
        await self._services.limits.registrations.take(client_address(request))
        if not self._settings.oauth_registration:
            raise OAuthError("access_denied", "clients cannot register themselves here; ask the operator for a client")
        client, secret = await self._services.clients.register(await self._read_json(request))
        return JSONResponse(_registration(client, secret), 201, NO_STORE)

    async def token(self, request: Request) -> Response:
        await self._services.limits.requests.take(client_address(request))
        parameters = await read_form_parameters(request, self._settings.form_max_bytes)
        client = await authenticate_client(self._services, request, parameters)
        try:
            tokens = await self._exchange(client, parameters)
        except CredentialReused as error:
            self._services.record("connection.misuse", error.grant, request)
            raise
        body: dict[str, Any] = {
            "access_token": tokens.access_token,
            "token_type": "Bearer",
            "expires_in": tokens.expires_in_s,
            "scope": format_scopes(tokens.scopes),
        }
        if tokens.refresh_token:
            body["refresh_token"] = tokens.refresh_token
        return JSONResponse(body, headers=NO_STORE)

    async def revoke(self, request: Request) -> Response:
        """Answers 200 whether the token exists or not (RFC 7009 section 2.2)."""
        await self._services.limits.requests.take(client_address(request))
        parameters = await read_form_parameters(request, self._settings.form_max_bytes)
        client = await authenticate_client(self._services, request, parameters)
        grant = await self._services.tokens.revoke(
            parameters.require("token"), client.id, is_client_verified=client.is_verified
        )
        if grant is not None:
            self._services.record("connection.revoke", grant, request)
        return Response(status_code=200, headers=NO_STORE)

    async def device_authorization(self, request: Request) -> Response:
        await self._services.limits.registrations.take(client_address(request))
        parameters = await read_form_parameters(request, self._settings.form_max_bytes)
        client = await authenticate_client(self._services, request, parameters)
        if not client.has_device_code:
            raise OAuthError("unauthorized_client", f"grant_types: the client did not register {DEVICE}")
        resource = self._services.resources.find(parameters.resources)
        scopes = requested_scopes(parameters.get("scope"))
        device_code, user_code = await self._services.device_codes.create(client.id, scopes, resource)
        page, shown_code = self._settings.base_url + DEVICE_PATH, format_user_code(user_code)
        body = {
            "device_code": device_code,
            "user_code": shown_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={shown_code}",
            "expires_in": int(self._settings.oauth_device_code_ttl_s),
            "interval": int(self._settings.oauth_device_interval_s),
        }
        return JSONResponse(body, headers=NO_STORE)

    async def _exchange(self, client: ClientIdentity, parameters: Parameters) -> IssuedTokens:
        match parameters.require("grant_type"):
            case "authorization_code":
                return await self._services.tokens.redeem(
                    parameters.require("code"), self._token_request(client, parameters, AUTHORIZATION_CODE)
                )
            case "refresh_token":
                return await self._services.tokens.refresh(
                    parameters.require("refresh_token"), self._token_request(client, parameters, REFRESH)
                )
            case grant_type if grant_type == DEVICE:
                return await self._services.device_codes.poll(
                    parameters.require("device_code"), self._token_request(client, parameters, DEVICE)
                )
            case other:
                raise OAuthError("unsupported_grant_type", f"grant_type: not supported: {other[:60]!r}")

    def _token_request(self, client: ClientIdentity, parameters: Parameters, grant_type: str) -> TokenRequest:
        if grant_type not in client.grant_types:
            raise OAuthError("unauthorized_client", f"grant_types: the client did not register {grant_type}")
        resource = self._services.resources.find(parameters.resources).url if parameters.resources else None
        return TokenRequest(
            client_id=client.id,
            is_client_verified=client.is_verified,
            resource=resource,
            redirect_uri=parameters.get("redirect_uri") or None,
            code_verifier=parameters.get("code_verifier"),
            scopes=known_scopes(parameters.get("scope")) or None,
            has_refresh_token=client.has_refresh_token,
        )

    async def _read_json(self, request: Request) -> dict[str, Any]:
        body = await read_body(request, request.headers.get("content-length"), self._settings.form_max_bytes)
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise OAuthError("invalid_client_metadata", "expected a JSON object") from error
        if not isinstance(document, dict):
            raise OAuthError("invalid_client_metadata", "expected a JSON object")
        return document


def _registration(client: OAuthClient, secret: str) -> dict[str, Any]:
    """Returns the client information response of RFC 7591 section 3.2.1."""
    metadata = client.metadata
    body: dict[str, Any] = {
        "client_id": client.id,
        "client_id_issued_at": int(client.created_at),
        "redirect_uris": list(metadata.redirect_uris),
        "token_endpoint_auth_method": metadata.token_endpoint_auth_method,
        "grant_types": list(metadata.grant_types),
        "response_types": list(metadata.response_types),
        "application_type": "native" if metadata.is_native else "web",
    }
    body |= {
        name: getattr(metadata, name) for name in ("client_name", "client_uri", "scope") if getattr(metadata, name)
    }
    return body | ({"client_secret": secret, "client_secret_expires_at": 0} if secret else {})
