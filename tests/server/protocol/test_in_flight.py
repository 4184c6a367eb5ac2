"""Running calls and requests to the client belong to one connection; other connections cannot affect them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from config.errors import FlorilegiumError
from server.protocol.legacy_sessions import InFlightRequests
from server.protocol.messages import Response
from tests.cases import each_case


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


async def test_a_cancellation_affects_only_its_own_connection() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    ada = asyncio.create_task(_run_until_cancelled(in_flight, "ada", 1))
    ben = asyncio.create_task(_run_until_cancelled(in_flight, "ben", 1))
    await asyncio.sleep(0)

    in_flight.cancel("ada", 1)

    assert await ada is True
    assert not ben.done()
    in_flight.cancel("ben", 1)
    assert await ben is True


@each_case("request_id", [2, "1", None, [], {}, 1.5])
async def test_a_cancellation_of_an_unknown_or_invalid_id_is_ignored(request_id: Any) -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    call = asyncio.create_task(_run_until_cancelled(in_flight, "ada", 1))
    await asyncio.sleep(0)

    in_flight.cancel("ada", request_id)
    await asyncio.sleep(0)

    assert not call.done()
    in_flight.cancel("ada", 1)
    assert await call is True


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


async def test_a_request_is_resolved_only_by_its_own_connection() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    request = ServerRequest(in_flight, "ada")
    sent = await request.sent

    in_flight.resolve("ben", Response(sent["id"], {"from": "ben"}, None))
    in_flight.resolve("ada", Response("another id", {"from": "nowhere"}, None))
    in_flight.resolve("ada", Response(sent["id"], {"from": "ada"}, None))

    assert await request.result == {"from": "ada"}
    assert (sent["method"], sent["params"]) == ("roots/list", {"a": 1})


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
