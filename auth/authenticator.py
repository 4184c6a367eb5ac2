"""Turns an Authorization header into a principal, and checks whether a principal still has access.

A credential is always verified, even where none is required. Results are cached by a hash of the header, and used only
while no process has changed the registry since, so that a revocation takes effect at the next call.
"""

import base64
import binascii
import hashlib
import math
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from cachetools import LRUCache
from msgspec import Struct, structs

from auth.audit import Audit
from auth.browser_sessions import BrowserSessions
from auth.context import ADMIN, ROLE_SCOPES, SCOPES, ClientId, LibraryAccess, Principal
from auth.oauth.grants import ACCESS_TOKEN
from auth.oauth.tokens import AccessToken, OAuthTokens
from auth.rate_limits import RateLimit, network_of
from auth.registry import PREFIX, Registry, UserRecord, has_key_prefix, is_credential
from auth.sharing import Sharing, narrow, record_claims
from auth.tokens import Claims, TokenVerifier
from config.errors import Conflict, NotFound, StorageError, Unauthenticated
from config.paths import UserId
from config.settings import Settings

_KNOWN_SCOPES = frozenset(SCOPES)
_LOCAL = "local"
# The client of changes that are made on the command line of this machine.
OPERATOR = "command line"
# The operator's id, which no user has: those of users are random.
OPERATOR_ID = UserId("u_" + "2" * 26)


class Authenticator(Protocol):
    """What the transports need from authentication."""

    async def authenticate(self, authorization: str | None, *, address: str = "") -> Principal: ...

    async def authenticate_operator(self, user_name: str | None) -> Principal: ...

    async def recheck(self, principal: Principal) -> Principal: ...

    async def flush(self) -> None: ...


class _Grant(Struct):
    """A valid credential. `scopes` are its own, of which the principal has those that the user's role allows.
    `revision` is the registry's revision at the time of the last lookup."""

    principal: Principal
    scopes: frozenset[str]
    cached_until: float
    revision: int


class _Failure(Struct, frozen=True):
    """A rejected credential, cached while neither the registry nor the signing keys change."""

    message: str
    cached_until: float
    revision: int


class _Access(NamedTuple):
    """The user of a credential, and the handles to which the credential restricts the libraries of others."""

    user: UserRecord
    library_limit: frozenset[str] | None = None


