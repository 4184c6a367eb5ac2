"""Server URLs, from the settings or from the command line."""

from urllib.parse import urlsplit

from config.errors import InvalidParams
from config.settings import Settings

# A server that listens on all addresses is reachable from its own machine at the loopback address.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, never bound


def local_url(settings: Settings) -> str:
    """Returns the base URL at which a server with these settings is reachable from its own machine."""
    host = _LOOPBACK.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def require_url(field: str, url: str) -> str:
    """Returns the URL without a trailing slash. Rejects URLs with credentials, a query or a fragment."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # the port is parsed and validated only when accessed
    except ValueError:
        parts = urlsplit("")
    plain = url.isascii() and url.isprintable() and not set(" \"'<>\\^`{|}?#") & set(url)
    if not plain or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidParams(f"{field}: expected http:// or https:// and a host, without a query, got {url[:80]!r}")
    return url.rstrip("/")
