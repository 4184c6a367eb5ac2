"""The server under test: the product's own factory with the suite's fixtures, open or behind real authentication.

By hand: `python -m tests.conformance.app --port 8766`, with `--auth` for tokens behind an injecting proxy.
"""

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from auth.principal import SCOPES, ClientId, Principal
from config.paths import new_user_id
from config.settings import Settings
from tests.conformance.fixtures import add_fixtures
from tests.conformance.proxy import injecting_proxy
from tests.live import free_port, live, make_settings

USER_NAME = "conformance"


class StaticPrincipal:
    """Takes everybody for the same user: the suite cannot send a token."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    async def authenticate(self, authorization: str | None, *, address: str = "") -> Principal:
        return self._principal

    async def recheck(self, principal: Principal) -> None:
        return

    async def flush(self) -> None:
        return


@asynccontextmanager
async def open_app(port: int = 0) -> AsyncIterator[str]:
    """The URL of a server that asks nobody for a credential."""
    everybody = Principal(
        user_id=new_user_id(),
        user_name=USER_NAME,
        client_id=ClientId("suite"),
        scopes=frozenset(SCOPES),
        kind="local",
        credential_id="local",
    )
    with tempfile.TemporaryDirectory() as directory:
        settings = _settings(directory, port=port or free_port())
        async with live(settings, extend=add_fixtures, authenticator=StaticPrincipal(everybody)) as server:
            yield server.mcp


@asynccontextmanager
async def guarded_app(port: int = 0) -> AsyncIterator[str]:
    """The URL of a proxy that adds a real token, in front of a server that refuses callers without one."""
    with tempfile.TemporaryDirectory() as directory:
        settings = _settings(directory)
        async with live(settings, extend=add_fixtures) as server:
            token = await server.token(USER_NAME)
            async with injecting_proxy(settings.port, f"Authorization: Bearer {token}", port) as bound:
                yield f"http://127.0.0.1:{bound}/mcp"


def _settings(directory: str, **changes: Any) -> Settings:
    """Without rate limits: the suite calls as fast as it can."""
    return make_settings(Path(directory), rate_user_per_minute=0, rate_tool_per_minute=0, **changes)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Serve the conformance fixtures on 127.0.0.1 until interrupted.")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes any free one")
    parser.add_argument("--auth", action="store_true", help="real tokens behind an injecting proxy")
    given = parser.parse_args()
    app = guarded_app if given.auth else open_app
    async with app(given.port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
