"""Keys that verify token signatures, and the lookup by algorithm and `kid`.

A token's `kid` is untrusted: it is only used as a dictionary key.
"""

import asyncio
import hashlib
import hmac
import re
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from cachetools import LRUCache
from loguru import logger
from msgspec import Struct

from config.errors import ConfigurationError, Unavailable
from config.public_http import OutgoingRequestError, open_response
from config.settings import ASYMMETRIC_ALGORITHMS, SYMMETRIC_ALGORITHMS, Settings

# Key sets are far smaller.
JWKS_MAX_BYTES = 1024 * 1024

# Callers with tokens wait for the first fetch.
JWKS_TIMEOUT_S = 5.0


class SigningKey(Struct, frozen=True):
    """A key for one algorithm (RFC 8725 section 3.1): the bytes of a shared secret, or a public key of cryptography.

    `previous` are the secrets that it replaced, whose signatures are still valid. Shared secrets have no `kid` that
    could tell them apart.
    """

    algorithm: str
    kid: str | None
    key: object
    previous: tuple[bytes, ...] = ()

    def verifies(self, signing_input: bytes, signature: bytes) -> bool:
        """Verifies a signature with the key's own algorithm, whatever the token says."""
        if isinstance(self.key, bytes):
            return any(
                hmac.compare_digest(hmac.digest(secret, signing_input, "sha256"), signature)
                for secret in (self.key, *self.previous)
            )
        from auth.signatures import verify  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.signatures

        return verify(self, signing_input, signature)


class SigningKeys(Protocol):
    """Where a verifier looks up the key of a token."""

    @property
    def generation(self) -> int:
        """Increases when the keys change, so that results based on the old keys can be dropped."""
        ...

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None: ...


# Fetches a JWK set. Raises only `config.errors.Unavailable`.
JwksFetch = Callable[[str], Awaitable[bytes]]


class StaticKeys:
    """Keys by algorithm and `kid`, which do not change.

    If the token has no `kid`, or no key has that `kid`, a key is used only where there is no choice: the single key of
    the algorithm, or its single key without a `kid`.
    """

    generation = 0

    def __init__(self, keys: Sequence[SigningKey] = ()) -> None:
        self._by_kid = {(key.algorithm, key.kid): key for key in reversed(keys) if key.kid is not None}
        self._single = _single_keys(keys)
        self._single_without_kid = _single_keys([key for key in keys if key.kid is None])

    def lookup(self, algorithm: str, kid: str | None) -> SigningKey | None:
        if kid is None:
            return self._single.get(algorithm)
        return self._by_kid.get((algorithm, kid)) or self._single_without_kid.get(algorithm)

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        return self.lookup(algorithm, kid)


def _single_keys(keys: Sequence[SigningKey]) -> dict[str, SigningKey]:
    """Returns the key of each algorithm that has exactly one."""
    count = Counter(key.algorithm for key in keys)
    return {key.algorithm: key for key in keys if count[key.algorithm] == 1}


# -- shared secrets ----------------------------------------------------------------------------------------------------
# HS256 (RFC 7518 section 3.2) with the standard library: a server that only has a shared secret does not load
# cryptography, which takes 9 MB.

# Text of these characters is neither a PEM, SSH, DER nor JWK key.
_PLAIN_SECRET = re.compile(r"(?!ssh-|ecdsa-)(?!.*-----)[A-Za-z0-9+/=_.~-]+")


def sign(payload: bytes, secret: str, token_type: str) -> str:
    """Returns a compact JWS (RFC 7515 section 7.1)."""
    header = msgspec.json.encode({"alg": "HS256", "typ": token_type})
    signing_input = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in (header, payload))
    signature = urlsafe_b64encode(hmac.digest(secret.encode(), signing_input, "sha256")).rstrip(b"=")
    return (signing_input + b"." + signature).decode()


# -- key sources -------------------------------------------------------------------------------------------------------
# Loads the keys that verify tokens from the configured secret, file or URL. Each key is bound to one algorithm.


def accepted_algorithms(settings: Settings) -> tuple[str, ...]:
    """Returns either HS256 or public-key algorithms, never both: a public key must not be usable as a shared secret."""
    return settings.jwt_algorithms or (SYMMETRIC_ALGORITHMS if settings.jwt_secret else ASYMMETRIC_ALGORITHMS)


def load_signing_keys(
    settings: Settings, fetch: JwksFetch | None = None, clock: Callable[[], float] = time.monotonic
) -> SigningKeys | None:
    """Returns the configured keys, or None if JWTs are not accepted. A file is read now, a URL at the first token."""
    if settings.jwt_secret:
        secrets = (settings.jwt_secret, *settings.jwt_previous_secrets)
        for text in secrets:
            if not _PLAIN_SECRET.fullmatch(text):
                from auth.signatures import looks_like_key  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.signatures

                if looks_like_key(text):  # A public key as a shared secret would let everyone sign.
                    raise ConfigurationError(
                        "jwt_secret looks like a key in PEM, DER or JWK format; expected random text. "
                        "To use a public key, set jwt_key_file"
                    )
        current, *previous = (text.encode() for text in secrets)
        return StaticKeys([SigningKey("HS256", None, current, tuple(previous))])
    if settings.jwt_jwks_url and not settings.jwt_key_file:
        return RemoteKeys(settings, fetch or fetch_url, clock)
    if not settings.jwt_key_file:
        return None
    from auth.signatures import keys_from_file  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.signatures

    try:
        content = Path(settings.jwt_key_file).read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"jwt_key_file {settings.jwt_key_file!r} cannot be read: {(error.strerror or 'unknown error').lower()}"
        ) from error
    accepted = accepted_algorithms(settings)
    usable = [key for key in keys_from_file(content) if key.algorithm in accepted]
    if not usable:
        raise ConfigurationError(
            f"jwt_key_file {settings.jwt_key_file!r} contains no usable public key for {', '.join(accepted)}; "
            "expected a PEM, JWK or JWK set file with an RSA key of at least 2048 bits, a P-256 key or an Ed25519 key"
        )
    return StaticKeys(usable)


