"""`florilegium audit`: shows the audit log."""

import time
from contextlib import closing

import click

from auth.audit import AuditFilter
from auth.registry import Registry, UserRecord
from server.cli.lazy_group import SettingsOverrides
from server.cli.local_library import data_root, find_user, run_with_registry
from server.cli.options import admin_options
from server.cli.output import format_time, parse_start, print_json, print_table
from server.cli.remote import remote_server
from server.stores import open_audit_log

_LIMIT = 100


@click.command()
@click.option("--user", "user_name", metavar="NAME", help="Only events of this user.")
@click.option("--action", "actions", multiple=True, help="Only this action, such as read or key.create; repeatable.")
@click.option("--since", metavar="WHEN", help="Only events since then, such as 7d, 12h or 2026-01-31.")
@click.option("--limit", type=click.IntRange(1), default=_LIMIT, show_default=True, help="How many events, at most.")
@admin_options
def audit(
    overrides: SettingsOverrides,
    user_name: str | None,
    actions: tuple[str, ...],
    since: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show who signed in, which client read which item, and what was changed; the newest events first."""
    start = None if since is None else parse_start("since", since, time.time())
    if (server := remote_server()) is not None:
        # GET /api/v1/audit filters by one action.
        if len(actions) > 1:
            raise click.UsageError("--action: expected one with --server")
        action = actions[0] if actions else None
        query = {"user": user_name, "action": action, "since": format_time(start), "limit": limit}
        rows = server.get("/api/v1/audit", **query)["events"]
    else:
        settings = overrides.load().settings

        async def work(registry: Registry) -> tuple[UserRecord | None, list[UserRecord]]:
            owner = await find_user(registry, user_name) if user_name is not None else None
            return owner, await registry.list_users()

        owner, users = run_with_registry(settings, work)
        names: dict[str, str] = {user.id: user.name for user in users}
        with closing(open_audit_log(settings, data_root(settings))) as log:
            where = AuditFilter(user_id=None if owner is None else owner.id, actions=actions, since=start)
            events = log.select(where, limit)
        rows = [
            {
                "id": event.id,
                "time": format_time(event.time),
                "action": event.action,
                # Events outlast their user, whose id is shown then.
                "user": names.get(event.user_id, event.user_id),
                "target": event.target,
                "client": event.client,
                "address": event.address,
                "detail": event.detail,
                "count": event.count,
            }
            for event in events
        ]
    if as_json:
        print_json(rows)
        return
    columns = ("time", "user", "action", "count", "target", "client", "address", "detail")
    print_table(
        [column.upper() for column in columns], [[str(row[column]) or "-" for column in columns] for row in rows]
    )
