"""How followed sources are described to their owners."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from auth.follows import FollowRecord
from config.times import format_time_seconds
from server.operations.operation import from_record
from sources.following.state import load_state
from sources.importers.engine.files import printable_name
from sources.storage.contract import Library

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
    if record.paused_at is not None:
        shown: FollowState = "paused"
    elif state.problem:
        shown = "failed"
    else:
        shown = "new" if state.synced_at is None else "current"
    # Where a deployment is stored is nothing that its users need to know.
    if record.deployment is not None:
        location = f"tldw user {Path(record.location).name}"
    else:
        location = printable_name(record.location)
    return from_record(
        FollowedSource,
        record,
        location=location,
        keep_deleted=record.keeps_deleted,
        write_back=record.writes_back,
        state=shown,
        problem=state.problem,
        synced_at=_time(state.synced_at),
        changed_at=_time(state.changed_at),
        **structs.asdict(counts),
        problems=[
            FollowedFileProblem(printable_name(os.fsdecode(file.name)), file.conflicts, file.problem)
            for file in problems
        ],
    )


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else format_time_seconds(seconds)
