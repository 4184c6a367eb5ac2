"""Client configurations: the exact text to paste, in each client's own format, and links that install it.

The command `connect`, the console and docs/clients.md show them. A credential appears as a reference to an environment
variable, in the client's syntax. The key itself appears only if the user passed it.
"""

import base64
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import quote, urlencode

from msgspec import Struct

from config.loading import CLIENT_TOKEN_VARIABLE

# Clients prefix tool names with it, and some limit the combined name to 60 characters.
NAME = "florilegium"
PASTE_HERE = "<your API key>"


class ConnectionTarget(Struct, frozen=True):
    """The server to connect to. Without a variable or key, the server needs no credential."""

    url: str
    profile: str | None = None
    token_env: str = ""
    key: str = ""

    @property
    def needs_credential(self) -> bool:
        return bool(self.token_env or self.key)

    def bearer(self, reference: str) -> dict[str, str]:
        """Returns the Authorization header, with the key or with the client's reference to the variable."""
        return {"Authorization": f"Bearer {self.key or reference}"} if self.needs_credential else {}


class ConfigSnippet(Struct, frozen=True):
    """A text to paste, and where it goes."""

    where: str
    language: Literal["sh", "json", "toml", "yaml", "python", "text"]
    text: str


class ClientGuide(Struct, frozen=True):
    """The instructions for one client. `link` adds the server with one click, or opens the page where that is done."""

    title: str
    snippets: tuple[ConfigSnippet, ...]
    notes: tuple[str, ...] = ()
    link: str = ""


_SIGNS_IN = "You sign in with your browser when it connects. It takes no other credential."
_HOSTED = "It calls the server from the internet: the URL must use https and be reachable from there."


def claude_code(target: ConnectionTarget) -> ClientGuide:
    server = {"type": "http", "url": target.url, **_headers(target, f"${{{target.token_env}}}")}
    command = f"claude mcp add --transport http {NAME} {shlex.quote(target.url)}"
    return ClientGuide(
        "Claude Code",
        (
            ConfigSnippet("in a shell", "sh", command + _header_option(target)),
            ConfigSnippet("or in the file .mcp.json of a project", "json", _mcp_servers(server)),
        ),
    )


def claude_desktop(target: ConnectionTarget) -> ClientGuide:
    arguments = ["stdio", "--remote", target.url]
    remote: dict[str, Any] = {"command": NAME, "args": arguments}
    if target.needs_credential:
        variable = target.token_env or CLIENT_TOKEN_VARIABLE
        remote["args"] = [*arguments, "--token-env", variable]
        remote["env"] = {variable: target.key or PASTE_HERE}
    local = {"command": NAME, "args": ["stdio", *(("--profile", target.profile) if target.profile else ())]}
    return ClientGuide(
        "Claude Desktop",
        (
            ConfigSnippet("in the file claude_desktop_config.json", "json", _mcp_servers(remote)),
            ConfigSnippet("or there, for a library on this machine", "json", _mcp_servers(local)),
        ),
        (
            "Settings > Developer > Edit Config opens the file.",
            "It is in ~/Library/Application Support/Claude on macOS and in %APPDATA%\\Claude on Windows.",
            "If Claude Desktop does not find the command, use its full path, which `command -v florilegium` prints.",
        ),
    )


def claude_ai(target: ConnectionTarget) -> ClientGuide:
    form = _form({"Name": "Florilegium", "Remote MCP server URL": target.url})
    return ClientGuide(
        "claude.ai",
        (ConfigSnippet("under Customize > Connectors > Add custom connector", "text", form),),
        (_SIGNS_IN, _HOSTED, "The connector then also works in Claude Desktop and the mobile apps."),
        "https://claude.ai/settings/connectors",
    )


