"""`florilegium demo` adds the demo library to a user's library. Also what `serve` prints when it is ready."""

import asyncio
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import click
import msgspec
from msgspec import Struct

from auth.accounts.links import NewLink
from config.loading import LoadedConfig
from config.settings import Settings
from config.times import format_time_seconds
from server.cli.lazy_group import SettingsCommand, SettingsOverrides, json_option, setting_options
from server.cli.local_library import open_local, user_option
from server.cli.output import pluralize, print_json
from server.protocol.messages import MODERN_VERSIONS
from server.protocol.request_meta import CAPABILITIES_KEY, VERSION_KEY
from sources.demo import FillResult, demo_uuid, fill

# -- tour --------------------------------------------------------------------------------------------------------------
# Commands to try on the demo library, each with what it shows. They work as printed.

_PROGRAM = "florilegium"
FIRST_QUERY = "why does the dome stick"
_RECORDING = f"media://{demo_uuid('media', 'calibration-evening')}"

# Arguments of `florilegium`, and what they show.
_STEPS = (
    (f'search "{FIRST_QUERY}"', "notes, a film and chats in one ranking"),
    ('search --source media "median of twenty dark frames"', "the minute at which it is spoken"),
    (f"get {_RECORDING} --at 04:12 --max-tokens 600", "that minute, within a token budget"),
    ('search "sender:Pell comet"', "single messages of a conversation"),
    ("search 彗星", "any script; try Objektiv, too"),
)


def tour(options: str) -> str:
    """Returns the commands; `options` are inserted after the name of each."""
    program = program_name()
    lines = []
    for step, description in _STEPS:
        command, _, rest = step.partition(" ")
        lines.append(f"    {program} {command}{options} {rest}\n        {description}")
    return "\n".join(lines)


def program_name() -> str:
    """Returns the program as it can be typed here: `.venv/bin/florilegium` if it is not on the PATH."""
    invoked = sys.argv[0]
    is_on_path = Path(invoked).name != _PROGRAM or shutil.which(_PROGRAM) is not None
    return _PROGRAM if is_on_path else shlex.quote(invoked)


