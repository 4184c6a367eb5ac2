"""`florilegium doctor`: whether this machine and these settings are fit to serve."""

import asyncio
import time

import click

from config.errors import ConfigurationError
from server.cli.checks import Check, check_all
from server.cli.options import Given, SettingsCommand, json_option, setting_options
from server.cli.output import print_json


@click.command(cls=SettingsCommand)
@json_option
@setting_options()
def doctor(given: Given, as_json: bool) -> None:
    """Check whether this machine is fit to serve. The exit code is 1 if a check fails."""
    checks = _examine(given)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            click.echo(f"{check.outcome:<6}{check.name:<18}{check.message}")
    if any(check.outcome == "fail" for check in checks):
        click.get_current_context().exit(1)


def _examine(given: Given) -> list[Check]:
    """Without settings there is nothing else to look at."""
    try:
        loaded = given.load()
    except ConfigurationError as error:
        return [Check("settings", "fail", sentence) for sentence in error.message.splitlines()]
    return asyncio.run(check_all(loaded, time.time()))
