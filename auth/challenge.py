"""The WWW-Authenticate challenge (RFC 6750) and the protected resource metadata (RFC 9728).

These functions compute text from the settings and an error; they send nothing.
"""

from typing import Any

from auth.principal import READ, SCOPES, WRITE
from config.errors import Forbidden, Unauthenticated
from config.settings import Settings

METADATA_PATH = "/.well-known/oauth-protected-resource/mcp"

# The scopes a client should request: enough to use the server, without administration.
_USUAL_SCOPES = f"{READ} {WRITE}"


def challenge(settings: Settings, error: Unauthenticated | Forbidden, profile: str | None = None) -> str:
    """Returns the value of WWW-Authenticate. It has no error code if no credential was sent (RFC 6750 section 3.1).

    `profile` is the profile of the address that was requested, whose metadata names that address.
    """
    match error:
        case Forbidden():
            parameters = {"error": "insufficient_scope", "scope": error.scope}
        case Unauthenticated(presented=True):
            parameters = {
                "error": "invalid_token",
                "error_description": error.message,
                "scope": _USUAL_SCOPES,
            }
        case _:
            parameters = {"scope": _USUAL_SCOPES}
    path = METADATA_PATH + _profile_suffix(settings, profile)
    parameters = {"resource_metadata": settings.base_url + path, **parameters}
    return "Bearer " + ", ".join(f'{name}="{_quotable(value)}"' for name, value in parameters.items())


def resource_metadata(settings: Settings, profile: str | None = None) -> dict[str, Any]:
    """Returns the document of RFC 9728 section 2. Clients compare `resource` byte by byte."""
    metadata: dict[str, Any] = {
        "resource": settings.resource_url + _profile_suffix(settings, profile),
        "resource_name": "Florilegium",
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
    }
    servers = _authorization_servers(settings)
    return {**metadata, "authorization_servers": servers} if servers else metadata


def _profile_suffix(settings: Settings, profile: str | None) -> str:
    """The address of a profile is a resource of its own only where this server issues the tokens: those of an identity
    provider have one audience."""
    return f"/{profile}" if profile is not None and settings.has_oauth_server else ""


def _authorization_servers(settings: Settings) -> list[str]:
    """Returns this server if it issues tokens; otherwise the configured servers, or else the issuer of accepted tokens
    if it is a URL."""
    if settings.has_oauth_server:
        return [settings.base_url]
    if settings.authorization_servers:
        return list(settings.authorization_servers)
    has_external_issuer = settings.jwt_key_file or settings.jwt_jwks_url
    if has_external_issuer and settings.jwt_issuer.startswith(("https://", "http://")):
        return [settings.jwt_issuer]
    return []


def _quotable(text: str) -> str:
    """Escapes text for a quoted string (RFC 9110 section 5.6.4): printable ASCII, with `\\` and `"` escaped."""
    visible = "".join(c if " " <= c <= "~" else "?" for c in text)
    return visible.replace("\\", "\\\\").replace('"', '\\"')