class RegistryAuthenticator:
    """Verifies bearer credentials against the registry: API keys, and JWTs if there is a verifier."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        failures: RateLimit,
        verifier: TokenVerifier | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        oauth_tokens: OAuthTokens | None = None,
        browser_sessions: BrowserSessions | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit
        self._browser_sessions = browser_sessions
        self._settings = settings
        self._is_credential_required = settings.is_auth_configured
        self._registry = registry
        self._database = registry.database
        self._failure_limit = failures
        self._verifier = verifier
        self._oauth_tokens = oauth_tokens
        # The wall clock decides whether a credential is valid, and the monotonic clock how long that is cached: a
        # clock that is set back must not keep a wrong answer alive.
        self._clock = clock
        self._monotonic = monotonic
        self._generation = 0
        # Separate caches, so that invalid credentials cannot evict verified ones.
        self._grants: LRUCache[bytes, _Grant]
        self._failures: LRUCache[bytes, _Failure]
        self._forget_credentials()
        # What a credential may use, and the revision at which that was read.
        self._rechecks: LRUCache[tuple[str, str, str, int, frozenset[str]], tuple[int, tuple[LibraryAccess, ...]]] = (
            LRUCache(settings.fixed.token_cache_max)
        )
        self._sharing = Sharing(registry.database, clock)
        self._libraries: LRUCache[UserId, tuple[int, tuple[LibraryAccess, ...]]] = LRUCache(
            settings.fixed.token_cache_max
        )
        # When the next account expires among those whose shares are cached. Expiry writes nothing, so the revision does
        # not change with it.
        self._shares_until = math.inf
        self._local: _Grant | None = None
        self._used_at: dict[str, float] = {}
        self._oauth_used_at: dict[str, float] = {}

    async def authenticate(self, authorization: str | None, *, address: str = "") -> Principal:
        """Returns the principal of a request. Failures count towards the limit of the client's address."""
        now = self._clock()
        if now >= self._shares_until:
            self._forget_libraries()
        if authorization is None:
            if self._is_credential_required:
                raise Unauthenticated
            revision = self._database.revision()
            if self._local is None or self._local.revision != revision:
                name = self._settings.single_user_name
                user = await self._registry.user_by_name(name) or await self._registry.ensure_user(
                    "", name, role="admin", named_by="operator"
                )
                if user.is_disabled:
                    raise Unauthenticated("the local user is disabled")
                principal = structs.replace(local_principal(user), libraries=await self._libraries_of(_Access(user)))
                self._local = _Grant(principal, _KNOWN_SCOPES, cached_until=0.0, revision=revision)
            return self._local.principal
        # SHA-256 takes 2.2 us instead of 0.9 on processors that have no instructions for it.
        digest = hashlib.blake2b(authorization.encode(errors="surrogatepass"), digest_size=32).digest()
        revision = self._database.revision()
        try:
            grant: _Grant | None = self._grants[digest]
        except KeyError:
            grant = None
        if grant is None or grant.revision != revision or not self._is_fresh(grant, now):
            # RFC 6750 section 2.1.
            scheme, _, credential = authorization.partition(" ")
            credential = credential.strip(" \t")
            is_short = 0 < len(credential) <= self._settings.fixed.token_max_bytes
            if not is_short or scheme.lower() != "bearer" or not credential.isascii():
                await self._failure_limit.take(network_of(address))
                raise Unauthenticated("Authorization header not accepted", presented=True)
            # This cache, because it is discarded if the keys change meanwhile.
            grants = self._grants
            grant = grants[digest] = await self._verify(credential, digest, now, revision, address)
        if grant.principal.kind == "key":
            self._used_at[grant.principal.credential_id] = now
        elif grant.principal.kind == "oauth":
            self._oauth_used_at[grant.principal.credential_id] = now
        return grant.principal

    async def authenticate_operator(self, user_name: str | None) -> Principal:
        """Returns the principal of a command on this machine: for the library of a user or a group, with all scopes, or
        for administration, with no library at all. As for commands on the files, only the single user is created."""
        if user_name is None:
            return operator_principal()
        user = await self._registry.owner_by_name(user_name)
        if user is None and user_name == self._settings.single_user_name and not self._settings.is_auth_configured:
            user = await self._registry.ensure_user("", user_name, role="admin", named_by="operator")
        if user is None:
            raise NotFound("user", user_name[:60])
        if not user.is_disabled:
            libraries = await self._libraries_of(_Access(user))
            return structs.replace(
                local_principal(user), client_id=ClientId(OPERATOR), kind="operator", libraries=libraries
            )
        raise Conflict(f"user {user.name!r} is disabled; run `florilegium user enable {user.name}`")

    async def recheck(self, principal: Principal) -> Principal:
        """Returns the principal with the libraries of others that it may use now. Raises Unauthenticated if the
        credential has expired or was revoked, or if the user lost access or the role that allows the principal's
        scopes."""
        now = self._clock()
        if principal.is_expired(now):
            raise Unauthenticated("credential expired", presented=True)
        if now >= self._shares_until:
            self._forget_libraries()
        if principal.user_id == OPERATOR_ID:
            return principal
        # Includes the scopes: after a change of role, older connections have other scopes than newer ones.
        identity = (principal.kind, principal.credential_id, principal.user_id, principal.epoch, principal.scopes)
        revision = self._database.revision()
        known = self._rechecks.get(identity)
        if known is None or known[0] != revision:
            access = await self._require_access(principal)
            if principal.kind not in ("local", "operator") and not principal.scopes <= ROLE_SCOPES[access.user.role]:
                raise Unauthenticated("access withdrawn", presented=True)
            known = self._rechecks[identity] = (revision, await self._libraries_of(access))
        libraries = known[1]
        return principal if principal.libraries == libraries else structs.replace(principal, libraries=libraries)

    async def _libraries_of(self, access: _Access) -> tuple[LibraryAccess, ...]:
        """A group is a member of nothing."""
        user_id, revision = access.user.id, self._database.revision()
        if access.user.kind == "group":
            return ()
        known = self._libraries.get(user_id)
        if known is None or known[0] != revision:
            known = self._libraries[user_id] = (revision, await self._sharing.libraries_of(user_id))
            self._shares_until = min([self._shares_until, *(one.expires_at for one in known[1] if one.expires_at)])
        return narrow(known[1], access.library_limit)

    def _forget_libraries(self) -> None:
        """A share has ended: who may use which library is read again."""
        self._grants.clear()
        self._rechecks.clear()
        self._libraries.clear()
        self._local, self._shares_until = None, math.inf

    async def flush(self) -> None:
        """Stores when API keys and connections were last used. Times that cannot be written are kept for the next
        call."""
        # Swapped before the writes: calls go on meanwhile and note when they come.
        used_at, self._used_at = self._used_at, {}
        oauth_used_at, self._oauth_used_at = self._oauth_used_at, {}
        try:
            if used_at:
                await self._registry.touch_keys(used_at)
            if oauth_used_at and self._oauth_tokens is not None:
                await self._oauth_tokens.touch(oauth_used_at)
        except StorageError:
            self._used_at = used_at | self._used_at
            self._oauth_used_at = oauth_used_at | self._oauth_used_at
            raise

    def use_verifier(self, verifier: TokenVerifier) -> None:
        """Verifies tokens with other keys from now on. What was verified before is verified again."""
        self._verifier = verifier
        self._forget_credentials()

    def _forget_credentials(self) -> None:
        """New caches, because calls that are verifying a credential with the former keys will store the outcome."""
        self._grants = LRUCache(self._settings.fixed.token_cache_max)
        self._failures = LRUCache(self._settings.fixed.token_cache_max)

    async def _verify(self, credential: str, digest: bytes, now: float, revision: int, address: str) -> _Grant:
        """Verifies a credential that is not in the cache. Each failure counts towards the limit of the address."""
        failures = self._failures
        try:
            failure = failures.get(digest)
            if failure is not None and self._monotonic() < failure.cached_until and failure.revision == revision:
                raise Unauthenticated(failure.message, presented=True)
            return await self._find_grant(credential, digest, now, revision)
        except Unauthenticated as error:
            self._grants.pop(digest, None)
            # A repeated failure does not extend the first, so that a token that becomes valid is tried again.
            cached, now_s = failures.get(digest), self._monotonic()
            if cached is None or now_s >= cached.cached_until or cached.revision != revision:
                cached_until = now_s + self._settings.fixed.token_failure_cache_ttl_s
                failures[digest] = _Failure(error.message, cached_until, revision)
            await self._failure_limit.take(network_of(address))
            raise

    async def _find_grant(self, credential: str, digest: bytes, now: float, revision: int) -> _Grant:
        """`revision` was read before the rows, so a change in between is noticed at the next call."""
        cached = self._grants.get(digest)
        if cached is not None and self._is_fresh(cached, now):
            access = await self._require_access(cached.principal)
            return await self._grant(cached.principal, cached.scopes, access, cached.cached_until, revision)
        # The principal with all scopes of the credential, and its user.
        stored_digest = hashlib.sha256(credential.encode()).digest()
        if has_key_prefix(credential):
            key = await self._registry.key_by_hash(stored_digest) if is_credential(credential, PREFIX) else None
            if key is None or not key.is_valid(now):
                raise Unauthenticated("API key not accepted", presented=True)
            user = key.user
            access = _Access(user, key.libraries)
            principal = Principal(
                user_id=user.id,
                user_name=user.name,
                client_id=ClientId(key.id),
                scopes=key.scopes & _KNOWN_SCOPES,
                kind="key",
                credential_id=key.id,
                epoch=user.epoch,
                expires_at=key.expires_at,
                profile=key.profile,
                sources=key.sources,
            )
        elif credential.startswith(ACCESS_TOKEN):
            token = await self._find_oauth_token(stored_digest) if is_credential(credential, ACCESS_TOKEN) else None
            if token is None:
                raise Unauthenticated("token not accepted", presented=True)
            if now >= token.expires_at:
                raise Unauthenticated("token expired", presented=True)
            user = token.grant.user
            access = _Access(user, token.grant.libraries)
            principal = Principal(
                user_id=user.id,
                user_name=user.name,
                client_id=ClientId(token.grant.client_id),
                scopes=token.scopes & _KNOWN_SCOPES,
                kind="oauth",
                credential_id=token.id,  # the hash of the token, from which the token cannot be computed
                epoch=user.epoch,
                expires_at=token.expires_at,
                profile=token.grant.profile,
                sources=token.grant.sources,
            )
        else:
            principal, access = await self._principal_of_token(credential, now)
        cached_until = self._monotonic() + self._settings.fixed.token_cache_ttl_s
        return await self._grant(principal, principal.scopes, access, cached_until, revision)

    async def _grant(
        self, principal: Principal, scopes: frozenset[str], access: _Access, cached_until: float, revision: int
    ) -> _Grant:
        """The role of a user limits the scopes of all credentials of the user, and the end of the account limits their
        lifetime."""
        ends = [end for end in (principal.expires_at, access.user.expires_at) if end is not None]
        principal = structs.replace(
            principal,
            scopes=scopes & ROLE_SCOPES[access.user.role],
            expires_at=min(ends, default=None),
            libraries=await self._libraries_of(access),
            library_limit=access.library_limit,
        )
        return _Grant(principal, scopes, cached_until, revision)

    def _is_fresh(self, grant: _Grant, now: float) -> bool:
        return self._monotonic() < grant.cached_until and not grant.principal.is_expired(now)

    async def _find_oauth_token(self, digest: bytes) -> AccessToken | None:
        """Returns an access token whose grant is valid, and that was issued for this server. Its address may have
        changed since."""
        token = await self._oauth_tokens.find(digest) if self._oauth_tokens is not None else None
        if token is None or not token.grant.is_valid:
            return None
        resource, url = token.grant.resource, self._settings.resource_url
        return token if resource == url or resource.startswith(f"{url}/") else None

    async def _principal_of_token(self, credential: str, now: float) -> tuple[Principal, _Access]:
        if self._verifier is None:
            raise Unauthenticated("token not accepted", presented=True)
        try:
            claims = await self._verifier.verify(credential, now)
        finally:
            # Drops all results when the signing keys change: both grants and failures may be wrong now.
            if self._verifier.generation != self._generation:
                self._generation = self._verifier.generation
                self._forget_credentials()
        issuer, subject = claims.issuer, claims.subject
        # One query checks the user and the revocation. If it finds none, the next ones say what is wrong.
        found = await self._registry.user_of_new_token(issuer, subject, self._settings.issuer, claims.identity)
        permitted = found if found is not None and not found.is_disabled else None
        user = permitted or await self._user_of(claims)
        _require_issued_after(user.tokens_valid_after, claims)
        principal = Principal(
            user_id=user.id,
            user_name=user.name,
            client_id=claims.client_id,
            scopes=claims.scopes & _KNOWN_SCOPES,
            kind="jwt",
            credential_id=claims.identity,
            epoch=user.epoch,
            expires_at=claims.expires_at,
            signed_in_at=claims.issued_at,
        )
        access = _Access(permitted) if permitted else await self._require_access(principal)
        if claims.groups is not None:
            changes = await self._sharing.apply_claims(user.id, issuer, claims.groups, claims.issued_at or 0.0)
            record_claims(self._audit, user.id, issuer, changes)
        return principal, access

    async def _user_of(self, claims: Claims) -> UserRecord:
        """Creates the user of a token if that is allowed, or raises what is wrong."""
        user = await self._registry.user_of_claims(claims.issuer, claims.subject, self._settings.issuer)
        if user is not None:
            return user
        if not self._settings.jwt_create_users:
            raise Unauthenticated("token not accepted", presented=True)
        _require_issued_after(await self._registry.user_deleted_at(claims.issuer, claims.subject), claims)
        return await self._registry.ensure_user(claims.issuer, claims.subject, claims.name)

    async def _require_access(self, principal: Principal) -> _Access:
        """Checks in the registry that the credential is still valid and that access was not withdrawn since. Returns
        the user."""
        library_limit = None
        match principal.kind:
            case "key":
                key = await self._registry.key_by_id(principal.credential_id)
                user = key.user if key is not None and key.is_valid(self._clock()) else None
                library_limit = key.libraries if key is not None else None
            case "jwt":
                user = await self._registry.user_of_token(principal.user_id, principal.credential_id)
            case "oauth":
                token = await self._find_oauth_token(bytes.fromhex(principal.credential_id))
                user = token.grant.user if token is not None else None
                library_limit = token.grant.libraries if token is not None else None
            case "browser":
                sessions = self._browser_sessions
                user = await sessions.user_of(principal.credential_id) if sessions is not None else None
            case "local" | "operator":
                user = await self._registry.user_by_id(principal.user_id)
        if user is None or user.is_disabled or (user.id, user.epoch) != (principal.user_id, principal.epoch):
            raise Unauthenticated("access withdrawn", presented=True)
        return _Access(user, library_limit)


