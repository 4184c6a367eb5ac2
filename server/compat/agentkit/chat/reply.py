"""What an upstream answers, or why it does not."""

from collections.abc import AsyncIterator, Mapping

from msgspec import Struct

from config.errors import FlorilegiumError


class UpstreamFailed(FlorilegiumError):
    """It cannot be reached, or what it says is no answer."""

    status = 502
    code = 502


class UpstreamSilent(UpstreamFailed):
    """It was given its time."""

    status = 504
    code = 504

    def __init__(self, silence_s: float) -> None:
        super().__init__(f"the upstream was silent for {silence_s:g} s")


class Reply(Struct, frozen=True):
    """The head of an answer, and its body to be read once. Names of headers are lower case."""

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
                raise UpstreamFailed(f"the upstream's answer is larger than {max_bytes} bytes")
            parts.append(part)
        return b"".join(parts)
