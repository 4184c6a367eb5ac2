"""Grants: what one person allowed one client. People see them as connections.

Each authorization creates a grant of its own, so that one installation of an application can be disconnected without
the others. The last decision about a client is remembered until the person revokes one of its grants.
"""

# About this package: Start with `grants`: what one person allowed one client. A client (`clients`, or
# `client_assertions` if it has a metadata document) sends the person to us, and the person comes back to one of its
# `redirects` with a code for the grant, or enters the code of a device (`device_codes`). Codes are exchanged for
# `tokens`, which end with their grant. The endpoints and the consent page are in `server/oauth`.

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from auth.control_database import ControlConnection, ControlDatabase
from auth.oauth.errors import OAuthError
from auth.oauth.redirects import without_loopback_port
from auth.registry import UserRecord, select_user
from config.errors import NotFound
from config.paths import UserId
from config.settings import Settings

# -- credentials -------------------------------------------------------------------------------------------------------
# Random credentials of the authorization server: how they are generated, recognized and hashed.
#
# Each has 256 random bits, so plain SHA-256 is enough to store it. The prefixes let people and secret scanners tell
# them apart, and keep one kind from being tried as another.

ACCESS_TOKEN = "floa_"  # noqa: S105 - a prefix, as below
REFRESH_TOKEN = "flor_"  # noqa: S105
CLIENT_SECRET = "flos_"  # noqa: S105
CODE = "floc_"
DEVICE_CODE = "flod_"

_SECRET_BYTES = 32
_CREDENTIAL = re.compile(r"flo[arscd]_[A-Za-z0-9_-]{43}\Z")


def generate_credential(prefix: str) -> str:
    return prefix + base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")


def hash_credential(credential: str) -> bytes:
    return hashlib.sha256(credential.encode()).digest()


def is_credential(text: str, prefix: str) -> bool:
    """Whether the text has the form of a credential of that kind."""
    return text.startswith(prefix) and _CREDENTIAL.match(text) is not None


def generate_id(prefix: str) -> str:
    return prefix + base64.b32encode(secrets.token_bytes(10)).decode().lower()


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
    """What a client asks for, and what a person allows. `sources` is None for all sources. `auth_method` is how the
    client proves its identity."""

    user: UserRecord
    client_id: str
    client_name: str
    redirect_uri: str
    resource: TokenResource
    scopes: frozenset[str]
    sources: frozenset[str] | None = None
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

    async def approve(self, request: GrantRequest, code_challenge: str) -> str:
        """Creates a grant and returns the authorization code for it."""
        code, now = generate_credential(CODE), self._clock()

        def operation(db: ControlConnection) -> None:
            grant_id = insert_grant(db, request, now, self._grants_max)
            db.execute("DELETE FROM oauth_codes WHERE expires_at < ?", (now - _USED_CODE_TTL_S,))
            db.execute(
                "INSERT INTO oauth_codes (hash, grant_id, redirect_uri, code_challenge, expires_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (hash_credential(code), grant_id, request.redirect_uri, code_challenge, now + self._code_ttl_s),
            )

        await self._database.write(operation)
        return code

    async def find_remembered(self, request: GrantRequest) -> GrantRecord | None:
        """Returns the last grant of the client if it covers the request and none of its grants was revoked since."""

        def operation(db: ControlConnection) -> GrantRecord | None:
            grants = _select(db, "user_id = ? AND client_id = ?", request.user.id, request.client_id)
            revoked_at = max((grant.revoked_at or 0.0 for grant in grants), default=0.0)
            matches = (grant for grant in grants if grant.created_at > revoked_at and grant.covers(request))
            return next((grant for grant in matches if grant.is_valid), None)

        return await self._database.read(operation)

    async def list(self, user_id: UserId) -> list[GrantRecord]:
        """Returns the valid grants of a user, the newest first."""
        grants = await self._database.read(lambda db: _select(db, "user_id = ?", user_id))
        return [grant for grant in grants if grant.is_valid]

    async def revoke(self, user_id: UserId, grant_id: str) -> GrantRecord:
        """Ends a connection of the user: its codes and tokens are deleted."""

        def operation(db: ControlConnection) -> GrantRecord:
            grants = _select(db, "user_id = ? AND id = ?", user_id, grant_id)
            if not grants:
                raise NotFound("connection", grant_id)
            revoke_grant(db, grant_id, self._clock())
            return grants[0]

        return await self._database.withdraw(operation)


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
    }
    db.execute(f"INSERT INTO oauth_grants ({', '.join(values)}) VALUES (:{', :'.join(values)})", values)  # noqa: S608 - constants only
    db.execute("UPDATE oauth_clients SET last_used_at = ? WHERE id = ?", (now, request.client_id))
    return grant_id


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
        grants.append(GrantRecord(user=user, **fields))
    return grants
