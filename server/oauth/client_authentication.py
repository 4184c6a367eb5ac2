"""How clients prove who they are at the token endpoint: by a secret, in a header or in the form, by a signed token, or
not at all."""

import base64
import binascii
from urllib.parse import unquote_plus

from msgspec import Struct
from starlette.requests import Request

from auth.oauth.client_assertions import ASSERTION_TYPE
from auth.oauth.clients import DEVICE, GRANT_TYPES, REFRESH
from auth.oauth.errors import InvalidClient, invalid_request
from server.console.browser import client_address
from server.oauth.parameters import Parameters
from server.oauth.services import OAuthServices


class ClientIdentity(Struct, frozen=True):
    """A client that proved its identity, or a public client, which cannot. `is_verified` says whether a client with a
    metadata document did so with its key. Only its grants say whether it must."""

    id: str
    grant_types: tuple[str, ...]
    is_verified: bool = False

    @property
    def has_refresh_token(self) -> bool:
        return REFRESH in self.grant_types

    @property
    def has_device_code(self) -> bool:
        return DEVICE in self.grant_types


async def authenticate_client(services: OAuthServices, request: Request, parameters: Parameters) -> ClientIdentity:
    """Raises InvalidClient, which counts as a failed sign-in of the address."""
    try:
        if parameters.get("client_assertion"):
            return await _identify_by_assertion(services, request, parameters)
        client_id, secret = _credentials(request.headers.get("authorization"), parameters)
        return await _identify(services, client_id, secret)
    except InvalidClient:
        await services.limits.failures.take(client_address(request))
        raise


async def _identify(services: OAuthServices, client_id: str, secret: str) -> ClientIdentity:
    """The document of a client that has one is not needed here: the code or token is bound to its URL."""
    if services.is_document(client_id):
        if secret:
            raise InvalidClient("client_secret: a client with a metadata document has none")
        return ClientIdentity(client_id, GRANT_TYPES)
    client = await services.clients.find(client_id)
    if client is None:
        raise InvalidClient("client_id: unknown")
    if client.is_public == bool(secret) or not (client.is_public or client.is_secret(secret)):
        raise InvalidClient("client_secret: not accepted")
    return ClientIdentity(client.id, client.metadata.grant_types)


async def _identify_by_assertion(services: OAuthServices, request: Request, parameters: Parameters) -> ClientIdentity:
    """RFC 7523 section 2.2. A client without a grant is not verified, because strangers must not make this
    server fetch its document; it cannot have a code or token either."""
    if "authorization" in request.headers or parameters.get("client_secret"):
        raise invalid_request("expected the client to authenticate in one way, got several")
    if parameters.get("client_assertion_type") != ASSERTION_TYPE:
        raise invalid_request(f"client_assertion_type: expected {ASSERTION_TYPE}")
    assertion = parameters.get("client_assertion")
    client_id = parameters.get("client_id") or services.assertions.client_of(assertion)
    if not services.is_document(client_id):
        raise InvalidClient("client_assertion: expected a client with a metadata document")
    if not await services.assertions.is_connected(client_id):
        return ClientIdentity(client_id, GRANT_TYPES)
    await services.assertions.verify(client_id, assertion)
    return ClientIdentity(client_id, GRANT_TYPES, is_verified=True)


def _credentials(authorization: str | None, parameters: Parameters) -> tuple[str, str]:
    client_id, secret = parameters.get("client_id"), parameters.get("client_secret")
    if authorization is None:
        if not client_id:
            raise invalid_request("client_id: missing")
        return client_id, secret
    basic_id, basic_secret = _read_basic(authorization)
    if secret or client_id not in ("", basic_id):
        raise invalid_request("expected the client in the Authorization header or in the form, not both")
    return basic_id, basic_secret


def _read_basic(authorization: str) -> tuple[str, str]:
    """RFC 6749 section 2.3.1: both parts are form-encoded."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode() if scheme.lower() == "basic" else ""
    except (binascii.Error, ValueError):
        text = ""
    client_id, colon, secret = text.partition(":")
    if not colon:
        raise InvalidClient("Authorization: expected Basic with client id and secret")
    return unquote_plus(client_id), unquote_plus(secret)
