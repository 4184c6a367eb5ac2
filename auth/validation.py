"""Validation of the names, identifiers and scopes in credentials and operator commands."""

import re
from collections.abc import Iterable

from auth.principal import ROLE_SCOPES, SCOPES, Role
from config.errors import InvalidParams

# OpenID Connect Core section 2: `sub` has at most 255 characters.
TEXT_MAX_CHARS = 255

_USER_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,128}\Z")
_SOURCE_NAME = re.compile(r"[a-z][a-z0-9]{0,15}\Z")


def is_printable_text(text: str) -> bool:
    """Whether the text can be stored, logged and displayed unchanged: no control characters and no lone surrogates."""
    return 0 < len(text) <= TEXT_MAX_CHARS and text.isprintable()


def require_printable(field: str, text: str) -> None:
    if not is_printable_text(text):
        raise InvalidParams(f"{field}: expected 1 to {TEXT_MAX_CHARS} printable characters, got {text[:40]!r}")


def require_user_name(name: str) -> None:
    if not _USER_NAME.match(name):
        raise InvalidParams(f"name: expected 1 to 128 of the characters A-Z a-z 0-9 . _ @ + -, got {name[:40]!r}")


def require_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Returns the scopes as a set, which must not be empty and must contain known scopes only."""
    requested = frozenset(scopes)
    if not requested or not requested <= set(SCOPES):
        unknown = " ".join(sorted(requested - set(SCOPES))) or "none"
        raise InvalidParams(f"scopes: expected one or more of {' '.join(SCOPES)}, got {unknown[:40]!r}")
    return requested


def require_scopes_of_role(scopes: frozenset[str], role: Role, user_name: str) -> None:
    """Raises InvalidParams for a scope that no credential of the user can have."""
    beyond = " ".join(sorted(scopes - ROLE_SCOPES[role]))
    if beyond:
        allowed = " ".join(sorted(ROLE_SCOPES[role]))
        raise InvalidParams(f"scopes: {user_name} has the role {role}, which allows {allowed}; got {beyond}")


def require_sources(sources: Iterable[str]) -> frozenset[str]:
    """Returns the names of sources as a set, which must not be empty. Which sources exist depends on the server."""
    names = frozenset(sources)
    invalid = next((name for name in sorted(names) if not _SOURCE_NAME.match(name)), None)
    if not names or invalid is not None:
        raise InvalidParams(f"sources: expected one or more names of sources, got {(invalid or '')[:40]!r}")
    return names
