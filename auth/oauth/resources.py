"""The resources that tokens are issued for (RFC 8707): this server's MCP address, or one of its profiles.

A token for `/mcp/research` can use only the tools of the profile `research`, wherever it is presented.
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from msgspec import Struct

from auth.oauth.errors import OAuthError
from config.settings import Settings


class TokenResource(Struct, frozen=True):
    """A resource in its canonical spelling, without a slash at the end."""

    url: str
    profile: str | None


class Resources:
    def __init__(self, settings: Settings, profiles: Collection[str]) -> None:
        self._url = settings.resource_url
        self._profiles = frozenset(profiles)

    def find(self, values: Collection[str]) -> TokenResource:
        """Returns the resource that a request names, or this server if it names none: clients of early protocol
        versions send no resource. Raises `invalid_target` for any other."""
        resources = {self._parse(value) for value in values}
        if not resources:
            return TokenResource(self._url, None)
        found = next(iter(resources))
        if len(resources) > 1 or found is None:
            raise OAuthError("invalid_target", f"resource: expected {self._url} or one of its profiles")
        return found

    def _parse(self, value: str) -> TokenResource | None:
        """Scheme and host are case-insensitive; a slash at the end and the path of the SSE transport are ignored."""
        try:
            parts = urlsplit(value)
        except ValueError:
            return None
        if parts.query or parts.fragment or "?" in value or "#" in value:
            return None
        url = f"{parts.scheme}://{parts.netloc.lower()}{parts.path.removesuffix('/').removesuffix('/sse')}"
        if url == _lower_host(self._url):
            return TokenResource(self._url, None)
        prefix, _, profile = url.rpartition("/")
        if prefix == _lower_host(self._url) and profile in self._profiles:
            return TokenResource(f"{self._url}/{profile}", profile)
        return None


def _lower_host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path}"
