"""Rules for the claims of tokens: which values are required, and which scopes they grant."""

from collections.abc import Iterator, Mapping
from typing import Any

from config.settings import Settings

_ABSENT: Any = object()


class ClaimRules:
    """Reads the claims of a verified token."""

    def __init__(self, settings: Settings) -> None:
        self._scope_claim = settings.jwt_scope_claim
        self._role_claims = settings.jwt_role_claims if settings.jwt_scope_map else ()
        self._default_scopes = frozenset(settings.jwt_default_scopes)
        self._scope_map = {value: frozenset(scopes.split()) for value, scopes in _split_entries(settings.jwt_scope_map)}
        self._required: dict[str, set[str]] = {}
        for name, value in _split_entries(settings.jwt_required_claims):
            self._required.setdefault(name, set()).add(value)

    @property
    def required_values(self) -> Mapping[str, str]:
        """One accepted value of each required claim, for tokens that this server mints."""
        return {name: min(values) for name, values in self._required.items()}

    def missing_claim(self, payload: Mapping[str, Any]) -> str | None:
        """Returns the name of a required claim that is absent or has another value."""
        for name, accepted in self._required.items():
            value = _find(payload, name)
            values = [_scalar(value)] if isinstance(value, bool | int | float) else _texts(value)
            if values is None or accepted.isdisjoint(values):
                return name
        return None

    def scopes(self, payload: Mapping[str, Any]) -> frozenset[str] | None:
        """Returns None if a claim is neither a text nor a list of texts. Applies the default scopes only if no claim
        could have named any: a token with an empty claim has no scopes.

        Values of the scope claim are scopes, values of the role claims are not; those of both are looked up in the
        scope map.
        """
        scopes: set[str] = set()
        has_claim = False
        for name in (self._scope_claim, *self._role_claims):
            value = _find(payload, name)
            if value is _ABSENT:
                continue
            has_claim = True
            values = _texts(value.split() if name == self._scope_claim and isinstance(value, str) else value)
            if values is None:
                return None
            if name == self._scope_claim:
                scopes.update(values)
            for one in values:
                scopes |= self._scope_map.get(one, frozenset())
        return frozenset(scopes) if has_claim else self._default_scopes


def split_entry(entry: str) -> tuple[str, str]:
    """Splits `NAME=VALUE` at the last equals sign: a claim or role may be a URL that contains one."""
    name, _, value = entry.rpartition("=")
    return name.strip(), value.strip()


def _split_entries(entries: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    return (split_entry(entry) for entry in entries)


def _find(payload: Mapping[str, Any], name: str) -> Any:
    """Returns a claim by its name, or else by a path such as `realm_access.roles`."""
    if name in payload:
        return payload[name]
    value: Any = payload
    for step in name.split("."):
        value = value.get(step, _ABSENT) if isinstance(value, Mapping) else _ABSENT
    return value


def _texts(value: Any) -> list[str] | None:
    """Returns a text or a list of texts as a list, or None for any other value."""
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else None


def _scalar(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