def operator_principal() -> Principal:
    """Returns the principal of commands that administrate. The operator has the files of all users, but no library."""
    return Principal(
        user_id=OPERATOR_ID,
        user_name=OPERATOR,
        client_id=ClientId(OPERATOR),
        scopes=frozenset((ADMIN,)),
        kind="operator",
        credential_id=OPERATOR,
    )


def local_principal(user: UserRecord) -> Principal:
    """Returns the principal of the local user, with all scopes and no credential."""
    return Principal(
        user_id=user.id,
        user_name=user.name,
        client_id=ClientId(_LOCAL),
        scopes=_KNOWN_SCOPES,
        kind="local",
        credential_id=_LOCAL,
        epoch=user.epoch,
    )


def basic_to_bearer(authorization: str | None) -> str | None:
    """Converts a Basic header (RFC 7617) to a Bearer header with its password; returns other headers unchanged.

    Used by transports whose clients can only send credentials in the URL. The user name is ignored.
    """
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return authorization
    try:
        _, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return authorization
    return f"Bearer {password}" if colon else authorization


def _require_issued_after(not_before: float, claims: Claims) -> None:
    """Rejects tokens issued before access was withdrawn, and tokens without `iat`, which cannot prove otherwise."""
    if not_before and (claims.issued_at is None or claims.issued_at < not_before):
        raise Unauthenticated("token not accepted", presented=True)
