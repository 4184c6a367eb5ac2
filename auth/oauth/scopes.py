"""The scopes of a request, as clients send them and as people grant them."""

from auth.oauth.errors import OAuthError
from auth.principal import READ, ROLE_SCOPES, SCOPES, WRITE, Role

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
