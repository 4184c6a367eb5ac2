"""Access and refresh tokens: random text, stored as hashes and bound to a grant.

A refresh token works once and is replaced by another. If a used one comes back, someone else has a copy, and the grant
ends (OAuth 2.1 section 4.3.1). One retry is allowed, because the response may have been lost: within a short time, and
only while the token that replaced it is unused. The retry invalidates the first replacement, so a thief and the client
never both have a working token: the second of them to use theirs ends the grant.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from auth.control_database import ControlConnection, ControlDatabase, control_operation
from auth.oauth import grants
from auth.oauth.grants import GrantRecord, InvalidClient, OAuthError, TokenResource, invalid_grant, select_grant
from auth.registry import generate_credential, hash_credential, is_credential
from config.errors import Unavailable
from config.settings import Settings

# -- pkce --------------------------------------------------------------------------------------------------------------
# Proof Key for Code Exchange (RFC 7636), with S256 only: a `plain` challenge could be read from the browser.

METHOD = "S256"
# A SHA-256 digest in base64url without padding.
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}\Z")


def is_challenge(text: str) -> bool:
    return _CHALLENGE.match(text) is not None


# A refresh token that was replaced and whose replacement was replaced again by a retry: any use ends the grant.
_NEVER = 0.0


class CredentialReused(OAuthError):
    """A code or refresh token was used a second time, so someone else has a copy. Its grant has ended."""

    def __init__(self, name: str, grant: GrantRecord) -> None:
        super().__init__("invalid_grant", f"{name}: already used; the connection was ended")
        self.grant = grant


class TokenRequest(Struct, frozen=True, kw_only=True):
    """What a client sends with a code or a refresh token. `resource` and `redirect_uri` are optional.
    `is_client_verified` says whether it proved its identity with a key."""

    client_id: str
    is_client_verified: bool = False
    resource: str | None = None
    redirect_uri: str | None = None
    code_verifier: str = ""
    scopes: frozenset[str] | None = None
    has_refresh_token: bool = True


class IssuedTokens(Struct, frozen=True, kw_only=True):
    grant: GrantRecord
    access_token: str
    refresh_token: str
    expires_in_s: int
    scopes: frozenset[str]


class AccessToken(Struct, frozen=True):
    """A stored access token. It grants access while its grant is valid."""

    id: str
    grant: GrantRecord
    scopes: frozenset[str]
    expires_at: float


# Within a transaction, an error is returned and not raised: what was revoked or used up must be committed, and so must
# the time of a poll.
_Outcome = IssuedTokens | OAuthError


_OWNER = """SELECT user_id FROM oauth_grants WHERE id IN
        (SELECT grant_id FROM oauth_tokens WHERE hash = ?1 UNION SELECT grant_id FROM oauth_codes WHERE hash = ?1)
    UNION ALL SELECT user_code FROM oauth_device_codes WHERE hash = ?1"""


class OAuthTokens:
    def __init__(self, database: ControlDatabase, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._access_ttl_s = settings.oauth_access_token_ttl_s
        self._refresh_ttl_s = settings.oauth_refresh_token_ttl_s
        self._retry_s = settings.fixed.oauth_refresh_retry_s
        self._clock = clock

    async def redeem(self, code: str, request: TokenRequest) -> IssuedTokens:
        """Exchanges an authorization code for tokens. A code works once; its second use ends the grant."""
        if not is_credential(code, grants.CODE):
            raise invalid_grant("code: not accepted")
        return await self.exchange(lambda db: self._redeem(db, hash_credential(code), request))

    async def refresh(self, refresh_token: str, request: TokenRequest) -> IssuedTokens:
        """Exchanges a refresh token for new tokens."""
        if not is_credential(refresh_token, grants.REFRESH_TOKEN):
            raise invalid_grant("refresh_token: not accepted")
        return await self.exchange(lambda db: self._refresh(db, hash_credential(refresh_token), request))

    @control_operation("read")
    def find(self, db: ControlConnection, digest: bytes) -> AccessToken | None:
        """Returns the access token with that hash, also if it has expired or its grant has ended."""
        row = db.execute(
            "SELECT grant_id, scopes, expires_at FROM oauth_tokens WHERE hash = ? AND kind = 'access'", (digest,)
        ).fetchone()
        grant = select_grant(db, row[0]) if row else None
        return AccessToken(digest.hex(), grant, frozenset(row[1].split()), row[2]) if grant is not None else None

    @control_operation("read")
    def owner_of(self, db: ControlConnection, credential: str) -> str | None:
        """Returns whose code or token it is, valid or not: the id of the user, or the code of a device that waits."""
        row = db.execute(_OWNER, (hash_credential(credential),)).fetchone()
        return row[0] if row else None

    @control_operation("withdraw")
    def revoke(
        self, db: ControlConnection, token: str, client_id: str, *, is_client_verified: bool = False
    ) -> GrantRecord | None:
        """Revokes a token of the client (RFC 7009). A refresh token ends the whole grant."""
        digest, now = hash_credential(token), self._clock()
        row = db.execute("SELECT grant_id, kind FROM oauth_tokens WHERE hash = ?", (digest,)).fetchone()
        grant = select_grant(db, row[0]) if row else None
        if grant is None or grant.client_id != client_id:
            return None
        if problem := client_problem(grant, is_verified=is_client_verified):
            raise problem
        if row[1] == "refresh":
            grants.revoke_grant(db, grant.id, now)
        else:
            db.execute("DELETE FROM oauth_tokens WHERE hash = ?", (digest,))
        return grant

    @control_operation("write")
    def touch(self, db: ControlConnection, used_at: Mapping[str, float]) -> None:
        """Updates when grants were last used, by the ids of their access tokens."""
        rows = [(at, bytes.fromhex(token_id)) for token_id, at in used_at.items()]
        db.executemany(
            "UPDATE oauth_grants SET last_used_at = ?1 WHERE coalesce(last_used_at, 0) < ?1 "
            "AND id = (SELECT grant_id FROM oauth_tokens WHERE hash = ?2)",
            rows,
        )

    def issue(
        self,
        db: ControlConnection,
        grant: GrantRecord,
        scopes: frozenset[str],
        *,
        has_refresh_token: bool,
        parent: bytes | None = None,
    ) -> IssuedTokens:
        """Stores new tokens of a grant within an operation, and deletes those that expired."""
        now = self._clock()
        access, refresh = generate_credential(grants.ACCESS_TOKEN), generate_credential(grants.REFRESH_TOKEN)
        texts, expiry = " ".join(sorted(scopes)), now + self._access_ttl_s
        rows = [(hash_credential(access), grant.id, "access", parent, texts, now, expiry)]
        if has_refresh_token:
            texts, expiry = " ".join(sorted(grant.scopes)), now + self._refresh_ttl_s
            rows.append((hash_credential(refresh), grant.id, "refresh", parent, texts, now, expiry))
        db.execute("DELETE FROM oauth_tokens WHERE expires_at < ?", (now,))
        db.executemany(
            "INSERT INTO oauth_tokens (hash, grant_id, kind, parent, scopes, created_at, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        return IssuedTokens(
            grant=grant,
            access_token=access,
            refresh_token=refresh if has_refresh_token else "",
            expires_in_s=int(self._access_ttl_s),
            scopes=scopes,
        )

    async def exchange(self, operation: Callable[[ControlConnection], _Outcome]) -> IssuedTokens:
        """Runs an operation that issues tokens, or raises the error that it returned."""
        outcome = await self._database.write(operation)
        if isinstance(outcome, OAuthError):
            raise outcome
        return outcome

    def _redeem(self, db: ControlConnection, digest: bytes, request: TokenRequest) -> _Outcome:
        row = db.execute(
            "SELECT grant_id, redirect_uri, code_challenge, expires_at, used_at FROM oauth_codes WHERE hash = ?",
            (digest,),
        ).fetchone()
        grant = select_grant(db, row[0]) if row else None
        if row is None or grant is None:
            return invalid_grant("code: not accepted")
        _, redirect_uri, challenge, expires_at, used_at = row
        now = self._clock()
        if used_at is not None:
            # RFC 6749 section 4.1.2: someone else has the code too.
            grants.revoke_grant(db, grant.id, now)
            return CredentialReused("code", grant)
        # A wrong attempt uses the code up, so that its proof cannot be guessed.
        db.execute("UPDATE oauth_codes SET used_at = ? WHERE hash = ?", (now, digest))
        if grant.client_id != request.client_id or now >= expires_at or not grant.is_valid:
            return invalid_grant("code: not accepted")
        if problem := client_problem(grant, is_verified=request.is_client_verified):
            return problem
        if request.redirect_uri not in (None, redirect_uri):
            return invalid_grant("redirect_uri: expected the one of the authorization request")
        verifier = request.code_verifier
        proof = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        if not _VERIFIER.match(verifier) or not hmac.compare_digest(proof, challenge.encode()):
            return invalid_grant("code_verifier: does not match the code_challenge")
        if problem := _target_problem(grant.resource, request):
            return problem
        return self.issue(db, grant, grant.scopes, has_refresh_token=request.has_refresh_token)

    def _refresh(self, db: ControlConnection, digest: bytes, request: TokenRequest) -> _Outcome:
        row = db.execute(
            "SELECT grant_id, expires_at, used_at FROM oauth_tokens WHERE hash = ? AND kind = 'refresh'", (digest,)
        ).fetchone()
        grant = select_grant(db, row[0]) if row else None
        if row is None or grant is None or grant.client_id != request.client_id:
            return invalid_grant("refresh_token: not accepted")
        _, expires_at, used_at = row
        now = self._clock()
        if now >= expires_at or not grant.is_valid:
            return invalid_grant("refresh_token: not accepted")
        if problem := client_problem(grant, is_verified=request.is_client_verified):
            return problem
        # Clients repeat the scopes that they asked for. Those that the person did not grant stay out.
        scopes = grant.scopes if request.scopes is None else grant.scopes & request.scopes
        if problem := _target_problem(grant.resource, request):
            return problem
        if not scopes:
            return OAuthError("invalid_scope", "scope: expected one that was granted")
        if used_at is None:
            db.execute("UPDATE oauth_tokens SET used_at = ? WHERE hash = ?", (now, digest))
        else:
            # A retry, unless it comes late or the token that replaced this one was used.
            query = "SELECT count(*) FROM oauth_tokens WHERE parent = ? AND kind = 'refresh' AND used_at > ?"
            (used,) = db.execute(query, (digest, _NEVER)).fetchone()
            if used or now - used_at > self._retry_s:
                grants.revoke_grant(db, grant.id, now)
                return CredentialReused("refresh_token", grant)
            db.execute("DELETE FROM oauth_tokens WHERE parent = ? AND kind = 'access'", (digest,))
            db.execute("UPDATE oauth_tokens SET used_at = ? WHERE parent = ? AND kind = 'refresh'", (_NEVER, digest))
        return self.issue(db, grant, scopes, has_refresh_token=True, parent=digest)


def client_problem(grant: GrantRecord, *, is_verified: bool) -> OAuthError | None:
    """Returns an error if the client of a grant has a key and did not use it."""
    if is_verified or grant.auth_method != grants.PRIVATE_KEY:
        return None
    return InvalidClient("client_assertion: expected, because the client's metadata document names private_key_jwt")


def _target_problem(resource: str, request: TokenRequest) -> OAuthError | None:
    if request.resource in (None, resource):
        return None
    return OAuthError("invalid_target", f"resource: expected {resource}, which was authorized")


# -- device codes ------------------------------------------------------------------------------------------------------
# Device authorization (RFC 8628): a program without a browser shows a short code, and its user enters it elsewhere.

# Devices that wait at the same time: the more there are, the easier a code is guessed.
_OAUTH_DEVICE_CODES_MAX = 1000

# Time in which a person must enter the code of a device, who may have to sign in first.
OAUTH_DEVICE_CODE_TTL_S = 900.0

# RFC 8628 section 6.1: consonants only, so that no words are spelled. Eight of them have 34 bits.
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_USER_CODE_LETTERS = 8
# RFC 8628 section 3.5: a client that polls too fast must wait this much longer between polls.
_SLOW_DOWN_S = 5.0


class DeviceRequest(Struct, frozen=True):
    """A program that waits for someone to enter its code."""

    user_code: str
    client_id: str
    scopes: frozenset[str]
    resource: TokenResource


class DeviceCodes:
    def __init__(
        self,
        database: ControlDatabase,
        settings: Settings,
        resources: grants.Resources,
        tokens: OAuthTokens,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._settings = settings
        self._resources = resources
        self._tokens = tokens
        self._clock = clock

    @control_operation("write")
    def create(
        self, db: ControlConnection, client_id: str, scopes: frozenset[str], resource: TokenResource
    ) -> tuple[str, str]:
        """Returns a new device code, for the program, and the user code, for the person."""
        device_code, now = generate_credential(grants.DEVICE_CODE), self._clock()
        user_code = "".join(secrets.choice(_LETTERS) for _ in range(_USER_CODE_LETTERS))
        db.execute("DELETE FROM oauth_device_codes WHERE expires_at < ?", (now,))
        (count,) = db.execute("SELECT count(*) FROM oauth_device_codes").fetchone()
        if count >= _OAUTH_DEVICE_CODES_MAX:
            raise Unavailable("too many programs are waiting for their codes; try again later", retry_after_s=60)
        db.execute(
            "INSERT INTO oauth_device_codes "
            "(hash, user_code, client_id, scopes, resource, expires_at, interval_s, state) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')",
            (
                hash_credential(device_code),
                user_code,
                client_id,
                " ".join(sorted(scopes)),
                resource.url,
                now + OAUTH_DEVICE_CODE_TTL_S,
                self._settings.fixed.oauth_device_interval_s,
            ),
        )
        return device_code, user_code

    async def find(self, user_code: str) -> DeviceRequest | None:
        """Returns the waiting program with that user code."""
        return await self._database.read(lambda db: self._find(db, user_code))

    @control_operation("write")
    def approve(self, db: ControlConnection, user_code: str, request: grants.GrantRequest) -> None:
        """Lets the program fetch tokens for what was granted. Raises if its code expired or was answered meanwhile."""
        now = self._clock()
        self._require_pending(db, user_code)
        grant_id = grants.insert_grant(db, request, now, self._settings.fixed.oauth_connections_max_per_user)
        db.execute(
            "UPDATE oauth_device_codes SET state = 'approved', grant_id = ? WHERE user_code = ?",
            (grant_id, user_code),
        )

    @control_operation("write")
    def deny(self, db: ControlConnection, user_code: str) -> None:
        self._require_pending(db, user_code)
        db.execute("UPDATE oauth_device_codes SET state = 'denied' WHERE user_code = ?", (user_code,))

    async def poll(self, device_code: str, request: TokenRequest) -> IssuedTokens:
        """Returns tokens once the code was entered. Until then raises `authorization_pending` or `slow_down`."""
        if not is_credential(device_code, grants.DEVICE_CODE):
            raise invalid_grant("device_code: not accepted")
        return await self._tokens.exchange(lambda db: self._poll(db, hash_credential(device_code), request))

    def _find(self, db: ControlConnection, user_code: str) -> DeviceRequest | None:
        row = db.execute(
            "SELECT user_code, client_id, scopes, resource FROM oauth_device_codes "
            "WHERE user_code = ? AND state = 'pending' AND expires_at > ?",
            (user_code, self._clock()),
        ).fetchone()
        if row is None:
            return None
        return DeviceRequest(row[0], row[1], frozenset(row[2].split()), self._resources.find([row[3]]))

    def _require_pending(self, db: ControlConnection, user_code: str) -> None:
        if self._find(db, user_code) is None:
            raise OAuthError("expired_token", "the code has expired or was used; start again on the device")

    def _poll(self, db: ControlConnection, digest: bytes, request: TokenRequest) -> _Outcome:
        row = db.execute(
            "SELECT client_id, expires_at, polled_at, interval_s, state, grant_id, resource FROM oauth_device_codes "
            "WHERE hash = ?",
            (digest,),
        ).fetchone()
        if row is None or row[0] != request.client_id:
            return invalid_grant("device_code: not accepted")
        _, expires_at, polled_at, interval_s, state, grant_id, resource = row
        if problem := _target_problem(resource, request):
            return problem
        now, polled = self._clock(), "UPDATE oauth_device_codes SET polled_at = ?, interval_s = ? WHERE hash = ?"
        if now >= expires_at:
            return OAuthError("expired_token", "device_code: expired; start again")
        if polled_at is not None and now - polled_at < interval_s:
            interval_s += _SLOW_DOWN_S
            db.execute(polled, (now, interval_s, digest))
            return OAuthError("slow_down", f"poll at most every {interval_s:g} s")
        db.execute(polled, (now, interval_s, digest))
        if state == "pending":
            return OAuthError("authorization_pending", "the code was not entered yet")
        db.execute("DELETE FROM oauth_device_codes WHERE hash = ?", (digest,))
        if state == "denied":
            return OAuthError("access_denied", "the request was denied")
        grant = select_grant(db, grant_id) if grant_id else None
        if grant is None or not grant.is_valid:
            return invalid_grant("device_code: not accepted")
        if problem := client_problem(grant, is_verified=request.is_client_verified):
            return problem
        return self._tokens.issue(db, grant, grant.scopes, has_refresh_token=request.has_refresh_token)


def normalize_user_code(text: str) -> str:
    """Returns the letters of a code as people type it: in any case, with or without the hyphen."""
    return "".join(c for c in text.upper() if c.isascii() and c.isalpha())[:_USER_CODE_LETTERS]


def format_user_code(user_code: str) -> str:
    middle = _USER_CODE_LETTERS // 2
    return f"{user_code[:middle]}-{user_code[middle:]}"
