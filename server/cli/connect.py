"""`florilegium connect`: prints what to paste into a client so that it finds this server."""

import re
import sys
from urllib.parse import urlsplit

import click

from config.errors import InvalidParams
from config.loading import CLIENT_TOKEN_VARIABLE
from config.settings import Settings, is_loopback
from server.cli.addresses import require_url
from server.cli.clients import CLIENTS, Guide, Target
from server.cli.options import Given, json_option, setting_options
from server.cli.output import print_json
from server.profiles import PROFILE_NAMES

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
# RFC 6750 section 2.1: what can follow "Bearer". It needs no quoting in any of the clients' formats.
_CREDENTIAL = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z")


@click.command()
@click.argument("client", type=click.Choice(tuple(CLIENTS)), required=False)
@click.option("--profile", type=click.Choice(PROFILE_NAMES), help="What the client is shown. Default: that of the URL.")
@click.option("--url", help="URL of the server's MCP endpoint. Default: from the settings.")
@click.option("--token-env", metavar="VAR", help=f"Variable that holds the API key. Default: {CLIENT_TOKEN_VARIABLE}.")
@click.option("--key", help="Write this API key into the text instead; - reads it from stdin.")
@json_option
@setting_options("host", "port", "public_url")
def connect(
    given: Given,
    client: str | None,
    profile: str | None,
    url: str | None,
    token_env: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Print what to paste into CLIENT. Without CLIENT, list the clients."""
    if token_env and key:
        raise click.UsageError("--token-env and --key exclude each other")
    if profile and url:
        raise click.UsageError(
            "--profile belongs to the URL from the settings; let --url end in it, as in /mcp/research"
        )
    target = _target(given.load().settings, url, profile, token_env, key)
    if client is None:
        _list_clients(target, as_json)
        return
    guide = CLIENTS[client](target)
    if as_json:
        print_json({"client": client, **_as_data(guide)})
    else:
        click.echo(render(guide), nl=False)


def render(guide: Guide) -> str:
    parts = [f"# {guide.title}"]
    for snippet in guide.snippets:
        parts += [f"# {snippet.where}:", snippet.text]
    parts += [f"# {note}" for note in guide.notes]
    return "\n\n".join(parts) + "\n"


def _target(settings: Settings, url: str | None, profile: str | None, token_env: str | None, key: str | None) -> Target:
    """A server that is known to ask for no credential gets none; any other gets a reference to the variable."""
    own = f"{settings.resource_url}/{profile}" if profile else settings.resource_url
    address = require_url("url", url or own)
    if key:
        return Target(address, profile, key=_require(_CREDENTIAL, "key", _read(key), "an API key or token"))
    if token_env:
        name = _require(_VARIABLE, "token-env", token_env, "the name of an environment variable")
        return Target(address, profile, token_env=name)
    is_open = not settings.auth_configured and is_loopback(urlsplit(address).hostname or "")
    return Target(address, profile, token_env="" if is_open else CLIENT_TOKEN_VARIABLE)


def _read(key: str) -> str:
    return sys.stdin.readline().strip() if key == "-" else key


def _require(pattern: re.Pattern[str], field: str, value: str, expected: str) -> str:
    if not pattern.match(value):
        raise InvalidParams(f"{field}: expected {expected}, got something else")
    return value


def _list_clients(target: Target, as_json: bool) -> None:
    titles = {name: guide(target).title for name, guide in CLIENTS.items()}
    if as_json:
        print_json([{"client": name, "title": title} for name, title in titles.items()])
        return
    for name, title in titles.items():
        click.echo(f"{name:<18}{title}")
    click.echo("\n`florilegium connect CLIENT` prints what to paste.")


def _as_data(guide: Guide) -> dict[str, object]:
    return {"title": guide.title, "snippets": guide.snippets, "notes": guide.notes}
