"""`florilegium audit`: shows the audit log."""

import time
from typing import TYPE_CHECKING

import click

from server.cli.caller import admin_caller
from server.cli.lazy_group import SettingsOverrides
from server.cli.options import admin_options
from server.cli.output import format_time, parse_start, print_json, print_table

if TYPE_CHECKING:
    from server.operations.audit import AuditEntry, AuditPage

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
    from server.operations.audit import AuditRequest, list_audit_events  # noqa: PLC0415 - not for `--help`

    start = None if since is None else format_time(parse_start("since", since, time.time()))
    events: list[AuditEntry] = []
    with admin_caller(overrides.load().settings) as call:
        # An operation filters by one action, and returns a page.
        for action in actions or (None,):
            before, left = None, limit
            while left:
                request = AuditRequest(user=user_name, action=action, since=start, limit=left, before=before)
                page: AuditPage = call(list_audit_events, request)
                events += page.events
                before, left = page.next_before, left - len(page.events)
                if before is None:
                    break
    events = sorted(events, key=lambda event: -event.id)[:limit]
    if as_json:
        print_json(events)
        return
    columns = ("time", "user", "action", "count", "target", "client", "address", "detail")
    rows = [[str(getattr(event, column)) or "-" for column in columns] for event in events]
    print_table([column.upper() for column in columns], rows)
