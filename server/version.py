"""The installed version. The number itself is only in pyproject.toml."""

from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlencode, urlsplit, urlunsplit

try:
    VERSION = version("florilegium")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0.0.0"


# -- web addresses -----------------------------------------------------------------------------------------------------
# Addresses of other sites that pages may link to.

_YOUTUBE = frozenset(("youtube.com", "www.youtube.com", "m.youtube.com", "youtu.be"))
_LINKABLE_SCHEMES = frozenset(("http", "https"))


def is_web_address(address: str) -> bool:
    """`javascript:` and other schemes stay text."""
    try:
        return urlsplit(address).scheme in _LINKABLE_SCHEMES
    except ValueError:
        return False


def address_at_time(address: str, seconds: int) -> str:
    """Returns the address of a recording at a time: YouTube's parameter, or a media fragment (W3C Media Fragments)."""
    parts = urlsplit(address)
    if (parts.hostname or "") in _YOUTUBE:
        query = f"{parts.query}&" if parts.query else ""
        return urlunsplit(parts._replace(query=f"{query}{urlencode({'t': f'{seconds}s'})}"))
    return urlunsplit(parts._replace(fragment=f"t={seconds}"))
