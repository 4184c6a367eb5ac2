"""Grants: what one person allowed one client. People see them as connections.

Each authorization creates a grant of its own, so that one installation of an application can be disconnected without
the others. The last decision about a client is remembered until the person revokes one of its grants.
"""

# About this package: Start with `grants`: what one person allowed one client. A client (`clients`, or
# `client_assertions` if it has a metadata document) sends the person to us, and the person comes back to one of its
# redirects with a code for the grant, or enters the code of a device. `tokens` exchanges codes for tokens, which end
# with their grant. The endpoints and the consent page are in `server/oauth`.

import re
import time
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from auth.control_database import ControlConnection, ControlDatabase, control_operation
from auth.registry import UserRecord, generate_credential, generate_id, hash_credential, select_user
from config.errors import FlorilegiumError, NotFound
from config.paths import UserId
from config.settings import Settings

# -- redirects ---------------------------------------------------------------------------------------------------------
# Redirect URIs: which ones a client may register, and which requested URI matches a registered one.
#
# A requested URI must equal a registered one character by character. Only the port of a loopback address is free,
# because a native client listens on a port that it gets when it starts (RFC 8252 section 7.3).

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


# -- errors ------------------------------------------------------------------------------------------------------------
# Errors with the codes that OAuth assigns to them (RFC 6749 section 5.2, RFC 7591, RFC 8628, RFC 8707).


