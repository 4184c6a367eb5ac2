"""Turns away browser pages and host names that we do not serve (DNS rebinding; MCP transports, security warning).

A request without an Origin header is not from a browser page and passes; CORS does not cover WebSockets, so the same
check stands at their upgrade.
"""

from functools import lru_cache
from urllib.parse import urlsplit

from config.errors import OriginRejected
from config.settings import Settings, is_loopback

VERDICTS_MAX = 1024


class OriginGuard:
    """Host is checked where it protects something: on a loopback bind, or when the operator named the hosts."""

    def __init__(self, settings: Settings) -> None:
        own = urlsplit(settings.base_url)
        self._loopback = is_loopback(settings.host)
        self._origins = {origin.lower() for origin in settings.allowed_origins} | {
            f"{own.scheme}://{own.netloc}".lower()
        }
        named = [*settings.allowed_hosts, *([own.hostname or ""] if settings.public_url else [])]
        self._hosts = {host.lower() for host in named}
        self._checks_host = self._loopback or bool(self._hosts)
        # Clients repeat themselves, and parsing addresses is the dearest check at the door.
        self._problem = lru_cache(maxsize=VERDICTS_MAX)(self._find_problem)

    def check(self, host: str | None, origin: str | None) -> None:
        if problem := self._problem(host, origin):
            raise OriginRejected(problem)

    def _find_problem(self, host: str | None, origin: str | None) -> str | None:
        if self._checks_host and not self._is_our_host(host or ""):
            return "this host name is not served here"
        if origin is not None and not self._is_trusted_origin(origin.lower()):
            return "this origin is not allowed"
        return None

    def _is_our_host(self, host: str) -> bool:
        name = _host_name(host)
        return name in self._hosts or host.lower() in self._hosts or (self._loopback and is_loopback(name))

    def _is_trusted_origin(self, origin: str) -> bool:
        if origin in self._origins:
            return True
        scheme, _, host = origin.partition("://")
        return self._loopback and scheme in ("http", "https") and is_loopback(_host_name(host))


def _host_name(host: str) -> str:
    """`[::1]:80` to `::1`, `a:80` to `a`; text that is neither is no host of ours."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
