"""Closes a connection after a refused request, so that a client without access cannot send one after the other."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.transports.client_connections import connection_of

_REFUSALS = frozenset((401, 403, 413, 429))


class CloseAfterRefusal:
    """Adds `Connection: close` to a refusal.

    If the body is still arriving, the protocol closes the connection later; see `bounded_http`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return

        async def send_and_close(message: Message) -> None:
            if message.get("status") in _REFUSALS and connection.has_whole_request:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_and_close)
