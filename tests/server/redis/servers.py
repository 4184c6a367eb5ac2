"""Two servers of one deployment: the same users, libraries and Redis server, but nothing else in common."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from server.protocol.catalog import Catalog
from tests.live import LiveServer, free_port, live, make_settings


@asynccontextmanager
async def two_servers(
    data_dir: Path,
    redis_settings: Mapping[str, Any],
    *,
    extend: Callable[[Catalog], None] | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[LiveServer, LiveServer]]:
    settings = make_settings(
        data_dir, **{"access_recheck_s": 0.1, "shutdown_grace_s": 5.0, **redis_settings, **changes}
    )
    # Tokens name the address that clients use, which is one for all servers.
    settings = replace(settings, public_url=f"http://127.0.0.1:{settings.port}")
    elsewhere = replace(settings, port=free_port())
    async with live(settings, extend=extend) as one, live(elsewhere, extend=extend) as other:
        yield one, other
