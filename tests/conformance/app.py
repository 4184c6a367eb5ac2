"""The server under test: the product with the suite's fixtures, with or without authentication.

To run it manually: `python -m tests.conformance.app --port 8766`; `--auth` requires tokens, which a proxy adds.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from auth.context import SCOPES, ClientId, Principal
from config.settings import Settings
from tests.conformance.fixtures import add_fixtures
from tests.conformance.proxy import injecting_proxy
from tests.live import free_port, live, make_settings

USER_NAME = "conformance"


class StaticPrincipal:
    """Authenticates every caller as the same user, because the suite cannot send a token."""

    principal: Principal

    async def authenticate(self, authorization: str | None, *, address: str = "") -> Principal:
        return self.principal

    async def authenticate_operator(self, user_name: str | None) -> Principal:
        return self.principal

    async def recheck(self, principal: Principal) -> Principal:
        return principal

    async def flush(self) -> None:
        return


@asynccontextmanager
async def open_app(port: int = 0) -> AsyncIterator[str]:
    """Yields the URL of a server that requires no credential."""
    authenticator = StaticPrincipal()
    with tempfile.TemporaryDirectory() as directory:
        settings = _settings(directory, port=port or free_port())
        async with live(settings, extend=add_fixtures, authenticator=authenticator) as server:
            authenticator.principal = Principal(
                user_id=(await server.user(USER_NAME)).id,
                user_name=USER_NAME,
                client_id=ClientId("suite"),
                scopes=frozenset(SCOPES),
                kind="local",
                credential_id="local",
            )
            yield server.mcp


@asynccontextmanager
async def authenticated_app(port: int = 0) -> AsyncIterator[str]:
    """Yields the URL of a proxy that adds a token, in front of a server that requires one."""
    with tempfile.TemporaryDirectory() as directory:
        settings = _settings(directory)
        async with live(settings, extend=add_fixtures) as server:
            token = await server.token(USER_NAME)
            async with injecting_proxy(settings.port, f"Authorization: Bearer {token}", port) as proxy_port:
                yield f"http://127.0.0.1:{proxy_port}/mcp"


def _settings(directory: str, **changes: Any) -> Settings:
    """Returns settings without rate limits, because the suite makes many calls."""
    return make_settings(Path(directory), rate_user_per_minute=0, rate_tool_per_minute=0, **changes)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the conformance fixtures on 127.0.0.1 until interrupted.")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 chooses a free one")
    parser.add_argument("--auth", action="store_true", help="require tokens, which a proxy adds")
    options = parser.parse_args()
    app = authenticated_app if options.auth else open_app
    async with app(options.port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
