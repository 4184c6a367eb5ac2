"""`florilegium key` manages API keys, printed once, and `client` OAuth clients; `audit` shows the audit log."""

import time
from typing import TYPE_CHECKING, Any

import click

from auth.context import READ, SCOPES, WRITE
from auth.oauth.clients import AUTHORIZATION_CODE, DEVICE, JWT_BEARER, REFRESH, OAuthClient, OAuthClients
from server.cli.caller import admin_caller
from server.cli.lazy_group import SettingsOverrides
from server.cli.local_library import record_operation, run_with_registry
from server.cli.options import admin_options, load_for_change
from server.cli.output import format_time, parse_expiry, parse_start, print_json, print_result, print_table
from server.operations import keys
from server.operations.operation import NoArguments
from server.profiles import PROFILE_NAMES

if TYPE_CHECKING:
    from server.operations.audit import AuditEntry, AuditPage
    from server.operations.keys import KeyList, NewKey, RevokedKey

# Administration has to be asked for.
DEFAULT_SCOPES = (READ, WRITE)
_EVENTS_LIMIT = 100


@click.group()
def key() -> None:
    """Create, list and revoke API keys."""


@key.command()
@click.argument("user")
@click.option("--name", default="default", show_default=True, help="What the key is for.")
@click.option("--scope", "scopes", multiple=True, default=DEFAULT_SCOPES, show_default=True, help=", ".join(SCOPES))
@click.option(
    "--profile", type=click.Choice(PROFILE_NAMES), help="Restrict the key to this profile. Default: no restriction."
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME",
    help="Restrict the key to this source, such as notes; repeat it for several. Default: all sources.",
)
@click.option(
    "--library",
    "libraries",
    multiple=True,
    metavar="NAME",
    help="Besides the library of USER, only this one of a group or share; `-` for none. Default: all.",
)
@click.option(
    "--expires", metavar="WHEN", help="Expiry, such as 90d, 12h or 2026-12-31 (end of that day, UTC). Default: never."
)
@click.option("--quiet", is_flag=True, help="Print only the key.")
@admin_options
def create(
    overrides: SettingsOverrides,
    user: str,
    name: str,
    scopes: tuple[str, ...],
    profile: str | None,
    sources: tuple[str, ...],
    libraries: tuple[str, ...],
    expires: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Create an API key for USER and print it. It cannot be shown again."""
    if quiet and as_json:
        raise click.UsageError("--quiet and --json cannot be combined")
    expires_at = None if expires is None else parse_expiry("expires", expires, time.time())
    # `--quiet` prints nothing but the key, also not the data directory on stderr.
    settings = overrides.load().settings if quiet else load_for_change(overrides)
    request = keys.CreateKeyRequest(
        name=name,
        scopes=scopes,
        profile=profile,
        sources=sources or None,
        libraries=libraries or None,
        expires_at=format_time(expires_at),
    )
    with admin_caller(settings, user=user) as call:
        created: NewKey = call(keys.create_key, request)
    allowed = [
        " ".join(created.scopes),
        *([f"profile {created.profile}"] if created.profile is not None else []),
        *([f"only {' '.join(created.sources)}"] if created.sources is not None else []),
        *([f"libraries {' '.join(created.libraries) or 'own'}"] if created.libraries is not None else []),
        f"expires {created.expires_at}" if created.expires_at is not None else "never expires",
    ]
    if as_json:
        print_json(created)
    elif quiet:
        click.echo(created.secret)
    else:
        click.echo(f"key {created.id} ({created.name}) of {user}, {', '.join(allowed)}:")
        click.echo(f"\n    {created.secret}\n")
        click.echo("Save it now: only its hash is stored, so it cannot be shown again.")


@key.command("list")
@click.argument("user", required=False)
@admin_options
def list_keys(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """List the keys of USER, or of all users."""
    with admin_caller(overrides.load().settings, user=user) as call:
        listed: KeyList = call(keys.list_keys, NoArguments())
    if as_json:
        print_json(listed.keys)
        return
    limits, times = ("scopes", "profile", "sources", "libraries"), ("created_at", "expires_at", "last_used_at")
    columns = ("id", "user", "name", "state", *limits, *times)
    titles = [column.upper().replace("_AT", "").replace("_", " ") for column in columns]
    print_table(titles, [[_cell(getattr(one, column)) for column in columns] for one in listed.keys])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else " ".join(value) or "own"


@key.command()
@click.argument("key_id", metavar="ID")
@click.option("--created", is_flag=True, help="Also revoke what was created with the key.")
@admin_options
def revoke(overrides: SettingsOverrides, key_id: str, created: bool, as_json: bool) -> None:
    """Revoke the key ID. It is rejected from its next use on. What was created with it is listed."""
    # A thief who had the key may have created keys, followed sources or invitations with it, which outlast it.
    with admin_caller(load_for_change(overrides)) as call:
        revoked: RevokedKey = call(keys.revoke_key, keys.RevokeKeyRequest(id=key_id, created=created))
    if as_json:
        print_json(revoked)
        return
    click.echo(f"Revoked {revoked.id} ({revoked.name}) of {revoked.user}.")
    for one in revoked.created:
        verb = "Also revoked" if one.is_revoked else "Created with it, and still there"
        click.echo(f"{verb}: {one.kind} {one.id} ({one.name or 'without a name'}), of {one.created_at}")
    if any(not one.is_revoked for one in revoked.created):
        click.echo(f"Run `florilegium key revoke {revoked.id} --created` to revoke these, too.")


# -- oauth clients -----------------------------------------------------------------------------------------------------
# `florilegium client`: manages the OAuth clients of the operator, and lists those that registered themselves.


@click.group()
def client() -> None:
    """Add, list and remove OAuth clients."""


@client.command()
@click.argument("name")
@click.option(
    "--redirect-uri",
    "redirect_uris",
    multiple=True,
    metavar="URI",
    help="Where the client receives its answer. Repeat the option for several.",
)
@click.option("--confidential", is_flag=True, help="Create a secret that the client has to send. Default: none.")
@click.option("--device", is_flag=True, help="Let the client use device codes. It then needs no redirect URI.")
@click.option(
    "--enterprise",
    is_flag=True,
    help="Let the client use assertions of identity providers (ID-JAG). It needs --confidential, and no redirect URI.",
)
@admin_options
def add(
    overrides: SettingsOverrides,
    name: str,
    redirect_uris: tuple[str, ...],
    confidential: bool,
    device: bool,
    enterprise: bool,
    as_json: bool,
) -> None:
    """Add the client NAME, for applications that cannot register themselves."""
    if enterprise and not confidential:
        raise click.UsageError("--enterprise requires --confidential")
    settings = load_for_change(overrides)
    # RFC 7591 section 2: the metadata that a client which registers itself would send.
    redirects = [AUTHORIZATION_CODE] if redirect_uris or not (device or enterprise) else []
    grants = [*redirects, REFRESH, *([DEVICE] if device else []), *([JWT_BEARER] if enterprise else [])]
    document = {"client_name": name, "redirect_uris": list(redirect_uris), "grant_types": grants}
    record, secret = run_with_registry(
        settings,
        lambda registry: OAuthClients(registry.database, settings).add(document, is_confidential=confidential),
        creates=True,
    )
    record_operation(settings, "client.add", target=record.id, detail=record.name)
    if as_json:
        print_json({**_client_as_data(record), **({"client_secret": secret} if secret else {})})
        return
    click.echo(f"Added {record.name}. Enter this client id in the application:\n\n    {record.id}\n")
    if secret:
        click.echo(f"and this secret:\n\n    {secret}\n")
        click.echo("Save it now: only its hash is stored, so it cannot be shown again.")


@client.command("list")
@admin_options
def list_clients(overrides: SettingsOverrides, as_json: bool) -> None:
    """List all clients. Those with a metadata document are not stored."""
    # Their ids are the URLs of their documents, which are fetched when a person signs in.
    settings = overrides.load().settings
    records = run_with_registry(settings, lambda registry: OAuthClients(registry.database, settings).list())
    if as_json:
        print_json([_client_as_data(record) for record in records])
        return
    rows = []
    for record in records:
        kind = "registered itself" if record.kind == "dynamic" else "operator"
        times = (format_time(record.created_at) or "", format_time(record.last_used_at) or "-")
        rows.append((record.id, record.name, kind if record.is_public else f"{kind}, confidential", *times))
    print_table(("ID", "NAME", "KIND", "CREATED", "LAST CONNECTED"), rows)


@client.command()
@click.argument("client_id", metavar="ID")
@admin_options
def remove(overrides: SettingsOverrides, client_id: str, as_json: bool) -> None:
    """Remove the client ID and end all of its connections. ID can be the URL of a metadata document."""
    settings = load_for_change(overrides)
    ended = run_with_registry(settings, lambda registry: OAuthClients(registry.database, settings).remove(client_id))
    record_operation(settings, "client.remove", target=client_id, detail=f"{ended} connections ended")
    print_result(
        {"id": client_id, "state": "removed", "connections_ended": ended},
        f"Removed {client_id}; {ended} connections ended.",
        as_json=as_json,
    )


def _client_as_data(record: OAuthClient) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "kind": record.kind,
        "is_confidential": not record.is_public,
        "redirect_uris": list(record.metadata.redirect_uris),
        "grant_types": list(record.metadata.grant_types),
        "created_at": format_time(record.created_at),
        "last_used_at": format_time(record.last_used_at),
    }


# -- audit log ---------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--user", "user_name", metavar="NAME", help="Only events of this user.")
@click.option("--action", "actions", multiple=True, help="Only this action, such as read or key.create; repeatable.")
@click.option("--since", metavar="WHEN", help="Only events since then, such as 7d, 12h or 2026-01-31.")
@click.option(
    "--limit", type=click.IntRange(1), default=_EVENTS_LIMIT, show_default=True, help="How many events, at most."
)
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
