"""What users can do with the sources that they follow."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from auth.context import ADMIN, RequestContext
from auth.follows import FollowRecord, Follows
from auth.registry import Registry, UserRecord
from config.errors import InvalidParams, NotFound
from config.settings import Settings
from config.times import format_time_seconds
from server.following.locations import allowed_location
from server.following.runs import resolve_conflict
from sources.following.state import SourceState, load_state
from sources.importers.engine.files import printable_name
from sources.importers.registry import format_names
from sources.storage.contract import Libraries, Library
from sources.storage.job_queue import background_jobs

# -- status ------------------------------------------------------------------------------------------------------------
# How followed sources are described to their owners.

FollowState = Literal["new", "current", "paused", "failed"]


class FollowedFileProblem(Struct, frozen=True):
    """A file with `conflicts` (items that were edited in the library and changed in their source) or with a problem."""

    file: str
    conflicts: int
    problem: str


class FollowedSource(Struct, frozen=True, kw_only=True):
    """A followed source. The state is `new` if it was not read yet, and `failed` if it could not be read the last time;
    `problem` says why. The count `failed` is that of files that could not be read completely, `conflicts` that of items
    whose edits were kept. `deployment` is the id of the followed deployment of tldw that it belongs to."""

    id: str
    location: str
    deployment: str | None
    format: str | None
    interval_s: float | None
    keep_deleted: bool
    write_back: bool
    state: FollowState
    problem: str
    created_at: str
    synced_at: str | None
    changed_at: str | None
    files: int
    items: int
    conflicts: int
    failed: int
    problems: Sequence[FollowedFileProblem] = ()


async def describe(record: FollowRecord, library: Library, problems_max: int = 0) -> FollowedSource:
    state = await load_state(library, record.id)
    counts = await library.followed_files.counts(record.id)
    problems = await library.followed_files.problems(record.id, problems_max) if problems_max else ()
    # Where a deployment is stored is nothing that its users need to know.
    if record.deployment is not None:
        location = f"tldw user {Path(record.location).name}"
    else:
        location = printable_name(record.location)
    return FollowedSource(
        id=record.id,
        location=location,
        deployment=record.deployment,
        format=record.format,
        interval_s=record.interval_s,
        keep_deleted=record.keeps_deleted,
        write_back=record.writes_back,
        state=_state(record, state),
        problem=state.problem,
        created_at=format_time_seconds(record.created_at),
        synced_at=_time(state.synced_at),
        changed_at=_time(state.changed_at),
        files=counts.files,
        items=counts.items,
        conflicts=counts.conflicts,
        failed=counts.failed,
        problems=[
            FollowedFileProblem(printable_name(os.fsdecode(file.name)), file.conflicts, file.problem)
            for file in problems
        ],
    )


def _state(record: FollowRecord, state: SourceState) -> FollowState:
    if record.paused_at is not None:
        return "paused"
    if state.problem:
        return "failed"
    return "new" if state.synced_at is None else "current"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else format_time_seconds(seconds)


# Files with problems in one response; the counts cover all of them.
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
        if format_name is not None and format_name not in format_names():
            raise InvalidParams(f"format: expected one of {', '.join(format_names())}, got {format_name[:60]!r}")
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
            allowed,
            format_name=format_name,
            interval_s=interval_s,
            keeps_deleted=keeps_deleted,
            writes_back=writes_back,
            # Others may follow it only because of the setting `follow_roots`, which is checked again before each run.
            is_confined=not is_administrator,
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
