"""`florilegium connect`: prints the configuration that connects a client to this server."""

import re
import sys
from urllib.parse import urlsplit

import click
from msgspec.structs import asdict

from config.errors import InvalidParams
from config.loading import CLIENT_TOKEN_VARIABLE
from config.settings import Settings, is_loopback
from server.cli.lazy_group import SettingsOverrides, json_option, setting_options
from server.cli.output import print_json, require_url
from server.cli.remote import settings_of_running_server
from server.client_guides import CLIENTS, ClientGuide, ConnectionTarget
from server.profiles import PROFILE_NAMES

_VARIABLE = re.compile(r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
# RFC 6750 section 2.1: the characters of a bearer token. None of the clients' formats needs to quote them.
_CREDENTIAL = re.compile(r"\A[A-Za-z0-9._~+/-]+=*\Z")


@click.command()
@click.argument("client", metavar="[CLIENT]", type=click.Choice(tuple(CLIENTS)), required=False)
@click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
    help="Profile, which selects the listed tools. Default: the one in the URL.",
)
@click.option("--url", help="URL of the server's MCP endpoint. Default: that of the running server, or the settings.")
@click.option(
    "--token-env", metavar="VAR", help=f"Environment variable that holds the API key. Default: {CLIENT_TOKEN_VARIABLE}."
)
@click.option("--key", help="API key to include in the output instead; - reads it from stdin.")
@json_option
@setting_options("data_dir", "host", "port", "public_url")
def connect(
    overrides: SettingsOverrides,
    client: str | None,
    profile: str | None,
    url: str | None,
    token_env: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Print the configuration for CLIENT. Without CLIENT, list the supported clients."""
    if token_env and key:
        raise click.UsageError("--token-env and --key cannot be combined")
    # The profile is a part of the path, and a URL that is given is printed as it is.
    if profile and url:
        raise click.UsageError(
            "--profile and --url cannot be combined; put the profile into the URL, as in /mcp/research"
        )
    settings = overrides.load().settings
    # The server that runs on the data directory knows its address best, unless the command line names another.
    if not url and not any(overrides.cli[name] for name in ("host", "port", "public_url")):
        settings = settings_of_running_server(settings)
    target = _target(settings, url, profile, token_env, key)
    if client is not None:
        guide = CLIENTS[client](target)
        if as_json:
            print_json({"client": client, **asdict(guide)})
        else:
            click.echo(render(guide), nl=False)
        return
    titles = {name: guide(target).title for name, guide in CLIENTS.items()}
    if as_json:
        print_json([{"client": name, "title": title} for name, title in titles.items()])
        return
    for name, title in titles.items():
        click.echo(f"{name:<18}{title}")
    click.echo("\n`florilegium connect CLIENT` prints its configuration.")


def render(guide: ClientGuide) -> str:
    parts = [f"# {guide.title}"]
    for snippet in guide.snippets:
        parts += [f"# {snippet.where}:", snippet.text]
    if guide.link:
        parts.append(f"# or open this link:\n\n{guide.link}")
    parts += [f"# {note}" for note in guide.notes]
    return "\n\n".join(parts) + "\n"


def _target(
    settings: Settings, url: str | None, profile: str | None, token_env: str | None, key: str | None
) -> ConnectionTarget:
    """Omits the credential if the server is known to need none; otherwise refers to the environment variable."""
    default_url = f"{settings.resource_url}/{profile}" if profile else settings.resource_url
    address = require_url("url", url or default_url)
    # The values become part of shell commands, JSON and links, so that nothing may need quoting there.
    if key:
        credential = sys.stdin.readline().strip() if key == "-" else key
        if not _CREDENTIAL.match(credential):
            raise InvalidParams("key: expected an API key or token")
        return ConnectionTarget(address, profile, key=credential)
    if token_env:
        if not _VARIABLE.match(token_env):
            raise InvalidParams("token-env: expected the name of an environment variable")
        return ConnectionTarget(address, profile, token_env=token_env)
    is_open = not settings.is_auth_configured and is_loopback(urlsplit(address).hostname or "")
    return ConnectionTarget(address, profile, token_env="" if is_open else CLIENT_TOKEN_VARIABLE)
