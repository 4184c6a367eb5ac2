"""Real OpenID Connect providers (the npm package oidc-provider), as a process of the test."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.clients.node_tools import PROJECT, environment, node, packages

CLIENT_ID = "florilegium"
CLIENT_SECRET = "s:ecret/with?signs"
_START_MAX_S = 60.0


@asynccontextmanager
async def openid_providers(
    ports: Sequence[int], accounts: Mapping[str, Mapping[str, Any]], redirects: Sequence[str]
) -> AsyncIterator[None]:
    """Runs one provider on each port, all with the same accounts, until the block ends."""
    await asyncio.to_thread(packages)
    variables = {
        "FLORILEGIUM_TEST_PORTS": json.dumps(list(ports)),
        "FLORILEGIUM_TEST_ACCOUNTS": json.dumps(accounts),
        "FLORILEGIUM_TEST_REDIRECTS": json.dumps(list(redirects)),
    }
    process = await asyncio.create_subprocess_exec(
        node(),
        "openid_provider.mjs",
        cwd=PROJECT,
        env=environment(variables),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_MAX_S):
            assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        await process.wait()
