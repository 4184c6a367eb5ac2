"""What every HTTP request does to its connection: the memory of its body is counted while it is served, and a refusal
closes it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.protocol.connection import TEXT_BYTES
from server.transports.client_connections import connection_of

_REFUSALS = frozenset((401, 403, 413, 429))


class ConnectionMiddleware:
    """Counts the memory of a request's body until it is answered, because the decoded body is kept that long.

    Adds `Connection: close` to a refusal, so that a client without access cannot send one request after the other. If
    the body is still arriving, the protocol closes the connection later; see `bounded_http`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return

        async def counting_receive() -> Message:
            message = await receive()
            if body := message.get("body"):
                connection.hold_part(TEXT_BYTES * len(body))
            return message

        async def closing_send(message: Message) -> None:
            is_refusal = message.get("status") in _REFUSALS or connection.is_over_limit
            if is_refusal and connection.has_whole_request and message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        try:
            await self._app(scope, counting_receive, closing_send)
        finally:
            connection.release_request()
