"""JSON Web Tokens in, claims out. A token is taken apart once, strictly, and all it says is checked here.

No token chooses its key or algorithm: `jku`, `x5u`, `jwk` and `x5c` are not read, `crit` and `b64` are refused
(RFC 8725). A stranger is told only that the token expired or is not accepted; the log learns why, at debug level.
"""

import base64
import binascii
import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
from loguru import logger
from msgspec import Struct

from auth.arguments import TEXT_MAX_CHARS, is_plain, require_plain, require_scopes
from auth.key_table import SigningKey, SigningKeys
from auth.principal import ClientId
from auth.signing_keys import accepted_algorithms
from config.errors import ConfigurationError, InvalidParams, Unauthenticated
from config.settings import Settings

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\Z")
# Headers that change how the rest must be read (RFC 7515, 7516, 7797); none belongs on an access token.
_REFUSED_HEADERS = frozenset({"crit", "b64", "zip", "enc"})
_YEAR_10000 = 253_402_300_800  # seconds since 1970; a later time is a mistake or an attack, not an expiry
_MINTED_TYPE = "at+jwt"


class Claims(Struct, frozen=True):
    """What a verified token says. `identity` names the token in the list of revoked ones.

    `expires_at` includes the configured leeway: it is the moment from which the token is refused.
    """

    issuer: str
    subject: str
    client_id: ClientId
    scopes: frozenset[str]
    expires_at: float
    issued_at: float | None
    identity: str


class TokenVerifier(Protocol):
    @property
    def generation(self) -> int: ...

    async def verify(self, token: str, now: float) -> Claims: ...


class _Jws(Struct, frozen=True):
    """The parts of a compact JWS (RFC 7515 section 3.1), decoded but not yet believed."""

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
        self._types = frozenset(_media_type(name) for name in settings.jwt_token_types)

    @property
    def generation(self) -> int:
        return self._keys.generation

    async def verify(self, token: str, now: float) -> Claims:
        jws = _take_apart(token, self._settings.token_max_bytes)
        key = await self._key_for(jws.header)
        _require_signature(jws, key)
        return self._claims(jws, now)

    async def _key_for(self, header: Mapping[str, Any]) -> SigningKey:
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise _refusal("alg is not on the list")
        token_type = header.get("typ")
        if not isinstance(token_type, str) or _media_type(token_type) not in self._types:
            raise _refusal("typ is missing or not on the list")
        if not _REFUSED_HEADERS.isdisjoint(header):
            raise _refusal("a header asks for processing that is not offered")
        key = await self._keys.find(algorithm, None if kid is None else _text(kid, "kid"))
        if key is None:
            raise _refusal("no key fits alg and kid")
        return key

    def _claims(self, jws: _Jws, now: float) -> Claims:
        payload = _object(jws.payload)
        issuer = _text(payload.get("iss"), "iss")
        if issuer != self._settings.issuer:
            raise _refusal("iss is another issuer")
        if self._settings.audience not in _audiences(payload.get("aud")):
            raise _refusal("aud does not name this server")
        expires_at, issued_at = self._times(payload, now)
        subject = _text(payload.get(self._settings.jwt_user_claim), self._settings.jwt_user_claim)
        return Claims(
            issuer=issuer,
            subject=subject,
            client_id=self._client(payload, subject),
            scopes=self._scopes(payload),
            expires_at=expires_at,
            issued_at=issued_at,
            identity=_identity(payload, jws),
        )

    def _times(self, payload: Mapping[str, Any], now: float) -> tuple[float, float | None]:
        """RFC 7519 section 4.1.4 to 4.1.6, with the leeway granted in the caller's favour at both ends."""
        leeway_s = self._settings.jwt_leeway_s
        expires_at = _time(payload.get("exp"), "exp") + leeway_s
        if now >= expires_at:
            raise _refusal("exp has passed", "token expired")
        if "nbf" in payload and _time(payload["nbf"], "nbf") > now + leeway_s:
            raise _refusal("nbf is in the future")
        issued_at = _time(payload["iat"], "iat") if "iat" in payload else None
        if issued_at is not None and issued_at > now + leeway_s:
            raise _refusal("iat is in the future")
        return expires_at, issued_at

    def _client(self, payload: Mapping[str, Any], subject: str) -> ClientId:
        for claim in (self._settings.jwt_client_claim, "azp"):
            if claim in payload:
                return ClientId(_text(payload[claim], claim))
        return ClientId(subject)

    def _scopes(self, payload: Mapping[str, Any]) -> frozenset[str]:
        """Scopes by default only where the claim is absent: a token that names none on purpose gets none."""
        claim = self._settings.jwt_scope_claim
        if claim not in payload:
            return frozenset(self._settings.jwt_default_scopes)
        named = payload[claim]
        if isinstance(named, str):
            return frozenset(named.split())
        if isinstance(named, list) and all(isinstance(scope, str) for scope in named):
            return frozenset(named)
        raise _refusal(f"{claim} is neither text nor a list of texts")


