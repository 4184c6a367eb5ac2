"""What administrators can do with followed deployments of tldw."""

from collections.abc import Sequence

from auth.follows import Deployment, Deployments, FollowRecord, UserMapping
from auth.registry import Registry
from config.settings import Settings
from server.following.deployments import DeploymentFolders, FollowedDeployment, describe_deployment
from server.following.locations import allowed_deployment
from server.following.operations import FollowedSource, describe
from server.following.service import FollowService
from sources.storage.contract import Libraries

# The first problem of each user is shown.
_PROBLEMS_MAX = 1


class DeploymentOperations:
    def __init__(self, settings: Settings, libraries: Libraries, registry: Registry, service: FollowService) -> None:
        self._settings = settings
        self._libraries = libraries
        self._deployments = Deployments(registry.database)
        self._folders = DeploymentFolders(settings, registry)
        self._service = service

    async def add(
        self,
        location: str,
        *,
        mapping: UserMapping,
        user_name: str,
        creates_users: bool,
        keeps_deleted: bool,
        interval_s: float | None,
        created_with: str | None = None,
    ) -> FollowedDeployment:
        deployment = await self._deployments.add(
            allowed_deployment(self._settings, location),
            mapping=mapping,
            user_name=user_name,
            creates_users=creates_users,
            keeps_deleted=keeps_deleted,
            interval_s=interval_s,
            created_with=created_with,
        )
        return await self._describe(deployment)

    async def list(self) -> Sequence[FollowedDeployment]:
        return [await self._describe(deployment) for deployment in await self._deployments.list()]

    async def get(self, deployment_id: str, limit: int, offset: int) -> FollowedDeployment:
        deployment = await self._deployments.get(deployment_id)
        return await describe_deployment(deployment, self._folders, self._describe_source, limit=limit, offset=offset)

    async def set_paused(self, deployment_id: str, *, is_paused: bool) -> FollowedDeployment:
        change = self._deployments.pause if is_paused else self._deployments.resume
        return await self._describe(await change(deployment_id))

    async def remove(self, deployment_id: str) -> FollowedDeployment:
        described = await self._describe(await self._deployments.get(deployment_id))
        await self._deployments.remove(deployment_id)
        return described

    async def _describe(self, deployment: Deployment) -> FollowedDeployment:
        return await describe_deployment(deployment, self._folders)

    async def _describe_source(self, record: FollowRecord) -> FollowedSource | None:
        context = await self._service.context_of(record)
        if context is None:
            return None
        async with self._libraries.library(context) as library:
            return await describe(record, library, _PROBLEMS_MAX)
