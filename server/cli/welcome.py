"""What `serve` prints once it serves: where it is, who may call, and a first call that works as printed."""

import shlex
from pathlib import Path

import msgspec

from config.loading import Loaded
from config.settings import Settings
from server.protocol.envelope import CAPABILITIES_KEY, VERSION_KEY
from server.protocol.versions import MODERN_VERSIONS

_TOOL = "server_info"
_AUTHORIZATION = '"Authorization: Bearer $KEY"'


def welcome(loaded: Loaded, address: str, config_file: Path | None) -> str:
    """`address` is where connections are accepted, in a form that a client on this machine can use."""
    settings = loaded.settings
    url = (settings.public_url or address) + "/mcp"
    parts = [f"Florilegium serves {url}\n{_mode(settings)}"]
    if settings.auth_configured:
        parts.append(f"Make a user and a key:\n\n{_key_commands(loaded, config_file)}")
    parts += [f"Connect Claude Code:\n\n{_client_command(settings, url)}", f"Or call a tool:\n\n{_curl(settings, url)}"]
    return "\n\n".join(parts) + "\n"


def _mode(settings: Settings) -> str:
    if settings.has_jwt_key:
        return f"Callers need a JWT of {settings.issuer} or an API key."
    if settings.require_auth:
        return "Callers need an API key."
    return f"Single-user mode: callers need no credential and are the user {settings.single_user_name!r}."


def _key_commands(loaded: Loaded, config_file: Path | None) -> str:
    """The commands find the same data directory and settings as the server did."""
    config = f" --config {shlex.quote(str(config_file))}" if config_file else ""
    is_on_command_line = loaded.origins["data_dir"] == "command line"
    data_dir = f" --data-dir {shlex.quote(loaded.settings.data_dir)}" if is_on_command_line else ""
    return (
        f"    florilegium{config} user add ada{data_dir}\n"
        f"    KEY=$(florilegium{config} key create ada --quiet{data_dir})"
    )


def _client_command(settings: Settings, url: str) -> str:
    header = f" --header {_AUTHORIZATION}" if settings.auth_configured else ""
    return f"    claude mcp add --transport http florilegium {shlex.quote(url)}{header}"


def _curl(settings: Settings, url: str) -> str:
    version = MODERN_VERSIONS[-1]
    params = {"name": _TOOL, "arguments": {}, "_meta": {VERSION_KEY: version, CAPABILITIES_KEY: {}}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).decode()
    lines = [
        f"    curl -s {shlex.quote(url)}",
        *([f"      -H {_AUTHORIZATION}"] if settings.auth_configured else []),
        "      -H 'Content-Type: application/json'",
        f"      -H 'MCP-Protocol-Version: {version}' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: {_TOOL}'",
        f"      -d '{body}'",
    ]
    return " \\\n".join(lines)
