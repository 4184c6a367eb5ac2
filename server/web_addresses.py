"""Addresses of other sites that pages may link to."""

from urllib.parse import urlsplit

_LINKABLE_SCHEMES = frozenset(("http", "https"))


def is_web_address(address: str) -> bool:
    """`javascript:` and other schemes stay text."""
    try:
        return urlsplit(address).scheme in _LINKABLE_SCHEMES
    except ValueError:
        return False
