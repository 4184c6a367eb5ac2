"""The metadata of the authorization server (RFC 8414), and the paths of its endpoints.

The endpoints are at the root: some clients append `/authorize`, `/token` and `/register` to the address of the server
instead of reading the metadata.
"""

from typing import Any

from auth.context import READ, ROLE_SCOPES, SCOPES, WRITE, Role
from auth.oauth.clients import AUTH_METHODS, GRANT_TYPES
from auth.oauth.errors import OAuthError
from auth.oauth.grants import PRIVATE_KEY
from auth.oauth.tokens import METHOD
from config.settings import ASYMMETRIC_ALGORITHMS, Settings

METADATA_PATH = "/.well-known/oauth-authorization-server"
AUTHORIZE_PATH = "/authorize"
TOKEN_PATH = "/token"  # noqa: S105 - a path
REGISTRATION_PATH = "/register"
REVOCATION_PATH = "/revoke"
DEVICE_AUTHORIZATION_PATH = "/device_authorization"
DEVICE_PATH = "/device"


def authorization_server_metadata(settings: Settings) -> dict[str, Any]:
    base_url = settings.base_url
    methods = [*AUTH_METHODS, *([PRIVATE_KEY] if settings.oauth_client_metadata else [])]
    metadata: dict[str, Any] = {
        "issuer": base_url,
        "authorization_endpoint": base_url + AUTHORIZE_PATH,
        "token_endpoint": base_url + TOKEN_PATH,
        "revocation_endpoint": base_url + REVOCATION_PATH,
        "device_authorization_endpoint": base_url + DEVICE_AUTHORIZATION_PATH,
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANT_TYPES),
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "code_challenge_methods_supported": [METHOD],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": settings.oauth_client_metadata,
    }
    if settings.oauth_client_metadata:
        metadata["token_endpoint_auth_signing_alg_values_supported"] = list(ASYMMETRIC_ALGORITHMS)
        metadata["revocation_endpoint_auth_signing_alg_values_supported"] = list(ASYMMETRIC_ALGORITHMS)
    if settings.oauth_registration:
        metadata["registration_endpoint"] = base_url + REGISTRATION_PATH
    return metadata


# -- scopes ------------------------------------------------------------------------------------------------------------
# The scopes of a request, as clients send them and as people grant them.

# What clients get that ask for nothing in particular.
DEFAULT_SCOPES = frozenset((READ, WRITE))


def requested_scopes(text: str) -> frozenset[str]:
    """Returns the scopes that a client asks for. Scopes of other servers are ignored (RFC 6749 section 3.3): clients
    send `openid`, `offline_access` or a name of their own to every server."""
    return known_scopes(text) or DEFAULT_SCOPES


def known_scopes(text: str) -> frozenset[str]:
    return frozenset(text.split()).intersection(SCOPES)


def grantable_scopes(requested: frozenset[str], role: Role) -> frozenset[str]:
    """Returns the requested scopes that a user can grant."""
    scopes = requested & ROLE_SCOPES[role]
    if not scopes:
        raise OAuthError("invalid_scope", f"scope: expected one that a {role} has, got {' '.join(sorted(requested))}")
    return scopes


def format_scopes(scopes: frozenset[str]) -> str:
    return " ".join(scope for scope in SCOPES if scope in scopes)
