"""Where a server is: from settings, or from what somebody typed."""

from urllib.parse import urlsplit

from config.errors import InvalidParams
from config.settings import Settings

# A server bound to "every address" is reached, from its own machine, at the loopback one.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, never bound to


def local_url(settings: Settings) -> str:
    """The base URL under which a server with these settings answers on its own machine."""
    host = _REACHED_AT.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def require_url(field: str, url: str) -> str:
    """The URL without a trailing slash. Credentials, a query or a fragment have no business in it."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # parsed, and refused, only when it is read
    except ValueError:
        parts = urlsplit("")
    plain = url.isascii() and url.isprintable() and not set(" \"'<>\\^`{|}?#") & set(url)
    if not plain or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InvalidParams(f"{field}: got {url[:80]!r}, expected http:// or https:// and a host, without query")
    return url.rstrip("/")
