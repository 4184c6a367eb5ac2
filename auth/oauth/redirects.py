"""Redirect URIs: which ones a client may register, and which requested URI matches a registered one.

A requested URI must equal a registered one character by character. Only the port of a loopback address is free, because
a native client listens on a port that it gets when it starts (RFC 8252 section 7.3).
"""

import re
from urllib.parse import urlsplit

from auth.oauth.errors import OAuthError

URI_MAX_CHARS = 2_000
_LOOPBACK_HOSTS = frozenset(("127.0.0.1", "localhost", "::1"))
_SCHEME = re.compile(r"[a-z][a-z0-9.+-]{1,63}\Z")
_VISIBLE_ASCII = re.compile(r"[!-~]+\Z")
# RFC 1123 section 2.1. Names in other scripts are registered in their ASCII form.
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z", re.IGNORECASE)
_LOOPBACK_PORT = re.compile(r"(http://(?:127\.0\.0\.1|localhost|\[::1\]))(?::[0-9]{1,5})?(?=[/?]|\Z)")
# Schemes that browsers and operating systems handle themselves. Any other scheme belongs to an application.
_RESERVED_SCHEMES = frozenset(
    (
        *("http", "https", "ws", "wss", "ftp", "ftps", "sftp", "file", "data", "javascript", "vbscript", "blob"),
        *("about", "filesystem", "view-source", "jar", "resource", "chrome", "chrome-extension", "moz-extension"),
        *("edge", "opera", "mailto", "tel", "sms", "intent", "content", "ssh", "telnet", "ldap", "ldaps", "smb"),
        *("gopher", "news", "nntp", "urn", "cid", "mid", "livescript", "mocha", "ms-settings", "search-ms", "shell"),
    )
)


def require_redirect_uris(uris: tuple[str, ...], *, is_native: bool, uris_max: int) -> None:
    """Raises unless all URIs can be registered. Private-use schemes are for native clients only."""
    if not 0 < len(uris) <= uris_max:
        raise OAuthError("invalid_redirect_uri", f"redirect_uris: expected 1 to {uris_max} URIs, got {len(uris)}")
    for uri in uris:
        if problem := _problem(uri, is_native=is_native):
            message = f"redirect_uris: expected {problem}, got {uri[:200]!r}"
            raise OAuthError("invalid_redirect_uri", message)


def is_private_use(uri: str) -> bool:
    """Whether the URI opens an application by a scheme of its own (RFC 8252 section 7.1)."""
    return uri.partition(":")[0] not in ("http", "https")


def is_loopback_uri(uri: str) -> bool:
    return _LOOPBACK_PORT.match(uri) is not None


def is_registered(requested: str, registered: tuple[str, ...]) -> bool:
    if requested in registered:
        return True
    if not is_loopback_uri(requested) or _problem(requested, is_native=True):
        return False
    return without_loopback_port(requested) in map(without_loopback_port, registered)


def without_loopback_port(uri: str) -> str:
    """Removes the port of a loopback address; other URIs stay as they are."""
    match = _LOOPBACK_PORT.match(uri)
    return match[1] + uri[match.end() :] if match else uri


def describe_target(uri: str) -> str:
    """Returns where a redirect leads, in words for people: a host, this computer, or an application."""
    parts = urlsplit(uri)
    if is_private_use(uri):
        return f"an application on your device ({parts.scheme}:)"
    return "a program on your own computer" if is_loopback_uri(uri) else parts.netloc


def form_target(uri: str) -> str:
    """Returns the source expression that lets a form lead to the URI (CSP level 3, `form-action`)."""
    parts = urlsplit(uri)
    return f"{parts.scheme}:" if is_private_use(uri) else f"{parts.scheme}://{parts.netloc}"


def _problem(uri: str, *, is_native: bool) -> str | None:
    """Returns what was expected of a URI that cannot be registered, or None."""
    if len(uri) > URI_MAX_CHARS or not _VISIBLE_ASCII.match(uri) or any(c in uri for c in "\\<>\"'`{}|^#*"):
        return f"at most {URI_MAX_CHARS} ASCII characters, without fragment, wildcard, quotes or backslash"
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return "an absolute URI"
    if "@" in parts.netloc or port == 0:
        return "a URI without user name and with a port from 1 to 65535"
    if not uri.startswith(f"{parts.scheme}:"):  # `urlsplit` lower-cases the scheme
        return "a lower-case scheme"
    if parts.scheme in ("http", "https"):
        host = parts.hostname or ""
        if not uri.startswith(f"{parts.scheme}://{parts.netloc}") or not parts.netloc or parts.netloc.endswith(":"):
            return "an absolute URI with a host"
        if parts.scheme == "http" and not (host in _LOOPBACK_HOSTS and is_loopback_uri(uri)):
            return "https, or http with 127.0.0.1, [::1] or localhost"
        if host not in _LOOPBACK_HOSTS and not _HOST.match(host):
            return "a host name in ASCII"
        # Browsers resolve dot segments, encoded ones included, and would go to another path than the registered one.
        segments = parts.path.replace("%2e", ".").replace("%2E", ".").split("/")
        if "." in segments or ".." in segments:
            return "a path without dot segments"
        return None
    if not _SCHEME.match(parts.scheme) or parts.scheme in _RESERVED_SCHEMES:
        return "https, http on a loopback address, or the scheme of an application"
    if not is_native:
        return "https for a web client; only native clients have schemes of their own"
    rest = uri.removeprefix(f"{parts.scheme}:")
    return None if rest.startswith("/") and len(rest.strip("/")) > 0 else "a path after the scheme"
