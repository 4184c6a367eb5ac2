"""One lasting connection: both eras on it, answers in any order, every request answered exactly once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auth.context import RequestContext, build_context
from auth.principal import Owner, Principal
from config.errors import RateLimited
from server.protocol.connection import Connection
from server.protocol.legacy_sessions import LegacySessions
from server.protocol.messages import encode
from server.protocol.versions import BATCH_VERSION, LEGACY_VERSIONS
from sessions.session import Session
from sessions.state import InProcessSessionStates, SessionHandle, SessionState, SessionStateLimits
from sessions.store import InProcessSessionStore
from tests.server.clients import ELICITATION, handshake, message, modern_params, text_of
from tests.server.near_valid import JSON, LEGACY, MODERN, is_request, nearly
from tests.server.protocol.dispatcher_fixture import NOWHERE, make_dispatcher, make_principal
from tests.server.sample_catalog import SampleCatalog

LIMITS = SessionStateLimits(ttl_s=60, seen_max=10, queries_max=10, total_max=1_000, user_max=1_000)


class RemoteSessionStates(InProcessSessionStates):
    """As one in another process: others get their turn while it is asked."""

    async def get_or_create(self, handle: SessionHandle, owner: Owner) -> SessionState:
        await asyncio.sleep(0)
        return await super().get_or_create(handle, owner)


class Line:
    """A connection whose far end the test holds."""

    def __init__(
        self,
        samples: SampleCatalog,
        principal: Principal,
        in_flight_max: int = 8,
        allowed: int = 10**6,
        session_states: InProcessSessionStates | None = None,
    ) -> None:
        dispatcher = make_dispatcher(samples.catalog)
        self.session_states = session_states or InProcessSessionStates(LIMITS)
        self.sessions = LegacySessions(InProcessSessionStore(60.0, 100, 100), self.session_states, dispatcher.profiles)
        self.principal = principal
        self.sent: list[Any] = []
        self._allowed = allowed
        self._arrived = asyncio.Event()
        self.connection = Connection(
            dispatcher,
            self.sessions,
            principal,
            self._context,
            self._write,
            self._admit,
            in_flight_max,
        )

    def _context(self, request_id: str, session: Session | None) -> RequestContext:
        return build_context(self.principal, NOWHERE, request_id, session.id if session else None)

    async def _write(self, body: Mapping[str, Any] | list[Any]) -> None:
        self.sent.append(msgspec.json.decode(encode(body)))
        self._arrived.set()

    async def _admit(self) -> None:
        self._allowed -= 1
        if self._allowed < 0:
            raise RateLimited("calls", 3.0)

    async def say(self, body: Any) -> None:
        await self.connection.receive(body if isinstance(body, str | bytes) else encode(body))

    async def hear(self, count: int) -> list[Any]:
        """The first messages sent back, waited for."""
        async with asyncio.timeout(5):
            while len(self.sent) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.sent[:count]

    async def all(self) -> list[Any]:
        await self.connection.finish()
        return self.sent


@asynccontextmanager
async def opened(samples: SampleCatalog, version: str = "2025-11-25", **more: Any) -> AsyncIterator[Line]:
    """A line after its handshake, whose answer is forgotten."""
    line = Line(samples, make_principal("ada"), **more)
    await line.say(handshake(version, ELICITATION))
    await line.all()
    line.sent.clear()
    yield line
    await line.connection.close()


def tool(name: str, arguments: Mapping[str, Any], request_id: Any) -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": arguments}, request_id)


async def test_both_eras_are_served_on_one_connection(samples: SampleCatalog) -> None:
    async with opened(samples) as line:
        await line.say(message("tools/list", {}, 1))
        await line.say(message("tools/list", modern_params(), 2))
        answers = {answer["id"]: answer["result"] for answer in await line.all()}

    assert "resultType" not in answers[1]
    assert answers[2]["resultType"] == "complete"


@pytest.mark.parametrize("version", [*LEGACY_VERSIONS, "1999-01-01", "2026-07-28"])
async def test_a_handshake_agrees_on_a_legacy_version(samples: SampleCatalog, version: str) -> None:
    line = Line(samples, make_principal("ada"))

    await line.say(handshake(version))
    (answer,) = await line.all()

    assert answer["result"]["protocolVersion"] == (version if version in LEGACY_VERSIONS else "2025-11-25")


def configured(request_id: Any, **config: Any) -> dict[str, Any]:
    """A handshake that sets the session's defaults."""
    greeting = handshake(request_id=request_id)
    return {**greeting, "params": {**greeting["params"], "config": config}}


