"""The `florilegium` command line.

Administrative commands can run while a server is running. The server sees their effect at its next call.
"""

# Read first: `lazy_group.py` (how commands are loaded, and how settings become options), and
# `local_library.py` (the control database, and a library without a server). `output.py` prints; `remote.py` sends a
# command to a server instead. Every other module has the commands that are named here.

import os
import sys
from pathlib import Path

import click

from server.cli.lazy_group import LazyGroup

# In the order of `--help`. Modules are named and not imported, because the web stack alone takes 0.5 s to load.
COMMANDS = {
    "serve": "server.cli.serve:serve",
    "stdio": "server.cli.stdio:stdio",
    "search": "server.cli.search:search",
    "similar": "server.cli.search:similar",
    "get": "server.cli.search:get",
    "add": "server.cli.items:add",
    "list": "server.cli.items:list_",
    "edit": "server.cli.items:edit",
    "rm": "server.cli.items:rm",
    "tag": "server.cli.items:tag",
    "demo": "server.cli.demo:demo",
    "import": "server.cli.import_:import_",
    "follow": "server.cli.follow:follow",
    "embed": "server.cli.maintenance:embed",
    "export": "server.cli.backup:export",
    "backup": "server.cli.backup:backup",
    "restore": "server.cli.backup:restore",
    "check": "server.cli.maintenance:check",
    "repair": "server.cli.maintenance:repair",
    "reindex": "server.cli.maintenance:reindex",
    "schema": "server.cli.maintenance:schema",
    "migrate": "server.cli.backup:migrate",
    "migrate-store": "server.cli.backup:migrate_store",
    "model": "server.cli.model:model",
    "connect": "server.cli.connect:connect",
    "user": "server.cli.users:user",
    "key": "server.cli.keys:key",
    "group": "server.cli.users:group",
    "share": "server.cli.users:share",
    "token": "server.cli.tokens:token",
    "client": "server.cli.keys:client",
    "audit": "server.cli.keys:audit",
    "config": "server.cli.configuration:config",
    "doctor": "server.cli.doctor:doctor",
    "healthcheck": "server.cli.remote:healthcheck",
    "completion": "server.cli.configuration:completion",
    "version": "server.cli.configuration:version",
}

# What a new user needs, as in docs/getting-started.md.
FIRST_COMMANDS = ("import", "search", "serve", "connect", "backup", "doctor")

# These work on this machine: on its files, its settings or its processes. All others can work on a remote server.
_LOCAL_COMMANDS = (
    *("serve", "stdio", "demo", "embed", "backup", "restore", "check", "repair", "reindex"),
    *("schema", "migrate", "migrate-store", "model", "connect", "token", "client", "config", "doctor", "healthcheck"),
    *("completion", "version"),
)


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    first=FIRST_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage or settings.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help=(
        "TOML file with settings. Default: $FLORILEGIUM_CONFIG, or the first florilegium.toml in the working "
        "directory, ~/.config/florilegium and /etc/florilegium."
    ),
)
@click.option(
    "--server",
    metavar="URL",
    help="Run the command on this server, with the credential in $FLORILEGIUM_TOKEN. Not for all commands.",
)
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="With --server: the file with the API key or token."
)
@click.version_option(package_name="florilegium", message="%(version)s")
@click.pass_context
def florilegium(context: click.Context, config_file: Path | None, server: str | None, token_file: Path | None) -> None:
    """A multi-user MCP knowledge server with per-user databases."""
    context.obj = config_file  # `setting_options` reads it, unless the command has its own --config
    if server is None:
        if token_file is not None:
            raise click.UsageError("--token-file requires --server")
        return
    if context.invoked_subcommand in _LOCAL_COMMANDS:
        raise click.UsageError(f"--server cannot be used with {context.invoked_subcommand}")
    from server.cli.remote import connect_to_server  # noqa: PLC0415 - only needed with --server

    connect_to_server(server, token_file)


def main() -> None:
    """The entry point of the program `florilegium`."""
    # Python has no object for a stream that is closed, and a file that is opened next would get its number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - until the process ends
    florilegium(prog_name="florilegium")
