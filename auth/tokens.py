"""Verifies and mints JSON Web Tokens.

A token is parsed once, strictly, and cannot choose its key or algorithm: `jku`, `x5u`, `jwk` and `x5c` are ignored,
`crit` and `b64` are rejected (RFC 8725). The caller learns only that the token expired or was not accepted; the reason
is logged at debug level.
"""

import base64
import binascii
import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
from loguru import logger
from msgspec import Struct

from auth.context import ClientId
from auth.registry import TEXT_MAX_CHARS, is_printable_text, require_printable, require_scopes
from auth.signing_keys import SigningKey, SigningKeys, accepted_algorithms, sign
from config.errors import ConfigurationError, InvalidParams, Unauthenticated
from config.openid import GroupRole, claimed_roles, read_group_map
from config.settings import Settings

# The claim of RFC 9068, that of OpenID Connect, and that of Microsoft Entra ID in tokens of version 1.
_CLIENT_CLAIMS = ("client_id", "azp", "appid")
# The type of RFC 9068 section 2.1, and that of RFC 7519 section 5.1, which many identity providers use.
_JWT_TOKEN_TYPES = ("at+jwt", "JWT")

ABSENT: Any = object()


class ClaimRules:
    """Reads the claims of a verified token."""

    def __init__(self, settings: Settings) -> None:
        self._scope_claim = settings.jwt_scope_claim
        self._role_claims = settings.jwt_role_claims if settings.jwt_scope_map else ()
        self._default_scopes = frozenset(settings.jwt_default_scopes)
        self._scope_map = {
            value: frozenset(scopes.split()) for value, scopes in map(split_entry, settings.jwt_scope_map)
        }
        self._group_map = read_group_map(settings.jwt_group_map)
        self._group_claims = ("groups", *settings.jwt_role_claims)
        self._required: dict[str, set[str]] = {}
        for name, value in map(split_entry, settings.jwt_required_claims):
            self._required.setdefault(name, set()).add(value)

    @property
    def required_values(self) -> Mapping[str, str]:
        """One accepted value of each required claim, for tokens that this server mints."""
        return {name: min(values) for name, values in self._required.items()}

    def groups(self, payload: Mapping[str, Any]) -> Mapping[str, GroupRole] | None:
        """Returns the roles in groups that a token gives, or None if tokens decide about none."""
        if not self._group_map:
            return None
        return claimed_roles(self._group_map, *(find_claim(payload, name) for name in self._group_claims))

    def missing_claim(self, payload: Mapping[str, Any]) -> str | None:
        """Returns the name of a required claim that is absent or has another value."""
        for name, accepted in self._required.items():
            value = find_claim(payload, name)
            if isinstance(value, bool):
                value = "true" if value else "false"
            values = [str(value)] if isinstance(value, int | float) else _texts(value)
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
            value = find_claim(payload, name)
            if value is ABSENT:
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


def find_claim(payload: Mapping[str, Any], name: str) -> Any:
    """Returns a claim by its name, or else by a path such as `realm_access.roles`."""
    if name in payload:
        return payload[name]
    value: Any = payload
    for step in name.split("."):
        value = value.get(step, ABSENT) if isinstance(value, Mapping) else ABSENT
    return value


def _texts(value: Any) -> list[str] | None:
    """Returns a text or a list of texts as a list, or None for any other value."""
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else None


_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\Z")
# Headers that change how a token is processed (RFC 7515, 7516, 7797); an access token has none of them.
_REJECTED_HEADERS = frozenset({"crit", "b64", "zip", "enc"})
_YEAR_10000 = 253_402_300_800  # seconds since 1970; a later time is a mistake or an attack
_MINTED_TYPE = "at+jwt"
# Claims by which applications and Amazon Cognito mark the purpose of a token, and the words in their values that mark a
# token that is not an access token. Such tokens are often signed with the same key.
_PURPOSE_CLAIMS = ("type", "token_type", "token_use")
_OTHER_PURPOSES = re.compile(r"refresh|reset|verification|(?:^|[^a-z])id(?:[^a-z]|$)", re.IGNORECASE)


class Claims(Struct, frozen=True):
    """The claims of a verified token. `identity` identifies the token in the list of revoked tokens.

    `expires_at` includes the configured leeway: from that time on the token is rejected.
    """

    issuer: str
    subject: str
    client_id: ClientId
    scopes: frozenset[str]
    expires_at: float
    issued_at: float | None
    identity: str
    # A name for the user if one is created. It does not identify the user.
    name: str = ""
    # The roles in groups that the token gives, by group; None if tokens decide about none.
    groups: Mapping[str, GroupRole] | None = None


class TokenVerifier(Protocol):
    @property
    def generation(self) -> int: ...

    async def verify(self, token: str, now: float) -> Claims: ...


