"""The caller's own account: what the credential allows, connected applications, and how much of the quota is used."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from auth.context import RequestContext
from auth.oauth.grants import GrantRecord
from config.errors import NotFound
from config.times import format_time_seconds
from server.import_jobs import IMPORT_JOBS_MAX_PER_USER
from server.operations.operation import NOT_FOUND, NoArguments, account_operation, operation
from server.services import Services

if TYPE_CHECKING:
    from server.runtime import Runtime


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


@operation("GET /api/v1/usage", tools=("server_info",), needs_all_sources=True)
async def get_usage(context: RequestContext, services: "Runtime", _request: NoArguments) -> UsageResponse:
    """Get the usage of the quota

    How many bytes, items and passages with embeddings the user's library has, how many imports are running or waiting,
    and the quotas. Space that deleted items left free does not count. Writes beyond a quota fail with 507; text beyond
    the quota of passages is found by its words only.
    """
    async with services.libraries.library(context) as library:
        usage = await library.usage()
    return UsageResponse(
        bytes=usage.bytes,
        max_bytes=usage.max_bytes,
        items=usage.items,
        max_items=usage.max_items,
        passages=usage.passages,
        max_passages=usage.max_passages,
        imports=services.imports.count_active(context),
        max_imports=IMPORT_JOBS_MAX_PER_USER,
    )


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


# Every credential may ask what it allows, also one restricted to some tools or sources.
@operation("GET /api/v1/account", tools=("server_info",))
async def get_account(context: RequestContext, services: Services, _request: NoArguments) -> Account:
    """Get your account

    Your name and role, and what your credential allows.
    """
    user = await services.registry.user_by_id(context.user_id)
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


class ConnectionRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the connection.")]


class ConnectedApplication(Struct, frozen=True, kw_only=True):
    """An application that was allowed to use the library. `libraries` are the handles of others that it may use,
    too."""

    id: str
    client: str
    client_name: str
    scopes: Sequence[str]
    profile: str | None
    sources: Sequence[str] | None
    libraries: Sequence[str]
    created_at: str
    last_used_at: str | None


class ConnectionList(Struct, frozen=True):
    connections: Sequence[ConnectedApplication]


@account_operation("GET /api/v1/connections")
async def list_connections(context: RequestContext, services: Services, _request: NoArguments) -> ConnectionList:
    """List connected applications

    The applications that you allowed to use your library, and what each of them may do.
    """
    return ConnectionList([_connection(grant) for grant in await services.oauth_grants.list(context.user_id)])


@account_operation("DELETE /api/v1/connections/{id}", caller="recent_sign_in", error_statuses=NOT_FOUND)
async def revoke_connection(
    context: RequestContext, services: Services, request: ConnectionRequest
) -> ConnectedApplication:
    """Disconnect an application

    Ends the access of a connected application, from its next call on. Needs a recent sign-in.
    """
    grant = await services.oauth_grants.revoke(context.user_id, request.id)
    # `client` is who ended the connection, and `target` whose connection it was.
    services.audit.record("connection.revoke", context.user_id, client=context.client_id, target=grant.client_id)
    return _connection(grant)


def _connection(grant: GrantRecord) -> ConnectedApplication:
    return ConnectedApplication(
        id=grant.id,
        client=grant.client_id,
        client_name=grant.client_name,
        scopes=sorted(grant.scopes),
        profile=grant.profile,
        sources=_sorted(grant.sources),
        libraries=sorted(grant.libraries),
        created_at=format_time_seconds(grant.created_at),
        last_used_at=None if grant.last_used_at is None else format_time_seconds(grant.last_used_at),
    )


def _sorted(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)