# -- jwks --------------------------------------------------------------------------------------------------------------
# Signing keys from an identity provider's JWK set.
#
# The set is fetched at most once per interval, however many tokens name unknown keys, and concurrent callers share one
# fetch. If fetching fails, the last set stays in use for a limited time. Redirects are not followed.

# A key that was revoked at the provider stays valid for ten minutes at most. New keys are fetched at once.
_JWKS_TTL_S = 600.0
# How long the last set stays in use while fetching fails: long enough to notice and repair a provider.
_STALE_MAX_S = 86_400.0

# An unknown `kid` does not trigger another fetch for two intervals, so a client that keeps sending a withdrawn key does
# not cause every fetch. A key published late is still found within a minute by default.
_UNKNOWN_INTERVALS = 2
_UNKNOWN_MAX = 1000


class RemoteKeys:
    """The keys of one JWKS URL."""

    def __init__(self, settings: Settings, fetch: JwksFetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._fetch = fetch
        self._clock = clock
        self._index = StaticKeys()
        self._digest = b""
        self._fetched_at: float | None = None
        self._attempted_at: float | None = None
        self._pending_fetch: asyncio.Task[None] | None = None
        self._retry_at: LRUCache[str, float] = LRUCache(_UNKNOWN_MAX)
        self.generation = 0

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        """Returns the key, after at most one fetch. Raises Unavailable if no usable JWK set is available."""
        if not self._is_younger_than(_JWKS_TTL_S):
            await self._refresh()
        if not self._is_younger_than(_JWKS_TTL_S + _STALE_MAX_S):
            raise Unavailable("the token signing keys cannot be fetched; try again later", max(self._cooldown_s(), 1.0))
        key = self._index.lookup(algorithm, kid)
        if key is None and kid is not None and self._clock() >= self._retry_at.get(kid, 0.0):
            fetched_before = self._fetched_at
            await self._refresh()
            refreshed = self._index.lookup(algorithm, kid)
            if refreshed is None and self._fetched_at != fetched_before:
                interval_s = self._settings.fixed.jwks_refresh_min_s
                self._retry_at[kid] = self._clock() + _UNKNOWN_INTERVALS * interval_s
            key = refreshed
        return key

    async def _refresh(self) -> None:
        """Joins the pending fetch, or starts one if the interval since the last attempt has passed."""
        if self._pending_fetch is None:
            if self._cooldown_s() > 0:
                return
            self._attempted_at = self._clock()
            self._pending_fetch = asyncio.create_task(self._load())
        # Shielded, because other callers may wait for the same fetch when one is cancelled.
        await asyncio.shield(self._pending_fetch)

    async def _load(self) -> None:
        try:
            body = await self._fetch(self._settings.jwt_jwks_url)
            # Parses a JWK set (RFC 7517 section 5). A set without usable keys is valid: it withdraws all keys.
            from auth.signatures import keys_from_jwks  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.signatures

            try:
                entries = msgspec.json.decode(body)["keys"]
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError) as jwks_error:
                raise Unavailable("response is not a JWK set") from jwks_error
            if not isinstance(entries, list):
                raise Unavailable("response is not a JWK set")
            keys, digest = keys_from_jwks(entries), hashlib.sha256(body).digest()
            self._fetched_at = self._clock()
            if digest != self._digest:
                self._digest, self._index = digest, StaticKeys(keys)
                self.generation += 1
                logger.info("JWK set changed: {} usable keys", len(keys))
        except Unavailable as error:
            logger.warning("JWK set not refreshed: {}", error.message)
        finally:
            self._pending_fetch = None

    def _is_younger_than(self, age_s: float) -> bool:
        return self._fetched_at is not None and self._clock() - self._fetched_at < age_s

    def _cooldown_s(self) -> float:
        if self._attempted_at is None:
            return 0.0
        return self._attempted_at + self._settings.fixed.jwks_refresh_min_s - self._clock()


async def fetch_url(url: str, timeout_s: float = JWKS_TIMEOUT_S, max_bytes: int = JWKS_MAX_BYTES) -> bytes:
    """Raises Unavailable if the URL cannot be fetched within the limits."""
    try:
        # The limit of the request applies to each wait; this one to the whole request.
        async with asyncio.timeout(timeout_s):
            headers = {"Accept": "application/json"}
            async with open_response("GET", url, headers=headers, timeout_s=timeout_s) as response:
                if response.status != 200:
                    raise OutgoingRequestError(f"responded with status {response.status}")
                return await response.read(max_bytes)
    except TimeoutError as error:
        raise Unavailable(f"fetch failed: {url} took longer than {timeout_s:g} s") from error
    except OutgoingRequestError as error:
        raise Unavailable(f"fetch failed: {url} {error}") from error
