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
from tests.live import Live, make_settings
from tests.server.in_process import ask
from tests.server.wire import Answer
from tests.sources.source_fixture import LibraryUser

JSON = {"Content-Type": "application/json"}


class Desk(Struct, frozen=True):
    """The server, its application, and who may come to it."""

    up: Live
    app: ASGIApp

    async def reader(self, name: str) -> LibraryUser:
        """That user with a library to fill, at the storage: what is filled is not what is tested."""
        user = await self.up.user(name)
        principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
        context = build_context(principal, self.up.runtime.data_root, "request")
        return LibraryUser(name, self.up.runtime.dispatcher, self.up.runtime.libraries, context)

    async def get(self, path: str, who: str | None = "ada", **headers: str) -> Answer:
        return await self.ask("GET", path, who, headers)

    async def search(self, body: Any, who: str | None = "ada", **headers: str) -> Answer:
        sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.ask("POST", "/api/v1/search", who, {**JSON, **headers}, sent)

    async def ask(
        self, method: str, path: str, who: str | None, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """`who` sends a good credential; nobody sends none."""
        credential = await self.up.bearer(who) if who is not None else {}
        named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        return await ask(self.app, method, path, {**credential, **named}, body)


@asynccontextmanager
async def open_desk(root: Path, **changes: Any) -> AsyncIterator[Desk]:
    async with open_runtime(make_settings(root, **changes)) as runtime:
        yield Desk(Live(runtime, "http://127.0.0.1"), _as_a_server_calls_it(build_app(runtime, Metrics())))


def _as_a_server_calls_it(app: ASGIApp) -> ASGIApp:
    """With the query apart from the path, and the path without its percent signs."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        path, _, query = scope["path"].partition("?")
        await app({**scope, "path": unquote(path), "query_string": query.encode()}, receive, send)

    return call
