"""The config of a request: read from header, query or handshake at every door, or refused in a sentence."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from auth.context import SessionId
from config.errors import InvalidParams, TooLarge
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool
from server.protocol.versions import BATCH_VERSION
from server.transports.request_options import decode_config, profile_in
from sessions.state import handle_for
from tests.live import LiveServer, live, make_settings
from tests.server.clients import (
    LegacyClient,
    ModernClient,
    WebSocketClient,
    handshake,
    message,
    modern_headers,
    modern_params,
)
from tests.server.http_client import HttpResponse, fetch

CONFIG = {"snippet_length": 120, "order_by": "recent", "chars_per_token": 3.5}


class Nothing(Struct, forbid_unknown_fields=True):
    pass


async def _tell(call: Call, given: Nothing) -> Mapping[str, Any]:
    return {"config": dict(call.context.config)}


def add_teller(catalog: Catalog) -> None:
    """A tool that answers the config it was called with."""
    catalog.add_tool(Tool(name="tell_config", title="Tell", description="Tells.", input=Nothing, handler=_tell))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0}
    settings = make_settings(tmp_path_factory.mktemp("up"), request_config_max_bytes=200, **unlimited)
    async with live(settings, extend=add_teller) as server:
        yield server


at_the_door = pytest.mark.asyncio(loop_scope="module")


def encoded(config: Any) -> str:
    return base64.b64encode(msgspec.json.encode(config)).decode()


async def ask(
    server: LiveServer, headers: Mapping[str, str] | None = None, query: str = "", user: str = "ada"
) -> HttpResponse:
    """A modern call of the telling tool."""
    params = {"name": "tell_config", "arguments": {}}
    sent = {**modern_headers("tools/call", params), **await server.bearer(user), **(headers or {})}
    body = msgspec.json.encode(message("tools/call", modern_params(params), 1))
    return await fetch(server.url, "POST", f"/mcp{query}", sent, body)


def told(body: Any) -> Any:
    return body["result"]["structuredContent"]["config"]


# -- where it is read -------------------------------------------------------------------------------------------


@at_the_door
async def test_a_config_in_the_header_or_in_the_query_reaches_the_call(server: LiveServer) -> None:
    by_header = await ask(server, {"Mcp-Config": encoded(CONFIG)})
    by_query = await ask(server, query=f"?config={quote(encoded(CONFIG))}")
    at_a_profile = await ask(server, query=f"/compact?config={quote(encoded(CONFIG))}")
    without = await ask(server, user="ben")

    assert told(by_header.json()) == told(by_query.json()) == told(at_a_profile.json()) == CONFIG
    assert told(without.json()) == {}


@at_the_door
async def test_a_legacy_request_carries_its_own_config(server: LiveServer) -> None:
    ada, ben = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ben", version=BATCH_VERSION)
    body = message("tools/call", {"name": "tell_config", "arguments": {}}, 1)

    with_config = await ada.post(body, {"Mcp-Config": encoded(CONFIG)})
    without = await ada.post(body)
    (in_a_batch,) = (await ben.post([body], {"Mcp-Config": encoded({"max_tokens": 9})})).json()

    assert (told(with_config.json()), told(without.json())) == (CONFIG, {})
    assert told(in_a_batch) == {"max_tokens": 9}


@at_the_door
async def test_a_config_in_the_address_of_a_socket_holds_for_all_its_requests_in_both_eras(server: LiveServer) -> None:
    call = {"name": "tell_config", "arguments": {}}
    async with WebSocketClient.open(
        f"{server.ws}?config={quote(encoded(CONFIG))}", await server.bearer("ada")
    ) as socket:
        modern = await socket.request("tools/call", modern_params(call))
        await socket.initialize()
        legacy = await socket.request("tools/call", call)

    assert told(modern) == told(legacy) == CONFIG


@at_the_door
async def test_a_config_in_the_handshake_becomes_the_sessions_defaults(server: LiveServer) -> None:
    greeting = handshake()
    greeting["params"]["config"] = CONFIG
    ada = LegacyClient(server, await server.bearer("ada"))
    opened = await ada.post(greeting)
    ada.headers["Mcp-Session-Id"] = opened.header("mcp-session-id") or ""

    state = (await ada.call("session_configure", {"max_tokens": 700})).json()["result"]["structuredContent"]

    assert state["defaults"] == {**CONFIG, "max_tokens": 700}


# -- what is refused --------------------------------------------------------------------------------------------

REFUSED = {
    "a secret": ({"api_key": "hunter2"}, "got 'api_key'; a config cannot carry credentials, users or paths"),
    "an unknown key": ({"limit": 3}, "config: expected any of snippet_length, "),
    "a wrong type": ({"max_tokens": "many"}, "config.max_tokens: Expected `int | null`, got `str`"),
    "no object": ([1], "expected an object with any of"),
}


@at_the_door
@pytest.mark.parametrize("case", REFUSED)
async def test_a_config_that_cannot_be_used_is_400_in_both_eras_and_in_the_handshake(
    server: LiveServer, case: str
) -> None:
    config, sentence = REFUSED[case]
    ada = await LegacyClient.open(server, "ada")
    greeting = handshake()
    greeting["params"]["config"] = config

    answers = [
        await ask(server, {"Mcp-Config": encoded(config)}),
        await ask(server, query=f"?config={quote(encoded(config))}"),
        await ada.post(message("ping", {}, 1), {"Mcp-Config": encoded(config)}),
        await LegacyClient(server, await server.bearer("ada")).post(greeting),
    ]

    for answer in answers:
        assert (answer.status, answer.json()["error"]["code"]) == (400, -32602)
        assert sentence in answer.json()["error"]["message"]
        assert b"hunter2" not in answer.body


@at_the_door
@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"Mcp-Config": "%%%"}, "", 400),
        ({"Mcp-Config": encoded("text")[:-3]}, "", 400),
        ({"Mcp-Config": encoded(CONFIG)}, f"?config={quote(encoded(CONFIG))}", 400),
        ({}, "?config=e30&config=e30", 400),
        ({}, "?" + "&".join(f"p{n}=1" for n in range(40)), 400),
        ({"Mcp-Config": "e" * 201}, "", 413),
        ({}, f"?config={'e' * 201}", 413),
    ],
    ids=["no base64", "no JSON", "in both places", "twice", "too many parts", "too long a header", "too long a query"],
)
async def test_a_config_that_cannot_be_read_is_refused(
    server: LiveServer, headers: Mapping[str, str], query: str, status: int
) -> None:
    assert (await ask(server, headers, query)).status == status


@at_the_door
@pytest.mark.parametrize("config", [{"api_key": "hunter2"}, {"limit": 1}, [1], "x" * 300])
async def test_a_socket_whose_config_cannot_be_used_is_closed_with_4400(server: LiveServer, config: Any) -> None:
    async with WebSocketClient.open(
        f"{server.ws}?config={quote(encoded(config))}", await server.bearer("ada")
    ) as socket:
        assert await socket.close_code() == 4400


@at_the_door
async def test_a_strangers_config_is_not_looked_at(server: LiveServer) -> None:
    answer = await ask(server, {"Mcp-Config": "%%%", "Authorization": "Bearer nobody"})

    assert answer.status == 401


# -- decoding ---------------------------------------------------------------------------------------------------

HABITS = st.fixed_dictionaries(
    {},
    optional={
        "snippet_length": st.integers(0, 10**6),
        "max_tokens": st.integers(0, 10**6),
        "order_by": st.sampled_from(("relevance", "recent")),
        "dedupe": st.sampled_from(("hide", "demote", "off")),
        "chars_per_token": st.floats(0.1, 100),
    },
)


@given(HABITS, st.booleans(), st.booleans(), st.booleans())
def test_a_config_is_read_in_either_alphabet_padded_or_not_and_with_the_blanks_of_a_query(
    config: dict[str, Any], is_url_safe: bool, is_padded: bool, is_form_decoded: bool
) -> None:
    # The blanks shift the bytes, so that every character of the alphabets comes up.
    raw = msgspec.json.encode(config) + b" " * (len(config) % 3)
    text = (base64.urlsafe_b64encode if is_url_safe else base64.b64encode)(raw).decode()
    text = text if is_padded else text.rstrip("=")

    assert decode_config(text.replace("+", " ") if is_form_decoded else text, 10_000) == config


@given(st.text(max_size=80) | st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode()))
def test_any_other_text_is_refused_and_nothing_else_happens(text: str) -> None:
    try:
        read = decode_config(text, 70)
    except (InvalidParams, TooLarge):
        return

    assert read == {}


def test_json_nested_without_end_is_refused() -> None:
    with pytest.raises(InvalidParams):
        decode_config(base64.b64encode(b'{"max_tokens":' + b"[" * 100_000).decode(), 1_000_000)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/mcp", None),
        ("/mcp/", None),
        ("/mcp/research", "research"),
        ("/mcp/research/", "research"),
        ("/mcp/a/b", "a/b"),
    ],
)
def test_the_profile_is_what_stands_below_mcp(path: str, expected: str | None) -> None:
    assert profile_in(path) == expected


# -- the end of a session ---------------------------------------------------------------------------------------


@at_the_door
async def test_deleting_a_session_forgets_what_it_remembered_and_nothing_of_another(server: LiveServer) -> None:
    ada, ben = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ben")
    handles = [
        (await client.call("session_configure", {"max_tokens": 700})).json()["result"]["structuredContent"]["session"]
        for client in (ada, ben)
    ]
    assert handles == [handle_for(SessionId(client.session_id)) for client in (ada, ben)]

    assert (await ada.delete()).status == 204

    states = [
        (await (await ModernClient.of(server, name)).call("session_reset", {"session": handle})).json()["result"]
        for name, handle in zip(("ada", "ben"), handles, strict=True)
    ]
    assert "session not found" in states[0]["content"][0]["text"]
    assert states[1]["structuredContent"]["session"] == handles[1]


@at_the_door
async def test_a_socket_that_closes_takes_its_sessions_memory_along(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize()
        kept = await socket.call("session_configure", {"max_tokens": 700})
        first = kept["result"]["structuredContent"]["session"]
        await socket.initialize()  # a new session in place of the first
        kept = await socket.call("session_configure", {"max_tokens": 700})
        second = kept["result"]["structuredContent"]["session"]
    await until_gone(server, second)

    assert first != second
    assert await is_gone(server, first)


async def is_gone(server: LiveServer, handle: str) -> bool:
    answer = await (await ModernClient.of(server, "ada")).call("session_reset", {"session": handle})
    return bool(answer.json()["result"].get("isError", False))


async def until_gone(server: LiveServer, handle: str) -> None:
    async with asyncio.timeout(10):
        while not await is_gone(server, handle):
            await asyncio.sleep(0.01)
