"""What a refused caller is told: the WWW-Authenticate header (RFC 6750, RFC 9728) and the resource metadata.

Pure text from the settings and an error; nothing here sends an answer.
"""

from typing import Any

from auth.principal import READ, SCOPES, WRITE
from config.errors import Forbidden, Unauthenticated
from config.settings import Settings

METADATA_PATH = "/.well-known/oauth-protected-resource/mcp"

# What a client should ask its authorization server for: enough to use the server, nothing administrative.
_USUAL_SCOPES = f"{READ} {WRITE}"


def challenge(settings: Settings, error: Unauthenticated | Forbidden) -> str:
    """The value of WWW-Authenticate. A caller who sent no credential gets no error code (RFC 6750, 3.1)."""
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
    parameters = {"resource_metadata": settings.base_url + METADATA_PATH, **parameters}
    return "Bearer " + ", ".join(f'{name}="{_quotable(value)}"' for name, value in parameters.items())


def resource_metadata(settings: Settings) -> dict[str, Any]:
    """RFC 9728 section 2. `resource` is compared by clients byte by byte; an empty list is left out."""
    metadata: dict[str, Any] = {
        "resource": settings.resource_url,
        "resource_name": "Florilegium",
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
    }
    servers = _authorization_servers(settings)
    return {**metadata, "authorization_servers": servers} if servers else metadata


def _authorization_servers(settings: Settings) -> list[str]:
    """Those configured; else the issuer of the tokens we accept, where that is a server and not ourselves."""
    if settings.authorization_servers:
        return list(settings.authorization_servers)
    foreign_keys = settings.jwt_key_file or settings.jwt_jwks_url
    if foreign_keys and settings.jwt_issuer.startswith(("https://", "http://")):
        return [settings.jwt_issuer]
    return []


def _quotable(text: str) -> str:
    """The inside of a quoted string (RFC 9110 section 5.6.4): printable ASCII, with `\\` and `"` escaped."""
    visible = "".join(c if " " <= c <= "~" else "?" for c in text)
    return visible.replace("\\", "\\\\").replace('"', '\\"')
