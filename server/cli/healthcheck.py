"""`florilegium healthcheck`: reports by its exit code whether a server is alive, for container health checks."""

import click

from config.errors import Unavailable
from server.cli.health_client import fetch_health
from server.cli.options import SettingsOverrides, json_option, setting_options
from server.cli.output import print_json
from server.cli.urls import local_url, require_url


@click.command()
@click.option("--url", help="Base URL of the server. Default: the configured host and port.")
@json_option
@setting_options("host", "port")
def healthcheck(overrides: SettingsOverrides, url: str | None, as_json: bool) -> None:
    """Exit with 0 if the server is alive and with 1 otherwise."""
    target = require_url("url", url) if url else local_url(overrides.load().settings)
    if as_json:
        _print_json(target)
        return
    health = fetch_health(target)
    click.echo(f"{target} is {health.status}, version {health.version}")


def _print_json(target: str) -> None:
    try:
        health = fetch_health(target)
    except Unavailable as error:
        print_json({"url": target, "status": "unavailable", "error": error.message})
        click.get_current_context().exit(1)
    print_json({"url": target, "status": health.status, "version": health.version})
