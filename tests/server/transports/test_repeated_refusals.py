"""Callers that were refused together and return together are answered at once; a flood of calls is slowed down."""

from contextlib import suppress
from typing import Any

import msgspec

from server.transports.headers import Headers
from server.transports.http import RepeatedRefusals
from tests.server.clients import message

_RESULT = {"content": [], "isError": True, "_meta": {"florilegium/retryAfterS": 5.0}}
_BODY = msgspec.json.encode(message("tools/call", {"name": "search"}, 1))


async def test_burst_of_repeated_calls_is_answered_at_once_and_a_flood_waits() -> None:
    refusals = RepeatedRefusals(None, clock=lambda: 1000.0)
    refusals.remember(Headers([(b"authorization", b"ada")]), "search", _RESULT, 5.0)
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": _BODY, "more_body": False}

    async def send(part: Any) -> None:
        if part["type"] == "http.response.start":
            statuses.append(part["status"])

    scope = {"type": "http", "method": "POST", "headers": [(b"authorization", b"ada")]}
    for _ in range(200):
        call = refusals.answer(scope.copy(), receive, send)
        # Runs the call until it ends or waits for a time.
        with suppress(StopIteration):
            call.send(None)
        call.close()
    assert statuses == [200] * 100
