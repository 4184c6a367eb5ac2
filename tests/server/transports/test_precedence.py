"""Which of several defaults a call goes by: the argument, then the session's, then the request's config, then the
server's setting. Every combination for every key, through three doors of a real server."""

import base64
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
import pytest
import pytest_asyncio
from msgspec import Struct

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from sources.drafts import NoteDraft
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient, WebSocketClient, handshake, message, text_of
from tests.server.http_client import fetch

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = {
    "search_snippet_chars": 250,
    "retrieval_default_tokens": 900,
    "retrieval_sibling_window": 4,
    "dedupe": "demote",
}
# Passages small enough that each budget and each window holds another number of them.
PASSAGES = {"retrieval_chunk_tokens": 50, "retrieval_chunk_overlap_tokens": 5}
LAYERS = ("argument", "session", "config")
LONG = " ".join(
    f"In paragraph {n} the galleon was seen off the coast, and the pilot wrote it down." for n in range(300)
)


class Case(Struct, frozen=True):
    """A key, a value of it for each layer, and what applies where no layer names one; None is what no call can name."""

    key: str
    tool: str
    argument: Any
    session: Any
    config: Any
    otherwise: Any

    def arguments(self, layers: frozenset[str], value: Any = None) -> dict[str, Any]:
        """Of the call that shows which value applies."""
        given = {self.key: value if value is not None else self.argument} if "argument" in layers else {}
        if self.tool == "knowledge_search":
            return {"query": "galleon", "limit": 3, **given}
        return {"uri": "", "query": "paragraph 150", "retrieval": {"mode": "chunk_with_siblings", **given}}

    def expected(self, layers: frozenset[str]) -> Any:
        return next((getattr(self, layer) for layer in LAYERS if layer in layers), self.otherwise)


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


def encoded(config: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(config)).decode().rstrip("=")


class Talk(Protocol):
    async def __call__(self, tool: str, arguments: Mapping[str, Any]) -> Any: ...


def answer_of(body: Any) -> Any:
    assert "isError" not in body["result"], text_of(body["result"])
    return body["result"]["structuredContent"]


@asynccontextmanager
async def legacy(server: LiveServer, session: Mapping[str, Any], config: Mapping[str, Any]) -> AsyncIterator[Talk]:
    """The session's defaults come with the handshake, the request's in a header."""
    headers = {"Content-Type": "application/json", **await server.bearer("ada")}
    greeting = handshake()
    greeting["params"]["config"] = session
    opened = await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(greeting))
    headers |= {"Mcp-Session-Id": opened.header("mcp-session-id") or ""}
    headers |= {"Mcp-Config": encoded(config)} if config else {}

    async def talk(tool: str, arguments: Mapping[str, Any]) -> Any:
        body = message("tools/call", {"name": tool, "arguments": arguments}, 1)
        return answer_of((await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(body))).json())

    yield talk


@asynccontextmanager
async def modern(server: LiveServer, session: Mapping[str, Any], config: Mapping[str, Any]) -> AsyncIterator[Talk]:
    """A session by its handle, configured by a call."""
    ada = await ModernClient.of(server, "ada")
    handle = answer_of((await ada.call("session_configure", session)).json())["session"]

    async def talk(tool: str, arguments: Mapping[str, Any]) -> Any:
        headers = {"Mcp-Config": encoded(config) if config else None}
        return answer_of((await ada.call(tool, {**arguments, "session": handle}, headers=headers)).json())

    yield talk


@asynccontextmanager
async def socket(server: LiveServer, session: Mapping[str, Any], config: Mapping[str, Any]) -> AsyncIterator[Talk]:
    """The session's defaults come with the handshake, the requests' in the address."""
    url = f"{server.ws}?config={encoded(config)}" if config else server.ws
    async with WebSocketClient.open(url, await server.bearer("ada")) as opened:
        greeting = handshake(request_id="h")
        greeting["params"]["config"] = session
        await opened.send(greeting)
        await opened.answer("h")

        async def talk(tool: str, arguments: Mapping[str, Any]) -> Any:
            return answer_of(await opened.call(tool, arguments))

        yield talk


DOORS = {"legacy": legacy, "modern": modern, "websocket": socket}


