"""A server with two users before its REST surface, asked without sockets. What is asked is written as in a URL."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from tests.live import LiveServer, make_settings
from tests.server.http_client import HttpResponse
from tests.server.in_process import ask
from tests.sources.source_fixture import LibraryUser

JSON = {"Content-Type": "application/json"}


class RestClient(Struct, frozen=True):
    """The server, its application, and who may come to it."""

    server: LiveServer
    app: ASGIApp

    async def reader(self, name: str) -> LibraryUser:
        """That user with a library to fill, at the storage: what is filled is not what is tested."""
        user = await self.server.user(name)
        principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
        context = build_context(principal, self.server.runtime.data_root, "request")
        return LibraryUser(name, self.server.runtime.dispatcher, self.server.runtime.libraries, context)

    async def get(self, path: str, user: str | None = "ada", **headers: str) -> HttpResponse:
        return await self.request("GET", path, user, headers)

    async def search(self, body: Any, user: str | None = "ada", **headers: str) -> HttpResponse:
        sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.request("POST", "/api/v1/search", user, {**JSON, **headers}, sent)

    async def request(
        self, method: str, path: str, user: str | None, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> HttpResponse:
        """`who` sends a good credential; nobody sends none."""
        credential = await self.server.bearer(user) if user is not None else {}
        named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        return await ask(self.app, method, path, {**credential, **named}, body)


@asynccontextmanager
async def open_rest_client(root: Path, **changes: Any) -> AsyncIterator[RestClient]:
    async with open_runtime(make_settings(root, **changes)) as runtime:
        yield RestClient(LiveServer(runtime, "http://127.0.0.1"), _as_a_server_calls_it(build_app(runtime, Metrics())))


def _as_a_server_calls_it(app: ASGIApp) -> ASGIApp:
    """With the query apart from the path, and the path without its percent signs."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        path, _, query = scope["path"].partition("?")
        await app({**scope, "path": unquote(path), "query_string": query.encode()}, receive, send)

    return call