class OAuthError(FlorilegiumError, status=400):
    """`error` is the code for programs; the message is sent as `error_description`."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error


class InvalidClient(OAuthError, status=401):
    """The client is unknown, or did not prove that it is the client it claims to be."""

    def __init__(self, description: str) -> None:
        super().__init__("invalid_client", description)


class RequestRejected(FlorilegiumError, status=400):
    """An authorization request whose client or redirect URI cannot be trusted. It is shown to the person and never sent
    to the redirect URI."""


def invalid_grant(description: str) -> OAuthError:
    return OAuthError("invalid_grant", description)


def invalid_metadata(description: str) -> OAuthError:
    return OAuthError("invalid_client_metadata", description)


def invalid_request(description: str) -> OAuthError:
    return OAuthError("invalid_request", description)


# The prefixes of the credentials of the authorization server (see `auth.registry`).
ACCESS_TOKEN = "floa_"  # noqa: S105 - a prefix, as below
REFRESH_TOKEN = "flor_"  # noqa: S105
CLIENT_SECRET = "flos_"  # noqa: S105
CODE = "floc_"
DEVICE_CODE = "flod_"


# -- resources ---------------------------------------------------------------------------------------------------------
# The resources that tokens are issued for (RFC 8707): this server's MCP address, or one of its profiles.
#
# A token for `/mcp/research` can use only the tools of the profile `research`, wherever it is presented.


class TokenResource(Struct, frozen=True):
    """A resource in its canonical spelling, without a slash at the end."""

    url: str
    profile: str | None


class Resources:
    def __init__(self, settings: Settings, profiles: Collection[str]) -> None:
        self._url = settings.resource_url
        parts = urlsplit(self._url)
        # As `_parse` spells what clients send.
        self._lower_url = f"{parts.scheme}://{parts.netloc.lower()}{parts.path}"
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
        if url == self._lower_url:
            return TokenResource(self._url, None)
        prefix, _, profile = url.rpartition("/")
        if prefix == self._lower_url and profile in self._profiles:
            return TokenResource(f"{self._url}/{profile}", profile)
        return None


# The client signs a token with a key of its own (RFC 7523).
PRIVATE_KEY = "private_key_jwt"
# Codes are kept for a day, so that a second use is noticed.
_USED_CODE_TTL_S = 86_400.0


class GrantRequest(Struct, frozen=True, kw_only=True):
    """What a client asks for, and what a person allows. `sources` is None for all sources. `libraries` are the handles
    of the libraries of others that the client may use, too. `auth_method` is how the client proves its identity."""

    user: UserRecord
    client_id: str
    client_name: str
    redirect_uri: str
    resource: TokenResource
    scopes: frozenset[str]
    sources: frozenset[str] | None = None
    libraries: frozenset[str] = frozenset()
    auth_method: str = "none"


class GrantRecord(Struct, frozen=True):
    """A grant and its user. The loopback port of `redirect_uri` is left out."""

    id: str
    user: UserRecord
    epoch: int
    client_id: str
    client_name: str
    scopes: frozenset[str]
    profile: str | None
    sources: frozenset[str] | None
    resource: str
    redirect_uri: str
    created_at: float
    last_used_at: float | None
    revoked_at: float | None
    auth_method: str
    libraries: frozenset[str] = frozenset()

    @property
    def is_valid(self) -> bool:
        return self.revoked_at is None and self.epoch == self.user.epoch and not self.user.is_disabled

    def covers(self, request: GrantRequest) -> bool:
        """Whether the request is the same as the one that was granted, with no further scopes."""
        is_same = (self.redirect_uri, self.resource) == (
            without_loopback_port(request.redirect_uri),
            request.resource.url,
        )
        return is_same and request.scopes <= self.scopes


class OAuthGrants:
    def __init__(self, database: ControlDatabase, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._code_ttl_s = settings.fixed.oauth_code_ttl_s
        self._grants_max = settings.fixed.oauth_connections_max_per_user
        self._clock = clock

    @control_operation("write")
    def approve(self, db: ControlConnection, request: GrantRequest, code_challenge: str) -> str:
        """Creates a grant and returns the authorization code for it."""
        code, now = generate_credential(CODE), self._clock()
        grant_id = insert_grant(db, request, now, self._grants_max)
        db.execute("DELETE FROM oauth_codes WHERE expires_at < ?", (now - _USED_CODE_TTL_S,))
        db.execute(
            "INSERT INTO oauth_codes (hash, grant_id, redirect_uri, code_challenge, expires_at) VALUES (?, ?, ?, ?, ?)",
            (hash_credential(code), grant_id, request.redirect_uri, code_challenge, now + self._code_ttl_s),
        )
        return code

    @control_operation("read")
    def find_remembered(self, db: ControlConnection, request: GrantRequest) -> GrantRecord | None:
        return find_covering(db, request)

    async def list(self, user_id: UserId) -> list[GrantRecord]:
        """Returns the valid grants of a user, the newest first."""
        grants = await self._database.read(lambda db: _select(db, "user_id = ?", user_id))
        return [grant for grant in grants if grant.is_valid]

    @control_operation("withdraw")
    def revoke(self, db: ControlConnection, user_id: UserId, grant_id: str) -> GrantRecord:
        """Ends a connection of the user: its codes and tokens are deleted."""
        grants = _select(db, "user_id = ? AND id = ?", user_id, grant_id)
        if not grants:
            raise NotFound("connection", grant_id)
        revoke_grant(db, grant_id, self._clock())
        return grants[0]


def insert_grant(db: ControlConnection, request: GrantRequest, now: float, grants_max: int) -> str:
    """Stores a grant and returns its id. Grants that the client never used are replaced. At the limit, the grants of
    the user that were used least recently end."""
    grant_id, user = generate_id("g_"), request.user
    db.execute(f"DELETE FROM oauth_grants WHERE {_UNUSED}", (user.id, request.client_id, now))  # noqa: S608 - constants only
    db.execute(
        "DELETE FROM oauth_grants WHERE user_id = ?1 AND id NOT IN (SELECT id FROM oauth_grants WHERE user_id = ?1 "
        "ORDER BY revoked_at IS NULL DESC, coalesce(last_used_at, created_at) DESC LIMIT ?2)",
        (user.id, grants_max - 1),
    )
    values = {
        "id": grant_id,
        "user_id": user.id,
        "epoch": user.epoch,
        "client_id": request.client_id,
        "client_name": request.client_name,
        "scopes": " ".join(sorted(request.scopes)),
        "profile": request.resource.profile,
        "sources": None if request.sources is None else " ".join(sorted(request.sources)),
        "resource": request.resource.url,
        "redirect_uri": without_loopback_port(request.redirect_uri),
        "created_at": now,
        "auth_method": request.auth_method,
        "libraries": " ".join(sorted(request.libraries)),
    }
    sql = f"INSERT INTO oauth_grants ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"  # noqa: S608 - constants only
    db.execute(sql, tuple(values.values()))
    db.execute("UPDATE oauth_clients SET last_used_at = ? WHERE id = ?", (now, request.client_id))
    return grant_id


def find_covering(db: ControlConnection, request: GrantRequest) -> GrantRecord | None:
    """Returns the last grant of the client if it covers the request and none of its grants was revoked since."""
    grants = _select(db, "user_id = ? AND client_id = ?", request.user.id, request.client_id)
    revoked_at = max((grant.revoked_at or 0.0 for grant in grants), default=0.0)
    matches = (grant for grant in grants if grant.created_at > revoked_at and grant.covers(request))
    return next((grant for grant in matches if grant.is_valid), None)


def revoke_grant(db: ControlConnection, grant_id: str, now: float) -> None:
    """Ends a grant within an operation. The row stays, so that the decision is known."""
    db.execute("UPDATE oauth_grants SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", (now, grant_id))
    for table in ("oauth_codes", "oauth_tokens"):
        db.execute(f"DELETE FROM {table} WHERE grant_id = ?", (grant_id,))  # noqa: S608 - constants only


def select_grant(db: ControlConnection, grant_id: str) -> GrantRecord | None:
    """Returns a grant within an operation, whether it is valid or not."""
    grants = _select(db, "id = ?", grant_id)
    return grants[0] if grants else None


# A grant whose code was not exchanged in time, or whose tokens have expired. Devices fetch their tokens later.
_UNUSED = """user_id = ? AND client_id = ? AND revoked_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM oauth_tokens WHERE grant_id = oauth_grants.id)
    AND NOT EXISTS (SELECT 1 FROM oauth_codes WHERE grant_id = oauth_grants.id AND expires_at > ?)
    AND NOT EXISTS (SELECT 1 FROM oauth_device_codes WHERE grant_id = oauth_grants.id)"""
_FIELDS = ("user_id", *(name for name in GrantRecord.__struct_fields__ if name != "user"))


def _select(db: ControlConnection, condition: str, *values: object) -> list[GrantRecord]:
    """Returns the grants that meet a condition, the newest first."""
    query = f"SELECT {', '.join(_FIELDS)} FROM oauth_grants WHERE {condition} ORDER BY created_at DESC"  # noqa: S608 - as above
    grants = []
    for row in db.execute(query, values).fetchall():
        fields: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
        user = select_user(db, fields.pop("user_id"))
        assert user is not None  # the row would have been deleted with its user
        fields["scopes"] = frozenset(fields["scopes"].split())
        fields["sources"] = None if fields["sources"] is None else frozenset(fields["sources"].split())
        fields["libraries"] = frozenset((fields["libraries"] or "").split())
        grants.append(GrantRecord(user=user, **fields))
    return grants
