"""How followed deployments of tldw are described to administrators."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from msgspec import Struct

from auth.deployments import Deployment, UserMapping
from auth.follows import FollowRecord
from config.times import format_time_seconds
from server.following.deployments import DeploymentFolders, UserFolder
from server.following.status import FollowedSource
from sources.following.scan import SourceMissing

DescribeSource = Callable[[FollowRecord], Awaitable[FollowedSource | None]]


class DeploymentUser(Struct, frozen=True, kw_only=True):
    """A user of tldw: the number there, the user here, and the state of the followed source. `problem` says why it is
    not followed or not current."""

    tldw_id: int
    user: str | None
    follow_id: str | None
    state: Literal["new", "current", "paused", "failed", "not followed"]
    items: int
    problem: str


class FollowedDeployment(Struct, frozen=True, kw_only=True):
    """A followed deployment of tldw. `map` says how its users are found here: `id` by a name made from the template
    `user_name`, `claim` by the user claim of their tokens. `followed` and `not_followed` count its users."""

    id: str
    location: str
    map: UserMapping
    user_name: str
    create_users: bool
    keep_deleted: bool
    interval_s: float | None
    created_at: str
    state: Literal["current", "paused", "failed"]
    problem: str
    followed: int
    not_followed: int
    users: Sequence[DeploymentUser] = ()


async def describe_deployment(
    deployment: Deployment,
    folders: DeploymentFolders,
    describe: DescribeSource | None = None,
    *,
    limit: int = 0,
    offset: int = 0,
) -> FollowedDeployment:
    """With `describe`, which describes one followed source, a page of its users is included."""
    problem = ""
    found: Sequence[UserFolder] = ()
    try:
        found = await folders.find(deployment)
    except SourceMissing as error:
        problem = error.message
    users = [] if describe is None else [await _user(one, describe) for one in found[offset : offset + limit]]
    if not problem:
        problem = next((f"tldw user {one.name}: {one.problem}" for one in found if one.problem), "")
    followed = sum(one.record is not None for one in found)
    return FollowedDeployment(
        id=deployment.id,
        location=deployment.location,
        map=deployment.mapping,
        user_name=deployment.user_name,
        create_users=deployment.creates_users,
        keep_deleted=deployment.keeps_deleted,
        interval_s=deployment.interval_s,
        created_at=format_time_seconds(deployment.created_at),
        state="paused" if deployment.paused_at is not None else "current" if found or not problem else "failed",
        problem=problem,
        followed=followed,
        not_followed=len(found) - followed,
        users=users,
    )


async def _user(folder: UserFolder, describe: DescribeSource) -> DeploymentUser:
    source = None if folder.record is None else await describe(folder.record)
    return DeploymentUser(
        tldw_id=int(folder.name),
        user=folder.user.name if folder.user is not None else None,
        follow_id=folder.record.id if folder.record is not None else None,
        state="not followed" if source is None else source.state,
        items=0 if source is None else source.items,
        problem=folder.problem or ("" if source is None else source.problem or _file_problem(source)),
    )


def _file_problem(source: FollowedSource) -> str:
    return next((f"{problem.file}: {problem.problem}" for problem in source.problems if problem.problem), "")
