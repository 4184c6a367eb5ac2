"""The OpenAI-compatible API that answers chats. Each request opens its own connection.

Only the operator sets its address: no caller can name another, and redirects are not followed. The caller's credential
is never sent there, only the request body. Bodies are not logged.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
from loguru import logger

from config.errors import FlorilegiumError, RateLimited
from config.public_http import IncomingResponse, OutgoingRequestError, OutgoingRequestTimeout, open_response
from config.settings import Settings
from server.compat.agentkit.chat.completion_parser import Completion, parse_completion
from server.compat.agentkit.chat.turns import TurnLimits
from server.version import VERSION

# -- upstream response -------------------------------------------------------------------------------------------------
# The response of the chat upstream, and the errors raised instead of one.


class UpstreamError(FlorilegiumError):
    """The upstream cannot be reached, or its response cannot be used."""

    status = 502
    code = 502


class UpstreamTimeout(UpstreamError):
    """The upstream sent nothing for longer than `chat_upstream_timeout_s`."""

    status = 504
    code = 504


class UpstreamResponse(IncomingResponse, frozen=True):
    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")


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
        own_headers = {
            "User-Agent": f"florilegium/{VERSION}",
            **({"Content-Type": "application/json"} if body else {}),
            **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            **(headers or {}),
        }
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


# -- upstream prompt ---------------------------------------------------------------------------------------------------
# Asks the upstream a question: one request, one whole answer.

# For an upstream that is over its limit and does not say for how long.
_RETRY_AFTER_S = 5.0


async def ask_upstream(
    upstream: Upstream, model: str, messages: Sequence[Mapping[str, str]], limits: TurnLimits, max_bytes: int
) -> Completion:
    body = msgspec.json.encode({"model": model, "messages": messages})
    async with upstream.request("POST", "/chat/completions", body, {"Accept": "application/json"}) as response:
        if response.status == 429:
            retry_after = response.headers.get("retry-after", "")
            raise RateLimited("the upstream", float(retry_after) if retry_after.isdigit() else _RETRY_AFTER_S)
        if response.status != 200:
            raise UpstreamError(f"the upstream responded with status {response.status}")
        completion = parse_completion(await response.read(max_bytes), limits)
    if completion is None:
        raise UpstreamError("the upstream's response contains no completion")
    return completion
