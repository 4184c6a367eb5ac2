"""Signing keys from an identity provider's JWK set, fetched when needed and seldom.

However many tokens name unknown keys, there is one fetch per interval, shared by all who wait for it. While
fetching fails the last set stays in use for a limited time. Redirects and proxies are not followed.
"""

import asyncio
import hashlib
import http.client
import time
import urllib.request
from collections.abc import Callable, Sequence

import msgspec
from cachetools import LRUCache
from loguru import logger

from auth.key_table import Fetch, KeyTable, SigningKey
from config.errors import Unavailable
from config.settings import Settings

# An unknown `kid` is not asked for again for two intervals: a client that repeats a withdrawn key cannot cause
# every fetch, and a key published late is still found within a minute by default.
_UNKNOWN_INTERVALS = 2
_UNKNOWN_MAX = 1000
_CHUNK_BYTES = 65_536


class RemoteKeys:
    """The keys behind one URL."""

    def __init__(self, settings: Settings, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._fetch = fetch
        self._clock = clock
        self._table = KeyTable()
        self._digest = b""
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._flight: asyncio.Task[None] | None = None
        self._unknown: LRUCache[str, float] = LRUCache(_UNKNOWN_MAX)
        self.generation = 0

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        """The key, after at most one fetch. Unavailable when there are no keys to judge by."""
        if not self._is_younger_than(self._settings.jwks_ttl_s):
            await self._refresh()
        key = self._current_table().find(algorithm, kid)
        if key is None and kid is not None and self._clock() >= self._unknown.get(kid, 0.0):
            key = await self._look_again(algorithm, kid)
        return key

    async def _look_again(self, algorithm: str, kid: str) -> SigningKey | None:
        before = self._fetched_at
        await self._refresh()
        key = self._table.find(algorithm, kid)
        if key is None and self._fetched_at != before:
            interval_s = self._settings.jwks_refresh_min_s
            self._unknown[kid] = self._clock() + _UNKNOWN_INTERVALS * interval_s
        return key

    async def _refresh(self) -> None:
        """Join the fetch that is under way, or start one if the last is long enough ago."""
        if self._flight is None:
            if self._cooldown_s() > 0:
                return
            self._tried_at = self._clock()
            self._flight = asyncio.create_task(self._load())
        # Shielded: others wait for the same fetch when one caller goes away.
        await asyncio.shield(self._flight)

    async def _load(self) -> None:
        try:
            body = await self._fetch(self._settings.jwt_jwks_url)
            self._accept(body, _keys_of(body))
        except Unavailable as error:
            logger.warning("JWK set not refreshed: {}", error.message)
        finally:
            self._flight = None

    def _accept(self, body: bytes, keys: Sequence[SigningKey]) -> None:
        self._fetched_at = self._clock()
        digest = hashlib.sha256(body).digest()
        if digest != self._digest:
            self._digest = digest
            self._table = KeyTable(keys)
            self.generation += 1
            logger.info("JWK set changed: {} usable keys", len(keys))

    def _current_table(self) -> KeyTable:
        if not self._is_younger_than(self._settings.jwks_ttl_s + self._settings.jwks_stale_max_s):
            raise Unavailable("the keys that sign tokens cannot be fetched now", max(self._cooldown_s(), 1.0))
        return self._table

    def _is_younger_than(self, age_s: float) -> bool:
        return self._fetched_at is not None and self._clock() - self._fetched_at < age_s

    def _cooldown_s(self) -> float:
        if self._tried_at is None:
            return 0.0
        return self._tried_at + self._settings.jwks_refresh_min_s - self._clock()


class UrlFetch:
    """GET by urllib on a thread, within a time and a size."""

    def __init__(self, timeout_s: float, max_bytes: int) -> None:
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._opener = urllib.request.OpenerDirector()
        # Named one by one: the usual opener also follows redirects and proxies, and reads file: and ftp: URLs.
        for handler in (
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPErrorProcessor,
            urllib.request.HTTPDefaultErrorHandler,
            urllib.request.UnknownHandler,
        ):
            self._opener.add_handler(handler())

    async def __call__(self, url: str) -> bytes:
        try:
            # The socket's own timeout is per read; this one bounds the whole.
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.to_thread(self._get, url)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"fetching it failed with {type(error).__name__}: {error}") from error

    def _get(self, url: str) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - http(s) handlers only
        with self._opener.open(request, timeout=self._timeout_s) as response:
            body = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > self._max_bytes:
                    raise ValueError(f"the answer is larger than {self._max_bytes} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError("the answer takes too long")
            return bytes(body)


def _keys_of(body: bytes) -> Sequence[SigningKey]:
    """RFC 7517 section 5. A set that holds nothing usable is taken at its word: all keys are withdrawn."""
    from auth.jws import keys_from_jwks  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.jws

    try:
        entries = msgspec.json.decode(body)["keys"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise Unavailable("the answer is not a JWK set") from error
    if not isinstance(entries, list):
        raise Unavailable("the answer is not a JWK set")
    return keys_from_jwks(entries)
