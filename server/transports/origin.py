"""Rejects requests from untrusted browser pages and for unknown host names (DNS rebinding; MCP security warning).

A request without an Origin header does not come from a browser page and passes. CORS does not cover WebSockets, so
their upgrade is checked too.
"""

from functools import lru_cache
from urllib.parse import urlsplit

from config.errors import OriginRejected
from config.settings import Settings, is_loopback

CACHE_MAX = 1024
# A host name has at most 253 characters.
CACHED_MAX_CHARS = 300


class OriginGuard:
    """The Host header is checked only on a loopback address, or if the operator configured the host names."""

    def __init__(self, settings: Settings) -> None:
        base_url = urlsplit(settings.base_url)
        self._is_loopback = is_loopback(settings.host)
        self._origins = {origin.lower() for origin in settings.allowed_origins} | {
            f"{base_url.scheme}://{base_url.netloc}".lower()
        }
        hosts = [*settings.allowed_hosts, *([base_url.hostname or ""] if settings.public_url else [])]
        self._hosts = {host.lower() for host in hosts}
        self._checks_host = self._is_loopback or bool(self._hosts)
        # Clients repeat their headers, and parsing addresses is the most expensive check of a request.
        self._problem = lru_cache(maxsize=CACHE_MAX)(self._find_problem)

    def check(self, host: str | None, origin: str | None) -> None:
        # Longer headers are unusual, and must not fill the cache: anyone can send them.
        is_short = len(host or "") <= CACHED_MAX_CHARS and len(origin or "") <= CACHED_MAX_CHARS
        problem = self._problem(host, origin) if is_short else self._find_problem(host, origin)
        if problem:
            raise OriginRejected(problem)

    def _find_problem(self, host: str | None, origin: str | None) -> str | None:
        if self._checks_host and not self._is_known_host(host or ""):
            return "this host name is not served here"
        if origin is not None and not self._is_trusted_origin(origin.lower()):
            return "this origin is not allowed"
        return None

    def _is_known_host(self, host: str) -> bool:
        name = _host_name(host)
        return name in self._hosts or host.lower() in self._hosts or (self._is_loopback and is_loopback(name))

    def _is_trusted_origin(self, origin: str) -> bool:
        if origin in self._origins:
            return True
        scheme, _, host = origin.partition("://")
        return self._is_loopback and scheme in ("http", "https") and is_loopback(_host_name(host))


def _host_name(host: str) -> str:
    """Returns the host without its port: `::1` for `[::1]:80`. Malformed text becomes "", which matches no host."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
