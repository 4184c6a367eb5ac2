"""Profiles at the doors: by address, by API key, by a legacy client's name; and that a key's profile is a limit."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from auth.context import build_context
from auth.principal import SCOPES, ClientId, Principal
from sources.drafts import NoteDraft, PromptDraft
from tests.live import LiveServer, live, make_settings
from tests.server.clients import (
    JSON_AND_EVENTS,
    LegacyClient,
    ModernClient,
    WebSocketClient,
    handshake,
    message,
    modern_headers,
    modern_params,
)
from tests.server.http_client import HttpResponse, fetch

COMPACT = ["knowledge_search", "knowledge_get"]
RESEARCH = ["search", "fetch"]
KNOWN = "expected one of default, compact, research, memory, letta, bus, full"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    """The product itself, on which the legacy client `openai-mcp` is given the profile research."""
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "rate_failures_per_minute": 0}
    settings = make_settings(tmp_path_factory.mktemp("up"), client_profiles=("openai-mcp=research",), **unlimited)
    async with live(settings) as server:
        yield server


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def post(server: LiveServer, path: str, headers: Mapping[str, str], body: Any) -> HttpResponse:
    return await fetch(server.url, "POST", path, {**JSON_AND_EVENTS, **headers}, msgspec.json.encode(body))


def names(body: Any) -> list[str]:
    return [tool["name"] for tool in body["result"]["tools"]]


async def modern(
    server: LiveServer, path: str, credential: Mapping[str, str], method: str, **params: Any
) -> HttpResponse:
    headers = {**modern_headers(method, params), **credential}
    return await post(server, path, headers, message(method, modern_params(params), 1))


class LegacyAt:
    """A legacy client that speaks to one address."""

    def __init__(self, server: LiveServer, path: str, headers: dict[str, str]) -> None:
        self._up = server
        self._path = path
        self.headers = headers

    @classmethod
    async def open(
        cls, server: LiveServer, path: str, credential: Mapping[str, str], client: str = "specimen"
    ) -> "LegacyAt":
        greeting = handshake()
        greeting["params"]["clientInfo"]["name"] = client
        answer = await post(server, path, credential, greeting)
        assert answer.status == 200, answer.body
        return cls(server, path, {**credential, "Mcp-Session-Id": answer.header("mcp-session-id") or ""})

    async def request(self, method: str, path: str | None = None, **params: Any) -> HttpResponse:
        return await post(self._up, path or self._path, self.headers, message(method, params, 1))

    async def names(self) -> list[str]:
        return names((await self.request("tools/list")).json())


async def key(server: LiveServer, user: str, profile: str | None) -> dict[str, str]:
    owner = await server.user(user)
    _, secret = await server.runtime.registry.create_key(owner.id, "test", SCOPES, profile=profile)
    return {"Authorization": f"Bearer {secret}"}


# -- by address -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/mcp/compact", COMPACT),
        ("/mcp/compact/", COMPACT),
        ("/mcp/research", RESEARCH),
        ("/mcp/memory", ["search", "get_observations", "read"]),
    ],
)
async def test_an_address_shows_its_profile_in_both_eras(server: LiveServer, path: str, expected: list[str]) -> None:
    credential = await server.bearer("ada")

    assert names((await modern(server, path, credential, "tools/list")).json()) == expected
    assert await (await LegacyAt.open(server, path, credential)).names() == expected


async def test_mcp_is_the_default_profile_and_full_shows_everything(server: LiveServer) -> None:
    credential = await server.bearer("ada")
    plain, default, full = [
        names((await modern(server, path, credential, "tools/list")).json())
        for path in ("/mcp", "/mcp/default", "/mcp/full")
    ]

    assert plain == default
    assert len(plain) == 15
    assert "server_info" not in plain
    assert set(full) == set(server.runtime.dispatcher.catalog.tools)


async def test_what_an_address_does_not_list_can_still_be_called_there(server: LiveServer) -> None:
    credential = await server.bearer("ada")

    answer = await modern(server, "/mcp/compact", credential, "tools/call", name="server_info", arguments={})

    assert answer.json()["result"]["structuredContent"]["user"] == "ada"


@pytest.mark.parametrize("path", ["/mcp/nowhere", "/mcp/ws", "/mcp/research/more", "/mcp/%F0%9F%A6%8A"])
@pytest.mark.parametrize("is_known", [True, False])
async def test_an_unknown_profile_is_404_and_the_answer_names_those_there_are(
    server: LiveServer, path: str, is_known: bool
) -> None:
    credential = await server.bearer("ada") if is_known else {}

    answer = await modern(server, path, credential, "tools/list")

    assert (answer.status, answer.json()["id"], answer.json()["error"]["code"]) == (404, None, 404)
    assert KNOWN in answer.json()["error"]["message"]


async def test_instructions_are_those_of_the_profile(server: LiveServer) -> None:
    credential = await server.bearer("ada")

    told = {
        path: (await modern(server, path, credential, "server/discover")).json()["result"].get("instructions")
        for path in ("/mcp", "/mcp/research", "/mcp/bus")
    }

    assert "knowledge_search" in told["/mcp"]
    assert told["/mcp/research"] != told["/mcp"]
    assert "First search, then fetch" in told["/mcp/research"]
    assert "msg_search" in told["/mcp/bus"]


@pytest.mark.parametrize("profile", ["", "/research"])
async def test_the_metadata_of_the_resource_is_found_below_each_profile(server: LiveServer, profile: str) -> None:
    answer = await fetch(server.url, "GET", f"/.well-known/oauth-protected-resource/mcp{profile}", {})

    assert answer.json()["resource"] == server.mcp


# -- sessions ---------------------------------------------------------------------------------------------------


async def test_a_session_answers_where_it_was_opened_and_at_no_other_profile(server: LiveServer) -> None:
    credential = await server.bearer("ada")
    research = await LegacyAt.open(server, "/mcp/research", credential)

    assert (await research.request("tools/list", "/mcp/compact")).status == 404
    assert (await research.request("tools/list", "/mcp/default")).status == 404
    deleted = await fetch(server.url, "DELETE", "/mcp/compact", {**JSON_AND_EVENTS, **research.headers})
    assert deleted.status == 404
    assert names((await research.request("tools/list", "/mcp")).json()) == RESEARCH
    assert await research.names() == RESEARCH


async def test_a_legacy_client_on_the_list_gets_its_profile_at_the_plain_address_only(server: LiveServer) -> None:
    credential = await server.bearer("ada")

    assert await (await LegacyAt.open(server, "/mcp", credential, "openai-mcp")).names() == RESEARCH
    assert await (await LegacyAt.open(server, "/mcp", credential, "OpenAI-MCP")).names() == RESEARCH
    assert await (await LegacyAt.open(server, "/mcp/compact", credential, "openai-mcp")).names() == COMPACT
    assert len(await (await LegacyAt.open(server, "/mcp", credential, "another")).names()) == 15


async def test_a_modern_client_gets_the_same_list_whatever_it_is_called(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")
    client = {"io.modelcontextprotocol/clientInfo": {"name": "openai-mcp", "version": "1"}}

    assert names((await ada.request("tools/list", **client)).json()) == names((await ada.request("tools/list")).json())


# -- over WebSocket ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp/research/ws", "/mcp/ws?profile=research"])
async def test_a_socket_has_the_profile_of_its_address_in_both_eras(server: LiveServer, path: str) -> None:
    async with WebSocketClient.open(server.url.replace("http", "ws", 1) + path, await server.bearer("ada")) as socket:
        assert names(await socket.request("tools/list", modern_params())) == RESEARCH
        assert "First search" in (await socket.initialize())["result"]["instructions"]
        assert names(await socket.request("tools/list")) == RESEARCH


async def test_a_legacy_client_on_the_list_gets_its_profile_over_a_socket(server: LiveServer) -> None:
    greeting = handshake(request_id="h")
    greeting["params"]["clientInfo"]["name"] = "openai-mcp"

    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.send(greeting)
        await socket.answer("h")
        assert names(await socket.request("tools/list")) == RESEARCH
        assert len(names(await socket.request("tools/list", modern_params()))) == 15


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/mcp/nowhere/ws", 4404),
        ("/mcp/ws?profile=nowhere", 4404),
        ("/mcp/ws?profile=%F0%9F%A6%8A" + "%F0%9F%A6%8A" * 50, 4404),
        ("/mcp/ws?profile=research&profile=compact", 4400),
        ("/mcp/research/ws?profile=compact", 4400),
        ("/mcp/ws?" + "&".join(f"p{n}=1" for n in range(40)), 4400),
    ],
)
async def test_a_socket_at_an_address_that_leads_nowhere_is_closed_with_a_code_that_says_so(
    server: LiveServer, path: str, code: int
) -> None:
    async with WebSocketClient.open(server.url.replace("http", "ws", 1) + path, await server.bearer("ada")) as socket:
        assert await socket.close_code() == code


# -- by API key -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp", "/mcp/research", "/mcp/compact", "/mcp/full"])
async def test_a_bound_key_has_its_profile_at_every_address(server: LiveServer, path: str) -> None:
    bound = await key(server, "ada", "research")

    assert names((await modern(server, path, bound, "tools/list")).json()) == RESEARCH
    assert await (await LegacyAt.open(server, path, bound, "another")).names() == RESEARCH
    async with WebSocketClient.open(f"{server.url.replace('http', 'ws', 1)}{path}/ws", bound) as socket:
        await socket.initialize()
        assert names(await socket.request("tools/list")) == RESEARCH
        assert names(await socket.request("tools/list", modern_params())) == RESEARCH


async def test_a_bound_key_finds_its_session_at_every_address(server: LiveServer) -> None:
    session = await LegacyAt.open(server, "/mcp/full", await key(server, "ada", "research"))

    for path in ("/mcp", "/mcp/compact", "/mcp/full"):
        assert names((await session.request("tools/list", path)).json()) == RESEARCH


async def test_a_bound_key_calls_nothing_outside_its_profile_through_any_door(server: LiveServer) -> None:
    bound = await key(server, "ada", "research")
    call: dict[str, Any] = {"name": "knowledge_search", "arguments": {"query": "galleon"}}

    answers = [(await modern(server, "/mcp/full", bound, "tools/call", **call)).json()]
    answers.append((await (await LegacyAt.open(server, "/mcp/full", bound)).request("tools/call", **call)).json())
    async with WebSocketClient.open(f"{server.ws}?profile=full", bound) as socket:
        answers.append(await socket.request("tools/call", modern_params(call)))
    ticket = (await fetch(server.url, "POST", "/mcp/ticket", bound)).json()["ticket"]
    async with WebSocketClient.open(f"{server.ws}?ticket={ticket}") as socket:
        answers.append(await socket.request("tools/call", modern_params(call)))

    for answer in answers:
        assert answer["error"]["code"] == -32602
        assert "not part of the profile 'research'" in answer["error"]["message"]


async def test_a_bound_key_reads_no_resource_and_another_key_of_the_same_user_does(server: LiveServer) -> None:
    bound, free = await key(server, "ada", "research"), await key(server, "ada", None)
    user = await server.user("ada")
    principal = Principal(user.id, "ada", ClientId("test"), frozenset(SCOPES), "local", "test")
    async with server.runtime.libraries.library(
        build_context(principal, server.runtime.data_root, "request")
    ) as library:
        note = await library.notes.create(NoteDraft(title="Log", content="A galleon."))
        await library.prompts.create(PromptDraft(name="Greet", user_prompt="Hello."))

    assert (await modern(server, "/mcp", bound, "prompts/list")).json()["result"]["prompts"] == []
    assert (await modern(server, "/mcp", free, "prompts/list")).json()["result"]["prompts"]
    assert (await modern(server, "/mcp", bound, "resources/read", uri=f"notes://{note.id}")).status == 400
    for method, name in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")):
        assert (await modern(server, "/mcp", bound, method)).json()["result"][name] == []
        assert (await modern(server, "/mcp", free, method)).json()["result"][name]
    assert (await modern(server, "/mcp", bound, "resources/read", uri="media://types")).status == 400
    assert (await modern(server, "/mcp", free, "resources/read", uri="media://types")).status == 200


async def test_the_keys_of_two_users_keep_their_own_profiles(server: LiveServer) -> None:
    for user, profile, expected in (("ada", "research", RESEARCH), ("ben", "compact", COMPACT)):
        bound = await key(server, user, profile)
        assert names((await modern(server, "/mcp", bound, "tools/list")).json()) == expected


async def test_a_key_bound_to_a_profile_of_an_older_version_opens_nothing(server: LiveServer) -> None:
    answer = await modern(server, "/mcp", await key(server, "ada", "retired"), "tools/list")

    assert (answer.status, answer.json()["error"]["message"]) == (404, f"profile 'retired' not found; {KNOWN}")


async def test_dotted_names_are_listed_if_the_operator_wants_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with live(make_settings(tmp_path_factory.mktemp("dotted"), tool_names="dotted")) as server:
        client = await LegacyClient.open(server, "ada")
        listed = names((await client.request("tools/list")).json())
        answers = [(await client.call(name, {"query": "galleon"})).json() for name in ("notes.search", "notes_search")]

    assert listed[:4] == ["knowledge.search", "knowledge.get", "search", "fetch"]
    assert all("isError" not in answer["result"] for answer in answers)
