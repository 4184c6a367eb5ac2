"""Connects the official Python client to a live server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from auth.context import SCOPES
from tests.live import HTTP_OPTIONS, LiveServer

if TYPE_CHECKING:
    from mcp import Client


@asynccontextmanager
async def connect(
    server: LiveServer, user: str, profile: str = "", scopes: tuple[str, ...] = SCOPES, **options: Any
) -> "AsyncIterator[Client]":
    """Connects as a user, at the address of a profile."""
    # Importing it takes a second, which processes without these tests should not need.
    from mcp import Client  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    url = f"{server.mcp}/{profile}" if profile else server.mcp
    headers = await server.bearer(user, scopes)
    async with (
        httpx2.AsyncClient(**HTTP_OPTIONS, headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), **options) as client,
    ):
        yield client
