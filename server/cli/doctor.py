"""`florilegium doctor`: checks this machine and the settings, or the connection of a client to a server."""

import asyncio
import sys
import time

import click

from config.errors import ConfigurationError
from server.cli.checks import check_all
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.local_library import data_root
from server.cli.output import print_json, require_url
from server.cli.remote import settings_of_running_server
from server.doctor.replay import FLOWS
from server.doctor.tokens import Check


@click.command(cls=SettingsCommand)
@click.argument("url", required=False)
@click.option("--client", type=click.Choice(tuple(FLOWS)), help="Replay the connection of this client to URL.")
@click.option("--token", metavar="-", help="Read an API key or token from stdin, and explain why it is refused.")
@json_option
@setting_options()
def doctor(overrides: SettingsOverrides, url: str | None, client: str | None, token: str | None, as_json: bool) -> None:
    """Check this machine, or a connection.

    Without arguments: this machine and the settings. With URL or --client: the connection of a client to a server.

    URL is the address that the client is given. Default: the one of the running server, or of the settings.

    Exits with 1 if a check fails.
    """
    if token not in (None, "-"):
        raise click.UsageError("--token takes - and reads the token from stdin, because others can read command lines")
    credential = sys.stdin.readline().strip() if token else ""
    if url or client:
        from server.doctor.replay import ConnectionReplay  # noqa: PLC0415 - only needed here

        address = require_url("url", url or settings_of_running_server(overrides.load().settings).resource_url)
        checks = asyncio.run(ConnectionReplay(address, FLOWS[client or "any"], credential).run())
    elif token:
        from server.doctor.tokens import explain_credential  # noqa: PLC0415 - only needed here

        settings = overrides.load().settings
        checks = [asyncio.run(explain_credential(settings, data_root(settings), credential))]
    else:
        try:
            loaded = overrides.load()
        except ConfigurationError as error:
            # The other checks depend on the settings, so these are the only result.
            checks = [Check("settings", "fail", sentence) for sentence in error.message.splitlines()]
        else:
            checks = asyncio.run(check_all(loaded, time.time()))
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            click.echo(f"{check.outcome:<6}{check.name:<18}{check.message}")
    if any(check.outcome == "fail" for check in checks):
        click.get_current_context().exit(1)
