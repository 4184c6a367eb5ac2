"""A long-lived connection: both eras on it, responses in any order, exactly one response per request."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auth.context import Owner, Principal, RequestContext, SessionId, build_context
from config.errors import RateLimited
from config.paths import UserId
from server.protocol.catalog import Change
from server.protocol.connection import Connection
from server.protocol.legacy_sessions import LegacySessions
from server.protocol.messages import BATCH_VERSION, LEGACY_VERSIONS, encode
from sessions.state import InProcessSessionStates, SessionHandle, SessionState, SessionStateLimits
from sessions.store import InProcessSessionStore
from tests.cases import each_case
from tests.server.clients import ELICITATION, handshake, message, text_of
from tests.server.http_client import WAIT_MAX_S
from tests.server.mutated_messages import JSON, LEGACY, MODERN, is_request, mutated
from tests.server.protocol.dispatcher_fixture import NOWHERE, make_dispatcher, make_principal
from tests.server.sample_catalog import SampleCatalog
from tests.tiers import examples

# Connections are not closed, so that their tasks last as long as the event loop.
pytestmark = pytest.mark.asyncio(loop_scope="function")

LIMITS = SessionStateLimits(ttl_s=60, seen_max=10, queries_max=10, total_max=1_000, user_max=1_000)


class RemoteSessionStates(InProcessSessionStates):
    """Like a store in another process: other tasks run while it is accessed."""

    async def get_or_create(self, handle: SessionHandle, owner: Owner) -> SessionState:
        await asyncio.sleep(0)
        return await super().get_or_create(handle, owner)


class ConnectionClient:
    """The client's end of a connection."""

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
        self.received: list[Any] = []
        self._allowed = allowed
        self._received = asyncio.Event()
        self.connection = Connection(
            dispatcher,
            self.sessions,
            principal,
            self._build_context,
            self._write,
            self._admit,
            in_flight_max,
        )

    def _build_context(self, principal: Principal, request_id: str, session_id: SessionId | None) -> RequestContext:
        return build_context(principal, NOWHERE, request_id, session_id)

    async def _write(self, body: Mapping[str, Any] | list[Any]) -> None:
        self.received.append(msgspec.json.decode(encode(body)))
        self._received.set()

    async def _admit(self) -> Principal:
        self._allowed -= 1
        if self._allowed < 0:
            raise RateLimited("calls", 3.0)
        return self.principal

    async def send(self, body: Any) -> None:
        await self.connection.receive(body if isinstance(body, str | bytes) else encode(body))

    async def receive(self, count: int) -> list[Any]:
        """Waits for that many messages and returns them."""
        async with asyncio.timeout(WAIT_MAX_S):
            while len(self.received) < count:
                self._received.clear()
                await self._received.wait()
        return self.received[:count]

    async def receive_all(self) -> list[Any]:
        await self.connection.finish()
        return self.received


@asynccontextmanager
async def initialized(
    samples: SampleCatalog, version: str = "2025-11-25", **more: Any
) -> AsyncIterator[ConnectionClient]:
    """Yields a client after its handshake; the response to it is discarded."""
    client = ConnectionClient(samples, make_principal("ada"), **more)
    await client.send(handshake(version, ELICITATION))
    await client.receive_all()
    client.received.clear()
    yield client
    await client.connection.close()


def call_tool(name: str, arguments: Mapping[str, Any], request_id: Any) -> dict[str, Any]:
    return message("tools/call", {"name": name, "arguments": arguments}, request_id)


async def test_a_legacy_client_is_notified_of_changes(samples: SampleCatalog) -> None:
    changes = samples.catalog.changes
    async with initialized(samples) as client:
        await client.send(message("resources/subscribe", {"uri": "test://plain"}, 1))
        await client.receive(1)
        changes.publish(Change("updated", "test://plain", UserId("somebody-else")))
        changes.publish(Change("updated", "test://plain", client.principal.user_id))
        await client.receive(2)
        await client.send(handshake())
        await client.receive(3)
        changes.publish(Change("tools"))
        received = await client.receive(4)
    changes.publish(Change("tools"))

    methods = [one.get("method") for one in received]
    assert methods == [None, "notifications/resources/updated", None, "notifications/tools/list_changed"]
    assert len(client.received) == 4


def handshake_with_config(request_id: Any, **config: Any) -> dict[str, Any]:
    """A handshake that sets the session's defaults."""
    initialize = handshake(request_id=request_id)
    return {**initialize, "params": {**initialize["params"], "config": config}}


