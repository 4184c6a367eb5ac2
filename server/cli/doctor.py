"""`florilegium doctor`: checks this machine and the settings."""

import asyncio
import time

import click

from config.errors import ConfigurationError
from server.cli.check_result import Check
from server.cli.checks import check_all
from server.cli.options import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.output import print_json


@click.command(cls=SettingsCommand)
@json_option
@setting_options()
def doctor(overrides: SettingsOverrides, as_json: bool) -> None:
    """Check this machine and the settings. Exits with 1 if a check fails."""
    checks = _run_checks(overrides)
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            click.echo(f"{check.outcome:<6}{check.name:<18}{check.message}")
    if any(check.outcome == "fail" for check in checks):
        click.get_current_context().exit(1)


def _run_checks(overrides: SettingsOverrides) -> list[Check]:
    """Runs all checks. Invalid settings are the only result then, because the other checks depend on them."""
    try:
        loaded = overrides.load()
    except ConfigurationError as error:
        return [Check("settings", "fail", sentence) for sentence in error.message.splitlines()]
    return asyncio.run(check_all(loaded, time.time()))
