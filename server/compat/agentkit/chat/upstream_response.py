"""The response of the chat upstream, and the errors raised instead of one."""

from config.errors import FlorilegiumError
from config.outgoing_http import IncomingResponse


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
