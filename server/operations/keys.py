"""The caller's own API keys.

A credential can never give away more than it has: keys are limited to its scopes and its expiry. Connected
applications, and credentials restricted to a profile or to sources, cannot create or revoke anything: a new key would
outlast their restriction. In a browser, a new key needs a recent sign-in.
"""

import time
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct, structs

from auth.authenticator import OPERATOR_ID
from auth.browser_sessions import KeyCreations
from auth.context import ADMIN, Principal, RequestContext
from auth.registry import KeyRecord
from config.errors import Forbidden, InvalidParams, NotFound
from config.times import format_time_seconds, parse_time
from server.operations.operation import NOT_FOUND, NoArguments, account_operation, from_record
from server.profiles import PROFILE_NAMES
from server.services import Services, require_known_sources


class CreateKeyRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(description="What the key is for.")]
    scopes: Annotated[tuple[str, ...] | None, Meta(description="Default: those of your credential but admin.")] = None
    profile: Annotated[str | None, Meta(description="Restrict the key to this profile.")] = None
    sources: Annotated[tuple[str, ...] | None, Meta(description="Restrict the key to these sources.")] = None
    libraries: Annotated[
        tuple[str, ...] | None,
        Meta(description="Besides your own library, only these of others, by name or handle. `-`: none. Default: all."),
    ] = None
    expires_at: Annotated[str | None, Meta(description="Such as 2026-12-31T00:00:00Z. Default: never.")] = None


class RevokeKeyRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the key.")]
    created: Annotated[bool, Meta(description="Also revoke what was created with the key.")] = False


class Key(Struct, frozen=True, kw_only=True):
    id: str
    user: str
    name: str
    state: str
    scopes: Sequence[str]
    profile: str | None
    sources: Sequence[str] | None
    libraries: Sequence[str] | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class NewKey(Key, frozen=True, kw_only=True):
    """`secret` is shown only here."""

    secret: str


class CreatedWithKey(Struct, frozen=True, kw_only=True):
    """Something that was created with a key, or with a key that was created with it. `kind` is `key`,
    `followed source`, `followed deployment`, `invitation`, `password reset link`, `group invitation` or `share`."""

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


@account_operation("GET /api/v1/keys", other_scopes=(ADMIN,))
async def list_keys(context: RequestContext, services: Services, _request: NoArguments) -> KeyList:
    """List your API keys

    Your API keys without their secrets, with their restrictions and their last use.
    """
    now = time.time()
    # The operator sees the keys of all users.
    owner = None if context.user_id == OPERATOR_ID else context.user_id
    return KeyList([_key(record, now) for record in await services.registry.list_keys(owner)])


@account_operation("POST /api/v1/keys", caller="recent_browser", status=201)
async def create_key(context: RequestContext, services: Services, request: CreateKeyRequest) -> NewKey:
    """Create an API key

    Creates an API key with scopes that your own credential has. The secret is shown once. A key that expires creates
    only keys that expire no later. In a browser, it needs a recent sign-in.
    """
    if request.profile is not None and request.profile not in PROFILE_NAMES:
        raise InvalidParams(f"profile: expected one of {', '.join(PROFILE_NAMES)}, got {request.profile[:40]!r}")
    # A key for a misspelled source would reach nothing.
    require_known_sources(services.settings, request.sources or ())
    expires_at, names = _expiry(request.expires_at, context.principal), request.libraries
    record, secret = await services.registry.create_key(
        context.user_id,
        request.name,
        _scopes(request, context),
        expires_at,
        request.profile,
        request.sources,
        context.principal.key_id,  # revoking that key can revoke the new one, too
        None if names is None else context.principal.library_handles(names),
    )
    detail = " ".join(sorted(record.scopes))
    services.audit.record("key.create", context.user_id, client=context.client_id, target=record.id, detail=detail)
    return NewKey(**structs.asdict(_key(record, time.time())), secret=secret)


@account_operation("DELETE /api/v1/keys/{id}", caller="unrestricted", other_scopes=(ADMIN,), error_statuses=NOT_FOUND)
async def revoke_key(context: RequestContext, services: Services, request: RevokeKeyRequest) -> RevokedKey:
    """Revoke an API key

    Revokes one of your API keys, from its next use on. Your credential needs all of its scopes. `created` in the
    response lists what was created with the key: keys, followed sources, invitations, shares. With `created=true` in
    the request these are revoked, too.
    """
    record = await services.registry.key_by_id(request.id)
    is_operator = context.principal.kind == "operator"
    # The key of another user does not exist for this one: ids cannot be tried out.
    if record is None or not (is_operator or record.user.id == context.user_id):
        raise NotFound("key", request.id[:60])
    # Otherwise a key that can only read could end the access of those that can do more.
    missing = [] if is_operator else sorted(record.scopes - context.scopes)
    if missing:
        raise Forbidden(missing[0])
    revoked = await services.registry.revoke_key(record.id)
    services.audit.record("key.revoke", record.user.id, client=context.client_id, target=record.id)
    of_key = KeyCreations(services.registry.database)
    creations = await (of_key.revoke if request.created else of_key.list)(record.id)
    for one in creations if request.created else ():
        detail = f"{one.kind}, created with {record.id}"
        services.audit.record(
            "key.revoke_created", record.user.id, client=context.client_id, target=one.id, detail=detail
        )
    created = [from_record(CreatedWithKey, one, is_revoked=request.created) for one in creations]
    return RevokedKey(**structs.asdict(_key(revoked, time.time())), created=created)


def _scopes(request: CreateKeyRequest, context: RequestContext) -> frozenset[str]:
    # A key for administration has to be asked for, unless the credential can do nothing else.
    if request.scopes is None:
        return context.scopes - {"admin"} or context.scopes
    beyond = sorted(frozenset(request.scopes) - context.scopes)
    # The operator has no credential. The role of the user limits the scopes in any case.
    if beyond and context.principal.kind != "operator":
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
    return from_record(Key, record, user=record.user.name, state=state)
