"""`florilegium healthcheck`: for container health checks; the exit code is the answer."""

import click

from server.cli.addresses import local_url, require_url
from server.cli.options import Given, setting_options
from server.cli.probe import ask_health


@click.command()
@click.option("--url", help="Base URL of the server. Default: the configured host and port.")
@setting_options("host", "port")
def healthcheck(given: Given, url: str | None) -> None:
    """Exit with 0 if the running server is alive, with 1 if not."""
    target = require_url("url", url) if url else local_url(given.load().settings)
    health = ask_health(target)
    click.echo(f"{target} is {health.status}, version {health.version}")