class _Jws(Struct, frozen=True):
    """The parts of a compact JWS (RFC 7515 section 3.1), decoded but not yet verified."""

    header: Mapping[str, Any]
    payload: bytes
    signing_input: bytes
    signature: bytes


class JwtVerifier:
    """Verifies access tokens against the configured keys, issuer and audience."""

    def __init__(self, settings: Settings, keys: SigningKeys) -> None:
        self._settings = settings
        self._keys = keys
        self._algorithms = frozenset(accepted_algorithms(settings))
        self._rules = ClaimRules(settings)
        self._types = frozenset(_media_type(name) for name in _JWT_TOKEN_TYPES)

    @property
    def generation(self) -> int:
        return self._keys.generation

    async def verify(self, token: str, now: float) -> Claims:
        jws = _parse(token, self._settings.fixed.token_max_bytes)
        key = await _find_key(jws.header, self._keys, self._algorithms, self._types)
        _require_signature(jws, key)
        payload = _decode_object(jws.payload)
        # Only the insecure settings let iss and aud be absent.
        settings = self._settings
        needs_issuer = "iss" in payload or not settings.jwt_insecure_no_issuer
        if needs_issuer and _require_text(payload.get("iss"), "iss") != settings.issuer:
            raise _rejection("iss does not match the configured issuer")
        if "aud" in payload or not settings.jwt_insecure_no_audience:
            audiences = _texts(payload.get("aud"))
            if audiences is None:
                raise _rejection("aud is neither a string nor a list of strings")
            if settings.audience not in audiences:
                raise _rejection("aud does not name this server")
        for claim in _PURPOSE_CLAIMS:
            purpose = payload.get(claim)
            if isinstance(purpose, str) and _OTHER_PURPOSES.search(purpose):
                raise _rejection(f"{claim} says that this is not an access token")
        if missing := self._rules.missing_claim(payload):
            raise _rejection(f"{missing} does not have a value of jwt_required_claims")
        expires_at, issued_at = check_times(payload, now, settings.fixed.jwt_leeway_s)
        subject = _require_text(payload.get(settings.jwt_user_claim), settings.jwt_user_claim)
        scopes = self._rules.scopes(payload)
        if scopes is None:
            raise _rejection("a claim of scopes or roles is neither a string nor a list of strings")
        client_claim = next((claim for claim in _CLIENT_CLAIMS if claim in payload), None)
        client = subject if client_claim is None else _require_text(payload[client_claim], client_claim)
        if "jti" in payload:
            identity = _require_text(payload["jti"], "jti")
        else:
            # Without the signature: anyone can turn an ECDSA signature into a second valid one, which would escape a
            # revocation.
            identity = hashlib.sha256(jws.signing_input).hexdigest()
        # A token is not rejected for a name that cannot be printed, because it is not needed.
        name = payload.get(settings.jwt_name_claim) if settings.jwt_name_claim else None
        return Claims(
            issuer=settings.issuer,
            subject=subject,
            client_id=ClientId(client),
            scopes=scopes,
            expires_at=expires_at,
            issued_at=issued_at,
            identity=identity,
            name=name if isinstance(name, str) and is_printable_text(name) else "",
            groups=self._rules.groups(payload),
        )


async def verify_signature(
    token: str, keys: SigningKeys, algorithms: frozenset[str], types: frozenset[str], max_bytes: int
) -> Mapping[str, Any]:
    """Returns the claims of a signed token of any kind. Raises Unauthenticated. The caller checks the claims.

    `types` are the accepted values of the header `typ`; an empty text accepts a token without it.
    """
    jws = _parse(token, max_bytes)
    _require_signature(jws, await _find_key(jws.header, keys, algorithms, types))
    return _decode_object(jws.payload)


def unverified_claims(token: str, max_bytes: int) -> Mapping[str, Any]:
    """Returns what a token claims, to find out whose key verifies it. Raises Unauthenticated."""
    return _decode_object(_parse(token, max_bytes).payload)


def check_times(payload: Mapping[str, Any], now: float, leeway_s: float) -> tuple[float, float | None]:
    """Checks exp, nbf and iat (RFC 7519 sections 4.1.4 to 4.1.6), with leeway in the caller's favour. Returns when the
    token expires, leeway included, and when it was issued."""
    expires_at = _require_time(payload.get("exp"), "exp") + leeway_s
    if now >= expires_at:
        raise _rejection("exp has passed", "token expired")
    if "nbf" in payload and _require_time(payload["nbf"], "nbf") > now + leeway_s:
        raise _rejection("nbf is in the future")
    issued_at = _require_time(payload["iat"], "iat") if "iat" in payload else None
    if issued_at is not None and issued_at > now + leeway_s:
        raise _rejection("iat is in the future")
    return expires_at, issued_at


