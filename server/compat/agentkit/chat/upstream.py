"""The OpenAI-compatible API that answers chats: one connection per request, its answer as it comes.

Its address is the operator's; no caller can name another, and no redirect is followed. Nothing of the caller but the
body is sent there, and never the caller's credential. Bodies are not logged.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from urllib.parse import urlsplit

from loguru import logger

from config.settings import Settings
from server.compat.agentkit.chat.reply import Reply, UpstreamFailed, UpstreamSilent
from server.version import VERSION


class Upstream:
    def __init__(self, url: str, key: str, silence_s: float) -> None:
        self._parts = urlsplit(url)
        self._key = key
        self._silence_s = silence_s

    @classmethod
    def of(cls, settings: Settings) -> "Upstream | None":
        if not settings.chat_upstream_url:
            return None
        return cls(settings.chat_upstream_url, settings.chat_upstream_key, settings.chat_upstream_timeout_s)

    @asynccontextmanager
    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Reply]:
        """The answer; the connection lasts as long as the block."""
        from server.compat.agentkit.chat.http_client import Exchange  # noqa: PLC0415 - h11 is loaded only where chats are relayed

        reader, writer = await self._connect()
        try:
            exchange = Exchange(reader, writer, self._silence_s)
            target = f"{self._parts.path}{path}"
            yield await exchange.send(method, target, self._headers(body, headers or {}), body)
        finally:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        is_tls = self._parts.scheme == "https"
        port = self._parts.port or (443 if is_tls else 80)
        opening = asyncio.open_connection(self._parts.hostname, port, ssl=self._trust if is_tls else None)
        try:
            return await asyncio.wait_for(opening, self._silence_s)
        except TimeoutError as error:
            raise UpstreamSilent(self._silence_s) from error
        except OSError as error:
            # The operator has to know why; a caller learns nothing of the network behind the server.
            logger.warning("the chat upstream cannot be reached: {}", type(error).__name__)
            raise UpstreamFailed("the upstream cannot be reached") from error

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """The system's authorities; made once, because reading them takes its time."""
        return ssl.create_default_context()

    def _headers(self, body: bytes, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        sent = {
            "Host": self._parts.netloc,
            "User-Agent": f"florilegium/{VERSION}",
            # The answer is read while it is relayed.
            "Accept-Encoding": "identity",
            "Connection": "close",
            **({"Content-Type": "application/json", "Content-Length": str(len(body))} if body else {}),
            **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            **headers,
        }
        return list(sent.items())
