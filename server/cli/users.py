"""`florilegium user`: who may use this server."""

import sys
from typing import Any

import click

from auth.registry import Registry, UserRecord
from server.cli.control import administer, data_root, find_user
from server.cli.options import Given, json_option, setting_options
from server.cli.output import instant, print_json, print_table


@click.group()
def user() -> None:
    """Add, list, disable and delete users."""


@user.command()
@click.argument("name")
@click.option("--issuer", default="", help="The `iss` of the user's tokens. Default: the configured issuer.")
@click.option("--subject", default="", help="The user claim of the user's tokens. Default: NAME.")
@json_option
@setting_options("data_dir")
def add(given: Given, name: str, issuer: str, subject: str, as_json: bool) -> None:
    """Add the user NAME."""
    record = administer(given.load().settings, lambda registry: registry.add_user(name, issuer, subject), creates=True)
    if as_json:
        print_json(_as_data(record))
    else:
        click.echo(f"added {record.name} ({record.id}); `florilegium key create {record.name}` makes an API key")


@user.command("list")
@json_option
@setting_options("data_dir")
def list_users(given: Given, as_json: bool) -> None:
    """List all users."""
    records = administer(given.load().settings, lambda registry: registry.list_users())
    if as_json:
        print_json([_as_data(record) for record in records])
        return
    rows = [(r.name, r.id, _state(r), instant(r.created_at) or "", r.subject, r.issuer or "-") for r in records]
    print_table(("NAME", "ID", "STATE", "CREATED", "SUBJECT", "ISSUER"), rows)


@user.command()
@click.argument("name")
@setting_options("data_dir")
def disable(given: Given, name: str) -> None:
    """End all access of NAME at once: keys, tokens and sessions are void for good."""

    async def work(registry: Registry) -> UserRecord:
        return await registry.disable_user((await find_user(registry, name)).id)

    administer(given.load().settings, work)
    click.echo(f"disabled {name}, whose keys, tokens and sessions are void")


@user.command()
@click.argument("name")
@setting_options("data_dir")
def enable(given: Given, name: str) -> None:
    """Let NAME in again, with new keys and new tokens."""

    async def work(registry: Registry) -> UserRecord:
        return await registry.enable_user((await find_user(registry, name)).id)

    administer(given.load().settings, work)
    click.echo(f"enabled {name}, who needs a new key or token")


@user.command()
@click.argument("name")
@click.option("--purge", is_flag=True, help="Delete the user's databases too. This cannot be undone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@setting_options("data_dir")
def delete(given: Given, name: str, purge: bool, yes: bool) -> None:
    """Delete NAME and its keys; with --purge its databases too."""
    settings = given.load().settings
    record = administer(settings, lambda registry: find_user(registry, name))
    if not yes:
        _confirm(f"Delete {name} and all keys{' and databases' if purge else ''} of {name}?")

    async def work(registry: Registry) -> None:
        if purge:
            # Access ends first, so that no call writes into what is being deleted; the row goes last, so that a
            # deletion that failed half-way can be repeated.
            await registry.disable_user(record.id)
            data_root(settings).remove_user(record.id)
        await registry.delete_user(record.id)

    administer(settings, work)
    kept = "" if purge else f"; the databases are kept under the id {record.id}"
    click.echo(f"deleted {name}{kept}")


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here: add --yes")
    click.confirm(question, abort=True)


def _state(record: UserRecord) -> str:
    return "disabled" if record.is_disabled else "active"


def _as_data(record: UserRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "id": record.id,
        "state": _state(record),
        "issuer": record.issuer,
        "subject": record.subject,
        "created_at": instant(record.created_at),
        "disabled_at": instant(record.disabled_at),
    }