class Library(Struct, frozen=True):
    server: LiveServer
    long_uri: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def library(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    """Ada has a long note about galleons, and two newer and less relevant ones; so has Ben."""
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "session_max_per_user": 1000}
    async with live(make_settings(tmp_path_factory.mktemp("up"), **SETTINGS, **PASSAGES, **unlimited)) as server:
        uris = [await _fill(server, name) for name in ("ben", "ada")]
        yield Library(server, uris[-1])


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
            while newer.last_modified == first.last_modified:  # made within one millisecond
                newer = await library.notes.update(newer.id, NoteDraft(tags=["ship"]), newer.version)
    return f"notes://{first.id}"


async def shown(library: Library, door: str, case: Case, layers: frozenset[str], value: Any = None) -> Any:
    """What a call answers in which exactly these layers name the key."""
    session, config = ({case.key: getattr(case, layer)} if layer in layers else {} for layer in ("session", "config"))
    arguments = case.arguments(layers, value)
    if "uri" in arguments:
        arguments["uri"] = library.long_uri
    async with DOORS[door](library.server, session, config) as talk:
        if case.key == "dedupe":  # shows itself in what was seen before
            await talk("knowledge_search", {"query": "galleon", "limit": 1})
        answer = await talk(case.tool, arguments)
    if case.tool == "knowledge_search":
        return [(hit["uri"], hit["snippet"]) for hit in answer["results"]], answer["suppressed"]
    return answer["content"], answer["tokens"]


@pytest.mark.parametrize("layers", COMBINATIONS, ids=lambda layers: "+".join(sorted(layers)) or "none")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key}={case.argument}")
@pytest.mark.parametrize("door", DOORS)
async def test_the_uppermost_layer_that_names_a_key_decides(
    library: Library, door: str, case: Case, layers: frozenset[str]
) -> None:
    expected = case.expected(layers)

    told = await shown(library, door, case, layers)

    named = frozenset({"argument"}) if expected is not None else frozenset[str]()
    assert told == await shown(library, door, case, named, expected)


@pytest.mark.parametrize("layers", COMBINATIONS, ids=lambda layers: "+".join(sorted(layers)) or "none")
@pytest.mark.parametrize("door", ["legacy", "websocket"])
async def test_a_sources_own_search_goes_by_the_same_layers(
    library: Library, door: str, layers: frozenset[str]
) -> None:
    case = Case("snippet_length", "notes_search", 60, 110, 170, 250)
    session, config = ({case.key: getattr(case, layer)} if layer in layers else {} for layer in ("session", "config"))
    given = {case.key: case.argument} if "argument" in layers else {}

    async with DOORS[door](library.server, session, config) as talk:
        answer = await talk("notes_search", {"query": "galleon", **given})

    expected = case.expected(layers)
    assert all(0.6 * expected <= len(hit["snippet"]) <= expected for hit in answer["results"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key}={case.argument}")
async def test_each_value_in_the_table_shows_itself(library: Library, case: Case) -> None:
    """Or the table would prove nothing."""
    values = {case.argument, case.session, case.config, case.otherwise}

    named = {value: frozenset({"argument"}) if value is not None else frozenset[str]() for value in values}
    told = [await shown(library, "modern", case, layers, value) for value, layers in named.items()]

    assert all(one != other for one, other in itertools.combinations(told, 2))


async def test_what_one_user_prefers_is_nothing_to_another(library: Library) -> None:
    async with legacy(library.server, {"snippet_length": 40}, {"snippet_length": 40}) as talk:
        ada = await talk("knowledge_search", {"query": "galleon"})
    ben = answer_of(
        (await (await ModernClient.of(library.server, "ben")).call("knowledge_search", {"query": "galleon"})).json()
    )

    assert all(len(hit["snippet"]) <= 40 for hit in ada["results"])
    assert all(len(hit["snippet"]) > 150 for hit in ben["results"])


async def test_a_number_out_of_range_is_moved_to_the_nearest_that_is_allowed(library: Library) -> None:
    for door in DOORS.values():
        async with door(library.server, {}, {"snippet_length": 10**15, "max_tokens": 10**15}) as talk:
            hits = (await talk("knowledge_search", {"query": "galleon"}))["results"]
            read = await talk("knowledge_get", {"uri": library.long_uri, "retrieval": {"mode": "full"}})

        assert all(250 < len(hit["snippet"]) <= 1000 for hit in hits)
        assert read["tokens"] <= library.server.runtime.settings.retrieval_max_tokens