def mint_token(
    settings: Settings, subject: str, scopes: Iterable[str], *, lifetime_s: float, now: float, client_id: str
) -> str:
    """Returns a token signed with the configured secret, which `JwtVerifier` accepts under the same settings."""
    if not settings.jwt_secret:
        raise ConfigurationError("minting tokens requires a shared secret; set jwt_secret")
    require_printable("subject", subject)
    require_printable("client_id", client_id)
    granted = require_scopes(scopes)
    if not lifetime_s > 0 or now + lifetime_s >= _YEAR_10000:
        raise InvalidParams(f"lifetime_s: expected a positive number of seconds, got {lifetime_s}")
    payload = {
        **ClaimRules(settings).required_values,
        "iss": settings.issuer,
        "aud": settings.audience,
        "jti": secrets.token_urlsafe(16),
        # Not rounded: a token minted in the same second in which its user was enabled must be newer than that.
        "iat": now,
        "nbf": now,
        "exp": now + lifetime_s,
        settings.jwt_user_claim: subject,
        _CLIENT_CLAIMS[0]: client_id,
        settings.jwt_scope_claim: " ".join(sorted(granted)),
    }
    return sign(msgspec.json.encode(payload), settings.jwt_secret, _MINTED_TYPE)


async def _find_key(
    header: Mapping[str, Any], keys: SigningKeys, algorithms: frozenset[str], types: frozenset[str]
) -> SigningKey:
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise _rejection("alg is not accepted")
    token_type = header.get("typ", "")
    if not isinstance(token_type, str) or _media_type(token_type) not in types:
        raise _rejection("typ is missing or not accepted")
    if not _REJECTED_HEADERS.isdisjoint(header):
        raise _rejection("an unsupported header is present")
    key = await keys.find(algorithm, None if kid is None else _require_text(kid, "kid"))
    if key is None:
        raise _rejection("no key matches alg and kid")
    return key


def _rejection(reason: str, message: str = "token not accepted") -> Unauthenticated:
    """Logs the reason and returns the error for the caller, which does not contain it."""
    logger.debug("token rejected: {}", reason)
    return Unauthenticated(message, presented=True, reason=reason)


def _parse(token: str, max_bytes: int) -> _Jws:
    if len(token) > max_bytes:
        raise _rejection("longer than 16 KiB")
    if not _COMPACT.match(token):
        raise _rejection("not three base64url parts")
    signing_input, _, signature = token.rpartition(".")
    header, _, payload = signing_input.partition(".")
    return _Jws(_decode_object(_decode(header)), _decode(payload), signing_input.encode(), _decode(signature))


def _decode(part: str) -> bytes:
    """Decodes canonical base64url only: with unused bits set, one signature could be written in several ways."""
    try:
        value = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise _rejection("a part is not base64url") from None
    if base64.urlsafe_b64encode(value).rstrip(b"=") != part.encode():
        raise _rejection("a part is not canonical base64url")
    return value


def _decode_object(data: bytes) -> Mapping[str, Any]:
    """Decodes a JSON object without duplicate names, so that two parsers never read two different tokens."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise _rejection("a part is not JSON") from None
    if not isinstance(value, dict):
        raise _rejection("a part is not a JSON object")
    return value


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _rejection("a name occurs twice in an object")
    return value


def _reject_constant(name: str) -> Any:
    raise _rejection(f"{name} is not JSON")


def _require_signature(jws: _Jws, key: SigningKey) -> None:
    if not key.verifies(jws.signing_input, jws.signature):
        raise _rejection("the signature does not match")


def _require_text(value: object, name: str) -> str:
    if not isinstance(value, str) or not is_printable_text(value):
        raise _rejection(f"{name} is not text of 1 to {TEXT_MAX_CHARS} printable characters")
    return value


def _require_time(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _YEAR_10000:
        raise _rejection(f"{name} is not a valid time")
    return float(value)


def _media_type(name: str) -> str:
    """Normalizes a media type: it is case-insensitive, and `application/` is optional (RFC 7515 section 4.1.9)."""
    return name.lower().removeprefix("application/")


# -- used tokens -------------------------------------------------------------------------------------------------------
# Tokens that are valid once: those that were used are remembered until they expire.

_TOKENS_MAX = 100_000


class UsedTokens(Protocol):
    async def use(self, token: bytes, ttl_s: float) -> bool:
        """Returns False if the token was used before. It is remembered for `ttl_s`."""
        ...


class InProcessUsedTokens:
    def __init__(self) -> None:
        self._expires_at: dict[bytes, float] = {}

    async def use(self, token: bytes, ttl_s: float) -> bool:
        now = time.monotonic()
        if self._expires_at.get(token, now) > now:
            return False
        if len(self._expires_at) >= _TOKENS_MAX:
            self._expires_at = {token: expires_at for token, expires_at in self._expires_at.items() if expires_at > now}
        self._expires_at[token] = now + ttl_s
        return True
