"""Rules for texts that name something. What an operator types wrong is answered by field, got and expected."""

import re
from collections.abc import Iterable

from auth.principal import SCOPES
from config.errors import InvalidParams

# The longest text taken from a credential or an operator: what OpenID Connect allows for `sub`.
TEXT_MAX_CHARS = 255

_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,128}\Z")


def is_plain(text: str) -> bool:
    """Whether the text can be stored, logged and shown as it is: no control character, no lone surrogate."""
    return 0 < len(text) <= TEXT_MAX_CHARS and text.isprintable()


def require_plain(field: str, text: str) -> None:
    if not is_plain(text):
        raise InvalidParams(f"{field}: got {text[:40]!r}, expected 1 to {TEXT_MAX_CHARS} printable characters")


def require_user_name(name: str) -> None:
    if not _NAME.match(name):
        raise InvalidParams(f"name: got {name[:40]!r}, expected 1 to 128 of the characters A-Z a-z 0-9 . _ @ + -")


def require_scopes(scopes: Iterable[str]) -> frozenset[str]:
    named = frozenset(scopes)
    if not named or not named <= set(SCOPES):
        got = " ".join(sorted(named - set(SCOPES))) or "none"
        raise InvalidParams(f"scopes: got {got[:40]!r}, expected one or more of {' '.join(SCOPES)}")
    return named
