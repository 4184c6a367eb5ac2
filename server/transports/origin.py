"""Rejects requests from untrusted browser pages and for unknown host names (DNS rebinding; MCP security warning).

A request without an Origin header does not come from a script of a page and passes, unless the browser says that
another site caused it. CORS does not cover WebSockets, so their upgrade is checked too.
"""

import re
from functools import lru_cache
from urllib.parse import urlsplit

from config.errors import OriginRejected
from config.settings import Settings, is_address, is_loopback
from server.transports.headers import Headers

CACHE_MAX = 1024
_UNKNOWN_HOST = "this host name is not served here; the operator can add it to allowed_hosts or set public_url"
# A host name has at most 253 characters.
CACHED_MAX_CHARS = 300
# A name, or an address in brackets, and a port (RFC 9110 section 7.2). `urlsplit` ignores what follows the brackets.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/?#\\\s]+))(?::[0-9]{0,5})?\Z", re.IGNORECASE)


class OriginGuard:
    """The Host header is checked only on a loopback address, or if the operator configured the host names."""

    def __init__(self, settings: Settings) -> None:
        base_url = urlsplit(settings.base_url)
        self._is_loopback = is_loopback(settings.host)
        # Other ports of this machine may belong to other programs, or to other users. They are trusted only where a
        # credential is needed, and not on a server for others.
        self._trusts_loopback = self._is_loopback and settings.is_auth_configured and not settings.public_url
        self._origins = {origin.lower() for origin in settings.allowed_origins} | {
            f"{base_url.scheme}://{base_url.netloc}".lower()
        }
        hosts = [*settings.allowed_hosts, *([base_url.hostname or ""] if settings.public_url else [])]
        self._hosts = {host.lower() for host in hosts}
        self._checks_host = self._is_loopback or bool(self._hosts)
        # Clients repeat their headers, and parsing addresses is the most expensive check of a request.
        self._problem = lru_cache(maxsize=CACHE_MAX)(self._find_problem)

    def check(self, headers: Headers) -> None:
        host, origin = headers.get(b"host"), headers.get(b"origin")
        # Longer headers are unusual, and must not fill the cache: anyone can send them.
        is_short = len(host or "") <= CACHED_MAX_CHARS and len(origin or "") <= CACHED_MAX_CHARS
        if problem := (self._problem if is_short else self._find_problem)(host, origin):
            raise OriginRejected(problem)
        if origin is None and headers.get(b"sec-fetch-site") == "cross-site":
            # The user may follow a link: the page opens in a tab, where the other site cannot read it.
            is_navigation = headers.get(b"sec-fetch-mode") == "navigate"
            if not is_navigation or headers.get(b"sec-fetch-dest") != "document":
                raise OriginRejected("requests that other sites cause are not allowed")

    def check_probe(self, headers: Headers) -> None:
        """Checks the host of a request to an operator's endpoint.

        A probe may use the address of the machine instead of a name. DNS rebinding needs a name.
        """
        host = headers.get(b"host") or ""
        if self._checks_host and not self._is_known_host(host) and not is_address(_host_name(host)):
            raise OriginRejected(_UNKNOWN_HOST)

    def _find_problem(self, host: str | None, origin: str | None) -> str | None:
        if self._checks_host and not self._is_known_host(host or ""):
            return _UNKNOWN_HOST
        if origin is not None and not self._is_trusted_origin(origin.lower(), (host or "").lower()):
            return "this origin is not allowed"
        return None

    def _is_known_host(self, host: str) -> bool:
        name = _host_name(host)
        return name in self._hosts or host.lower() in self._hosts or (self._is_loopback and is_loopback(name))

    def _is_trusted_origin(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        scheme, _, origin_host = origin.partition("://")
        if scheme not in ("http", "https") or not self._is_loopback or not is_loopback(_host_name(origin_host)):
            return False
        # A page of this server itself, under any loopback name.
        return self._trusts_loopback or (scheme == "http" and origin_host == host)


def _host_name(host: str) -> str:
    """Returns the host without its port: `::1` for `[::1]:80`. Malformed text becomes "", which matches no host."""
    match = _HOST.match(host)
    return (match[1] or match[2]).lower() if match else ""
