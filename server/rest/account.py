"""The caller's own account over REST: its keys and connections.

A credential can never give away more than it has: keys are limited to its scopes and its expiry. Connected
applications, and credentials restricted to a profile or to sources, cannot create or revoke anything: a new key would
outlast their restriction. In a browser, a new key needs a recent sign-in. So does ending connections, browser sessions
and passkeys, everywhere.
"""

import time
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from auth.audit import Audit
from auth.browser_sessions import KeyCreations
from auth.context import Principal, RequestContext
from auth.oauth.grants import GrantRecord, OAuthGrants
from auth.registry import KeyRecord, Registry
from config.errors import Forbidden, InvalidParams, NotFound
from config.settings import Settings
from config.times import format_time_seconds, parse_time
from server.import_jobs import IMPORT_JOBS_MAX_PER_USER
from server.profiles import PROFILE_NAMES
from server.rest.audit import account_operation
from server.rest.operation import Operation
from server.runtime import Runtime, require_known_sources

_NOT_FOUND = frozenset((404,))


class NoArguments(Struct, frozen=True, kw_only=True):
    """Has no parameters."""


class Account(Struct, frozen=True, kw_only=True):
    """The caller. `scopes`, `profile` and `sources` are those of the credential."""

    id: str
    name: str
    role: str
    scopes: Sequence[str]
    kind: str
    profile: str | None
    sources: Sequence[str] | None
    created_at: str


class CreateKeyRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="What the key is for.")]
    scopes: Annotated[tuple[str, ...] | None, Meta(description="Default: those of your credential but admin.")] = None
    profile: Annotated[str | None, Meta(description="Restrict the key to this profile.")] = None
    sources: Annotated[tuple[str, ...] | None, Meta(description="Restrict the key to these sources.")] = None
    expires_at: Annotated[str | None, Meta(description="Such as 2026-12-31T00:00:00Z. Default: never.")] = None


class RevokeKeyRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the key.")]
    created: Annotated[bool, Meta(description="Also revoke what was created with the key.")] = False


