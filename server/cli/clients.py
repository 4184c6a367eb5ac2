"""How each client is told of this server: the exact text to paste, in that client's own form.

A credential appears as a reference to an environment variable in the client's syntax; the key itself only if its
owner passed it.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from config.loading import CLIENT_TOKEN_VARIABLE

# Clients put it before our tool names, and some count it against a limit of 60 characters.
NAME = "florilegium"
PASTE_HERE = "<your API key>"


class Target(Struct, frozen=True):
    """The server to connect to. Neither a variable nor a key: it asks for no credential."""

    url: str
    profile: str | None = None
    token_env: str = ""
    key: str = ""

    @property
    def needs_credential(self) -> bool:
        return bool(self.token_env or self.key)

    def bearer(self, reference: str) -> dict[str, str]:
        """The header, with the key or with the client's reference to the variable."""
        return {"Authorization": f"Bearer {self.key or reference}"} if self.needs_credential else {}


class Snippet(Struct, frozen=True):
    """One text to paste. `where` says into what."""

    where: str
    language: Literal["sh", "json", "toml", "yaml", "python", "text"]
    text: str


class Guide(Struct, frozen=True):
    """All that one client's user needs to know."""

    title: str
    snippets: tuple[Snippet, ...]
    notes: tuple[str, ...] = ()


def claude_code(target: Target) -> Guide:
    server = {"type": "http", "url": target.url, **_headers(target, f"${{{target.token_env}}}")}
    command = f"claude mcp add --transport http {NAME} {shlex.quote(target.url)}"
    return Guide(
        "Claude Code",
        (
            Snippet("in a shell", "sh", command + _header_option(target)),
            Snippet("or in the file .mcp.json of a project", "json", _json({"mcpServers": {NAME: server}})),
        ),
    )


def claude_desktop(target: Target) -> Guide:
    arguments = ["stdio", "--remote", target.url]
    remote: dict[str, Any] = {"command": NAME, "args": arguments}
    if target.needs_credential:
        variable = target.token_env or CLIENT_TOKEN_VARIABLE
        remote["args"] = [*arguments, "--token-env", variable]
        remote["env"] = {variable: target.key or PASTE_HERE}
    local = {"command": NAME, "args": ["stdio", *(("--profile", target.profile) if target.profile else ())]}
    return Guide(
        "Claude Desktop",
        (
            Snippet("in the file claude_desktop_config.json", "json", _json({"mcpServers": {NAME: remote}})),
            Snippet("or there, for a library on this machine", "json", _json({"mcpServers": {NAME: local}})),
        ),
        (
            "Settings > Developer > Edit Config opens the file.",
            "It is in ~/Library/Application Support/Claude on macOS and in %APPDATA%\\Claude on Windows.",
            "If Claude Desktop does not find the command, write its full path: `command -v florilegium` prints it.",
        ),
    )


def codex(target: Target) -> Guide:
    lines = [f"[mcp_servers.{NAME}]", f"url = {json.dumps(target.url)}"]
    command = f"codex mcp add {NAME} --url {shlex.quote(target.url)}"
    if target.key:
        lines.append(f"http_headers = {{ Authorization = {json.dumps(f'Bearer {target.key}')} }}")
    elif target.token_env:
        lines.append(f"bearer_token_env_var = {json.dumps(target.token_env)}")
        command += f" --bearer-token-env-var {target.token_env}"
    text = "\n".join(lines)
    if target.key:  # the command has no option for it
        return Guide("Codex", (Snippet("in the file ~/.codex/config.toml", "toml", text),))
    return Guide(
        "Codex",
        (Snippet("in a shell", "sh", command), Snippet("or in the file ~/.codex/config.toml", "toml", text)),
    )


def cursor(target: Target) -> Guide:
    server = {"url": target.url, **_headers(target, f"${{env:{target.token_env}}}")}
    return Guide(
        "Cursor",
        (
            Snippet(
                "in the file ~/.cursor/mcp.json, or .cursor/mcp.json of a project",
                "json",
                _json({"mcpServers": {NAME: server}}),
            ),
        ),
    )


def vscode(target: Target) -> Guide:
    """VS Code asks for the key once and keeps it in its own secret store."""
    asks = target.needs_credential and not target.key
    question = {"type": "promptString", "id": f"{NAME}-key", "description": "Florilegium API key", "password": True}
    server = {"type": "http", "url": target.url, **_headers(target, f"${{input:{NAME}-key}}")}
    value = {**({"inputs": [question]} if asks else {}), "servers": {NAME: server}}
    return Guide("VS Code", (Snippet("in the file .vscode/mcp.json of a project", "json", _json(value)),))