async def test_a_second_handshake_ends_the_first_session_and_what_it_remembers(samples: SampleCatalog) -> None:
    line = Line(samples, make_principal("ada"))

    await line.say(configured(1, max_tokens=700))
    await line.all()
    first = line.session_states.size
    await line.say(configured(2, max_tokens=700))
    await line.all()

    assert len(line.sessions) == 1
    assert line.session_states.size == first > 0
    await line.connection.close()
    assert (len(line.sessions), line.session_states.size) == (0, 0)


async def test_of_two_handshakes_at_once_one_session_is_left(samples: SampleCatalog) -> None:
    line = Line(samples, make_principal("ada"), session_states=RemoteSessionStates(LIMITS))

    await line.say(configured(1, max_tokens=700))
    await line.say(configured(2, max_tokens=700))
    await line.all()

    assert len(line.sessions) == 1
    await line.connection.close()
    assert (len(line.sessions), line.session_states.size) == (0, 0)


async def test_a_handshake_that_is_refused_leaves_the_session_there_was(samples: SampleCatalog) -> None:
    async with opened(samples) as line:
        await line.say(configured(1, api_key="hunter2"))
        await line.say(message("tools/list", {}, 2))
        refused, listed = await line.all()

    assert refused["error"]["code"] == -32602
    assert "'api_key' is never read from a config" in refused["error"]["message"]
    assert listed["result"]["tools"]


async def test_before_the_handshake_only_ping_is_answered(samples: SampleCatalog) -> None:
    line = Line(samples, make_principal("ada"))

    await line.say(message("ping", {}, 1))
    await line.say(message("tools/list", {}, 2))
    ping, refused = await line.all()

    assert ping == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert refused["error"]["code"] == -32600


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": 5, "capabilities": {}, "clientInfo": {}},
        {"protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": {}},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": "me"},
    ],
)
async def test_a_malformed_handshake_is_refused_and_can_be_repeated(samples: SampleCatalog, params: Any) -> None:
    line = Line(samples, make_principal("ada"))

    await line.say(message("initialize", params, 1))
    (refused,) = await line.hear(1)
    await line.say(handshake(request_id=2))

    assert refused["error"]["code"] == -32602
    assert (await line.all())[1]["result"]["serverInfo"]["name"] == "specimen"


async def test_answers_come_when_they_are_ready_not_in_the_order_of_the_requests(samples: SampleCatalog) -> None:
    async with opened(samples) as line:
        await line.say(tool("wait", {"gate": "g"}, "slow"))
        await line.say(tool("echo", {"text": "x"}, "fast"))
        await line.hear(1)
        samples.gates["g"].opened.set()

        assert [answer["id"] for answer in await line.all()] == ["fast", "slow"]


async def test_a_request_over_the_limit_is_refused_and_the_running_ones_go_on(samples: SampleCatalog) -> None:
    async with opened(samples, in_flight_max=2) as line:
        for request_id in (1, 2, 3):
            await line.say(tool("wait", {"gate": "g"}, request_id))
        (refused,) = await line.hear(1)
        samples.gates["g"].opened.set()
        answers = await line.all()

    assert (refused["id"], refused["error"]["code"]) == (3, 503)
    assert {answer["id"] for answer in answers[1:]} == {1, 2}


async def test_a_cancelled_call_is_stopped_and_never_answered(samples: SampleCatalog) -> None:
    async with opened(samples) as line:
        await line.say(tool("wait", {"gate": "g"}, 1))
        await samples.gates["g"].reached.wait()

        await line.say(message("notifications/cancelled", {"requestId": 1}))
        await samples.gates["g"].cancelled.wait()
        await line.say(message("ping", {}, 2))

        assert [answer["id"] for answer in await line.all()] == [2]


