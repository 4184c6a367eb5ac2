"""`florilegium stdio`: serves MCP on stdin and stdout, from a local library or by forwarding to a server."""

import asyncio
import os

import click
from loguru import logger
from msgspec.structs import replace

from auth.authenticator import local_principal
from config.errors import ConfigurationError
from config.loading import CLIENT_TOKEN_VARIABLE
from config.settings import Settings
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, setting_options
from server.cli.local_library import create_data_root, fill_demo, local_context, local_user
from server.cli.options import demo_option, demo_settings
from server.cli.remote import LocalApi, library_server
from server.directory_lock import locked_directory
from server.lifespan import open_runtime
from server.profiles import PROFILE_NAMES
from server.transports.stdio import serve_stdio


@click.command(cls=SettingsCommand)
@click.option(
    "--profile", type=click.Choice(PROFILE_NAMES), help="Profile, which selects the listed tools. Default: default."
)
@click.option("--user", help="The user whose library is served. Default: the setting single_user_name.")
@demo_option
@click.option("--remote", metavar="URL", help="Forward everything to the server at URL, such as https://host/mcp.")
@click.option(
    "--token-env",
    metavar="VAR",
    help=f"With --remote: the environment variable that holds the API key or token. Default: {CLIENT_TOKEN_VARIABLE}.",
)
@click.option(
    "--insecure", is_flag=True, help="With --remote: allow http:// to another machine, which exposes the token."
)
@setting_options()
def stdio(
    overrides: SettingsOverrides,
    profile: str | None,
    user: str | None,
    demo: bool,
    remote: str | None,
    token_env: str | None,
    insecure: bool,
) -> None:
    """Serve MCP on stdin and stdout until stdin ends."""
    if remote and user:
        raise click.UsageError("--user cannot be combined with --remote, where the token determines the user")
    if remote and demo:
        raise click.UsageError("--demo cannot be combined with --remote")
    if remote and profile:
        raise click.UsageError(
            "--profile cannot be combined with --remote; put the profile into the URL, as in https://host/mcp/research"
        )
    if not remote and (token_env or insecure):
        raise click.UsageError("--token-env and --insecure require --remote")
    loaded = overrides.load()
    for warning in loaded.warnings:
        logger.warning("{}", warning)
    if remote is None:
        settings = demo_settings(loaded) if demo else loaded.settings
        if (server := library_server(settings, user)) is None:
            asyncio.run(_serve(settings, user, profile, is_demo=demo))
            return
        assert isinstance(server, LocalApi), "--server is not for this command"
        # Only one process may write the files, so that the server serves this client, too.
        from server.transports.bridge import bridge  # noqa: PLC0415 - loads a WebSocket client

        logger.info("Forwarding to the server at {}", server.owner.url)
        if not asyncio.run(bridge(server.mcp(profile), settings)):
            click.get_current_context().exit(1)
        return
    # A server may need no credential, but a variable that is named explicitly must be set.
    token = os.environ.get(token_env or CLIENT_TOKEN_VARIABLE, "").strip()
    if token_env and not token:
        raise ConfigurationError(f"--token-env: the environment variable {token_env} is not set")
    from server.transports.bridge import RemoteServer, bridge  # noqa: PLC0415 - only needed with --remote

    if not asyncio.run(bridge(RemoteServer.at(remote, token, allow_insecure=insecure), loaded.settings)):
        click.get_current_context().exit(1)


async def _serve(settings: Settings, user_name: str | None, profile: str | None, *, is_demo: bool) -> None:
    # The operator runs this process for one user, so there are no other users to protect from too many calls.
    settings = replace(settings, rate_user_per_minute=0, rate_tool_per_minute=0)
    # Several clients may each start a process for the same library, if SQLite is recent enough.
    root = create_data_root(settings).root
    with locked_directory(root, "stdio", "writer"):
        async with open_runtime(settings) as runtime:
            user = await local_user(runtime.registry, settings, user_name)
            if is_demo:
                await fill_demo(runtime.libraries, local_context(user, runtime.data_root))
            await serve_stdio(runtime, local_principal(user), profile=profile)
