"""`florilegium client`: manages the OAuth clients of the operator, and lists those that registered themselves."""

from typing import Any

import click

from auth.oauth.clients import AUTHORIZATION_CODE, DEVICE, REFRESH, OAuthClient, OAuthClients
from auth.registry import Registry
from config.settings import Settings
from server.cli.admin import load_for_change, record_operation, run_with_registry
from server.cli.options import SettingsOverrides, json_option, setting_options
from server.cli.output import format_time, print_json, print_table


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
@json_option
@setting_options("data_dir")
def add(
    overrides: SettingsOverrides,
    name: str,
    redirect_uris: tuple[str, ...],
    confidential: bool,
    device: bool,
    as_json: bool,
) -> None:
    """Add the client NAME, for applications that cannot register themselves."""
    settings = load_for_change(overrides)
    document = {
        "client_name": name,
        "redirect_uris": list(redirect_uris),
        "grant_types": [
            *([AUTHORIZATION_CODE] if redirect_uris or not device else []),
            REFRESH,
            *([DEVICE] if device else []),
        ],
    }

    async def work(registry: Registry) -> tuple[OAuthClient, str]:
        return await _clients(registry, settings).add(document, is_confidential=confidential)

    record, secret = run_with_registry(settings, work, creates=True)
    record_operation(settings, "client.add", target=record.id, detail=record.name)
    if as_json:
        print_json({**_as_data(record), **({"client_secret": secret} if secret else {})})
        return
    click.echo(f"Added {record.name}. Enter this client id in the application:\n\n    {record.id}\n")
    if secret:
        click.echo(f"and this secret:\n\n    {secret}\n")
        click.echo("Save it now: only its hash is stored, so it cannot be shown again.")


@client.command("list")
@json_option
@setting_options("data_dir")
def list_clients(overrides: SettingsOverrides, as_json: bool) -> None:
    """List all clients. Those with a metadata document are not stored."""
    settings = overrides.load().settings
    records = run_with_registry(settings, lambda registry: _clients(registry, settings).list())
    if as_json:
        print_json([_as_data(record) for record in records])
        return
    rows = [
        (
            record.id,
            record.name,
            _kind(record),
            format_time(record.created_at) or "",
            format_time(record.last_used_at) or "-",
        )
        for record in records
    ]
    print_table(("ID", "NAME", "KIND", "CREATED", "LAST CONNECTED"), rows)


@client.command()
@click.argument("client_id", metavar="ID")
@json_option
@setting_options("data_dir")
def remove(overrides: SettingsOverrides, client_id: str, as_json: bool) -> None:
    """Remove the client ID and end all of its connections. ID can be the URL of a metadata document."""
    settings = load_for_change(overrides)
    ended = run_with_registry(settings, lambda registry: _clients(registry, settings).remove(client_id))
    record_operation(settings, "client.remove", target=client_id, detail=f"{ended} connections ended")
    if as_json:
        print_json({"id": client_id, "state": "removed", "connections_ended": ended})
    else:
        click.echo(f"Removed {client_id}; {ended} connections ended.")


def _clients(registry: Registry, settings: Settings) -> OAuthClients:
    return OAuthClients(registry.database, settings)


def _kind(record: OAuthClient) -> str:
    kind = "registered itself" if record.kind == "dynamic" else "operator"
    return kind if record.is_public else f"{kind}, confidential"


def _as_data(record: OAuthClient) -> dict[str, Any]:
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
