"""The config of a request: read from the header, query string or handshake over every transport."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from websockets.exceptions import InvalidStatus

from auth.context import SessionId
from config.errors import InvalidParams, TooLarge
from server.protocol.call import Call
from server.protocol.catalog import Catalog, Tool
from server.protocol.messages import BATCH_VERSION
from server.transports.headers import decode_config, profile_in
from sessions.state import handle_for
from tests.cases import each_case
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
from tests.server.http_client import WAIT_MAX_S, HttpResponse, fetch

CONFIG = {"snippet_length": 120, "order_by": "recent", "chars_per_token": 3.5}


class NoInput(Struct, forbid_unknown_fields=True):
    pass


async def _show_config(call: Call, args: NoInput) -> Mapping[str, Any]:
    return {"config": dict(call.context.config)}


def add_config_tool(catalog: Catalog) -> None:
    """Adds a tool that returns the config of its call."""
    tool = Tool(name="show_config", title="Show", description="Shows.", input=NoInput, handler=_show_config)
    catalog.add_tool(tool)


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0}
    settings = make_settings(tmp_path_factory.mktemp("data"), **unlimited)
    async with live(settings, extend=add_config_tool) as server:
        yield server


def encode(config: Any) -> str:
    return base64.b64encode(msgspec.json.encode(config)).decode()


async def call_show_config(
    server: LiveServer, headers: Mapping[str, str] | None = None, query: str = "", user: str = "ada"
) -> HttpResponse:
    """Calls the tool over the modern era."""
    params = {"name": "show_config", "arguments": {}}
    all_headers = {**modern_headers("tools/call", params), **await server.bearer(user), **(headers or {})}
    body = msgspec.json.encode(message("tools/call", modern_params(params), 1))
    return await fetch(server.url, "POST", f"/mcp{query}", all_headers, body)


def config_in(body: Any) -> Any:
    return body["result"]["structuredContent"]["config"]


# -- valid configs ----------------------------------------------------------------------------------------------


async def test_a_config_in_the_header_or_the_query_string_applies_to_the_call(server: LiveServer) -> None:
    by_header = await call_show_config(server, {"Mcp-Config": encode(CONFIG)})
    by_query = await call_show_config(server, query=f"?config={quote(encode(CONFIG))}")
    with_profile = await call_show_config(server, query=f"/compact?config={quote(encode(CONFIG))}")
    without = await call_show_config(server, user="ben")

    assert config_in(by_header.json()) == config_in(by_query.json()) == config_in(with_profile.json()) == CONFIG
    assert config_in(without.json()) == {}


async def test_a_config_applies_to_a_single_legacy_request(server: LiveServer) -> None:
    ada, ben = await LegacyClient.open(server, "ada"), await LegacyClient.open(server, "ben", version=BATCH_VERSION)
    body = message("tools/call", {"name": "show_config", "arguments": {}}, 1)

    with_config = await ada.post(body, {"Mcp-Config": encode(CONFIG)})
    without = await ada.post(body)
    (in_a_batch,) = (await ben.post([body], {"Mcp-Config": encode({"max_tokens": 9})})).json()

    assert (config_in(with_config.json()), config_in(without.json())) == (CONFIG, {})
    assert config_in(in_a_batch) == {"max_tokens": 9}


async def test_a_config_in_a_websocket_address_applies_to_all_its_requests(server: LiveServer) -> None:
    call = {"name": "show_config", "arguments": {}}
    async with WebSocketClient.open(
        f"{server.ws}?config={quote(encode(CONFIG))}", await server.bearer("ada")
    ) as socket:
        modern = await socket.request("tools/call", modern_params(call))
        await socket.initialize()
        legacy = await socket.request("tools/call", call)

    assert config_in(modern) == config_in(legacy) == CONFIG


async def test_a_config_in_the_handshake_sets_the_sessions_defaults(server: LiveServer) -> None:
    initialize = handshake()
    initialize["params"]["config"] = CONFIG
    ada = LegacyClient(server, await server.bearer("ada"))
    opened = await ada.post(initialize)
    ada.headers["Mcp-Session-Id"] = opened.header("mcp-session-id") or ""

    state = (await ada.call("session_configure", {"max_tokens": 700})).json()["result"]["structuredContent"]

    assert state["defaults"] == {**CONFIG, "max_tokens": 700}


# -- invalid configs --------------------------------------------------------------------------------------------

INVALID = {
    "a secret": ({"api_key": "hunter2"}, "got 'api_key'; a config cannot carry credentials, users or paths"),
    "an unknown key": ({"limit": 3}, "config: expected any of snippet_length, "),
    "a wrong type": ({"max_tokens": "many"}, "config.max_tokens: Expected `int | null`, got `str`"),
    "no object": ([1], "expected an object with any of"),
}


@each_case("case", INVALID)
async def test_an_invalid_config_is_rejected_with_400_wherever_it_is_sent(server: LiveServer, case: str) -> None:
    config, expected_message = INVALID[case]
    ada = await LegacyClient.open(server, "ada")
    initialize = handshake()
    initialize["params"]["config"] = config

    responses = [
        await call_show_config(server, {"Mcp-Config": encode(config)}),
        await call_show_config(server, query=f"?config={quote(encode(config))}"),
        await ada.post(message("ping", {}, 1), {"Mcp-Config": encode(config)}),
        await LegacyClient(server, await server.bearer("ada")).post(initialize),
    ]

    for response in responses:
        assert (response.status, response.json()["error"]["code"]) == (400, -32602)
        assert expected_message in response.json()["error"]["message"]
        assert b"hunter2" not in response.body


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"Mcp-Config": "%%%"}, "", 400),
        ({"Mcp-Config": encode("text")[:-3]}, "", 400),
        ({"Mcp-Config": encode(CONFIG)}, f"?config={quote(encode(CONFIG))}", 400),
        ({}, "?config=e30&config=e30", 400),
        ({}, "?" + "&".join(f"p{n}=1" for n in range(40)), 400),
        ({"Mcp-Config": "e" * 2_049}, "", 413),
        ({}, f"?config={'e' * 2_049}", 413),
    ],
    ids=["no base64", "no JSON", "in both places", "twice", "too many parts", "too long a header", "too long a query"],
)
async def test_an_undecodable_config_is_rejected(
    server: LiveServer, headers: Mapping[str, str], query: str, status: int
) -> None:
    assert (await call_show_config(server, headers, query)).status == status


@each_case("config", [{"api_key": "hunter2"}, {"limit": 1}, [1], "x" * 300])
async def test_a_websocket_with_an_invalid_config_is_refused(server: LiveServer, config: Any) -> None:
    url = f"{server.ws}?config={quote(encode(config))}"
    with pytest.raises(InvalidStatus) as refused:
        async with WebSocketClient.open(url, await server.bearer("ada")):
            pass

    assert refused.value.response.status_code in (400, 413)


async def test_the_config_is_not_read_without_a_valid_credential(server: LiveServer) -> None:
    response = await call_show_config(server, {"Mcp-Config": "%%%", "Authorization": "Bearer invalid"})

    assert response.status == 401


# -- decoding ---------------------------------------------------------------------------------------------------

CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "snippet_length": st.integers(0, 10**6),
        "max_tokens": st.integers(0, 10**6),
        "order_by": st.sampled_from(("relevance", "recent")),
        "dedupe": st.sampled_from(("hide", "demote", "off")),
        "chars_per_token": st.floats(0.1, 100),
    },
)


@given(CONFIGS, st.booleans(), st.booleans(), st.booleans())
def test_a_config_is_decoded_in_every_base64_variant(
    config: dict[str, Any], is_url_safe: bool, is_padded: bool, is_form_decoded: bool
) -> None:
    # The spaces shift the bytes, so that every character of the alphabets occurs.
    raw = msgspec.json.encode(config) + b" " * (len(config) % 3)
    text = (base64.urlsafe_b64encode if is_url_safe else base64.b64encode)(raw).decode()
    text = text if is_padded else text.rstrip("=")

    assert decode_config(text.replace("+", " ") if is_form_decoded else text, 10_000) == config


@given(st.text(max_size=80) | st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode()))
def test_arbitrary_text_is_rejected(text: str) -> None:
    try:
        config = decode_config(text, 70)
    except (InvalidParams, TooLarge):
        return

    assert config == {}


def test_deeply_nested_json_is_rejected() -> None:
    with pytest.raises(InvalidParams):
        decode_config(base64.b64encode(b'{"max_tokens":' + b"[" * 100_000).decode(), 1_000_000)


@each_case(
    ("path", "expected"),
    [
        ("/mcp", None),
        ("/mcp/", None),
        ("/mcp/research", "research"),
        ("/mcp/research/", "research"),
        ("/mcp/a/b", "a/b"),
    ],
)
def test_the_profile_is_the_path_below_mcp(path: str, expected: str | None) -> None:
    assert profile_in(path) == expected


# -- the end of a session ---------------------------------------------------------------------------------------


async def test_deleting_a_session_deletes_its_state_only(server: LiveServer) -> None:
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


async def test_closing_a_websocket_deletes_its_session_state(server: LiveServer) -> None:
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize()
        configured = await socket.call("session_configure", {"max_tokens": 700})
        first = configured["result"]["structuredContent"]["session"]
        await socket.initialize()  # a new session in place of the first
        configured = await socket.call("session_configure", {"max_tokens": 700})
        second = configured["result"]["structuredContent"]["session"]
    await wait_until_deleted(server, second)

    assert first != second
    assert await is_deleted(server, first)


async def test_closing_a_websocket_deletes_the_session_state_of_modern_calls(server: LiveServer) -> None:
    configure = modern_params({"name": "session_configure", "arguments": {"max_tokens": 700}})
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        configured = await socket.request("tools/call", configure)
    handle = configured["result"]["structuredContent"]["session"]

    await wait_until_deleted(server, handle)

    assert await is_deleted(server, handle)


async def is_deleted(server: LiveServer, handle: str) -> bool:
    response = await (await ModernClient.of(server, "ada")).call("session_reset", {"session": handle})
    return bool(response.json()["result"].get("isError", False))


async def wait_until_deleted(server: LiveServer, handle: str) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while not await is_deleted(server, handle):
            await asyncio.sleep(0.01)
