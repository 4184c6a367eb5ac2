"""`florilegium demo` adds the demo library to a user's library. Also what `serve` prints when it is ready."""

import asyncio
import shutil
import sys
from pathlib import Path
from shlex import quote

import click
import msgspec

from auth.accounts.service import NewLink
from config.loading import LoadedConfig
from config.settings import Settings
from config.times import format_time_seconds
from server.cli.caller import run_long
from server.cli.lazy_group import SettingsCommand, SettingsOverrides
from server.cli.options import library_options
from server.cli.output import pluralize, print_json
from server.protocol.call import CAPABILITIES_KEY, VERSION_KEY
from server.protocol.messages import MODERN_VERSIONS
from sources.demo import demo_uuid

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
    # Commands are printed to be copied. Under another name (`python -m server.cli`), the name of the program is shown.
    invoked = sys.argv[0]
    is_on_path = Path(invoked).name != _PROGRAM or shutil.which(_PROGRAM) is not None
    return _PROGRAM if is_on_path else quote(invoked)


@click.command(cls=SettingsCommand)
@library_options
def demo(overrides: SettingsOverrides, user: str | None, as_json: bool) -> None:
    """Add the demo library to a user's library.

    It covers one year of a small observatory, in all five sources. Existing items are left alone.
    """
    settings = overrides.load().settings
    result = asyncio.run(run_long(settings, user, "demo", creates=True))
    if as_json:
        print_json(result)
        return
    items = ", ".join(pluralize(count, source) for source, count in result["items"].items())
    click.echo(f"{items}; {result['new']} new in the library of {user or settings.single_user_name!r}")
    # The options that the next command needs to find the same library.
    given: dict[str, str | Path | None] = {
        "--user": user,
        "--data-dir": overrides.cli["data_dir"],
        "--single-user-name": overrides.cli["single_user_name"],
        "--config": overrides.config_file,
    }
    options = "".join(f" {option} {quote(str(value))}" for option, value in given.items() if value is not None)
    click.echo(f"\nTry:\n\n{tour(options)}\n")


# -- welcome -----------------------------------------------------------------------------------------------------------
# The message that `serve` prints when it is ready: the URL, who can call, and a first call to copy.

_AUTHORIZATION = '"Authorization: Bearer $KEY"'
_DEMO = "Serving the demo library: one year of a small observatory, in its own data directory."


def welcome(
    loaded: LoadedConfig,
    address: str,
    config_file: Path | None,
    *,
    is_demo: bool = False,
    setup_link: NewLink | None = None,
) -> str:
    """Returns the message. `address` is the listening address in a form that a local client can use."""
    settings, program = loaded.settings, program_name()
    base_url = settings.public_url or address
    url = f"{base_url}/mcp"
    # The options that make a command use the same settings and data directory as the server.
    config = f" --config {quote(str(config_file))}" if config_file else ""
    is_on_command_line = loaded.origins["data_dir"] == "command line"
    data_dir = f" --data-dir {quote(settings.data_dir)}" if is_on_command_line else ""
    add_client = f"    claude mcp add --transport http florilegium {quote(url)}"

    or_sign_in = ", or sign in with a browser" if settings.has_oauth_server else ""
    if settings.has_jwt_key:
        callers = f"Callers need a JWT from {settings.issuer} or an API key{or_sign_in}."
    elif settings.require_auth:
        callers = f"Callers need an API key{or_sign_in}."
    else:
        user = repr(settings.single_user_name)
        callers = f"Single-user mode: no credential is needed; every caller is the user {user}."
    # What a proxy in front of the server has to reach.
    listening = f"\nIt listens on {address.partition('//')[2]}." if settings.public_url else ""
    parts = [f"Open {base_url}/ in your browser.\n\nFlorilegium is serving {url}{listening}\n{callers}"]
    if is_demo:
        parts[0] += f"\n{_DEMO}"
    if setup_link is not None:
        end = format_time_seconds(setup_link.expires_at)
        parts.append(
            "There are no accounts yet. Open this link in a browser to create the first one, an administrator.\n"
            f"It can be used once, until {end}:\n\n    {base_url}{setup_link.path}"
        )
    if settings.has_oauth_server:
        # First, because it is the shortest way to an answer on a server with accounts.
        parts.append(f"Connect Claude Code, and sign in with /mcp there:\n\n{add_client}")
    if settings.is_auth_configured:
        heading = "Or create a user and a key" if settings.has_oauth_server else "Create a user and a key"
        key = f"    KEY=$({program}{config} key create ada --quiet{data_dir})"
        parts.append(f"{heading}:\n\n    {program}{config} user add ada{data_dir}\n{key}")
        parts.append(f"Connect Claude Code with the key:\n\n{add_client} --header {_AUTHORIZATION}")
    else:
        parts.append(f"Connect Claude Code:\n\n{add_client}")
    if is_demo:
        search = f'    {program}{config} search --demo{data_dir} "{FIRST_QUERY}"'
        parts.append(f"Then ask: {FIRST_QUERY}? Or search from a second terminal:\n\n{search}")
    parts.append(f"Or call a tool:\n\n{_curl(settings, url, is_demo=is_demo)}")
    return "\n\n".join(parts) + "\n"


def _curl(settings: Settings, url: str, *, is_demo: bool) -> str:
    """Returns a call that works without `initialize`, which the newest protocol version does not have."""
    tool, arguments = ("knowledge_search", {"query": FIRST_QUERY, "limit": 3}) if is_demo else ("server_info", {})
    version = MODERN_VERSIONS[-1]
    params = {"name": tool, "arguments": arguments, "_meta": {VERSION_KEY: version, CAPABILITIES_KEY: {}}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).decode()
    lines = [
        f"    curl -s {quote(url)}",
        *([f"      -H {_AUTHORIZATION}"] if settings.is_auth_configured else []),
        "      -H 'Content-Type: application/json'",
        f"      -H 'MCP-Protocol-Version: {version}' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: {tool}'",
        f"      -d '{body}'",
    ]
    return " \\\n".join(lines)
