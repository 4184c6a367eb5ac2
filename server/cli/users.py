"""`florilegium user`: manages users."""

from typing import Any

import click

from auth.registry import Registry, UserRecord, delete_from_copies
from config.paths import stored_bytes_of_user
from config.settings import Settings
from server.cli.admin import data_root, find_user, load_for_change, run_with_registry
from server.cli.options import SettingsOverrides, json_option, setting_options
from server.cli.output import confirm, format_time, print_json, print_table


@click.group()
def user() -> None:
    """Add, list, disable and delete users."""


@user.command()
@click.argument("name")
@click.option("--issuer", default="", help="The `iss` of the user's tokens. Default: the configured issuer.")
@click.option("--subject", default="", help="The user claim (by default `sub`) of the user's tokens. Default: NAME.")
@json_option
@setting_options("data_dir")
def add(overrides: SettingsOverrides, name: str, issuer: str, subject: str, as_json: bool) -> None:
    """Add the user NAME."""
    record = run_with_registry(
        load_for_change(overrides), lambda registry: registry.add_user(name, issuer, subject), creates=True
    )
    if as_json:
        print_json(_as_data(record))
    else:
        click.echo(f"Added {record.name} ({record.id}). Create an API key with `florilegium key create {record.name}`.")


@user.command("list")
@json_option
@setting_options("data_dir")
def list_users(overrides: SettingsOverrides, as_json: bool) -> None:
    """List all users."""
    settings = overrides.load().settings
    records = run_with_registry(settings, lambda registry: registry.list_users())
    sizes = [stored_bytes_of_user(data_root(settings).paths_of(record.id)) for record in records]
    if as_json:
        quota = settings.user_max_bytes or None
        users = zip(records, sizes, strict=True)
        print_json([{**_as_data(record), "bytes": size, "max_bytes": quota} for record, size in users])
        return
    rows = [
        (r.name, r.id, _state(r), format_time(r.created_at) or "", _usage(size, settings), r.subject, r.issuer or "-")
        for r, size in zip(records, sizes, strict=True)
    ]
    print_table(("NAME", "ID", "STATE", "CREATED", "USED", "SUBJECT", "ISSUER"), rows)


@user.command()
@click.argument("name")
@json_option
@setting_options("data_dir")
def disable(overrides: SettingsOverrides, name: str, as_json: bool) -> None:
    """Revoke all access of NAME immediately. Existing keys, tokens and sessions stay invalid."""

    async def work(registry: Registry) -> UserRecord:
        return await registry.disable_user((await find_user(registry, name)).id)

    record = run_with_registry(load_for_change(overrides), work)
    _print_change(record, f"Disabled {name}. All keys, tokens and sessions are invalid.", as_json)


@user.command()
@click.argument("name")
@json_option
@setting_options("data_dir")
def enable(overrides: SettingsOverrides, name: str, as_json: bool) -> None:
    """Enable NAME again. NAME needs a new key or token."""

    async def work(registry: Registry) -> UserRecord:
        return await registry.enable_user((await find_user(registry, name)).id)

    record = run_with_registry(load_for_change(overrides), work)
    _print_change(record, f"Enabled {name}. A new key or token is needed.", as_json)


@user.command()
@click.argument("name")
@click.option("--purge", is_flag=True, help="Delete the user's databases too. This cannot be undone.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@setting_options("data_dir")
def delete(overrides: SettingsOverrides, name: str, purge: bool, yes: bool, as_json: bool) -> None:
    """Delete NAME and all keys of NAME; with --purge, also the databases."""
    settings = load_for_change(overrides)
    record = run_with_registry(settings, lambda registry: find_user(registry, name))
    if not yes:
        confirm(f"Delete {name} and all keys{' and databases' if purge else ''} of {name}?")

    async def work(registry: Registry) -> None:
        if purge:
            # Disable access first, so that no call writes to the files being deleted. Delete the row last, so that a
            # deletion that failed halfway can be repeated.
            await registry.disable_user(record.id)
            data_root(settings).remove_user(record.id)
            delete_from_copies(data_root(settings).control_path, record.id)
        await registry.delete_user(record.id)

    run_with_registry(settings, work)
    if as_json:
        print_json({"name": record.name, "id": record.id, "state": "deleted", "is_purged": purge})
        return
    databases = "" if purge else f" The databases are kept under the id {record.id}."
    click.echo(f"Deleted {name}.{databases}")


def _print_change(record: UserRecord, sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(_as_data(record))
    else:
        click.echo(sentence)


def _state(record: UserRecord) -> str:
    return "disabled" if record.is_disabled else "active"


def _usage(size: int, settings: Settings) -> str:
    """Returns the size of a library, and its share of the quota if there is one."""
    share = f" ({size / settings.user_max_bytes:.0%})" if settings.user_max_bytes else ""
    return f"{size / 1_000_000:,.1f} MB{share}"


def _as_data(record: UserRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "id": record.id,
        "state": _state(record),
        "issuer": record.issuer,
        "subject": record.subject,
        "created_at": format_time(record.created_at),
        "disabled_at": format_time(record.disabled_at),
    }