@pytest.mark.parametrize("params", [{"requestId": 9}, {"requestId": None}, {"requestId": []}, {}])
async def test_a_cancellation_of_nothing_is_ignored(samples: SampleCatalog, params: Any) -> None:
    async with opened(samples) as line:
        await line.say(message("notifications/cancelled", params))
        await line.say(message("ping", {}, 1))

        assert [answer["id"] for answer in await line.all()] == [1]


async def test_two_connections_with_the_same_ids_never_meet(samples: SampleCatalog) -> None:
    ada, ben = Line(samples, make_principal("ada")), Line(samples, make_principal("ben"))
    for line, gate in ((ada, "a"), (ben, "b")):
        await line.say(message("tools/call", modern_params({"name": "wait", "arguments": {"gate": gate}}), 1))
        await samples.gates[gate].reached.wait()

    await ben.say(message("notifications/cancelled", {"requestId": 1}))
    await samples.gates["b"].cancelled.wait()
    samples.gates["a"].opened.set()

    assert [text_of(answer["result"]) for answer in await ada.all()] == ['{"text":"a","user":"ada"}']
    assert await ben.all() == []


async def test_a_question_goes_over_the_same_connection_and_finds_its_answer(samples: SampleCatalog) -> None:
    async with opened(samples) as line:
        await line.say(tool("ask_name", {"text": "hi"}, 1))
        (question,) = await line.hear(1)
        answer = {"action": "accept", "content": {"name": "Ada"}}
        await line.say({"jsonrpc": "2.0", "id": question["id"], "result": answer})

        assert question["method"] == "elicitation/create"
        assert "Ada: hi" in text_of((await line.all())[1]["result"])


