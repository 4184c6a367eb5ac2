"""Around every HTTP request and WebSocket: an id in the log and in `X-Request-Id`, one log line, one count.

The line names method, path, status and time; never a query string, a header or a body.
"""

import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config.logging import REQUEST_ID, log_request, new_request_id
from server.metrics import Metrics
from server.protocol.failures import log_failure

_ACCEPTABLE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")
_HEADER = b"x-request-id"


class RequestLine:
    """A caller's own request id is kept where it is harmless, so that its logs and ours can be read together."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log_requests: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        request_id = given.decode() if _ACCEPTABLE_ID.match(given) else new_request_id()
        token = REQUEST_ID.set(request_id)
        status, began = 0, time.perf_counter()
        header = (_HEADER, request_id.encode())

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], header]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception as error:
            # What the application could not foresee was answered there; here its words are kept out of the log.
            log_failure(f"{scope.get('method', 'WS')} {scope['path']}", error)
        finally:
            if scope["type"] == "http":
                self._metrics.record_response(status)
            if self._log_requests:
                log_request(scope.get("method", "WS"), scope["path"], status, (time.perf_counter() - began) * 1000)
            REQUEST_ID.reset(token)
