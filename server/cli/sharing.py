"""`florilegium group` and `florilegium share`. `server/operations/sharing.py` declares their commands."""

import click

from server.cli.operation_commands import add_commands


@click.group()
def group() -> None:
    """Create groups, whose members share a library, and invite people."""


@click.group()
def share() -> None:
    """Share a part of a library with others, for reading."""


add_commands(group, "sharing")
add_commands(share, "sharing")
