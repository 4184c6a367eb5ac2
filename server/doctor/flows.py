"""How each client connects: what it sends, and what it insists on."""

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Registration = Literal["document", "dynamic"]

# The names that the apps of Anthropic and OpenAI accept.
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ClientFlow(Struct, frozen=True, kw_only=True):
    """The connection of one client.

    A hosted client calls from its vendor's network, so the server must be reachable from the internet. A client with a
    redirect URI can sign in with OAuth; `registrations` are the ways in which it introduces itself, the preferred one
    first. `origin` is set for clients that run in a browser.
    """

    title: str
    redirect_uri: str = ""
    registrations: tuple[Registration, ...] = ("document", "dynamic")
    is_hosted: bool = False
    accepts_keys: bool = True
    origin: str = ""
    required_tools: frozenset[str] = frozenset()

    @property
    def has_oauth(self) -> bool:
        return bool(self.redirect_uri)


FLOWS: Mapping[str, ClientFlow] = {
    "any": ClientFlow(title="any client", redirect_uri="http://127.0.0.1:33418/callback"),
    "chatgpt": ClientFlow(
        title="ChatGPT",
        redirect_uri="https://chatgpt.com/connector_platform_oauth_redirect",
        is_hosted=True,
        accepts_keys=False,
        required_tools=frozenset(("search", "fetch")),
    ),
    "claude-ai": ClientFlow(
        title="claude.ai",
        redirect_uri="https://claude.ai/api/mcp/auth_callback",
        is_hosted=True,
        accepts_keys=False,
    ),
    "claude-code": ClientFlow(title="Claude Code", redirect_uri="http://localhost:33418/callback"),
    "claude-desktop": ClientFlow(title="Claude Desktop, through `florilegium stdio --remote`"),
    "codex": ClientFlow(title="Codex", redirect_uri="http://127.0.0.1:33418/callback"),
    "cursor": ClientFlow(
        title="Cursor", redirect_uri="cursor://anysphere.cursor-mcp/oauth/callback", registrations=("dynamic",)
    ),
    "gemini-cli": ClientFlow(
        title="Gemini CLI", redirect_uri="http://localhost:7777/oauth/callback", registrations=("dynamic",)
    ),
    "inspector": ClientFlow(
        title="MCP Inspector", redirect_uri="http://localhost:6274/oauth/callback", origin="http://localhost:6274"
    ),
    "librechat": ClientFlow(title="LibreChat"),
    "lm-studio": ClientFlow(title="LM Studio"),
    "mcp-remote": ClientFlow(
        title="mcp-remote", redirect_uri="http://localhost:3334/oauth/callback", registrations=("dynamic",)
    ),
    "open-webui": ClientFlow(title="Open WebUI"),
    "openai-responses": ClientFlow(title="OpenAI Responses API", is_hosted=True),
    "vscode": ClientFlow(title="VS Code", redirect_uri="http://127.0.0.1:33418/"),
    "windsurf": ClientFlow(title="Windsurf"),
    "zed": ClientFlow(title="Zed", redirect_uri="http://127.0.0.1:33418/callback"),
}