async def test_the_client_may_refuse_a_question_and_the_model_is_told(samples: SampleCatalog) -> None:
    async with opened(samples) as line:
        await line.say(tool("ask_name", {}, 1))
        (question,) = await line.hear(1)
        await line.say({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no person here"}})

        result = (await line.all())[1]["result"]
    assert result["isError"] is True
    assert "no person here" in text_of(result)


async def test_a_rate_limit_is_an_error_of_the_request_and_the_connection_lives(samples: SampleCatalog) -> None:
    async with opened(samples, allowed=2) as line:
        await line.say(message("ping", {}, 1))
        await line.say(message("ping", {}, 2))
        first, second = await line.all()

    assert first["result"] == {}
    assert second["error"] == {
        "code": 429,
        "message": "rate limit for calls reached; retry after 3 s",
        "data": {"retry_after_s": 3.0},
    }


async def test_a_failure_nobody_foresaw_is_answered_with_the_id_and_logged(
    samples: SampleCatalog, failures: list[str]
) -> None:
    async with opened(samples) as line:
        await line.say(message("resources/read", {"uri": "test://broken"}, "r"))
        (answer,) = await line.all()

    assert (answer["id"], answer["error"]["code"]) == ("r", -32603)
    assert "specimen" not in answer["error"]["message"]
    assert "RuntimeError" in failures.pop()


async def test_the_session_ends_with_its_connection_and_with_a_new_handshake(samples: SampleCatalog) -> None:
    line = Line(samples, make_principal("ada"))
    await line.say(handshake())
    await line.say(handshake())
    await line.all()
    assert len(line.sessions) == 1

    await line.connection.close()

    assert len(line.sessions) == 0


async def test_closing_stops_what_still_runs(samples: SampleCatalog) -> None:
    async with opened(samples) as line:
        await line.say(tool("wait", {"gate": "g"}, 1))
        await samples.gates["g"].reached.wait()

    assert samples.gates["g"].cancelled.is_set()
    assert line.sent == []


# -- batches ----------------------------------------------------------------------------------------------------


async def test_a_batch_is_answered_as_one_where_the_version_has_batches(samples: SampleCatalog) -> None:
    async with opened(samples, BATCH_VERSION) as line:
        batch = [message("ping", {}, 1), message("notifications/initialized"), 7, tool("echo", {"text": "x"}, 2)]
        await line.say(batch)
        (answers,) = await line.all()

    assert [(answer["id"], "result" in answer) for answer in answers] == [(1, True), (None, False), (2, True)]


async def test_a_batch_of_notifications_is_not_answered(samples: SampleCatalog) -> None:
    async with opened(samples, BATCH_VERSION) as line:
        await line.say([message("notifications/initialized")])

        assert await line.all() == []


@pytest.mark.parametrize("version", [version for version in LEGACY_VERSIONS if version != BATCH_VERSION])
async def test_a_batch_is_refused_where_the_version_has_none(samples: SampleCatalog, version: str) -> None:
    async with opened(samples, version) as line:
        await line.say([message("ping", {}, 1)])
        (answer,) = await line.all()

    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize(
    "batch", [[], [message("ping", {}, n) for n in range(5)], [1] * 1000], ids=["empty", "overfull", "thousand"]
)
async def test_an_empty_or_overfull_batch_is_refused_with_one_error(samples: SampleCatalog, batch: list[Any]) -> None:
    async with opened(samples, BATCH_VERSION, in_flight_max=4) as line:
        await line.say(batch)
        (answer,) = await line.all()

    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


async def test_a_handshake_inside_a_batch_is_refused(samples: SampleCatalog) -> None:
    async with opened(samples, BATCH_VERSION) as line:
        await line.say([handshake("2025-11-25", request_id=1), message("ping", {}, 2)])
        ((refused, ping),) = await line.all()

    assert (refused["id"], refused["error"]["code"]) == (1, -32600)
    assert ping["result"] == {}


async def test_batches_count_as_calls_in_flight(samples: SampleCatalog) -> None:
    async with opened(samples, BATCH_VERSION, in_flight_max=2) as line:
        for _ in range(3):
            await line.say([tool("wait", {"gate": "g"}, 1)])
        (refused,) = await line.hear(1)
        samples.gates["g"].opened.set()
        answers = await line.all()

    assert refused["error"]["code"] == 503
    assert len(answers) == 3


# -- anything at all --------------------------------------------------------------------------------------------

ANY = nearly(LEGACY) | nearly(MODERN)
FRAMES = st.lists(ANY | st.lists(ANY, max_size=4) | JSON, max_size=6)


def _owed(frame: Any) -> Counter[Any]:
    """The ids of the well-formed requests in a frame."""
    return Counter(body["id"] for body in (frame if isinstance(frame, list) else [frame]) if is_request(body))


def _is_refused_whole(sent: Any) -> bool:
    """The answer to a batch where the version has none, or to one that is empty."""
    return isinstance(sent, dict) and sent.get("id") is None and "error" in sent


def _answered(sent: list[Any]) -> Counter[Any]:
    flat = [body for answer in sent for body in (answer if isinstance(answer, list) else [answer])]
    return Counter(body["id"] for body in flat if "id" in body and "method" not in body)


@settings(max_examples=100, deadline=None)
@given(FRAMES)
async def test_whatever_comes_in_each_request_is_answered_once_and_nothing_breaks(frames: list[Any]) -> None:
    line = Line(SampleCatalog(), make_principal("ada"))
    await line.say(handshake(BATCH_VERSION))
    await line.all()

    for frame in frames:
        line.sent.clear()
        await line.say(frame)
        sent = await line.all()
        if isinstance(frame, list) and any(_is_refused_whole(one) for one in sent):
            assert len(sent) == 1
            continue
        owed, answered = _owed(frame), _answered(sent)
        # A malformed message with a readable id is answered under that id too, hence "at least" inside a batch.
        assert all(answered[request_id] >= count for request_id, count in owed.items())
        assert answered.total() <= (len(frame) if isinstance(frame, list) and frame else 1)
    await line.connection.close()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.text(max_size=40), max_size=6))
async def test_whatever_bytes_come_in_the_next_request_is_answered(frames: list[bytes | str]) -> None:
    line = Line(SampleCatalog(), make_principal("ada"))

    for frame in frames:
        await line.say(frame)
    await line.say(message("ping", {}, "last"))

    assert (await line.all())[-1] == {"jsonrpc": "2.0", "id": "last", "result": {}}
