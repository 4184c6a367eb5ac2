"""The OpenAI-compatible API that answers chats. Each request opens its own connection.

Only the operator sets its address: no caller can name another, and redirects are not followed. The caller's credential
is never sent there, only the request body. Bodies are not logged.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from loguru import logger

from config.outgoing_http import OutgoingRequestError, OutgoingRequestTimeout, open_response
from config.settings import Settings
from server.compat.agentkit.chat.upstream_response import UpstreamError, UpstreamResponse, UpstreamTimeout
from server.version import VERSION


class Upstream:
    def __init__(self, url: str, key: str, timeout_s: float) -> None:
        self._url = url
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
        own_headers = self._headers(body) | dict(headers or {})
        try:
            async with open_response(
                method, f"{self._url}{path}", headers=own_headers, body=body, timeout_s=self._timeout_s
            ) as response:
                yield UpstreamResponse(response.status, response.headers, response.body)
        except OutgoingRequestError as error:
            # The operator needs the reason; a caller must not learn about the network behind the server.
            logger.warning("The chat upstream {}", error)
            is_timeout = isinstance(error, OutgoingRequestTimeout)
            raise (UpstreamTimeout if is_timeout else UpstreamError)(f"the upstream {error.reason}") from error

    def _headers(self, body: bytes) -> dict[str, str]:
        return {
            "User-Agent": f"florilegium/{VERSION}",
            **({"Content-Type": "application/json"} if body else {}),
            **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
        }
