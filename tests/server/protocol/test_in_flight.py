"""Running calls and requests to the client belong to one connection; other connections cannot affect them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from config.errors import FlorilegiumError
from server.protocol.legacy_sessions import InFlightRequests
from server.protocol.messages import Response


async def _run_until_cancelled(in_flight: InFlightRequests, connection: str, request_id: Any) -> bool:
    with in_flight.running(connection, request_id) as running:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            running.uncancel()
            return running.is_cancelled
    return False


class ServerRequest:
    """A request to the client, and the message that was sent for it."""

    def __init__(self, in_flight: InFlightRequests, connection: str) -> None:
        self.sent: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.result = asyncio.create_task(in_flight.request(connection, self._send, "roots/list", {"a": 1}))

    async def _send(self, message: Mapping[str, Any]) -> None:
        self.sent.set_result(message)


async def test_a_call_that_ended_cannot_be_cancelled() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    with in_flight.running("ada", 1):
        pass

    in_flight.cancel("ada", 1)
    await asyncio.sleep(0)

    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_duplicate_request_id_cancels_only_the_newer_call() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    first = asyncio.create_task(_run_until_cancelled(in_flight, "ada", 1))
    await asyncio.sleep(0)
    second = asyncio.create_task(_run_until_cancelled(in_flight, "ada", 1))
    await asyncio.sleep(0)

    in_flight.cancel("ada", 1)

    assert await second is True
    assert not first.done()
    first.cancel()
    assert await first is False


async def test_a_second_response_is_dropped() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    request = ServerRequest(in_flight, "ada")
    sent = await request.sent

    in_flight.resolve("ada", Response(sent["id"], {"n": 1}, None))
    in_flight.resolve("ada", Response(sent["id"], {"n": 2}, None))

    assert await request.result == {"n": 1}
    in_flight.resolve("ada", Response(sent["id"], {"n": 3}, None))


async def test_an_error_response_of_the_client_is_raised_with_a_truncated_message() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    request = ServerRequest(in_flight, "ada")
    sent = await request.sent

    in_flight.resolve("ada", Response(sent["id"], None, {"code": -1, "message": "x" * 10_000}))

    with pytest.raises(FlorilegiumError, match="the client returned an error") as error:
        await request.result
    assert len(error.value.message) < 300