@click.command(cls=SettingsCommand)
@user_option
@json_option
@setting_options("data_dir", "single_user_name")
def demo(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Add the demo library to a user's library.

    It covers one year of a small observatory, in all five sources. Existing items are left alone.
    """
    settings = overrides.load().settings
    result = asyncio.run(_fill(settings, user))
    if as_json:
        print_json({"items": result.items, "new": result.new})
        return
    click.echo(f"{describe_items(result)}; {result.new} new in the library of {user or settings.single_user_name!r}")
    click.echo(f"\nTry:\n\n{tour(_options(overrides, user))}\n")


async def _fill(settings: Settings, user: str | None) -> FillResult:
    async with (
        open_local(settings, user, creates=True, writes=True) as local,
        local.libraries.library(local.context) as library,
    ):
        return await fill(library)


def describe_items(result: FillResult) -> str:
    """Returns `23 notes, 7 media, …`."""
    return ", ".join(pluralize(count, source) for source, count in result.items.items())


def _options(overrides: SettingsOverrides, user: str | None) -> str:
    """Returns the options that the next command needs to find the same library."""
    options: dict[str, str | Path | None] = {
        "--user": user,
        "--data-dir": overrides.cli["data_dir"],
        "--single-user-name": overrides.cli["single_user_name"],
        "--config": overrides.config_file,
    }
    return "".join(f" {option} {quote(str(value))}" for option, value in options.items() if value is not None)


# -- welcome -----------------------------------------------------------------------------------------------------------
# The message that `serve` prints when it is ready: the URL, who can call, and a first call to copy.

_AUTHORIZATION = '"Authorization: Bearer $KEY"'


class _ExampleCall(Struct, frozen=True):
    tool: str
    arguments: Mapping[str, Any] = {}


_DEMO = "Serving the demo library: one year of a small observatory, in its own data directory."
_FIRST_CALL = _ExampleCall("server_info")
_DEMO_CALL = _ExampleCall("knowledge_search", {"query": FIRST_QUERY, "limit": 3})


def welcome(
    loaded: LoadedConfig,
    address: str,
    config_file: Path | None,
    *,
    is_demo: bool = False,
    setup_link: NewLink | None = None,
) -> str:
    """Returns the message. `address` is the listening address in a form that a local client can use."""
    settings = loaded.settings
    url = (settings.public_url or address) + "/mcp"
    parts = [f"Florilegium is serving {url}\n{_mode(settings)}" + ("\n" + _DEMO if is_demo else "")]
    if setup_link is not None:
        parts.append(_setup(settings.public_url or address, setup_link))
    if settings.has_oauth_server:
        parts.append(f"Connect Claude Code, and sign in with /mcp there:\n\n{_client_command(url)}")
    if settings.is_auth_configured:
        parts.append(f"{_key_heading(settings)}:\n\n{_key_commands(loaded, config_file)}")
        parts.append(f"Connect Claude Code with the key:\n\n{_client_command(url, _AUTHORIZATION)}")
    else:
        parts.append(f"Connect Claude Code:\n\n{_client_command(url)}")
    if is_demo:
        parts.append(
            f"Then ask: {FIRST_QUERY}? Or search from a second terminal:\n\n{_demo_command(loaded, config_file)}"
        )
    parts.append(f"Or call a tool:\n\n{_curl(settings, url, _DEMO_CALL if is_demo else _FIRST_CALL)}")
    return "\n\n".join(parts) + "\n"


def _mode(settings: Settings) -> str:
    if settings.has_jwt_key:
        return f"Callers need a JWT from {settings.issuer} or an API key{_or_sign_in(settings)}."
    if settings.require_auth:
        return f"Callers need an API key{_or_sign_in(settings)}."
    return f"Single-user mode: no credential is needed; every caller is the user {settings.single_user_name!r}."


def _or_sign_in(settings: Settings) -> str:
    return ", or sign in with a browser" if settings.has_oauth_server else ""


def _key_heading(settings: Settings) -> str:
    return "Or create a user and a key" if settings.has_oauth_server else "Create a user and a key"


def _setup(base_url: str, link: NewLink) -> str:
    return (
        "There are no accounts yet. Open this link in a browser to create the first one, an administrator.\n"
        f"It can be used once, until {format_time_seconds(link.expires_at)}:\n\n    {base_url}{link.path}"
    )


def _key_commands(loaded: LoadedConfig, config_file: Path | None) -> str:
    config, data_dir = _location_options(loaded, config_file)
    program = program_name()
    return (
        f"    {program}{config} user add ada{data_dir}\n    KEY=$({program}{config} key create ada --quiet{data_dir})"
    )


def _demo_command(loaded: LoadedConfig, config_file: Path | None) -> str:
    config, data_dir = _location_options(loaded, config_file)
    return f'    {program_name()}{config} search --demo{data_dir} "{FIRST_QUERY}"'


def _location_options(loaded: LoadedConfig, config_file: Path | None) -> tuple[str, str]:
    """Returns the options that make a command use the same settings and data directory as the server."""
    config = f" --config {shlex.quote(str(config_file))}" if config_file else ""
    is_on_command_line = loaded.origins["data_dir"] == "command line"
    return config, f" --data-dir {shlex.quote(loaded.settings.data_dir)}" if is_on_command_line else ""


def _client_command(url: str, authorization: str = "") -> str:
    header = f" --header {authorization}" if authorization else ""
    return f"    claude mcp add --transport http florilegium {shlex.quote(url)}{header}"


def _curl(settings: Settings, url: str, call: _ExampleCall) -> str:
    version = MODERN_VERSIONS[-1]
    params = {"name": call.tool, "arguments": call.arguments, "_meta": {VERSION_KEY: version, CAPABILITIES_KEY: {}}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).decode()
    lines = [
        f"    curl -s {shlex.quote(url)}",
        *([f"      -H {_AUTHORIZATION}"] if settings.is_auth_configured else []),
        "      -H 'Content-Type: application/json'",
        f"      -H 'MCP-Protocol-Version: {version}' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: {call.tool}'",
        f"      -d '{body}'",
    ]
    return " \\\n".join(lines)