def mint(
    settings: Settings, subject: str, scopes: Iterable[str], *, lifetime_s: float, now: float, client_id: str
) -> str:
    """A token signed with the configured secret, as `JwtVerifier` accepts it under the same settings."""
    if not settings.jwt_secret:
        raise ConfigurationError("tokens can only be minted with a shared secret; set jwt_secret")
    require_plain("subject", subject)
    require_plain("client_id", client_id)
    granted = require_scopes(scopes)
    if not lifetime_s > 0 or now + lifetime_s >= _YEAR_10000:
        raise InvalidParams(f"lifetime_s: got {lifetime_s}, expected a positive number of seconds")
    payload = {
        "iss": settings.issuer,
        "aud": settings.audience,
        "jti": secrets.token_urlsafe(16),
        # Not rounded: a token minted in the second in which its user was enabled again must be newer than that.
        "iat": now,
        "nbf": now,
        "exp": now + lifetime_s,
        settings.jwt_user_claim: subject,
        settings.jwt_client_claim: client_id,
        settings.jwt_scope_claim: " ".join(sorted(granted)),
    }
    from auth.jws import sign  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.jws

    return sign(msgspec.json.encode(payload), settings.jwt_secret, _MINTED_TYPE)


def _refusal(reason: str, message: str = "token not accepted") -> Unauthenticated:
    """The error for a stranger, after its reason went to the log."""
    logger.debug("token refused: {}", reason)
    return Unauthenticated(message, presented=True)


def _take_apart(token: str, max_bytes: int) -> _Jws:
    if len(token) > max_bytes:
        raise _refusal("longer than token_max_bytes")
    if not _COMPACT.match(token):
        raise _refusal("not three parts of base64url")
    signing_input, _, signature = token.rpartition(".")
    header, _, payload = signing_input.partition(".")
    return _Jws(_object(_decoded(header)), _decoded(payload), signing_input.encode(), _decoded(signature))


def _decoded(part: str) -> bytes:
    """Base64url in its one canonical form: with unused bits set, one signature could be written many ways."""
    try:
        value = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise _refusal("a part is not base64url") from None
    if base64.urlsafe_b64encode(value).rstrip(b"=") != part.encode():
        raise _refusal("a part is not canonical base64url")
    return value


def _object(data: bytes) -> Mapping[str, Any]:
    """A JSON object in UTF-8 with every name once: two readers must never see two different tokens."""
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _refusal("a part is not JSON") from None
    if not isinstance(value, dict):
        raise _refusal("a part is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _refusal("a name occurs twice in one object")
    return value


def _no_constant(name: str) -> Any:
    raise _refusal(f"{name} is not JSON")


def _require_signature(jws: _Jws, key: SigningKey) -> None:
    from auth.jws import is_signed  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.jws

    if not is_signed(key, jws.signing_input, jws.signature):
        raise _refusal("the signature is wrong")


def _identity(payload: Mapping[str, Any], jws: _Jws) -> str:
    """`jti`, or else the hash of what was signed.

    Not of the whole token: anyone can turn an ECDSA signature into a second valid one, and would so escape
    the revocation.
    """
    if "jti" in payload:
        return _text(payload["jti"], "jti")
    return hashlib.sha256(jws.signing_input).hexdigest()


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not is_plain(value):
        raise _refusal(f"{name} is not 1 to {TEXT_MAX_CHARS} printable characters")
    return value


def _time(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _YEAR_10000:
        raise _refusal(f"{name} is not a time")
    return float(value)


def _audiences(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(audience, str) for audience in value):
        return value
    raise _refusal("aud is neither text nor a list of texts")


def _media_type(name: str) -> str:
    """RFC 7515 section 4.1.9: case does not matter, and `application/` may be left out."""
    return name.lower().removeprefix("application/")