def chatgpt(target: ConnectionTarget) -> ClientGuide:
    form = _form({"Name": "Florilegium", "MCP server URL": target.url, "Authentication": "OAuth"})
    where = "under Settings > Apps, with developer mode switched on under Advanced settings, > Create"
    return ClientGuide(
        "ChatGPT",
        (ConfigSnippet(where, "text", form),),
        (_SIGNS_IN, _HOSTED, "Deep research uses the tools search and fetch, which /mcp and /mcp/research list."),
        "https://chatgpt.com/#settings/Connectors",
    )


def codex(target: ConnectionTarget) -> ClientGuide:
    lines = [f"[mcp_servers.{NAME}]", f"url = {json.dumps(target.url)}"]
    command = f"codex mcp add {NAME} --url {shlex.quote(target.url)}"
    if target.key:
        lines.append(f"http_headers = {{ Authorization = {json.dumps(f'Bearer {target.key}')} }}")
    elif target.token_env:
        lines.append(f"bearer_token_env_var = {json.dumps(target.token_env)}")
        command += f" --bearer-token-env-var {target.token_env}"
    text, where = "\n".join(lines), "in the file ~/.codex/config.toml"
    if target.key:  # the command has no option for a literal key
        return ClientGuide("Codex", (ConfigSnippet(where, "toml", text),))
    return ClientGuide(
        "Codex", (ConfigSnippet("in a shell", "sh", command), ConfigSnippet(f"or {where}", "toml", text))
    )


def cursor(target: ConnectionTarget) -> ClientGuide:
    server = {"url": target.url, **_headers(target, f"${{env:{target.token_env}}}")}
    where = "in the file ~/.cursor/mcp.json, or .cursor/mcp.json of a project"
    return ClientGuide(
        "Cursor",
        (ConfigSnippet(where, "json", _mcp_servers(server)),),
        link=f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': NAME, 'config': _base64(server)})}",
    )


def vscode(target: ConnectionTarget) -> ClientGuide:
    """VS Code asks for the key once and keeps it in its own secret store."""
    asks = target.needs_credential and not target.key
    question = {"type": "promptString", "id": f"{NAME}-key", "description": "Florilegium API key", "password": True}
    server = {"type": "http", "url": target.url, **_headers(target, f"${{input:{NAME}-key}}")}
    value = {**({"inputs": [question]} if asks else {}), "servers": {NAME: server}}
    installed = {"name": NAME, **server, **({"inputs": [question]} if asks else {})}
    return ClientGuide(
        "VS Code",
        (ConfigSnippet("in the file .vscode/mcp.json of a project", "json", _json(value)),),
        link=f"vscode:mcp/install?{quote(json.dumps(installed), safe='')}",
    )


def windsurf(target: ConnectionTarget) -> ClientGuide:
    server = {"serverUrl": target.url, **_headers(target, f"${{env:{target.token_env}}}")}
    where = "in the file ~/.codeium/windsurf/mcp_config.json"
    return ClientGuide("Windsurf", (ConfigSnippet(where, "json", _mcp_servers(server)),))


def zed(target: ConnectionTarget) -> ClientGuide:
    """Zed has no variables in headers, so the key is pasted."""
    server = {"url": target.url, **_headers(target, PASTE_HERE)}
    text = _json({"context_servers": {NAME: server}})
    return ClientGuide("Zed", (ConfigSnippet("in Zed's settings.json", "json", text),))


def lm_studio(target: ConnectionTarget) -> ClientGuide:
    """LM Studio has no variables in headers, so the key is pasted."""
    server = {"url": target.url, **_headers(target, PASTE_HERE)}
    return ClientGuide(
        "LM Studio",
        (ConfigSnippet("in the file mcp.json, under Program > Install", "json", _mcp_servers(server)),),
        link=f"lmstudio://add_mcp?{urlencode({'name': NAME, 'config': _base64(server)})}",
    )


