"""Commands on a remote server: `florilegium --server URL`. They use its REST API with the caller's own credential."""

import http.client
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import click
import msgspec
from msgspec import Struct

from config.errors import FlorilegiumError, InvalidParams, Unavailable
from config.loading import CLIENT_TOKEN_VARIABLE
from config.settings import is_loopback
from server.cli.lazy_group import SettingsOverrides, json_option, setting_options
from server.cli.output import local_url, print_json, require_url

_META_KEY = "florilegium.server"
_TIMEOUT_S = 60.0
_RESPONSE_MAX_BYTES = 64 * 1024 * 1024


class RemoteApi:
    """The REST API of a server."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidParams(f"--server: expected a URL such as https://kb.example.com, got {url[:80]!r}")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise InvalidParams("--server: expected https, because the token would be sent unencrypted")
        # The address that people have given to their clients ends with /mcp.
        self._base_url = url.rstrip("/").removesuffix("/mcp")
        self._token = token

    def get(self, path: str, **query: Any) -> Any:
        return msgspec.json.decode(self.request("GET", path, query=query))

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        return msgspec.json.decode(self.request(method, path, body, query))

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> bytes:
        present = {name: value for name, value in (query or {}).items() if value is not None}
        url = f"{self._base_url}{path}" + (f"?{urlencode(present)}" if present else "")
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode(body)
        # Without a handler for redirects: the token must not reach another server.
        opener = urllib.request.OpenerDirector()
        for handler in (urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
            opener.add_handler(handler())
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - http and https only
        try:
            with opener.open(request, timeout=_TIMEOUT_S) as response:
                status, content = response.status, response.read(_RESPONSE_MAX_BYTES)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Unavailable(f"{self._base_url} does not respond: {str(reason).lower()}") from error
        if status >= 300:
            raise _error(self._base_url, status, content)
        return bytes(content)


def connect_to_server(url: str, token_file: Path | None) -> None:
    """Makes the commands of this process use a server."""
    context = click.get_current_context()
    try:
        token = token_file.read_text().strip() if token_file is not None else os.environ.get(CLIENT_TOKEN_VARIABLE, "")
    except OSError as error:
        raise InvalidParams(f"--token-file: {token_file} cannot be read: {(error.strerror or '').lower()}") from error
    context.meta[_META_KEY] = RemoteApi(url, token.strip())


def remote_server() -> RemoteApi | None:
    """Returns the server that `--server` names, if any."""
    server: RemoteApi | None = click.get_current_context().meta.get(_META_KEY)
    return server


def path_segment(name: str) -> str:
    return quote(name, safe="")


# The exit code is that of the same mistake on this machine: 2 for invalid arguments, 1 for everything else.
def _error(url: str, status: int, content: bytes) -> FlorilegiumError:
    try:
        message = str(msgspec.json.decode(content)["error"]["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return Unavailable(f"{url} returned HTTP status {status}, and is probably not a Florilegium server")
    if status == 401:
        return FlorilegiumError(f"{url}: {message}; set {CLIENT_TOKEN_VARIABLE} or --token-file to an API key")
    return InvalidParams(message) if status == 400 else FlorilegiumError(message)


# -- health client -----------------------------------------------------------------------------------------------------
# Fetches the health of a running server, without proxies or redirects, so that only that server can answer.

TIMEOUT_S = 5.0
# Another program may answer at the port.
_HEALTH_MAX_BYTES = 65_536


class Health(Struct, frozen=True):
    """The response of `/healthz`."""

    status: str
    version: str


def fetch_health(base_url: str, timeout_s: float = TIMEOUT_S) -> Health:
    """Returns the server's health. Raises Unavailable if it does not respond or is not a Florilegium server."""
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
        opener.add_handler(handler())
    url = base_url.removesuffix("/healthz") + "/healthz"
    try:
        with opener.open(url, timeout=timeout_s) as response:
            status, body = response.status, response.read(_HEALTH_MAX_BYTES)
        if status != 200:
            raise Unavailable(f"{url} returned HTTP status {status}")
        return msgspec.json.decode(body, type=Health)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"{url} responds, but is not a Florilegium server") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        cause = str(getattr(reason, "strerror", None) or reason or type(reason).__name__).lower()
        raise Unavailable(f"{url} does not respond: {cause}") from error


# -- healthcheck -------------------------------------------------------------------------------------------------------
# `florilegium healthcheck`: reports by its exit code whether a server is alive, for container health checks.


@click.command()
@click.option("--url", help="Base URL of the server. Default: the configured host and port.")
@json_option
@setting_options("host", "port")
def healthcheck(overrides: SettingsOverrides, url: str | None, as_json: bool) -> None:
    """Exit with 0 if the server is alive and with 1 otherwise."""
    target = require_url("url", url) if url else local_url(overrides.load().settings)
    if as_json:
        try:
            health = fetch_health(target)
        except Unavailable as error:
            print_json({"url": target, "status": "unavailable", "error": error.message})
            click.get_current_context().exit(1)
        print_json({"url": target, "status": health.status, "version": health.version})
        return
    health = fetch_health(target)
    click.echo(f"{target} is {health.status}, version {health.version}")
