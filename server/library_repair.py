"""Repairs the library of one user: rebuilds damaged indexes, and salvages the readable rows of damaged files. Nothing
else may have the files open meanwhile."""

from collections.abc import Sequence

from msgspec import Struct

from auth.library_files import forget_file
from auth.registry import UserRecord
from config.paths import DataRoot, set_aside
from config.settings import Settings
from sources.storage.sqlite.connection.pool import sqlite_options
from sources.storage.sqlite.maintenance.library_check import FileCheck, check_library
from sources.storage.sqlite.maintenance.maintenance import reindex, salvage


class RepairReport(Struct, frozen=True):
    """A line about each file. `is_whole` means that the library is intact now and that nothing was lost."""

    lines: Sequence[str]
    is_whole: bool


def repair_library(settings: Settings, root: DataRoot, user: UserRecord, *, accept_loss: bool) -> RepairReport:
    checks = check_library(root, user.id)
    repairs = [_repair(settings, root, user, check, accept_loss=accept_loss) for check in checks]
    is_intact = all(check.state == "ok" for check in check_library(root, user.id))
    return RepairReport([line for line, _ in repairs], is_intact and all(is_whole for _, is_whole in repairs))


def _repair(
    settings: Settings, root: DataRoot, user: UserRecord, check: FileCheck, *, accept_loss: bool
) -> tuple[str, bool]:
    """Repairs one file. Returns a line about it, and whether nothing was lost."""
    kind = check.kind
    match check.state:
        case "ok":
            return f"{kind}.db: intact", True
        case "index damaged":
            entries = reindex(root, user.id, kind, sqlite_options(settings))
            return f"{kind}.db: indexes rebuilt, {entries:,} {'entry' if entries == 1 else 'entries'}", True
        case "damaged":
            report = salvage(root, user.id, kind)
            reindex(root, user.id, kind, sqlite_options(settings))
            rows = _count(sum(report.rows.values()), "row")
            gaps = ", ".join(f"{table} ({_count(count, 'place')})" for table, count in report.gaps.items())
            lost = f"unreadable: {gaps}" if gaps else "every row was readable"
            line = f"{rows} salvaged; {lost}; the damaged file is kept as {report.replaced}"
        case "missing" if accept_loss:
            # The control database records which files a user has, so that a missing one is not replaced silently by an
            # empty one. Without the record, the next use creates it.
            set_aside(getattr(root.paths_of(user.id), kind))
            forget_file(root.control_path, user.id, kind)
            line = f"missing; {user.name} starts with an empty one"
        case "missing":
            restore = f"`florilegium restore DIR --user {user.name}`"
            line = f"missing; run {restore}, or pass --accept-loss to start with an empty one"
        case _:
            line = "written by a newer version; upgrade Florilegium"
    return f"{kind}.db: {line}", False


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
