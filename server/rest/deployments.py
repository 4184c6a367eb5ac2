"""Followed deployments of tldw over REST, for administrators."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from auth.context import RequestContext
from auth.principal import ADMIN
from server.following.deployment_operations import DeploymentOperations
from server.following.deployment_status import FollowedDeployment
from server.rest.operation import Operation
from server.runtime import Runtime

_PATH = "/api/v1/follow-deployments"
_ONE = _PATH + "/{id}"
# There is no such tool. A key restricted to a profile with all tools passes this check, and may read but not change.
_operation = partial(Operation, tools=("follow",), scope=ADMIN, needs_all_sources=True)
_Interval = Annotated[float, Meta(ge=1, le=30 * 86_400)]
_DeploymentId = Annotated[str, Meta(description="The id of the followed deployment.")]


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


class DeploymentRequest(Struct, frozen=True, kw_only=True):
    id: _DeploymentId
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Users per page.")] = 100
    offset: Annotated[int, Meta(ge=0, description="Users to skip.")] = 0


class DeploymentIdRequest(Struct, frozen=True, kw_only=True):
    id: _DeploymentId


class UpdateDeploymentRequest(Struct, frozen=True, kw_only=True):
    id: _DeploymentId
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
    return [*_operations_on_all(endpoints), *_operations_on_one(endpoints)]


def _operations_on_all(endpoints: DeploymentEndpoints) -> list[Operation]:
    return [
        _operation(
            id="add_follow_deployment",
            method="POST",
            path=_PATH,
            summary="Follow a deployment of tldw",
            description=(
                "Keeps the libraries of users current with the databases of a tldw server's users. New users of tldw "
                "are noticed while the server runs."
            ),
            input=FollowDeploymentRequest,
            response=FollowedDeployment,
            handler=endpoints.add,
            caller="unrestricted",
            status=201,
            error_statuses=frozenset((409,)),
        ),
        _operation(
            id="list_follow_deployments",
            method="GET",
            path=_PATH,
            summary="List followed deployments",
            description="The followed deployments of tldw, oldest first, with the numbers of their users.",
            input=ListDeploymentsRequest,
            response=FollowedDeployments,
            handler=endpoints.list,
        ),
    ]


def _operations_on_one(endpoints: DeploymentEndpoints) -> list[Operation]:
    return [
        _operation(
            id="get_follow_deployment",
            method="GET",
            path=_ONE,
            summary="Get a followed deployment",
            description="A followed deployment with its users: whom they are here, and whether they are current.",
            input=DeploymentRequest,
            response=FollowedDeployment,
            handler=endpoints.get,
            error_statuses=frozenset((404,)),
        ),
        _operation(
            id="update_follow_deployment",
            method="PATCH",
            path=_ONE,
            summary="Pause or resume a followed deployment",
            description="A paused deployment is not read until it is resumed.",
            input=UpdateDeploymentRequest,
            response=FollowedDeployment,
            handler=endpoints.update,
            caller="unrestricted",
            error_statuses=frozenset((404,)),
        ),
        _operation(
            id="remove_follow_deployment",
            method="DELETE",
            path=_ONE,
            summary="Stop following a deployment",
            description="The items stay in the libraries.",
            input=DeploymentIdRequest,
            response=FollowedDeployment,
            handler=endpoints.remove,
            caller="unrestricted",
            error_statuses=frozenset((404,)),
        ),
    ]