async def test_a_second_handshake_ends_the_first_session_and_deletes_its_state(samples: SampleCatalog) -> None:
    client = ConnectionClient(samples, make_principal("ada"))

    await client.send(handshake_with_config(1, max_tokens=700))
    await client.receive_all()
    first = client.session_states.size
    await client.send(handshake_with_config(2, max_tokens=700))
    await client.receive_all()

    assert len(client.sessions) == 1
    assert client.session_states.size == first > 0
    await client.connection.close()
    assert (len(client.sessions), client.session_states.size) == (0, 0)


async def test_two_concurrent_handshakes_leave_one_session(samples: SampleCatalog) -> None:
    client = ConnectionClient(samples, make_principal("ada"), session_states=RemoteSessionStates(LIMITS))

    await client.send(handshake_with_config(1, max_tokens=700))
    await client.send(handshake_with_config(2, max_tokens=700))
    await client.receive_all()

    assert len(client.sessions) == 1
    await client.connection.close()
    assert (len(client.sessions), client.session_states.size) == (0, 0)


async def test_requests_that_follow_the_handshake_at_once_use_its_session(samples: SampleCatalog) -> None:
    client = ConnectionClient(samples, make_principal("ada"), session_states=RemoteSessionStates(LIMITS))

    await client.send(handshake_with_config(1, max_tokens=700))
    await client.send(message("tools/list", {}, 2))
    _, tools = await client.receive_all()
    await client.connection.close()

    assert tools["result"]["tools"]


async def test_a_rejected_handshake_keeps_the_existing_session(samples: SampleCatalog) -> None:
    async with initialized(samples) as client:
        await client.send(handshake_with_config(1, api_key="hunter2"))
        await client.send(message("tools/list", {}, 2))
        rejected, tools = await client.receive_all()

    assert rejected["error"]["code"] == -32602
    assert "got 'api_key'; a config cannot carry credentials, users or paths" in rejected["error"]["message"]
    assert tools["result"]["tools"]


async def test_before_the_handshake_only_ping_is_answered(samples: SampleCatalog) -> None:
    client = ConnectionClient(samples, make_principal("ada"))

    await client.send(message("ping", {}, 1))
    await client.send(message("tools/list", {}, 2))
    ping, rejected = await client.receive_all()

    assert ping == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert rejected["error"]["code"] == -32600


@each_case(
    "params",
    [
        {},
        {"protocolVersion": 5, "capabilities": {}, "clientInfo": {}},
        {"protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": {}},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": "me"},
    ],
)
async def test_a_malformed_handshake_is_rejected_and_can_be_repeated(samples: SampleCatalog, params: Any) -> None:
    client = ConnectionClient(samples, make_principal("ada"))

    await client.send(message("initialize", params, 1))
    (rejected,) = await client.receive(1)
    await client.send(handshake(request_id=2))

    assert rejected["error"]["code"] == -32602
    assert (await client.receive_all())[1]["result"]["serverInfo"]["name"] == "sample"


@each_case(
    "params", [{"requestId": 9}, {"requestId": "1"}, {"requestId": 1.5}, {"requestId": None}, {"requestId": []}, {}]
)
async def test_a_cancellation_of_an_unknown_request_is_ignored(samples: SampleCatalog, params: Any) -> None:
    async with initialized(samples) as client:
        await client.send(message("notifications/cancelled", params))
        await client.send(message("ping", {}, 1))

        assert [response["id"] for response in await client.receive_all()] == [1]


async def test_a_cancellation_that_is_sent_right_after_its_call_stops_it(samples: SampleCatalog) -> None:
    async with initialized(samples) as client:
        await client.send(call_tool("wait", {"gate": "g"}, 1))
        await client.send(message("notifications/cancelled", {"requestId": 1}))
        await client.send(message("ping", {}, 2))
        samples.gates["g"].opened.set()

        assert [response["id"] for response in await client.receive_all()] == [2]


async def test_an_error_response_to_an_elicitation_is_reported_to_the_model(samples: SampleCatalog) -> None:
    async with initialized(samples) as client:
        await client.send(call_tool("ask_name", {}, 1))
        (elicitation,) = await client.receive(1)
        await client.send(
            {"jsonrpc": "2.0", "id": elicitation["id"], "error": {"code": -1, "message": "no user present"}}
        )

        result = (await client.receive_all())[1]["result"]
    assert result["isError"] is True
    assert "no user present" in text_of(result)