def gemini_cli(target: Target) -> Guide:
    # `url` would mean the old SSE transport here.
    server = {"httpUrl": target.url, **_headers(target, f"${{{target.token_env}}}")}
    command = f"gemini mcp add --transport http{_header_option(target)} {NAME} {shlex.quote(target.url)}"
    return Guide(
        "Gemini CLI",
        (
            Snippet("in a shell", "sh", command),
            Snippet("or in the file ~/.gemini/settings.json", "json", _json({"mcpServers": {NAME: server}})),
        ),
    )


def librechat(target: Target) -> Guide:
    """Each person enters a key of their own; LibreChat keeps it and puts it in place of the braces."""
    server: dict[str, Any] = {"type": "streamable-http", "url": target.url, "serverInstructions": True}
    server |= _headers(target, f"{{{{{target.token_env}}}}}")
    if target.needs_credential and not target.key:
        question = {"title": "Florilegium API key", "description": "Your own key for Florilegium."}
        server["customUserVars"] = {target.token_env: question}
    return Guide(
        "LibreChat",
        (Snippet("in the file librechat.yaml", "yaml", _yaml({"mcpServers": {NAME: server}})),),
        ("Each person enters their own key in LibreChat and so reaches their own library, and no other.",)
        if target.needs_credential and not target.key
        else (),
    )


def open_webui(target: Target) -> Guide:
    fields = {"Type": "MCP (Streamable HTTP)", "URL": target.url, "ID": NAME, "Name": "Florilegium"}
    fields |= {"Auth": "Bearer", "Key": target.key or PASTE_HERE} if target.needs_credential else {"Auth": "None"}
    return Guide(
        "Open WebUI",
        (
            Snippet(
                "under Admin Settings > External Tools > + (Add Server)",
                "text",
                "\n".join(f"{label + ':':<6}{value}" for label, value in fields.items()),
            ),
        ),
        ("Everybody who uses this connection acts as the owner of its key.",) if target.needs_credential else (),
    )


def openai_responses(target: Target) -> Guide:
    secret = json.dumps(target.key) if target.key else f'os.environ["{target.token_env}"]'
    lines = [
        *(["import os", ""] if target.needs_credential and not target.key else []),
        "from openai import OpenAI",
        "",
        "response = OpenAI().responses.create(",
        '    model="gpt-5",',
        '    input="What does my library say about ...?",',
        "    tools=[",
        "        {",
        '            "type": "mcp",',
        f'            "server_label": "{NAME}",',
        f'            "server_url": {json.dumps(target.url)},',
        *([f'            "authorization": {secret},'] if target.needs_credential else []),
        '            "require_approval": "never",',
        "        }",
        "    ],",
        ")",
        "print(response.output_text)",
    ]
    return Guide(
        "OpenAI Responses API",
        (Snippet("in a Python program", "python", "\n".join(lines)),),
        ("OpenAI calls the server from its own network: the URL must be https and reachable from the internet.",),
    )


CLIENTS: Mapping[str, Callable[[Target], Guide]] = {
    "claude-code": claude_code,
    "claude-desktop": claude_desktop,
    "codex": codex,
    "cursor": cursor,
    "vscode": vscode,
    "gemini-cli": gemini_cli,
    "librechat": librechat,
    "open-webui": open_webui,
    "openai-responses": openai_responses,
}


def _headers(target: Target, reference: str) -> dict[str, Any]:
    header = target.bearer(reference)
    return {"headers": header} if header else {}


def _header_option(target: Target) -> str:
    """In double quotes, so that the shell puts the variable in."""
    header = target.bearer(f"${target.token_env}").get("Authorization")
    return f' --header "Authorization: {header}"' if header else ""


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)


def _yaml(value: Mapping[str, Any], depth: int = 0) -> str:
    """Nested mappings with JSON scalars, which are YAML scalars too."""
    lines = []
    for name, inner in value.items():
        label = "  " * depth + name + ":"
        if isinstance(inner, Mapping):
            lines += [label, _yaml(inner, depth + 1)]
        else:
            lines.append(f"{label} {json.dumps(inner)}")
    return "\n".join(lines)
