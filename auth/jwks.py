"""Signing keys from an identity provider's JWK set.

The set is fetched at most once per interval, however many tokens name unknown keys, and concurrent callers share one
fetch. If fetching fails, the last set stays in use for a limited time. Redirects are not followed.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable

import msgspec
from cachetools import LRUCache
from loguru import logger

from auth.signing_keys import JwksFetch, KeyIndex, SigningKey
from config.errors import Unavailable
from config.public_http import OutgoingRequestError, open_response
from config.settings import Settings

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
        self._index = KeyIndex()
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
        key = self._index.find(algorithm, kid)
        if key is None and kid is not None and self._clock() >= self._retry_at.get(kid, 0.0):
            fetched_before = self._fetched_at
            await self._refresh()
            refreshed = self._index.find(algorithm, kid)
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
                self._digest, self._index = digest, KeyIndex(keys)
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


class UrlFetch:
    """Fetches a URL, with a time limit and a size limit."""

    def __init__(self, timeout_s: float, max_bytes: int) -> None:
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes

    async def __call__(self, url: str) -> bytes:
        try:
            # The limit of the request applies to each wait; this one to the whole request.
            async with asyncio.timeout(self._timeout_s):
                headers = {"Accept": "application/json"}
                async with open_response("GET", url, headers=headers, timeout_s=self._timeout_s) as response:
                    if response.status != 200:
                        raise OutgoingRequestError(f"responded with status {response.status}")
                    return await response.read(self._max_bytes)
        except TimeoutError as error:
            raise Unavailable(f"fetch failed: {url} took longer than {self._timeout_s:g} s") from error
        except OutgoingRequestError as error:
            raise Unavailable(f"fetch failed: {url} {error}") from error
