"""What users can do with the sources that they follow."""

from collections.abc import Sequence

from auth.context import RequestContext
from auth.follows import FollowRecord, Follows
from auth.principal import ADMIN
from auth.registry import Registry, UserRecord
from config.errors import InvalidParams, NotFound
from config.settings import Settings
from server.following.locations import allowed_location
from server.following.runs import resolve_conflict
from server.following.status import FollowedSource, describe
from sources.importers.registry import FORMATS
from sources.storage.contract import Libraries
from sources.storage.job_group import background_jobs

_PROBLEMS_MAX = 100


class FollowOperations:
    """Each user sees only their own followed sources. Administrators may follow any path of this machine, but not with
    a credential for agents; others those that the setting `follow_roots` permits."""

    def __init__(self, settings: Settings, libraries: Libraries, registry: Registry) -> None:
        self._settings = settings
        self._libraries = libraries
        self._registry = registry
        self._follows = Follows(registry.database)

    async def add(
        self,
        context: RequestContext,
        location: str,
        *,
        format_name: str | None,
        interval_s: float | None,
        keeps_deleted: bool,
        writes_back: bool,
    ) -> FollowedSource:
        if format_name is not None and format_name not in FORMATS:
            raise InvalidParams(f"format: expected one of {', '.join(FORMATS)}, got {format_name[:60]!r}")
        is_administrator = context.principal.has_scope(ADMIN) and not context.principal.is_for_agents
        allowed = allowed_location(
            self._settings,
            location,
            await self._owner(context),
            is_administrator=is_administrator,
            writes_back=writes_back,
            others=await self._follows.list(context.user_id),
        )
        record = await self._follows.add(
            context.user_id,
            allowed.text,
            format_name=format_name,
            interval_s=interval_s,
            keeps_deleted=keeps_deleted,
            writes_back=writes_back,
            is_confined=allowed.is_confined,
            needs_admin=is_administrator,
            created_with=context.principal.key_id,
            per_user_max=self._settings.follow_max_per_user,
        )
        return await self._describe(context, record)

    async def list(self, context: RequestContext) -> Sequence[FollowedSource]:
        records = await self._follows.list(context.user_id)
        async with self._libraries.library(context) as library:
            return [await describe(record, library) for record in records]

    async def get(self, context: RequestContext, follow_id: str) -> FollowedSource:
        return await self._describe(context, await self._follows.get(context.user_id, follow_id))

    async def set_paused(self, context: RequestContext, follow_id: str, *, is_paused: bool) -> FollowedSource:
        change = self._follows.pause if is_paused else self._follows.resume
        return await self._describe(context, await change(context.user_id, follow_id))

    async def run(self, context: RequestContext, follow_id: str) -> FollowedSource:
        return await self._describe(context, await self._follows.request_run(context.user_id, follow_id))

    async def remove(self, context: RequestContext, follow_id: str) -> FollowedSource:
        source = await self.get(context, follow_id)
        await self._follows.remove(context.user_id, follow_id)
        return source

    async def resolve(self, context: RequestContext, follow_id: str, file: str, keep: str) -> FollowedSource:
        record = await self._follows.get(context.user_id, follow_id)
        with background_jobs():
            async with self._libraries.library(context) as library:
                await resolve_conflict(library, record, await self._owner(context), self._settings, file, keep=keep)
        return await self._describe(context, record)

    async def _owner(self, context: RequestContext) -> UserRecord:
        owner = await self._registry.user_by_id(context.user_id)
        if owner is None:  # deleted meanwhile
            raise NotFound("user", context.user_id)
        return owner

    async def _describe(self, context: RequestContext, record: FollowRecord) -> FollowedSource:
        async with self._libraries.library(context) as library:
            return await describe(record, library, _PROBLEMS_MAX)
