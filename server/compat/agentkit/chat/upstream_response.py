"""The response of the chat upstream, and the errors raised instead of one."""

from collections.abc import AsyncIterator, Mapping

from msgspec import Struct

from config.errors import FlorilegiumError


class UpstreamError(FlorilegiumError):
    """The upstream cannot be reached, or its response cannot be used."""

    status = 502
    code = 502


class UpstreamTimeout(UpstreamError):
    """The upstream sent nothing for longer than `chat_upstream_timeout_s`."""

    status = 504
    code = 504

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the upstream sent nothing for {timeout_s:g} s")


class UpstreamResponse(Struct, frozen=True):
    """Status and headers, with lower-case header names, and the body, which can be read once."""

    status: int
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def read(self, max_bytes: int) -> bytes:
        parts, size = [], 0
        async for part in self.body:
            size += len(part)
            if size > max_bytes:
                raise UpstreamError(f"the upstream's response is larger than {max_bytes} bytes")
            parts.append(part)
        return b"".join(parts)
