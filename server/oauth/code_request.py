"""An authorization request (RFC 6749 section 4.1.1) and the response that leads back to the client."""

from urllib.parse import urlencode

from msgspec import Struct

from auth.oauth.clients import AUTHORIZATION_CODE, OAuthClient
from auth.oauth.errors import OAuthError, RequestRejected, invalid_request
from auth.oauth.pkce import METHOD, is_challenge
from auth.oauth.redirects import is_loopback_uri, is_private_use, is_registered
from auth.oauth.resources import Resources, TokenResource
from auth.oauth.scopes import requested_scopes
from server.oauth.parameters import Parameters


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
    resource: TokenResource
    code_challenge: str
    is_consent_required: bool

    @property
    def can_be_remembered(self) -> bool:
        """Whether an earlier decision may be applied without asking. Any program on the device can pretend to be a
        client whose id is public and whose redirect stays on the device, so such a client has to ask each time."""
        uri, is_public_id = self.address.redirect_uri, self.address.client.kind == "document"
        is_local = is_loopback_uri(uri) or is_private_use(uri)
        return not self.is_consent_required and not (is_public_id and is_local)


def find_return_address(client: OAuthClient, parameters: Parameters, issuer: str) -> ReturnAddress:
    """Raises RequestRejected if the redirect URI does not belong to the client: nothing may be sent there."""
    uris, requested = client.metadata.redirect_uris, parameters.get("redirect_uri")
    if parameters.repeated in ("redirect_uri", "client_id"):
        raise RequestRejected(f"the application sent {parameters.repeated} more than once")
    if not requested and len(uris) == 1:
        requested = uris[0]
    if not requested or not is_registered(requested, uris):
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
        raise invalid_request("response_mode: expected query")
    if not address.client.has_grant_type(AUTHORIZATION_CODE):
        raise OAuthError("unauthorized_client", f"grant_types: the client did not register {AUTHORIZATION_CODE}")
    challenge = parameters.require("code_challenge")
    if parameters.get("code_challenge_method") != METHOD:
        raise invalid_request(f"code_challenge_method: expected {METHOD}")
    if not is_challenge(challenge):
        raise invalid_request("code_challenge: expected 43 characters of base64url")
    return AuthorizationCodeRequest(
        address=address,
        scopes=requested_scopes(parameters.get("scope")),
        resource=resources.find(parameters.resources),
        code_challenge=challenge,
        is_consent_required="consent" in parameters.get("prompt").split(),
    )
