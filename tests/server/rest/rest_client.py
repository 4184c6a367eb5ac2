"""A client for a server in the same process: its REST API, and MCP over HTTP. Paths are written as in a URL."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.context import SCOPES, ClientId, Principal, build_context
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from tests.live import LiveServer, make_settings
from tests.prepared_libraries import copy_libraries
from tests.server.clients import message, modern_headers, modern_params
from tests.server.http_client import HttpResponse
from tests.server.in_process import call_app
from tests.sources.source_fixture import LibraryUser
from tests.sources.storage.library_fixture import total_items

JSON = {"Content-Type": "application/json"}


class RestClient(Struct, frozen=True):
    """Sends requests of a user to an application."""

    server: LiveServer
    app: ASGIApp

    async def library_user(self, name: str) -> "HttpLibraryUser":
        """Returns a user whose library a test can fill directly through the storage layer."""
        user = await self.server.user(name)
        principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
        context = build_context(principal, self.server.runtime.data_root, "request")
        return HttpLibraryUser(name, self.server.runtime.dispatcher, self.server.runtime.libraries, context, self)

    async def get(self, path: str, user: str | None = "ada", **headers: str) -> HttpResponse:
        return await self.request("GET", path, user, headers)

    async def search(self, body: Any, user: str | None = "ada", **headers: str) -> HttpResponse:
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.request("POST", "/api/v1/search", user, {**JSON, **headers}, encoded)

    async def request(
        self, method: str, path: str, user: str | None, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpResponse:
        """Sends a request with a valid credential of `user`, or without one. `_` in header names becomes `-`."""
        credential = await self.server.bearer(user) if user is not None else {}
        dashed = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        return await call_app(self.app, method, path, {**credential, **dashed}, body)


class RpcError(Exception):
    """The error of a JSON-RPC response."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class HttpLibraryUser(LibraryUser, frozen=True):
    """A user whose MCP requests are HTTP requests to `/mcp/full`, with a credential and the user's config."""

    api: RestClient

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        body = msgspec.json.encode(message(method, modern_params(params), 1))
        headers = {**modern_headers(method, params), **self._config_header()}
        response = (await self.api.request("POST", "/mcp/full", self.name, headers, body)).json()
        if "error" in response:
            raise RpcError(response["error"])
        return dict(response["result"])

    def _config_header(self) -> dict[str, str]:
        if not self.context.config:
            return {}
        return {"Mcp-Config": base64.b64encode(msgspec.json.encode(self.context.config)).decode()}


@asynccontextmanager
async def open_rest_client(root: Path, **changes: Any) -> AsyncIterator[RestClient]:
    """Yields a client of a server. In a new data directory, Ada and Ben have empty libraries."""
    if not root.exists() or not any(root.iterdir()):
        copy_libraries(_create_users, root)
    async with _open_client(root, **changes) as api:
        yield api


async def _create_users(root: Path) -> None:
    async with _open_client(root) as api:
        for name in ("ada", "ben"):
            user = await api.library_user(name)
            async with user.libraries.library(user.context) as library:
                await total_items(library)


@asynccontextmanager
async def _open_client(root: Path, **changes: Any) -> AsyncIterator[RestClient]:
    async with open_runtime(make_settings(root, **changes)) as runtime:
        yield rest_client_of(LiveServer(runtime, "http://127.0.0.1"))


def rest_client_of(server: LiveServer) -> RestClient:
    """Returns a client of an application on the server's runtime."""
    return RestClient(server, _with_split_path(build_app(server.runtime, Metrics())))


def _with_split_path(app: ASGIApp) -> ASGIApp:
    """Splits the query string off and decodes the path, as a server does."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        path, _, query = scope["path"].partition("?")
        await app({**scope, "path": unquote(path), "query_string": query.encode()}, receive, send)

    return call
