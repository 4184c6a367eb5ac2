"""Followed sources, and followed deployments of tldw, over REST."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from auth.context import ADMIN, WRITE, RequestContext
from server.following.deployment_operations import DeploymentOperations
from server.following.deployments import FollowedDeployment
from server.following.operations import FollowedSource, FollowOperations
from server.rest.operation import Operation
from server.runtime import Runtime

_PATH = "/api/v1/follows"
_ONE = _PATH + "/{id}"
# There is no such tool, so a key restricted to some tools cannot follow anything. One restricted to a profile with all
# tools can, like a connected application, within `follow_roots`.
_operation = partial(Operation, tools=("follow",), scope=WRITE, needs_all_sources=True)
# At most once a second, and at least once in 30 days.
_Interval = Annotated[float, Meta(ge=1, le=30 * 86_400)]


class FollowRequest(Struct, frozen=True, kw_only=True):
    location: Annotated[
        str, Meta(description="An absolute path on the server, if you may follow it, or an http(s) URL.")
    ]
    format: Annotated[str | None, Meta(description="Read all files as this format. Default: detect it.")] = None
    interval_s: Annotated[_Interval | None, Meta(description="Seconds between two scans or requests.")] = None
    keep_deleted: Annotated[bool, Meta(description="Keep items whose files are deleted.")] = False
    write_back: Annotated[
        bool, Meta(description="Write notes that are created or edited in the library to the folder.")
    ] = False


class ListFollowsRequest(Struct, frozen=True, kw_only=True):
    """Has no parameters."""


class FollowIdRequest(Struct, frozen=True, kw_only=True):
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


class FollowEndpoints:
    """The handlers of the operations on followed sources."""

    def __init__(self, operations: FollowOperations) -> None:
        self._operations = operations

    async def add(self, context: RequestContext, request: FollowRequest) -> FollowedSource:
        return await self._operations.add(
            context,
            request.location,
            format_name=request.format,
            interval_s=request.interval_s,
            keeps_deleted=request.keep_deleted,
            writes_back=request.write_back,
        )

    async def list(self, context: RequestContext, _request: ListFollowsRequest) -> FollowedSources:
        return FollowedSources(await self._operations.list(context))

    async def get(self, context: RequestContext, request: FollowIdRequest) -> FollowedSource:
        return await self._operations.get(context, request.id)

    async def update(self, context: RequestContext, request: UpdateFollowRequest) -> FollowedSource:
        return await self._operations.set_paused(context, request.id, is_paused=request.paused)

    async def run(self, context: RequestContext, request: FollowIdRequest) -> FollowedSource:
        return await self._operations.run(context, request.id)

    async def resolve(self, context: RequestContext, request: ResolveConflictRequest) -> FollowedSource:
        return await self._operations.resolve(context, request.id, request.file, request.keep)

    async def remove(self, context: RequestContext, request: FollowIdRequest) -> FollowedSource:
        return await self._operations.remove(context, request.id)


def follow_operations(runtime: Runtime) -> list[Operation]:
    endpoints = FollowEndpoints(FollowOperations(runtime.settings, runtime.libraries, runtime.registry))
    return [
        _operation(
            id="add_follow",
            method="POST",
            path=_PATH,
            summary="Follow a source",
            description=(
                "Imports a folder, file or URL and keeps the library current with it. A path needs the scope `admin` "
                "and a credential that is neither restricted nor that of a connected application, or must be in a "
                "folder that the setting `follow_roots` names."
            ),
            handler=endpoints.add,
            status=201,
            error_statuses=frozenset((409,)),
        ),
        _operation(
            id="list_follows",
            method="GET",
            path=_PATH,
            summary="List followed sources",
            description="The sources that the user follows, oldest first, and whether they are current.",
            handler=endpoints.list,
        ),
        _operation(
            id="get_follow",
            method="GET",
            path=_ONE,
            summary="Get a followed source",
            description="The state of a followed source, its conflicts and the files that could not be read.",
            handler=endpoints.get,
            error_statuses=frozenset((404,)),
        ),
        _operation(
            id="update_follow",
            method="PATCH",
            path=_ONE,
            summary="Pause or resume a followed source",
            description="A paused source is not read until it is resumed.",
            handler=endpoints.update,
            error_statuses=frozenset((404,)),
        ),
        _operation(
            id="run_follow",
            method="POST",
            path=_ONE + "/run",
            summary="Read a followed source now",
            description="Looks for changes now instead of at the next scan. The response does not wait for the result.",
            handler=endpoints.run,
            status=202,
            error_statuses=frozenset((404,)),
        ),
        _operation(
            id="resolve_follow_conflict",
            method="POST",
            path=_ONE + "/resolve",
            summary="Settle the conflicts of a file",
            description="Decides between the edits made in the library and the current content of the file.",
            handler=endpoints.resolve,
            error_statuses=frozenset((404, 409)),
        ),
        _operation(
            id="remove_follow",
            method="DELETE",
            path=_ONE,
            summary="Stop following a source",
            description="The items of the source stay in the library.",
            handler=endpoints.remove,
            error_statuses=frozenset((404,)),
        ),
    ]


# -- deployments -------------------------------------------------------------------------------------------------------
# Followed deployments of tldw over REST, for administrators.

_DEPLOYMENTS_PATH = "/api/v1/follow-deployments"
_ONE_DEPLOYMENT = _DEPLOYMENTS_PATH + "/{id}"
# There is no such tool. A key restricted to a profile with all tools passes this check, and may read but not change.
_deployment_operation = partial(Operation, tools=("follow",), scope=ADMIN, needs_all_sources=True)


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


class ListDeploymentsRequest(Struct, frozen=True, kw_only=True):
    """Has no parameters."""


class DeploymentIdRequest(Struct, frozen=True, kw_only=True):
    id: Annotated[str, Meta(description="The id of the followed deployment.")]


class DeploymentRequest(DeploymentIdRequest, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Users per page.")] = 100
    offset: Annotated[int, Meta(ge=0, description="Users to skip.")] = 0


class UpdateDeploymentRequest(DeploymentIdRequest, frozen=True, kw_only=True):
    paused: Annotated[bool, Meta(description="Whether following pauses, for all of its users.")]


class FollowedDeployments(Struct, frozen=True):
    deployments: Sequence[FollowedDeployment]


class DeploymentEndpoints:
    """The handlers of the operations on followed deployments."""

    def __init__(self, operations: DeploymentOperations) -> None:
        self._operations = operations

    async def add(self, context: RequestContext, request: FollowDeploymentRequest) -> FollowedDeployment:
        return await self._operations.add(
            request.location,
            mapping=request.map,
            user_name=request.user_name,
            creates_users=request.create_users,
            keeps_deleted=request.keep_deleted,
            interval_s=request.interval_s,
            created_with=context.principal.key_id,
        )

    # Deployments belong to no user, so that the context is needed only to know who adds one.
    async def list(self, _context: RequestContext, _request: ListDeploymentsRequest) -> FollowedDeployments:
        return FollowedDeployments(await self._operations.list())

    async def get(self, _context: RequestContext, request: DeploymentRequest) -> FollowedDeployment:
        return await self._operations.get(request.id, request.limit, request.offset)

    async def update(self, context: RequestContext, request: UpdateDeploymentRequest) -> FollowedDeployment:
        return await self._operations.set_paused(request.id, is_paused=request.paused)

    async def remove(self, context: RequestContext, request: DeploymentIdRequest) -> FollowedDeployment:
        return await self._operations.remove(request.id)


def deployment_operations(runtime: Runtime) -> list[Operation]:
    operations = DeploymentOperations(runtime.settings, runtime.libraries, runtime.registry, runtime.following)
    endpoints = DeploymentEndpoints(operations)
    return [
        _deployment_operation(
            id="add_follow_deployment",
            method="POST",
            path=_DEPLOYMENTS_PATH,
            summary="Follow a deployment of tldw",
            description=(
                "Keeps the libraries of users current with the databases of a tldw server's users. New users of tldw "
                "are noticed while the server runs."
            ),
            handler=endpoints.add,
            caller="unrestricted",
            status=201,
            error_statuses=frozenset((409,)),
        ),
        _deployment_operation(
            id="list_follow_deployments",
            method="GET",
            path=_DEPLOYMENTS_PATH,
            summary="List followed deployments",
            description="The followed deployments of tldw, oldest first, with the numbers of their users.",
            handler=endpoints.list,
        ),
        _deployment_operation(
            id="get_follow_deployment",
            method="GET",
            path=_ONE_DEPLOYMENT,
            summary="Get a followed deployment",
            description="A followed deployment with its users: whom they are here, and whether they are current.",
            handler=endpoints.get,
            error_statuses=frozenset((404,)),
        ),
        _deployment_operation(
            id="update_follow_deployment",
            method="PATCH",
            path=_ONE_DEPLOYMENT,
            summary="Pause or resume a followed deployment",
            description="A paused deployment is not read until it is resumed.",
            handler=endpoints.update,
            caller="unrestricted",
            error_statuses=frozenset((404,)),
        ),
        _deployment_operation(
            id="remove_follow_deployment",
            method="DELETE",
            path=_ONE_DEPLOYMENT,
            summary="Stop following a deployment",
            description="The items stay in the libraries.",
            handler=endpoints.remove,
            caller="unrestricted",
            error_statuses=frozenset((404,)),
        ),
    ]
