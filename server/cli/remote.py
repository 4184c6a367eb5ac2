"""Commands on a server: the one that `florilegium --server URL` names, or the one that runs on the data directory.

They use its REST API: the first with the caller's own credential, the second as the operator, through the socket of the
data directory. `admin_server` and `library_server` return the API; None means that the command works on the files.
"""

import asyncio
import http.client
import os
import shutil
import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

import click
import msgspec
from msgspec import Struct, structs

from config.errors import FlorilegiumError, InvalidParams, Unavailable
from config.loading import CLIENT_TOKEN_VARIABLE
from config.settings import Settings, is_loopback
from server.cli.lazy_group import SettingsOverrides, json_option, setting_options
from server.cli.output import local_url, print_json, require_url
from server.directory_lock import USER_HEADER, LockOwner, connect_to_running_server, read_owner

if TYPE_CHECKING:
    from server.transports.bridge import RemoteServer

_META_KEY = "florilegium.server"
_TIMEOUT_S = 60.0
# A server writes a whole library to its disk before it sends the first byte of an export.
_DOWNLOAD_TIMEOUT_S = 3600.0
_RESPONSE_MAX_BYTES = 64 * 1024 * 1024


class RemoteApi:
    """The REST API of the server that `--server` names."""

    # Whether the server runs on the data directory of this machine, so that paths mean the same to it.
    is_local = False

    def __init__(self, url: str, token: str) -> None:
        url = require_url("--server", url)
        parts = urlsplit(url)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise InvalidParams("--server: expected https, because the token would be sent unencrypted")
        # The address that people have given to their clients ends with /mcp.
        self._base_url = url.removesuffix("/mcp")
        self._token = token

    def upload(self, path: str, file: Path, **query: Any) -> Any:
        """Sends a file as it is. Returns the response."""
        present = {name: value for name, value in query.items() if value is not None}
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)}
        with file.open("rb") as data:
            status, content = self._send("POST", f"{path}?{urlencode(present)}", headers, data)
        if status >= 300:
            raise _error(self._base_url, status, content)
        return msgspec.json.decode(content)

    def download(self, path: str, file: Path) -> None:
        """Writes the response to a file, however large it is."""
        try:
            with self._open_url("GET", path, {}, None, _DOWNLOAD_TIMEOUT_S) as response, file.open("xb") as target:
                if response.status >= 300:
                    raise _error(self._base_url, response.status, response.read(_RESPONSE_MAX_BYTES))
                shutil.copyfileobj(response, target)
        except (OSError, http.client.HTTPException) as error:
            raise self._no_response(error) from error

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> bytes:
        headers = {"Accept": "application/json"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode(body)
        present = {name: value for name, value in (query or {}).items() if value is not None}
        status, content = self._send(method, path + (f"?{urlencode(present)}" if present else ""), headers, data)
        if status >= 300:
            raise _error(self._base_url, status, content)
        return content

    def _send(
        self, method: str, path: str, headers: dict[str, str], data: bytes | BinaryIO | None
    ) -> tuple[int, bytes]:
        try:
            with self._open_url(method, path, headers, data, _TIMEOUT_S) as response:
                return response.status, response.read(_RESPONSE_MAX_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._no_response(error) from error

    def _open_url(
        self, method: str, path: str, headers: dict[str, str], data: bytes | BinaryIO | None, timeout_s: float
    ) -> Any:
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        # Without a handler for redirects: the token must not reach another server.
        opener = urllib.request.OpenerDirector()
        for handler in (urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
            opener.add_handler(handler())
        request = urllib.request.Request(self._base_url + path, data, headers, method=method)  # noqa: S310 - http(s)
        return opener.open(request, timeout=timeout_s)

    def _no_response(self, error: Exception) -> Unavailable:
        return Unavailable(f"{self._base_url} does not respond: {str(getattr(error, 'reason', error)).lower()}")


class LocalApi(RemoteApi):
    """The REST API of the server that runs on a data directory of this machine, for its operator.

    `owner` is what the server says about itself. With `user_name`, requests are about the library of that user;
    without, they can only administrate.
    """

    is_local = True

    def __init__(self, root: Path, connection: socket.socket, owner: LockOwner, user_name: str | None) -> None:
        super().__init__(owner.url, "")
        self.owner = owner
        self._root = root
        self._connection: socket.socket | None = connection
        self._running: socket.socket | None = None
        self._user_headers = {} if user_name is None else {USER_HEADER: quote(user_name)}

    async def run(
        self, command: str, body: Mapping[str, Any], show_progress: Callable[[Any], None] = lambda _: None
    ) -> Any:
        """Runs a long command in the server and returns its result. Cancelling it ends the command there."""
        try:
            return await asyncio.to_thread(self._run, command, body, show_progress)
        except asyncio.CancelledError:
            # Ends the thread, which reads from it.
            if self._running is not None:
                with suppress(OSError):
                    self._running.shutdown(socket.SHUT_RDWR)
            raise

    def _run(self, command: str, body: Mapping[str, Any], show_progress: Callable[[Any], None]) -> Any:
        headers = {"Content-Type": "application/json"}
        with self._open("POST", f"/api/v1/local/{command}", headers, msgspec.json.encode(body)) as response:
            if response.status >= 300:
                raise _error(self._base_url, response.status, response.read(_RESPONSE_MAX_BYTES))
            try:
                while line := response.readline():
                    match msgspec.json.decode(line):
                        case {"progress": progress}:
                            show_progress(progress)
                        case {"error": {"message": message, "is_usage_error": is_usage_error}}:
                            raise InvalidParams(message) if is_usage_error else FlorilegiumError(message)
                        case {"result": result}:
                            return result
            except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
                raise self._lost() from error
        raise self._lost()

    def _send(
        self, method: str, path: str, headers: dict[str, str], data: bytes | BinaryIO | None
    ) -> tuple[int, bytes]:
        with self._open(method, path, headers, data) as response:
            try:
                return response.status, response.read(_RESPONSE_MAX_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise self._lost() from error

    @contextmanager
    def _open(
        self, method: str, path: str, headers: dict[str, str], data: bytes | BinaryIO | None
    ) -> Iterator[http.client.HTTPResponse]:
        """A connection for each request: a command sends few of them, some of them minutes apart."""
        opened, self._connection = self._connection, None
        if opened is None:
            found = connect_to_running_server(self._root)
            if found is None:
                raise self._lost()
            opened = found[0]
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self._running = opened
        opened.settimeout(_TIMEOUT_S)
        with closing(connection):
            try:
                connection.request(method, path, data, {**headers, **self._user_headers})
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise self._lost() from error
            yield response

    def close(self) -> None:
        """Closes a connection that is not used."""
        if self._connection is not None:
            self._connection.close()

    def mcp(self, profile: str | None) -> "RemoteServer":
        """Returns the MCP endpoint, for the user of this API. To be called once, instead of a request."""
        from server.transports.bridge import RemoteServer  # noqa: PLC0415 - loads a WebSocket client

        path = f"/mcp/{profile}/ws" if profile else "/mcp/ws"
        url = self.owner.url.replace("http", "ws", 1) + path
        return RemoteServer(url, "", self._connection, self._user_headers)

    def _lost(self) -> Unavailable:
        return Unavailable(f"the server at {self._base_url}, which has the data directory, does not respond")


def connect_to_server(url: str, token_file: Path | None) -> None:
    """Makes the commands of this process use a server."""
    context = click.get_current_context()
    try:
        token = (
            token_file.read_text(errors="replace")
            if token_file is not None
            else os.environ.get(CLIENT_TOKEN_VARIABLE, "")
        ).strip()
    except OSError as error:
        raise InvalidParams(f"--token-file: {token_file} cannot be read: {(error.strerror or '').lower()}") from error
    # It is the value of a header. Someone may have named a file with more than a token.
    if not (token.isascii() and token.isprintable()):
        name = "--token-file" if token_file is not None else CLIENT_TOKEN_VARIABLE
        raise InvalidParams(f"{name}: expected an API key or token in one line")
    context.meta[_META_KEY] = RemoteApi(url, token)


def remote_server() -> RemoteApi | None:
    """Returns the server that `--server` names, if any."""
    server: RemoteApi | None = click.get_current_context().meta.get(_META_KEY)
    return server


def admin_server(settings: Settings) -> RemoteApi | None:
    """Returns the server for a command that changes users, keys or the deployment: the one of `--server`, or the one
    that runs on the data directory."""
    return remote_server() or running_server(settings, None)


def remote_library_server(user: str | None) -> RemoteApi | None:
    """Returns the server that `--server` names, if any, for a command on a library."""
    server = remote_server()
    if server is not None and user is not None:
        raise click.UsageError("--user cannot be combined with --server, where the credential determines the user")
    return server


def library_server(settings: Settings, user: str | None) -> RemoteApi | None:
    """Returns the server for a command on the library of a user, the single user if none is named."""
    if (remote := remote_library_server(user)) is not None:
        return remote
    server = running_server(settings, user or settings.single_user_name)
    if server is not None and server.owner.needs_auth and user is None:
        raise click.UsageError("--user is required because authentication is configured")
    return server


def settings_of_running_server(settings: Settings) -> Settings:
    """Returns the settings with the address of the server that runs on the data directory, and whether it needs a
    credential; unchanged if there is none."""
    server = running_server(settings, None)
    if server is None:
        return settings
    server.close()
    needs_auth = server.owner.needs_auth or settings.require_auth
    return structs.replace(settings, public_url=server.owner.base_url, require_auth=needs_auth)


def running_server(settings: Settings, user_name: str | None) -> LocalApi | None:
    """Returns the server that runs on the data directory, for the library of a user or for administration."""
    root = Path(settings.data_dir).absolute()
    found = connect_to_running_server(root)
    return None if found is None else LocalApi(root, *found, user_name)


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

_HEALTH_TIMEOUT_S = 5.0
# Another program may answer at the port.
_HEALTH_MAX_BYTES = 65_536


class Health(Struct, frozen=True):
    """The response of `/healthz`."""

    status: str
    version: str


def fetch_health(base_url: str) -> Health:
    """Returns the server's health. Raises Unavailable if it does not respond or is not a Florilegium server."""
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
        opener.add_handler(handler())
    url = base_url.removesuffix("/healthz") + "/healthz"
    try:
        with opener.open(url, timeout=_HEALTH_TIMEOUT_S) as response:
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
@click.option("--url", help="Base URL of the server. Default: that of the running server, or the settings.")
@json_option
@setting_options("data_dir", "host", "port")
def healthcheck(overrides: SettingsOverrides, url: str | None, as_json: bool) -> None:
    """Exit with 0 if the server is alive and with 1 otherwise."""
    if url:
        target = require_url("url", url)
    else:
        settings = overrides.load().settings
        owner = None if overrides.cli["host"] or overrides.cli["port"] else read_owner(Path(settings.data_dir))
        target = owner.url if owner is not None and owner.url else local_url(settings)
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
