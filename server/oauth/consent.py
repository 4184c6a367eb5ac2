"""The consent page: what a client asks for, in plain words, and what the person decided."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from auth.browser_sessions import BrowserSession
from auth.oauth.clients import OAuthClient
from auth.oauth.redirects import describe_target, is_loopback_uri, is_private_use
from auth.oauth.resources import TokenResource
from auth.principal import ADMIN, READ, SCOPES, WRITE
from config.errors import InvalidParams

SCOPE_WORDS = {
    READ: "search and read your library",
    WRITE: (
        "add, change and delete items in your library; follow web pages, and files of this server in folders that its "
        "operator opened to you, and write notes to them"
    ),
    ADMIN: (
        "see the users of this server, their quotas and invitations, its state and followed deployments, and the audit "
        "log of all users; it cannot change users, keys or quotas, and reaches no other files"
    ),
}
# People can leave these out and still allow the rest. Administration has to be chosen.
_OPTIONAL = (WRITE, ADMIN)
_NOT_CHOSEN_AT_FIRST = ADMIN


class Decision(Struct, frozen=True):
    """What the person allowed. `sources` is None for all sources."""

    scopes: frozenset[str]
    sources: frozenset[str] | None


def read_decision(form: Mapping[str, str], scopes: frozenset[str], sources: tuple[str, ...]) -> Decision:
    """Returns what was chosen in the form, which can only be less than what was asked for."""
    chosen = frozenset(scope for scope in scopes if scope not in _OPTIONAL or form.get(_scope_field(scope)) == "on")
    if scopes <= set(_OPTIONAL) and len(scopes) == 1:
        chosen = scopes  # a single permission is not optional: deny leaves it out
    chosen_sources = frozenset(name for name in sources if form.get(f"source_{name}") == "on")
    if not chosen or not chosen_sources:
        raise InvalidParams("choose at least one permission and one source, or deny the request")
    return Decision(chosen, None if chosen_sources == set(sources) else chosen_sources)


def consent_values(
    client: OAuthClient,
    redirect_uri: str,
    resource: TokenResource,
    scopes: frozenset[str],
    sources: tuple[str, ...],
    session: BrowserSession,
) -> dict[str, Any]:
    """Returns the values of the template."""
    optional = [scope for scope in SCOPES if scope in scopes and scope in _OPTIONAL and len(scopes) > 1]
    return {
        "client_name": client.name,
        "identity": _identity(client),
        "is_verified": client.kind != "dynamic",
        "redirect_target": describe_target(redirect_uri) if redirect_uri else "",
        "is_local": bool(redirect_uri) and (is_loopback_uri(redirect_uri) or is_private_use(redirect_uri)),
        "user_name": session.user.name,
        "required_scopes": [SCOPE_WORDS[scope] for scope in SCOPES if scope in scopes and scope not in optional],
        "optional_scopes": [
            {"field": _scope_field(scope), "words": SCOPE_WORDS[scope], "is_checked": scope != _NOT_CHOSEN_AT_FIRST}
            for scope in optional
        ],
        "profile": resource.profile,
        "sources": sources,
    }


def _identity(client: OAuthClient) -> str:
    match client.kind:
        case "document":
            return f"Its name is published by {urlsplit(client.id).netloc}, which we have checked."
        case "manual":
            return "The operator of this server added this application."
        case "dynamic":
            return (
                "The application chose this name itself, and it has not been verified. Allow access only if you have "
                "just started to connect it yourself."
            )


def _scope_field(scope: str) -> str:
    return f"scope_{scope}"