def gemini_cli(target: ConnectionTarget) -> ClientGuide:
    # In this client, `url` selects the deprecated SSE transport.
    server = {"httpUrl": target.url, **_headers(target, f"${{{target.token_env}}}")}
    command = f"gemini mcp add --transport http{_header_option(target)} {NAME} {shlex.quote(target.url)}"
    return ClientGuide(
        "Gemini CLI",
        (
            ConfigSnippet("in a shell", "sh", command),
            ConfigSnippet("or in the file ~/.gemini/settings.json", "json", _mcp_servers(server)),
        ),
    )


def librechat(target: ConnectionTarget) -> ClientGuide:
    """LibreChat asks each user for a key and substitutes it for the placeholder in braces."""
    server: dict[str, Any] = {"type": "streamable-http", "url": target.url, "serverInstructions": True}
    server |= _headers(target, f"{{{{{target.token_env}}}}}")
    if target.needs_credential and not target.key:
        question = {"title": "Florilegium API key", "description": "Your personal Florilegium key."}
        server["customUserVars"] = {target.token_env: question}
    return ClientGuide(
        "LibreChat",
        (ConfigSnippet("in the file librechat.yaml", "yaml", _yaml({"mcpServers": {NAME: server}})),),
        ("Each user enters their own key in LibreChat and can access only their own library.",)
        if target.needs_credential and not target.key
        else (),
    )


def open_webui(target: ConnectionTarget) -> ClientGuide:
    fields = {"Type": "MCP (Streamable HTTP)", "URL": target.url, "ID": NAME, "Name": "Florilegium"}
    fields |= {"Auth": "Bearer", "Key": target.key or PASTE_HERE} if target.needs_credential else {"Auth": "None"}
    return ClientGuide(
        "Open WebUI",
        (ConfigSnippet("under Admin Settings > External Tools > + (Add Server)", "text", _form(fields)),),
        ("Everyone who uses this connection acts as the owner of its key.",) if target.needs_credential else (),
    )


def openai_responses(target: ConnectionTarget) -> ClientGuide:
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
    return ClientGuide(
        "OpenAI Responses API",
        (ConfigSnippet("in a Python program", "python", "\n".join(lines)),),
        ("OpenAI calls the server from its own network: the URL must use https and be reachable from the internet.",),
    )


CLIENTS: Mapping[str, Callable[[ConnectionTarget], ClientGuide]] = {
    "claude-code": claude_code,
    "claude-desktop": claude_desktop,
    "claude-ai": claude_ai,
    "chatgpt": chatgpt,
    "codex": codex,
    "cursor": cursor,
    "vscode": vscode,
    "windsurf": windsurf,
    "zed": zed,
    "lm-studio": lm_studio,
    "gemini-cli": gemini_cli,
    "librechat": librechat,
    "open-webui": open_webui,
    "openai-responses": openai_responses,
}


def _headers(target: ConnectionTarget, reference: str) -> dict[str, Any]:
    header = target.bearer(reference)
    return {"headers": header} if header else {}


def _header_option(target: ConnectionTarget) -> str:
    """Uses double quotes, so that the shell expands the variable."""
    header = target.bearer(f"${target.token_env}").get("Authorization")
    return f' --header "Authorization: {header}"' if header else ""


def _form(fields: Mapping[str, str]) -> str:
    """Renders the fields of a form, with their values in one column."""
    width = max(map(len, fields)) + 2
    return "\n".join(f"{label + ':':<{width}}{value}" for label, value in fields.items())


def _base64(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)


def _mcp_servers(server: Mapping[str, Any]) -> str:
    """Returns the JSON that most clients read."""
    return _json({"mcpServers": {NAME: server}})


def _yaml(value: Mapping[str, Any], depth: int = 0) -> str:
    """Renders nested mappings. Scalars are written as JSON, which is valid YAML."""
    lines = []
    for name, inner in value.items():
        label = "  " * depth + name + ":"
        if isinstance(inner, Mapping):
            lines += [label, _yaml(inner, depth + 1)]
        else:
            lines.append(f"{label} {json.dumps(inner)}")
    return "\n".join(lines)
