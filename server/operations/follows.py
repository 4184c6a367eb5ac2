"""Followed sources, and followed deployments of tldw."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from auth.authenticator import local_principal
from auth.context import ADMIN, WRITE, RequestContext, build_context
from auth.follows import Deployment, Deployments, FollowRecord, Follows
from auth.registry import UserRecord
from config.errors import InvalidParams, NotFound
from server.following.deployments import DeploymentFolders, FollowedDeployment, describe_deployment
from server.following.locations import allowed_deployment, allowed_location
from server.following.service import resolve_conflict
from server.following.status import FollowedSource, describe
from server.operations.operation import NOT_FOUND, ManagedLibraryRequest, NoArguments, operation
from server.operations.sharing import managed_library
from server.services import Services
from sources.importers.registry import format_names
from sources.storage.job_queue import background_jobs

_ONE = "/api/v1/follows/{id}"
# There is no such tool, so a key restricted to some tools cannot follow anything. One restricted to a profile with all
# tools can, like a connected application, within `follow_roots`.
_operation = partial(operation, tools=("follow",), scope=WRITE, needs_all_sources=True, query=frozenset(("library",)))
# At most once a second, and at least once in 30 days.
_Interval = Annotated[float, Meta(ge=1, le=30 * 86_400)]
# Files with problems in one response; the counts cover all of them.
_PROBLEMS_MAX = 100


class FollowRequest(ManagedLibraryRequest, frozen=True, kw_only=True):
    location: Annotated[
        str, Meta(description="An absolute path on the server, if you may follow it, or an http(s) URL.")
    ]
    format: Annotated[str | None, Meta(description="Read all files as this format. Default: detect it.")] = None
    interval_s: Annotated[_Interval | None, Meta(description="Seconds between two scans or requests.")] = None
    keep_deleted: Annotated[bool, Meta(description="Keep items whose files are deleted.")] = False
    write_back: Annotated[
        bool, Meta(description="Write notes that are created or edited in the library to the folder.")
    ] = False


class FollowIdRequest(ManagedLibraryRequest, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the followed source.")]


class UpdateFollowRequest(FollowIdRequest, frozen=True, kw_only=True):
    paused: Annotated[bool, Meta(description="Whether following pauses.")]


class ResolveConflictRequest(FollowIdRequest, frozen=True, kw_only=True):
    file: Annotated[str, Meta(description="The file, as it is named in `problems`.")]
    keep: Annotated[
        Literal["library", "file"],
        Meta(description="library: keep the edits made here. file: overwrite them with the file."),
    ]


class FollowedSources(Struct, frozen=True):
    follows: Sequence[FollowedSource]


@_operation("POST /api/v1/follows", status=201, error_statuses=frozenset((409,)))
async def add_follow(context: RequestContext, services: Services, request: FollowRequest) -> FollowedSource:
    """Follow a source

    Imports a folder, file or URL and keeps the library current with it. A path needs the scope `admin` and a credential
    that is neither restricted nor that of a connected application, or must be in a folder that the setting
    `follow_roots` names.
    """
    context = await managed_library(context, services, request.group)
    if request.format is not None and request.format not in format_names():
        raise InvalidParams(f"format: expected one of {', '.join(format_names())}, got {request.format[:60]!r}")
    is_administrator = context.principal.has_scope(ADMIN) and not context.principal.is_for_agents
    follows = Follows(services.registry.database)
    allowed = allowed_location(
        services.settings,
        request.location,
        await _owner(context, services),
        is_administrator=is_administrator,
        writes_back=request.write_back,
        others=await follows.list(context.user_id),
    )
    new = FollowRecord(
        user_id=context.user_id,
        location=allowed,
        format=request.format,
        interval_s=request.interval_s,
        keeps_deleted=request.keep_deleted,
        writes_back=request.write_back,
        # Others may follow it only because of the setting `follow_roots`, which is checked again before each run.
        is_confined=not is_administrator,
        # What the operator adds for a user does not depend on the role of that user.
        needs_admin=is_administrator and context.principal.kind != "operator",
        created_with=context.principal.key_id,
    )
    record = await follows.add(new, services.settings.follow_max_per_user)
    _record(context, services, "follow.add", record.id, record.location)
    return await _describe(context, services, record)


@_operation("GET /api/v1/follows")
async def list_follows(context: RequestContext, services: Services, request: ManagedLibraryRequest) -> FollowedSources:
    """List followed sources

    The sources that the user follows, oldest first, and whether they are current.
    """
    context = await managed_library(context, services, request.group)
    records = await Follows(services.registry.database).list(context.user_id)
    async with services.libraries.library(context) as library:
        return FollowedSources([await describe(record, library) for record in records])


@_operation("GET " + _ONE, error_statuses=NOT_FOUND)
async def get_follow(context: RequestContext, services: Services, request: FollowIdRequest) -> FollowedSource:
    """Get a followed source

    The state of a followed source, its conflicts and the files that could not be read.
    """
    context = await managed_library(context, services, request.group)
    record = await Follows(services.registry.database).get(context.user_id, request.id)
    return await _describe(context, services, record)


@_operation("PATCH " + _ONE, error_statuses=NOT_FOUND)
async def update_follow(context: RequestContext, services: Services, request: UpdateFollowRequest) -> FollowedSource:
    """Pause or resume a followed source

    A paused source is not read until it is resumed.
    """
    context = await managed_library(context, services, request.group)
    follows = Follows(services.registry.database)
    record = await (follows.pause if request.paused else follows.resume)(context.user_id, request.id)
    _record(context, services, "follow.pause" if request.paused else "follow.resume", request.id)
    return await _describe(context, services, record)


@_operation("POST " + _ONE + "/run", status=202, error_statuses=NOT_FOUND)
async def run_follow(context: RequestContext, services: Services, request: FollowIdRequest) -> FollowedSource:
    """Read a followed source now

    Looks for changes now instead of at the next scan. The response does not wait for the result.
    """
    context = await managed_library(context, services, request.group)
    record = await Follows(services.registry.database).request_run(context.user_id, request.id)
    return await _describe(context, services, record)


@_operation("POST " + _ONE + "/resolve", error_statuses=frozenset((404, 409)))
async def resolve_follow_conflict(
    context: RequestContext, services: Services, request: ResolveConflictRequest
) -> FollowedSource:
    """Settle the conflicts of a file

    Decides between the edits made in the library and the current content of the file.
    """
    context = await managed_library(context, services, request.group)
    record = await Follows(services.registry.database).get(context.user_id, request.id)
    owner = await _owner(context, services)
    with background_jobs():
        async with services.libraries.library(context) as library:
            await resolve_conflict(library, record, owner, services.settings, request.file, keep=request.keep)
    return await _describe(context, services, record)


@_operation("DELETE " + _ONE, error_statuses=NOT_FOUND)
async def remove_follow(context: RequestContext, services: Services, request: FollowIdRequest) -> FollowedSource:
    """Stop following a source

    The items of the source stay in the library.
    """
    context = await managed_library(context, services, request.group)
    follows = Follows(services.registry.database)
    source = await _describe(context, services, await follows.get(context.user_id, request.id))
    await follows.remove(context.user_id, request.id)
    _record(context, services, "follow.remove", request.id)
    return source


async def _owner(context: RequestContext, services: Services) -> UserRecord:
    owner = await services.registry.user_by_id(context.user_id)
    if owner is None:  # deleted meanwhile
        raise NotFound("user", context.user_id)
    return owner


async def _describe(context: RequestContext, services: Services, record: FollowRecord) -> FollowedSource:
    async with services.libraries.library(context) as library:
        return await describe(record, library, _PROBLEMS_MAX)


def _record(context: RequestContext, services: Services, action: str, target: str, detail: str = "") -> None:
    services.audit.record(action, context.user_id, client=context.client_id, target=target, detail=detail)


# -- deployments -------------------------------------------------------------------------------------------------------
# Followed deployments of tldw, for administrators. They belong to no user.

_ONE_DEPLOYMENT = "/api/v1/follow-deployments/{id}"
# There is no such tool. A key restricted to a profile with all tools passes this check, and may read but not change.
_deployment_operation = partial(operation, tools=("follow",), scope=ADMIN, needs_all_sources=True)
# The first problem of each user is shown.
_USER_PROBLEMS_MAX = 1


class FollowDeploymentRequest(Struct, frozen=True, kw_only=True):
    location: Annotated[str, Meta(description="The absolute path of the folder `user_databases` on the server.")]
    map: Annotated[
        Literal["id", "claim"],
        Meta(description="How a tldw user is found here: by a name made from the number, or by the user claim."),
    ] = "id"
    user_name: Annotated[
        str, Meta(description="Names of users; `{id}` is replaced by the number of the tldw user.", max_length=128)
    ] = "{id}"
    create_users: Annotated[bool, Meta(description="Create users that do not exist, without a way to sign in.")] = False
    keep_deleted: Annotated[bool, Meta(description="Keep items that are deleted in tldw.")] = False
    interval_s: Annotated[_Interval | None, Meta(description="Seconds between two scans.")] = None


class DeploymentIdRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the followed deployment.")]


class DeploymentRequest(DeploymentIdRequest, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Users per page.")] = 100
    offset: Annotated[int, Meta(ge=0, description="Users to skip.")] = 0


class UpdateDeploymentRequest(DeploymentIdRequest, frozen=True, kw_only=True):
    paused: Annotated[bool, Meta(description="Whether following pauses, for all of its users.")]


class FollowedDeployments(Struct, frozen=True):
    deployments: Sequence[FollowedDeployment]


@_deployment_operation(
    "POST /api/v1/follow-deployments", caller="unrestricted", status=201, error_statuses=frozenset((409,))
)
async def add_follow_deployment(
    context: RequestContext, services: Services, request: FollowDeploymentRequest
) -> FollowedDeployment:
    """Follow a deployment of tldw

    Keeps the libraries of users current with the databases of a tldw server's users. New users of tldw are noticed
    while the server runs.
    """
    new = Deployment(
        location=allowed_deployment(services.settings, request.location),
        mapping=request.map,
        user_name=request.user_name,
        creates_users=request.create_users,
        keeps_deleted=request.keep_deleted,
        interval_s=request.interval_s,
        created_with=context.principal.key_id,
    )
    deployment = await Deployments(services.registry.database).add(new)
    _record(context, services, "follow.add", deployment.id, deployment.location)
    if context.principal.kind == "operator":
        # Now instead of at the next scan, so that the answer says how many users were found.
        await DeploymentFolders(services.settings, services.registry).follow_new(deployment)
    return await _describe_deployment(services, deployment)


@_deployment_operation("GET /api/v1/follow-deployments")
async def list_follow_deployments(
    _context: RequestContext, services: Services, _request: NoArguments
) -> FollowedDeployments:
    """List followed deployments

    The followed deployments of tldw, oldest first, with the numbers of their users.
    """
    deployments = await Deployments(services.registry.database).list()
    return FollowedDeployments([await _describe_deployment(services, deployment) for deployment in deployments])


@_deployment_operation("GET " + _ONE_DEPLOYMENT, error_statuses=NOT_FOUND)
async def get_follow_deployment(
    _context: RequestContext, services: Services, request: DeploymentRequest
) -> FollowedDeployment:
    """Get a followed deployment

    A followed deployment with its users: whom they are here, and whether they are current.
    """

    # What was read of a source is in the library of its user. That of a disabled user cannot be opened.
    async def describe_source(record: FollowRecord) -> FollowedSource | None:
        owner = await services.registry.user_by_id(record.user_id)
        if owner is None or owner.is_disabled:
            return None
        owner_context = build_context(local_principal(owner), services.data_root, "follow", is_agent=False)
        async with services.libraries.library(owner_context) as library:
            return await describe(record, library, _USER_PROBLEMS_MAX)

    deployment = await Deployments(services.registry.database).get(request.id)
    folders = DeploymentFolders(services.settings, services.registry)
    return await describe_deployment(deployment, folders, describe_source, limit=request.limit, offset=request.offset)


@_deployment_operation("PATCH " + _ONE_DEPLOYMENT, caller="unrestricted", error_statuses=NOT_FOUND)
async def update_follow_deployment(
    context: RequestContext, services: Services, request: UpdateDeploymentRequest
) -> FollowedDeployment:
    """Pause or resume a followed deployment

    A paused deployment is not read until it is resumed.
    """
    deployments = Deployments(services.registry.database)
    deployment = await (deployments.pause if request.paused else deployments.resume)(request.id)
    _record(context, services, "follow.pause" if request.paused else "follow.resume", request.id)
    return await _describe_deployment(services, deployment)


@_deployment_operation("DELETE " + _ONE_DEPLOYMENT, caller="unrestricted", error_statuses=NOT_FOUND)
async def remove_follow_deployment(
    context: RequestContext, services: Services, request: DeploymentIdRequest
) -> FollowedDeployment:
    """Stop following a deployment

    The items stay in the libraries.
    """
    deployments = Deployments(services.registry.database)
    described = await _describe_deployment(services, await deployments.get(request.id))
    await deployments.remove(request.id)
    _record(context, services, "follow.remove", request.id)
    return described


async def _describe_deployment(services: Services, deployment: Deployment) -> FollowedDeployment:
    return await describe_deployment(deployment, DeploymentFolders(services.settings, services.registry))
