"""Precedence of defaults: argument, session, request config, server setting.

Tests every combination for every option over three transports of a real server.
"""

import base64
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
import pytest
from msgspec import Struct

from auth.context import SCOPES, ClientId, Principal, build_context
from sources.drafts import NoteDraft
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient, WebSocketClient, handshake, message, text_of
from tests.server.http_client import fetch

SETTINGS = {
    "search_snippet_chars": 250,
    "retrieval_default_tokens": 900,
    "retrieval_sibling_window": 4,
    "dedupe": "demote",
}
# Passages so small that each budget and each window holds a different number of them.
PASSAGES = {"retrieval_chunk_tokens": 50, "retrieval_chunk_overlap_tokens": 5}
LAYERS = ("argument", "session", "config")
LONG = " ".join(
    f"In paragraph {n} the galleon was seen off the coast, and the pilot wrote it down." for n in range(300)
)


class Case(Struct, frozen=True):
    """An option, its value in each layer, and the default. A default of None cannot be expressed as an argument."""

    key: str
    tool: str
    argument: Any
    session: Any
    config: Any
    default: Any

    def arguments(self, layers: frozenset[str], value: Any = None) -> dict[str, Any]:
        """Returns the arguments of a call whose result depends on the option."""
        option = {self.key: value if value is not None else self.argument} if "argument" in layers else {}
        if self.tool == "knowledge_search":
            return {"query": "galleon", "limit": 3, **option}
        return {"uri": "", "query": "paragraph 150", "retrieval": {"mode": "chunk_with_siblings", **option}}

    def expected(self, layers: frozenset[str]) -> Any:
        return next((getattr(self, layer) for layer in LAYERS if layer in layers), self.default)


CASES = (
    Case("snippet_length", "knowledge_search", 60, 110, 170, 250),
    Case("max_tokens", "knowledge_get", 240, 300, 400, 900),
    Case("sibling_window", "knowledge_get", 0, 1, 2, 4),
    Case("chars_per_token", "knowledge_get", 2.0, 3.0, 5.0, None),
    Case("order_by", "knowledge_search", "relevance", "recent", "relevance", "relevance"),
    Case("order_by", "knowledge_search", "recent", "relevance", "recent", "relevance"),
    Case("dedupe", "knowledge_search", "off", "hide", "off", "demote"),
    Case("dedupe", "knowledge_search", "demote", "off", "hide", "demote"),
)
COMBINATIONS = [frozenset(layers) for size in range(len(LAYERS) + 1) for layers in itertools.combinations(LAYERS, size)]


def encode(config: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(config)).decode().rstrip("=")


class CallTool(Protocol):
    async def __call__(self, tool: str, arguments: Mapping[str, Any]) -> Any: ...


def content_of(body: Any) -> Any:
    assert "isError" not in body["result"], text_of(body["result"])
    return body["result"]["structuredContent"]


@asynccontextmanager
async def legacy(server: LiveServer, session: Mapping[str, Any], config: Mapping[str, Any]) -> AsyncIterator[CallTool]:
    """Sends the session's defaults with the handshake, and the request's config in a header."""
    headers = {"Content-Type": "application/json", **await server.bearer("ada")}
    initialize = handshake()
    initialize["params"]["config"] = session
    opened = await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(initialize))
    headers |= {"Mcp-Session-Id": opened.header("mcp-session-id") or ""}
    headers |= {"Mcp-Config": encode(config)} if config else {}

    async def call_tool(tool: str, arguments: Mapping[str, Any]) -> Any:
        body = message("tools/call", {"name": tool, "arguments": arguments}, 1)
        return content_of((await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(body))).json())

    yield call_tool


@asynccontextmanager
async def modern(server: LiveServer, session: Mapping[str, Any], config: Mapping[str, Any]) -> AsyncIterator[CallTool]:
    """Sets the session's defaults by a call, and passes the session's handle."""
    ada = await ModernClient.of(server, "ada")
    handle = content_of((await ada.call("session_configure", session)).json())["session"]

    async def call_tool(tool: str, arguments: Mapping[str, Any]) -> Any:
        headers = {"Mcp-Config": encode(config) if config else None}
        return content_of((await ada.call(tool, {**arguments, "session": handle}, headers=headers)).json())

    yield call_tool


@asynccontextmanager
async def socket(server: LiveServer, session: Mapping[str, Any], config: Mapping[str, Any]) -> AsyncIterator[CallTool]:
    """Sends the session's defaults with the handshake, and the request's config in the address."""
    url = f"{server.ws}?config={encode(config)}" if config else server.ws
    async with WebSocketClient.open(url, await server.bearer("ada")) as client:
        initialize = handshake(request_id="h")
        initialize["params"]["config"] = session
        await client.send(initialize)
        await client.response("h")

        async def call_tool(tool: str, arguments: Mapping[str, Any]) -> Any:
            return content_of(await client.call(tool, arguments))

        yield call_tool


TRANSPORTS = {"legacy": legacy, "modern": modern, "websocket": socket}


class FilledServer(Struct, frozen=True):
    server: LiveServer
    long_uri: str


@pytest.fixture(scope="module")
async def library(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FilledServer]:
    """A server where Ada and Ben each have a long note about galleons and two newer, less relevant ones."""
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "session_max_per_user": 1000}
    async with live(make_settings(tmp_path_factory.mktemp("data"), **SETTINGS, **PASSAGES, **unlimited)) as server:
        uris = [await _fill(server, name) for name in ("ben", "ada")]
        yield FilledServer(server, uris[-1])


