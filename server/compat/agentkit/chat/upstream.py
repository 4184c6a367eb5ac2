"""The OpenAI-compatible API that answers chats. Each request opens its own connection.

Only the operator sets its address: no caller can name another, and redirects are not followed. The caller's credential
is never sent there, only the request body. Bodies are not logged.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from urllib.parse import urlsplit

from loguru import logger

from config.settings import Settings
from server.compat.agentkit.chat.upstream_response import UpstreamError, UpstreamResponse, UpstreamTimeout
from server.version import VERSION


class Upstream:
    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        self._url = urlsplit(url)
        self._key = key
        self._timeout_s = timeout_s

    @classmethod
    def from_settings(cls, settings: Settings) -> "Upstream | None":
        """Returns None if no upstream is configured."""
        if not settings.chat_upstream_url:
            return None
        return cls(settings.chat_upstream_url, settings.chat_upstream_key, settings.chat_upstream_timeout_s)

    @asynccontextmanager
    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[UpstreamResponse]:
        """Sends a request and yields its response; the connection is open as long as the block."""
        from server.compat.agentkit.chat.http_client import HttpExchange  # noqa: PLC0415 - h11 is loaded only where chats are relayed

        reader, writer = await self._connect()
        try:
            exchange = HttpExchange(reader, writer, self._timeout_s)
            target = f"{self._url.path}{path}"
            yield await exchange.send(method, target, self._headers(body, headers or {}), body)
        finally:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        is_tls = self._url.scheme == "https"
        port = self._url.port or (443 if is_tls else 80)
        connecting = asyncio.open_connection(self._url.hostname, port, ssl=self._tls_context if is_tls else None)
        try:
            return await asyncio.wait_for(connecting, self._timeout_s)
        except TimeoutError as error:
            raise UpstreamTimeout(self._timeout_s) from error
        except OSError as error:
            # The operator needs the reason; a caller must not learn about the network behind the server.
            logger.warning("the chat upstream cannot be reached: {}", type(error).__name__)
            raise UpstreamError("the upstream cannot be reached") from error

    @cached_property
    def _tls_context(self) -> ssl.SSLContext:
        """Trusts the system's authorities; created once, because loading them is slow."""
        return ssl.create_default_context()

    def _headers(self, body: bytes, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        merged = {
            "Host": self._url.netloc,
            "User-Agent": f"florilegium/{VERSION}",
            # The response is parsed while it is relayed.
            "Accept-Encoding": "identity",
            "Connection": "close",
            **({"Content-Type": "application/json", "Content-Length": str(len(body))} if body else {}),
            **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            **headers,
        }
        return list(merged.items())
