"""A real server for tests: uvicorn on a free loopback port, in the event loop of the test."""

import asyncio
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import uvicorn.server
from msgspec import Struct

from auth.authenticator import Authenticator
from auth.context import SCOPES
from auth.control_database import ControlConnection
from auth.registry import UserRecord
from auth.tokens import mint_token
from config.errors import Conflict
from config.paths import UserId
from config.settings import Settings, check
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.protocol.catalog import Catalog
from server.runtime import Runtime
from server.serving import serve
from tests.build_settings import build_settings
from tests.servers.storage import storage_settings
from tests.sources.storage.library_fixture import empty_library_files
from tests.transport_requests import TRANSPORT_REQUESTS

JWT_SECRET = "a test secret of more than 32 bytes"
# For HTTP clients of the servers of tests. These have no TLS, and reading the certificates of the system takes longer
# than a test. The timeout is for busy machines.
HTTP_OPTIONS: dict[str, Any] = {
    "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    "trust_env": False,
    "timeout": 60,
}
# For tests that are many calls of one user.
NO_RATE_LIMITS = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "rate_failures_per_minute": 0}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_settings(data_dir: Path, **changes: Any) -> Settings:
    """Returns settings for one test. HS256 tokens are accepted and required unless `jwt_secret=""` is passed."""
    defaults = {
        "data_dir": str(data_dir),
        "port": free_port(),
        "jwt_secret": JWT_SECRET,
        "log_requests": False,
        # Longer than a busy machine stalls. Servers stop earlier, as soon as their calls have ended.
        "shutdown_grace_s": 10.0,
        # A hash with the default settings takes a quarter of a second.
        "password_hash_memory_kib": 64,
        "password_hash_passes": 1,
        # Tests that send a request of every kind wait for the end of each response.
        "conversation_events_max_s": 0.2,
        **storage_settings(data_dir),
    }
    settings = build_settings(**{**defaults, **changes})
    check(settings)
    return settings


class LiveServer(Struct, frozen=True):
    """A running server."""

    runtime: Runtime
    url: str

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    @property
    def ws(self) -> str:
        return f"{self.url.replace('http', 'ws', 1)}/mcp/ws"

    async def user(self, name: str) -> UserRecord:
        """Returns the user, who is created as an administrator if necessary: the scopes of a token decide."""
        registry = self.runtime.registry
        user = await registry.user_by_name(name)
        if user is None:
            # The server itself may create the user meanwhile.
            with suppress(Conflict):
                user = await registry.add_user(name, role="admin")
                self._prepare_library(user.id)
                return user
            user = await registry.user_by_name(name)
            assert user is not None
        return user

    def _prepare_library(self, user_id: UserId) -> None:
        """Copies the files of an empty library, which is faster than creating them."""
        folder = self.runtime.data_root.paths_of(user_id).media.parent
        if not self.runtime.settings.storage_url and not folder.exists():
            shutil.copytree(empty_library_files(), folder)

    async def forget_users(self) -> None:
        """Deletes all users and what they follow, so that their names can be those of new users without any data."""
        for user in await self.runtime.registry.list_owners():
            await self.runtime.libraries.remove(user.id)

        def delete(db: ControlConnection) -> None:
            for table in ("users", "followed_deployments"):
                db.execute(f"DELETE FROM {table}")

        await self.runtime.registry.database.withdraw(delete)

    async def token(self, name: str, scopes: tuple[str, ...] = SCOPES, **changes: Any) -> str:
        """Returns a valid token for the user, who is created if necessary."""
        await self.user(name)
        arguments = {"lifetime_s": 3600.0, "now": time.time(), "client_id": "test-client", **changes}
        return mint_token(self.runtime.settings, name, scopes, **arguments)

    async def bearer(self, name: str, scopes: tuple[str, ...] = SCOPES) -> dict[str, str]:
        return {"Authorization": f"Bearer {await self.token(name, scopes)}"}


class _QuickAsyncio:
    """What uvicorn uses as asyncio: it looks every 0.1 s whether it should stop, and then waits 0.1 s more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


@asynccontextmanager
async def live(
    settings: Settings,
    *,
    catalog: Catalog | None = None,
    extend: Callable[[Catalog], None] | None = None,
    authenticator: Authenticator | None = None,
    local_socket: socket.socket | None = None,
) -> AsyncIterator[LiveServer]:
    """Runs a server with the product's catalog, or with `catalog`. `extend` can add to the catalog."""
    metrics = Metrics()
    async with open_runtime(settings, catalog=catalog, authenticator=authenticator, observer=metrics) as runtime:
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if extend is not None:
            extend(runtime.dispatcher.catalog)
        app = TRANSPORT_REQUESTS.counting(build_app(runtime, metrics))
        with patch.object(uvicorn.server, "asyncio", _QuickAsyncio()):
            serving = asyncio.create_task(
                serve(app, settings, runtime.open_streams, url.set_result, local_socket=local_socket)
            )
            try:
                async with asyncio.timeout(10):
                    await asyncio.wait((url, serving), return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
                yield LiveServer(runtime, await url)
            finally:
                runtime.open_streams.stop()
                await asyncio.gather(serving, return_exceptions=True)
