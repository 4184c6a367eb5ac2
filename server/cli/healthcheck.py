"""`florilegium healthcheck`: reports by its exit code whether a server is alive, for container health checks."""

import click

from server.cli.health_client import fetch_health
from server.cli.options import SettingsOverrides, setting_options
from server.cli.urls import local_url, require_url


@click.command()
@click.option("--url", help="Base URL of the server. Default: the configured host and port.")
@setting_options("host", "port")
def healthcheck(overrides: SettingsOverrides, url: str | None) -> None:
    """Exit with 0 if the server is alive and with 1 otherwise."""
    target = require_url("url", url) if url else local_url(overrides.load().settings)
    health = fetch_health(target)
    click.echo(f"{target} is {health.status}, version {health.version}")