async def _fill(server: LiveServer, name: str) -> str:
    user = await server.user(name)
    principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
    context = build_context(principal, server.runtime.data_root, "request")
    async with server.runtime.libraries.library(context) as library:
        first = await library.notes.create(NoteDraft(title=f"Galleon of {name}", content=f"Galleon, galleon. {LONG}"))
        for title in ("A list", "Another list"):
            newer = await library.notes.create(
                NoteDraft(title=title, content=f"Rope, tar, sail, galleon. {LONG[:2000]}")
            )
            while newer.last_modified == first.last_modified:  # created within the same millisecond
                newer = await library.notes.update(newer.id, NoteDraft(tags=["ship"]), newer.version)
    return f"notes://{first.id}"


async def observe(library: FilledServer, transport: str, case: Case, layers: frozenset[str], value: Any = None) -> Any:
    """Returns the visible result of a call in which exactly these layers set the option."""
    session, config = ({case.key: getattr(case, layer)} if layer in layers else {} for layer in ("session", "config"))
    arguments = case.arguments(layers, value)
    if "uri" in arguments:
        arguments["uri"] = library.long_uri
    async with TRANSPORTS[transport](library.server, session, config) as call_tool:
        if case.key == "dedupe":  # takes effect only on items seen before
            await call_tool("knowledge_search", {"query": "galleon", "limit": 1})
        response = await call_tool(case.tool, arguments)
    if case.tool == "knowledge_search":
        return [(hit["uri"], hit["snippet"]) for hit in response["results"]], response.get("suppressed", 0)
    return response["content"], response["tokens"]


async def check_first_layer(library: FilledServer, transport: str, case: Case, layers: frozenset[str]) -> None:
    expected = case.expected(layers)

    result = await observe(library, transport, case, layers)

    explicit = frozenset({"argument"}) if expected is not None else frozenset[str]()
    assert result == await observe(library, transport, case, explicit, expected)


@pytest.mark.slow("tries every combination")
@each_case(("number", "option"), enumerate(itertools.product(CASES, COMBINATIONS)))
async def test_the_first_layer_that_sets_an_option_decides(
    library: FilledServer, number: int, option: tuple[Case, frozenset[str]]
) -> None:
    """The transports take turns."""
    await check_first_layer(library, tuple(TRANSPORTS)[number % len(TRANSPORTS)], *option)


@pytest.mark.slow("makes hundreds of calls")
@each_case("layers", COMBINATIONS)
@each_case("case", CASES)
@each_case("transport", TRANSPORTS)
async def test_the_first_layer_decides_over_all_transports(
    library: FilledServer, transport: str, case: Case, layers: frozenset[str]
) -> None:
    await check_first_layer(library, transport, case, layers)


@each_case("layers", COMBINATIONS)
@each_case("transport", ["legacy", "websocket"])
async def test_the_search_of_a_single_source_uses_the_same_layers(
    library: FilledServer, transport: str, layers: frozenset[str]
) -> None:
    case = Case("snippet_length", "notes_search", 60, 110, 170, 250)
    session, config = ({case.key: getattr(case, layer)} if layer in layers else {} for layer in ("session", "config"))
    option = {case.key: case.argument} if "argument" in layers else {}

    async with TRANSPORTS[transport](library.server, session, config) as call_tool:
        response = await call_tool("notes_search", {"query": "galleon", **option})

    expected = case.expected(layers)
    assert all(0.6 * expected <= len(hit["snippet"]) <= expected for hit in response["results"])


@each_case("case", CASES)
async def test_each_value_in_the_table_has_a_visible_effect(library: FilledServer, case: Case) -> None:
    """Otherwise the table would prove nothing."""
    values = {case.argument, case.session, case.config, case.default}

    explicit = {value: frozenset({"argument"}) if value is not None else frozenset[str]() for value in values}
    results = [await observe(library, "modern", case, layers, value) for value, layers in explicit.items()]

    assert all(one != other for one, other in itertools.combinations(results, 2))


async def test_defaults_of_one_user_do_not_affect_another(library: FilledServer) -> None:
    async with legacy(library.server, {"snippet_length": 40}, {"snippet_length": 40}) as call_tool:
        ada = await call_tool("knowledge_search", {"query": "galleon"})
    ben = content_of(
        (await (await ModernClient.of(library.server, "ben")).call("knowledge_search", {"query": "galleon"})).json()
    )

    assert all(len(hit["snippet"]) <= 40 for hit in ada["results"])
    assert all(len(hit["snippet"]) > 150 for hit in ben["results"])


async def test_numbers_out_of_range_are_clamped(library: FilledServer) -> None:
    for transport in TRANSPORTS.values():
        async with transport(library.server, {}, {"snippet_length": 10**15, "max_tokens": 10**15}) as call_tool:
            hits = (await call_tool("knowledge_search", {"query": "galleon"}))["results"]
            item = await call_tool("knowledge_get", {"uri": library.long_uri, "retrieval": {"mode": "full"}})

        assert all(250 < len(hit["snippet"]) <= 1000 for hit in hits)
        assert item["tokens"] <= library.server.runtime.settings.retrieval_max_tokens