async def test_an_unexpected_error_is_logged_and_reported_by_request_id(
    samples: SampleCatalog, failures: list[str]
) -> None:
    async with initialized(samples) as client:
        await client.send(message("resources/read", {"uri": "test://broken"}, "r"))
        (response,) = await client.receive_all()

    assert (response["id"], response["error"]["code"]) == ("r", -32603)
    assert "test://broken" not in response["error"]["message"]
    assert "RuntimeError" in failures.pop()


# -- batches ----------------------------------------------------------------------------------------------------


async def test_a_batch_of_notifications_gets_no_response(samples: SampleCatalog) -> None:
    async with initialized(samples, BATCH_VERSION) as client:
        await client.send([message("notifications/initialized")])

        assert await client.receive_all() == []


@each_case("version", [version for version in LEGACY_VERSIONS if version != BATCH_VERSION])
async def test_a_batch_is_rejected_where_the_version_has_no_batches(samples: SampleCatalog, version: str) -> None:
    async with initialized(samples, version) as client:
        await client.send([message("ping", {}, 1)])
        (response,) = await client.receive_all()

    assert (response["id"], response["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize(
    "batch", [[], [message("ping", {}, n) for n in range(5)], [1] * 1000], ids=["empty", "too large", "thousand"]
)
async def test_an_empty_or_too_large_batch_is_rejected_with_one_error(samples: SampleCatalog, batch: list[Any]) -> None:
    async with initialized(samples, BATCH_VERSION, in_flight_max=4) as client:
        await client.send(batch)
        (response,) = await client.receive_all()

    assert (response["id"], response["error"]["code"]) == (None, -32600)


async def test_initialize_inside_a_batch_is_rejected(samples: SampleCatalog) -> None:
    async with initialized(samples, BATCH_VERSION) as client:
        await client.send([handshake("2025-11-25", request_id=1), message("ping", {}, 2)])
        ((rejected, ping),) = await client.receive_all()

    assert (rejected["id"], rejected["error"]["code"]) == (1, -32600)
    assert ping["result"] == {}


async def test_batches_count_as_calls_in_flight(samples: SampleCatalog) -> None:
    async with initialized(samples, BATCH_VERSION, in_flight_max=2) as client:
        for _ in range(3):
            await client.send([call_tool("wait", {"gate": "g"}, 1)])
        (rejected,) = await client.receive(1)
        samples.gates["g"].opened.set()
        responses = await client.receive_all()

    assert rejected["error"]["code"] == 503
    assert len(responses) == 3


# -- arbitrary input --------------------------------------------------------------------------------------------

ANY = mutated(LEGACY) | mutated(MODERN)
FRAMES = st.lists(ANY | st.lists(ANY, max_size=4) | JSON, max_size=6)


def _expected_ids(frame: Any) -> Counter[Any]:
    """Returns the ids of the well-formed requests in a frame."""
    return Counter(body["id"] for body in (frame if isinstance(frame, list) else [frame]) if is_request(body))


def _is_batch_error(response: Any) -> bool:
    """Returns whether a response rejects a whole batch."""
    return isinstance(response, dict) and response.get("id") is None and "error" in response


def _response_ids(responses: list[Any]) -> Counter[Any]:
    flat = [body for response in responses for body in (response if isinstance(response, list) else [response])]
    return Counter(body["id"] for body in flat if "id" in body and "method" not in body)


@settings(max_examples=examples(50))
@given(FRAMES)
async def test_every_request_in_arbitrary_input_gets_one_response(frames: list[Any]) -> None:
    client = ConnectionClient(SampleCatalog(), make_principal("ada"))
    await client.send(handshake(BATCH_VERSION))
    await client.receive_all()

    for frame in frames:
        client.received.clear()
        await client.send(frame)
        responses = await client.receive_all()
        if isinstance(frame, list) and any(map(_is_batch_error, responses)):
            assert len(responses) == 1
            continue
        expected, actual = _expected_ids(frame), _response_ids(responses)
        # A malformed message with a readable id gets an error under that id too, hence "at least" inside a batch.
        assert all(actual[request_id] >= count for request_id, count in expected.items())
        assert actual.total() <= (len(frame) if isinstance(frame, list) and frame else 1)
    await client.connection.close()


@settings(max_examples=examples(50))
@given(st.lists(st.binary(max_size=40) | st.text(max_size=40), max_size=6))
async def test_a_request_after_arbitrary_bytes_is_answered(frames: list[bytes | str]) -> None:
    client = ConnectionClient(SampleCatalog(), make_principal("ada"))

    for frame in frames:
        await client.send(frame)
    await client.send(message("ping", {}, "last"))

    assert (await client.receive_all())[-1] == {"jsonrpc": "2.0", "id": "last", "result": {}}
