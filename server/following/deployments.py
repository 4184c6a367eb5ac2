"""Turns the folders of a followed deployment of tldw into followed sources of the users that they belong to."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

from loguru import logger
from msgspec import Struct

from auth.follows import Deployment, Deployments, FollowRecord, Follows, UserMapping
from auth.registry import Registry, UserRecord
from config.errors import Conflict, InvalidParams
from config.settings import Settings
from server.following.status import FollowedSource
from server.operations.operation import from_record
from sources.following.note_files import followed_names
from sources.following.scan import SourceMissing

FORMAT = "tldw"
# As tldw names the folders. With less than 19 digits, a number fits into 64 bits.
_USER_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


class UserFolder(Struct, frozen=True):
    """The folder of one tldw user."""

    name: str  # the user's number there
    record: FollowRecord | None = None  # without one, it is not followed
    user: UserRecord | None = None
    problem: str = ""  # why it is not followed or not current
    is_unknown_user: bool = False


class DeploymentFolders:
    """The user folders of deployments. New ones are followed; those that disappear are reported and not emptied."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._follows = Follows(registry.database)
        self._deployments = Deployments(registry.database)

    async def find(self, deployment: Deployment) -> Sequence[UserFolder]:
        """Returns the folders in the order of their numbers. Raises SourceMissing if the deployment cannot be read."""
        names = await asyncio.to_thread(list_user_folders, Path(deployment.location))
        users, follows = await self._registry.list_users(), await self._follows.list()
        excluded = await self._deployments.excluded(deployment.id)
        by_id = {user.id: user for user in users}
        is_by_name = deployment.mapping == "id"
        if is_by_name:
            known_users = {user.name: user for user in users}
        else:
            # A user without an issuer has the configured one, unless another user has exactly that.
            issuers = ("", self._settings.issuer)
            known_users = {user.subject: user for issuer in issuers for user in users if user.issuer == issuer}
        records = {Path(one.location).name: one for one in follows if one.deployment == deployment.id}
        followed = {(one.user_id, one.location) for one in follows}
        folders: list[UserFolder] = []
        for name in sorted({*names, *records}, key=int):
            location, record, problem = str(Path(deployment.location) / name), records.get(name), ""
            key = deployment.name_of(name) if is_by_name else name
            user = known_users.get(key) if record is None else by_id.get(record.user_id)
            if name not in names:
                problem = "the folder is missing; its items were kept"
            elif record is not None:
                problem = "its user is disabled here" if user is not None and user.is_disabled else ""
            elif location in excluded:
                problem = "its user stopped following it"
            elif user is None:
                problem = f"no user {'is named' if is_by_name else 'has the user claim'} {key!r}"
            elif is_by_name and user.named_by != "operator":
                # Anyone who may choose a name could choose that of a folder.
                problem = (
                    f"{user.name} was not named by the operator; if the folder belongs to that person, run "
                    f"`florilegium user confirm {user.name}`"
                )
            elif (user.id, location) in followed:
                problem = f"{user.name} already follows this folder"
            is_unknown = record is None and user is None and location not in excluded
            folders.append(UserFolder(name, record, user, problem, is_unknown))
        return folders

    async def follow_new(self, deployment: Deployment) -> int:
        """Follows the folders that are not followed yet, if their users exist or may be created. Returns how many."""
        count = 0
        for folder in await self.find(deployment):
            if folder.record is not None or (folder.problem and not folder.is_unknown_user):
                continue
            user = folder.user
            try:
                # A user who was deleted here is not created again.
                if (
                    user is None
                    and deployment.creates_users
                    and not await self._registry.user_deleted_at("", folder.name)
                ):
                    # tldw's tokens identify a user by the number, whatever the name is here.
                    user = await self._registry.add_user(deployment.name_of(folder.name), subject=folder.name)
                if user is None:
                    continue
                record = FollowRecord(
                    user_id=user.id,
                    location=str(Path(deployment.location) / folder.name),
                    format=FORMAT,
                    interval_s=deployment.interval_s,
                    keeps_deleted=deployment.keeps_deleted,
                    deployment=deployment.id,
                )
                await self._follows.add(record, per_user_max=None)  # the limit is for what users follow themselves
                count += 1
            except (Conflict, InvalidParams) as error:
                logger.warning("tldw user {} is not followed: {}", folder.name, error.message)
        return count


def list_user_folders(root: Path) -> list[str]:
    """Returns the names of the folders of users: numbers, with at least one of the databases. Links are left out, as
    they could lead to the folder of another user."""
    names = followed_names(FORMAT)
    try:
        with os.scandir(root) as entries:
            folders = [
                entry.name
                for entry in entries
                if _USER_NUMBER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError as error:
        problem = (error.strerror or "unknown error").lower()
        raise SourceMissing(f"the folder of the deployment cannot be read: {problem}; all items were kept") from error
    return [folder for folder in folders if any((root / folder / os.fsdecode(name)).is_file() for name in names)]


# -- deployment status -------------------------------------------------------------------------------------------------
# How followed deployments of tldw are described to administrators.

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
    return from_record(
        FollowedDeployment,
        deployment,
        map=deployment.mapping,
        create_users=deployment.creates_users,
        keep_deleted=deployment.keeps_deleted,
        state="paused" if deployment.paused_at is not None else "current" if found or not problem else "failed",
        problem=problem,
        followed=followed,
        not_followed=len(found) - followed,
        users=users,
    )


async def _user(folder: UserFolder, describe: DescribeSource) -> DeploymentUser:
    source = None if folder.record is None else await describe(folder.record)
    problem = folder.problem
    if source is not None and not problem:
        file_problems = (f"{one.file}: {one.problem}" for one in source.problems if one.problem)
        problem = source.problem or next(file_problems, "")
    return DeploymentUser(
        tldw_id=int(folder.name),
        user=folder.user.name if folder.user is not None else None,
        follow_id=folder.record.id if folder.record is not None else None,
        state="not followed" if source is None else source.state,
        items=0 if source is None else source.items,
        problem=problem,
    )
