"""How clients and directories present this server: description, icons, `server.json`, and its entry in a registry.

`make docs` writes `server.json` from `registry_document`, for the MCP registry. `GET /v0.1/servers` lists this server
alone, at its own address, for clients that read the registry of an organisation.
"""

import base64
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from config.settings import Settings
from server.version import VERSION

TITLE = "Florilegium"
# Registries accept 100 characters.
DESCRIPTION = "Search and keep your notes, recordings, chats and prompts with any AI assistant, on your own server"
# Who publishes to the registry must own the namespace before the slash. The README of the package repeats the name,
# as proof that the package belongs to it.
REGISTRY_NAME = "io.github.florilegium/florilegium"
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
ICON_PATH = "/icon.png"
_FOLDER = Path(__file__).parent
_ICON_SIZE = 512
_KEY_HEADER = {
    "name": "Authorization",
    "description": "Bearer and an API key. Clients that sign in with a browser need none.",
    "isSecret": True,
}


@cache
def icon_file(size: int = _ICON_SIZE) -> bytes:
    return (_FOLDER / "icons" / f"{size}.png").read_bytes()


def presentation(settings: Settings) -> dict[str, Any]:
    """Returns the members of `Implementation` that clients show (MCP 2025-11-25). Icons are data, so that a client
    shows them without a request: it may not fetch from other hosts, and over stdio there is none."""
    svg = (_FOLDER / "console" / "static" / "favicon.svg").read_bytes()
    # PNG for the clients that support no SVG; they need not.
    icons = [("image/svg+xml", svg, "any"), ("image/png", icon_file(64), "64x64")]
    website = {"websiteUrl": settings.about_url("documentation")} if settings.public_url else {}
    return {
        "description": DESCRIPTION,
        **website,
        "icons": [
            {"src": f"data:{kind};base64,{base64.b64encode(data).decode()}", "mimeType": kind, "sizes": [size]}
            for kind, data, size in icons
        ],
    }


def registry_document() -> dict[str, Any]:
    """Returns `server.json`: the package, and the servers of others, whose host the user enters."""
    return {
        "$schema": SCHEMA,
        "name": REGISTRY_NAME,
        "title": TITLE,
        "description": DESCRIPTION,
        "version": VERSION,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "florilegium",
                "version": VERSION,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [{"type": "positional", "value": "stdio"}],
                "environmentVariables": [
                    {
                        "name": "FLORILEGIUM_DATA_DIR",
                        "description": "Folder of your library. It is created if it does not exist.",
                        "format": "filepath",
                    }
                ],
            }
        ],
        "remotes": [
            {
                "type": "streamable-http",
                "url": "https://{host}/mcp",
                "headers": [_KEY_HEADER],
                "variables": {
                    "host": {
                        "description": "Host name of the Florilegium server that you use",
                        "isRequired": True,
                        "placeholder": "kb.example.com",
                    }
                },
            }
        ],
    }


def own_entry(settings: Settings) -> dict[str, Any]:
    """Returns this server as a registry lists it. Its namespace is its host, backwards, as in `com.example.kb`."""
    url = urlsplit(settings.base_url)
    host = re.sub(r"[^a-z0-9.-]", "-", (url.hostname or "localhost").lower())
    name = ".".join(reversed(host.split(".")))
    remote: dict[str, Any] = {"type": "streamable-http", "url": settings.resource_url}
    if settings.is_auth_configured and not settings.has_oauth_server:
        # Clients ask for headers that are listed, so that one that can sign in gets none.
        remote["headers"] = [{**_KEY_HEADER, "isRequired": True}]
    server: dict[str, Any] = {
        "$schema": SCHEMA,
        "name": f"{name}/florilegium",
        "title": TITLE,
        "description": DESCRIPTION,
        "version": VERSION,
        "websiteUrl": settings.about_url("documentation"),
        "remotes": [remote],
    }
    if url.scheme == "https":
        # The schema accepts no other addresses.
        size = f"{_ICON_SIZE}x{_ICON_SIZE}"
        server["icons"] = [{"src": settings.base_url + ICON_PATH, "mimeType": "image/png", "sizes": [size]}]
    return {
        "server": server,
        "_meta": {"io.modelcontextprotocol.registry/official": {"status": "active", "isLatest": True}},
    }