class Key(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: str
    scopes: Sequence[str]
    profile: str | None
    sources: Sequence[str] | None
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class NewKey(Key, frozen=True, kw_only=True):
    """`secret` is shown only here."""

    secret: str


class CreatedWithKey(Struct, frozen=True, kw_only=True):
    """Something that was created with a key, or with a key that was created with it. `kind` is `key`,
    `followed source`, `followed deployment`, `invitation` or `password reset link`."""

    kind: str
    id: str
    name: str
    created_at: str
    is_revoked: bool


class RevokedKey(Key, frozen=True, kw_only=True):
    """`created` is what was created with the key. It keeps its effect unless it is revoked, too."""

    created: Sequence[CreatedWithKey]


class KeyList(Struct, frozen=True):
    keys: Sequence[Key]


class ConnectionRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the connection.")]


class ConnectedApplication(Struct, frozen=True, kw_only=True):
    """An application that was allowed to use the library."""

    id: str
    client: str
    client_name: str
    scopes: Sequence[str]
    profile: str | None
    sources: Sequence[str] | None
    created_at: str
    last_used_at: str | None


class ConnectionList(Struct, frozen=True):
    connections: Sequence[ConnectedApplication]


class AccountEndpoints:
    def __init__(self, registry: Registry, grants: OAuthGrants, audit: Audit, settings: Settings) -> None:
        self._registry = registry
        self._creations = KeyCreations(registry.database)
        self._grants = grants
        self._audit = audit
        self._settings = settings

    async def get_account(self, context: RequestContext, _request: NoArguments) -> Account:
        user = await self._registry.user_by_id(context.user_id)
        if user is None:
            raise NotFound("user", context.user_id)
        principal = context.principal
        return Account(
            id=user.id,
            name=user.name,
            role=user.role,
            scopes=sorted(principal.scopes),
            kind=principal.kind,
            profile=principal.profile,
            sources=_sorted(principal.sources),
            created_at=format_time_seconds(user.created_at),
        )

    async def list_keys(self, context: RequestContext, _request: NoArguments) -> KeyList:
        now = time.time()
        return KeyList([_key(record, now) for record in await self._registry.list_keys(context.user_id)])

    async def create_key(self, context: RequestContext, request: CreateKeyRequest) -> NewKey:
        if request.profile is not None and request.profile not in PROFILE_NAMES:
            raise InvalidParams(f"profile: expected one of {', '.join(PROFILE_NAMES)}, got {request.profile[:40]!r}")
        # A key for a misspelled source would reach nothing.
        require_known_sources(self._settings, request.sources or ())
        expires_at = _expiry(request.expires_at, context.principal)
        record, secret = await self._registry.create_key(
            context.user_id,
            request.name,
            _scopes(request, context),
            expires_at,
            request.profile,
            request.sources,
            context.principal.key_id,  # revoking that key can revoke the new one, too
        )
        detail = " ".join(sorted(record.scopes))
        self._audit.record("key.create", context.user_id, client=context.client_id, target=record.id, detail=detail)
        return NewKey(**asdict(_key(record, time.time())), secret=secret)

    async def revoke_key(self, context: RequestContext, request: RevokeKeyRequest) -> RevokedKey:
        record = await self._registry.key_by_id(request.id)
        # The key of another user does not exist for this one: ids cannot be tried out.
        if record is None or record.user.id != context.user_id:
            raise NotFound("key", request.id[:60])
        # Otherwise a key that can only read could end the access of those that can do more.
        missing = sorted(record.scopes - context.scopes)
        if missing:
            raise Forbidden(missing[0])
        revoked = await self._registry.revoke_key(record.id)
        self._audit.record("key.revoke", context.user_id, client=context.client_id, target=record.id)
        creations = await (self._creations.revoke(record.id) if request.created else self._creations.list(record.id))
        for one in creations if request.created else ():
            detail = f"{one.kind}, created with {record.id}"
            self._audit.record(
                "key.revoke_created", context.user_id, client=context.client_id, target=one.id, detail=detail
            )
        created = [
            CreatedWithKey(
                kind=one.kind,
                id=one.id,
                name=one.name,
                created_at=format_time_seconds(one.created_at),
                is_revoked=request.created,
            )
            for one in creations
        ]
        return RevokedKey(**asdict(_key(revoked, time.time())), created=created)

    async def list_connections(self, context: RequestContext, _request: NoArguments) -> ConnectionList:
        return ConnectionList([_connection(grant) for grant in await self._grants.list(context.user_id)])

    async def revoke_connection(self, context: RequestContext, request: ConnectionRequest) -> ConnectedApplication:
        grant = await self._grants.revoke(context.user_id, request.id)
        # `client` is who ended the connection, and `target` whose connection it was.
        self._audit.record("connection.revoke", context.user_id, client=context.client_id, target=grant.client_id)
        return _connection(grant)


def _scopes(request: CreateKeyRequest, context: RequestContext) -> frozenset[str]:
    # A key for administration has to be asked for, unless the credential can do nothing else.
    if request.scopes is None:
        return context.scopes - {"admin"} or context.scopes
    beyond = sorted(frozenset(request.scopes) - context.scopes)
    if beyond:
        own = " ".join(sorted(context.scopes))
        raise InvalidParams(f"scopes: expected scopes of your own credential ({own}), got {beyond[0][:40]!r}")
    return frozenset(request.scopes)


def _expiry(text: str | None, principal: Principal) -> float | None:
    """A key must not outlast the key that created it. A token or a browser session proves that the person signed in."""
    # Otherwise a key for a day could make one for ever.
    latest = principal.expires_at if principal.kind == "key" else None
    if text is None:
        return latest
    try:
        expires_at = parse_time(text).timestamp()
    except (ValueError, OverflowError):
        raise InvalidParams(f"expires_at: expected a time such as 2026-12-31T00:00:00Z, got {text[:40]!r}") from None
    if latest is not None and expires_at > latest:
        raise InvalidParams(f"expires_at: expected {format_time_seconds(latest)} or earlier, when your own key expires")
    return expires_at


def _key(record: KeyRecord, now: float) -> Key:
    state = "revoked" if record.revoked_at is not None else "active" if record.is_valid(now) else "expired"
    return Key(
        id=record.id,
        name=record.name,
        state=state,
        scopes=sorted(record.scopes),
        profile=record.profile,
        sources=_sorted(record.sources),
        created_at=format_time_seconds(record.created_at),
        expires_at=_time(record.expires_at),
        last_used_at=_time(record.last_used_at),
    )


def _connection(grant: GrantRecord) -> ConnectedApplication:
    return ConnectedApplication(
        id=grant.id,
        client=grant.client_id,
        client_name=grant.client_name,
        scopes=sorted(grant.scopes),
        profile=grant.profile,
        sources=_sorted(grant.sources),
        created_at=format_time_seconds(grant.created_at),
        last_used_at=_time(grant.last_used_at),
    )


def _sorted(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else format_time_seconds(seconds)


def account_operations(runtime: Runtime) -> list[Operation]:
    endpoints = AccountEndpoints(runtime.registry, runtime.oauth_grants, runtime.audit, runtime.settings)
    return [
        # Every credential may ask what it allows, also one restricted to some tools or sources.
        Operation(
            id="get_account",
            method="GET",
            path="/api/v1/account",
            summary="Get your account",
            description="Your name and role, and what your credential allows.",
            handler=endpoints.get_account,
            tools=("server_info",),
        ),
        account_operation(
            id="list_keys",
            method="GET",
            path="/api/v1/keys",
            summary="List your API keys",
            description="Your API keys without their secrets, with their restrictions and their last use.",
            handler=endpoints.list_keys,
        ),
        account_operation(
            id="create_key",
            method="POST",
            path="/api/v1/keys",
            summary="Create an API key",
            description=(
                "Creates an API key with scopes that your own credential has. The secret is shown once. A key that "
                "expires creates only keys that expire no later. In a browser, it needs a recent sign-in."
            ),
            handler=endpoints.create_key,
            caller="recent_browser",
            status=201,
        ),
        account_operation(
            id="revoke_key",
            method="DELETE",
            path="/api/v1/keys/{id}",
            summary="Revoke an API key",
            description=(
                "Revokes one of your API keys, from its next use on. Your credential needs all of its scopes. "
                "`created` in the response lists what was created with the key: keys, followed sources, invitations. "
                "With `created=true` in the request these are revoked, too."
            ),
            handler=endpoints.revoke_key,
            caller="unrestricted",
            error_statuses=_NOT_FOUND,
        ),
        account_operation(
            id="list_connections",
            method="GET",
            path="/api/v1/connections",
            summary="List connected applications",
            description="The applications that you allowed to use your library, and what each of them may do.",
            handler=endpoints.list_connections,
        ),
        account_operation(
            id="revoke_connection",
            method="DELETE",
            path="/api/v1/connections/{id}",
            summary="Disconnect an application",
            description="Ends the access of a connected application, from its next call on. Needs a recent sign-in.",
            handler=endpoints.revoke_connection,
            caller="recent_sign_in",
            error_statuses=_NOT_FOUND,
        ),
    ]


# -- usage -------------------------------------------------------------------------------------------------------------
# How much of the quota the caller uses, over REST.


class UsageRequest(Struct, frozen=True, kw_only=True):
    """Has no parameters."""


class UsageResponse(Struct, frozen=True, kw_only=True):
    """What the user stores and imports, and the quotas for it; a quota of 0 means no limit. `passages` are those with
    embeddings."""

    bytes: int
    max_bytes: int
    items: int
    max_items: int
    passages: int
    max_passages: int
    imports: int
    max_imports: int


def usage_operation(runtime: Runtime) -> Operation:
    async def get_usage(context: RequestContext, _request: UsageRequest) -> UsageResponse:
        async with runtime.libraries.library(context) as library:
            usage = await library.usage()
        return UsageResponse(
            bytes=usage.bytes,
            max_bytes=usage.max_bytes,
            items=usage.items,
            max_items=usage.max_items,
            passages=usage.passages,
            max_passages=usage.max_passages,
            imports=runtime.imports.count_active(context),
            max_imports=IMPORT_JOBS_MAX_PER_USER,
        )

    return Operation(
        id="get_usage",
        method="GET",
        path="/api/v1/usage",
        summary="Get the usage of the quota",
        description=(
            "How many bytes, items and passages with embeddings the user's library has, how many imports are running "
            "or waiting, and the quotas. Space that deleted items left free does not count. Writes beyond a quota fail "
            "with 507; text beyond the quota of passages is found by its words only."
        ),
        handler=get_usage,
        tools=("server_info",),
        needs_all_sources=True,
    )
