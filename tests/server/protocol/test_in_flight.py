"""RunningCall calls and open questions belong to one connection: another's cancellation or answer never finds them."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from config.errors import FlorilegiumError
from server.protocol.in_flight import InFlightRequests
from server.protocol.messages import Response


async def _run_until_cancelled(in_flight: InFlightRequests, connection: str, request_id: Any) -> bool:
    with in_flight.running(connection, request_id) as running:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            running.forgive()
            return running.cancelled
    return False


class Question:
    """One open question of a connection, and the id the client has to answer with."""

    def __init__(self, in_flight: InFlightRequests, connection: str) -> None:
        self.sent: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self.answer = asyncio.create_task(in_flight.ask(connection, self._send, "roots/list", {"a": 1}))

    async def _send(self, message: Mapping[str, Any]) -> None:
        self.sent.set_result(message)


async def test_a_cancellation_reaches_the_call_of_its_own_connection_only() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    ada = asyncio.create_task(_run_until_cancelled(in_flight, "ada", 1))
    ben = asyncio.create_task(_run_until_cancelled(in_flight, "ben", 1))
    await asyncio.sleep(0)

    in_flight.cancel("ada", 1)

    assert await ada is True
    assert not ben.done()
    in_flight.cancel("ben", 1)
    assert await ben is True


@pytest.mark.parametrize("request_id", [2, "1", None, [], {}, 1.5])
async def test_a_cancellation_of_an_unknown_or_odd_id_does_nothing(request_id: Any) -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    call = asyncio.create_task(_run_until_cancelled(in_flight, "ada", 1))
    await asyncio.sleep(0)

    in_flight.cancel("ada", request_id)
    await asyncio.sleep(0)

    assert not call.done()
    in_flight.cancel("ada", 1)
    assert await call is True


async def test_a_call_that_ended_cannot_be_cancelled_any_more() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    with in_flight.running("ada", 1):
        pass

    in_flight.cancel("ada", 1)
    await asyncio.sleep(0)

    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_an_id_used_again_while_its_first_call_runs_keeps_both_alive() -> None:
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


async def test_a_question_is_answered_by_its_own_connection_only() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    question = Question(in_flight, "ada")
    sent = await question.sent

    in_flight.answer("ben", Response(sent["id"], {"from": "ben"}, None))
    in_flight.answer("ada", Response("another id", {"from": "nowhere"}, None))
    in_flight.answer("ada", Response(sent["id"], {"from": "ada"}, None))

    assert await question.answer == {"from": "ada"}
    assert (sent["method"], sent["params"]) == ("roots/list", {"a": 1})


async def test_a_second_answer_to_one_question_is_dropped() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    question = Question(in_flight, "ada")
    sent = await question.sent

    in_flight.answer("ada", Response(sent["id"], {"n": 1}, None))
    in_flight.answer("ada", Response(sent["id"], {"n": 2}, None))

    assert await question.answer == {"n": 1}
    in_flight.answer("ada", Response(sent["id"], {"n": 3}, None))


async def test_a_refusal_of_the_client_becomes_an_error_with_a_bounded_text() -> None:
    in_flight = InFlightRequests(elicitation_timeout_s=5)
    question = Question(in_flight, "ada")
    sent = await question.sent

    in_flight.answer("ada", Response(sent["id"], None, {"code": -1, "message": "x" * 10_000}))

    with pytest.raises(FlorilegiumError, match="the client refused") as refused:
        await question.answer
    assert len(refused.value.message) < 300
