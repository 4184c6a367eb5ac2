"""Profiles over all transports: chosen by address, API key or legacy client name, and enforced for API keys."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
from websockets.exceptions import InvalidStatus

from auth.context import SCOPES, ClientId, Principal, build_context
from sources.drafts import NoteDraft, PromptDraft
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
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
KNOWN = "expected one of default, compact, research, write, memory, letta, bus, full"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    """The product's own catalog, with the profile research for the legacy client `openai-mcp`."""
    settings = make_settings(
        tmp_path_factory.mktemp("data"), client_profiles=("openai-mcp=research",), **NO_RATE_LIMITS
    )
    async with live(settings) as server:
        yield server


async def post(server: LiveServer, path: str, headers: Mapping[str, str], body: Any) -> HttpResponse:
    return await fetch(server.url, "POST", path, {**JSON_AND_EVENTS, **headers}, msgspec.json.encode(body))


def tool_names(body: Any) -> list[str]:
    return [tool["name"] for tool in body["result"]["tools"]]


async def modern(
    server: LiveServer, path: str, credential: Mapping[str, str], method: str, **params: Any
) -> HttpResponse:
    headers = {**modern_headers(method, params), **credential}
    return await post(server, path, headers, message(method, modern_params(params), 1))


class LegacyAt:
    """A legacy client of one address."""

    def __init__(self, server: LiveServer, path: str, headers: dict[str, str]) -> None:
        self._server = server
        self._path = path
        self.headers = headers

    @classmethod
    async def open(
        cls, server: LiveServer, path: str, credential: Mapping[str, str], client: str = "sample-client"
    ) -> "LegacyAt":
        initialize = handshake()
        initialize["params"]["clientInfo"]["name"] = client
        response = await post(server, path, credential, initialize)
        assert response.status == 200, response.body
        return cls(server, path, {**credential, "Mcp-Session-Id": response.header("mcp-session-id") or ""})

    async def request(self, method: str, path: str | None = None, **params: Any) -> HttpResponse:
        return await post(self._server, path or self._path, self.headers, message(method, params, 1))

    async def tool_names(self) -> list[str]:
        return tool_names((await self.request("tools/list")).json())


async def create_key(server: LiveServer, user: str, profile: str | None) -> dict[str, str]:
    owner = await server.user(user)
    _, secret = await server.runtime.registry.create_key(owner.id, "test", SCOPES, profile=profile)
    return {"Authorization": f"Bearer {secret}"}


# -- by address -------------------------------------------------------------------------------------------------


@each_case(
    ("path", "expected"),
    [
        ("/mcp/compact", COMPACT),
        ("/mcp/compact/", COMPACT),
        ("/mcp/research", RESEARCH),
        ("/mcp/memory", ["search", "get_observations", "read"]),
    ],
)
async def test_an_address_lists_the_tools_of_its_profile_in_both_eras(
    server: LiveServer, path: str, expected: list[str]
) -> None:
    credential = await server.bearer("ada")

    assert tool_names((await modern(server, path, credential, "tools/list")).json()) == expected
    assert await (await LegacyAt.open(server, path, credential)).tool_names() == expected


async def test_mcp_is_the_default_profile_and_full_lists_everything(server: LiveServer) -> None:
    credential = await server.bearer("ada")
    plain, default, full = [
        tool_names((await modern(server, path, credential, "tools/list")).json())
        for path in ("/mcp", "/mcp/default", "/mcp/full")
    ]

    assert plain == default
    assert len(plain) == 15
    assert "server_info" not in plain
    assert set(full) == set(server.runtime.dispatcher.catalog.tools)


async def test_a_tool_that_an_address_does_not_list_can_still_be_called(server: LiveServer) -> None:
    credential = await server.bearer("ada")

    response = await modern(server, "/mcp/compact", credential, "tools/call", name="server_info", arguments={})

    assert response.json()["result"]["structuredContent"]["user"] == "ada"


@each_case("path", ["/mcp/nowhere", "/mcp/ws", "/mcp/research/more", "/mcp/%F0%9F%A6%8A"])
@each_case("has_credential", [True, False])
async def test_an_unknown_profile_is_not_found_and_the_error_lists_the_known_ones(
    server: LiveServer, path: str, has_credential: bool
) -> None:
    credential = await server.bearer("ada") if has_credential else {}

    response = await modern(server, path, credential, "tools/list")

    assert (response.status, response.json()["id"], response.json()["error"]["code"]) == (404, None, 404)
    assert KNOWN in response.json()["error"]["message"]


async def test_instructions_depend_on_the_profile(server: LiveServer) -> None:
    credential = await server.bearer("ada")

    instructions = {
        path: (await modern(server, path, credential, "server/discover")).json()["result"].get("instructions")
        for path in ("/mcp", "/mcp/research", "/mcp/bus")
    }

    assert "knowledge_search" in instructions["/mcp"]
    assert instructions["/mcp/research"] != instructions["/mcp"]
    assert "First search, then fetch" in instructions["/mcp/research"]
    assert "msg_search" in instructions["/mcp/bus"]


@each_case("profile", ["", "/research"])
async def test_resource_metadata_is_served_below_each_profile(server: LiveServer, profile: str) -> None:
    response = await fetch(server.url, "GET", f"/.well-known/oauth-protected-resource/mcp{profile}", {})

    assert response.json()["resource"] == server.mcp + profile


# -- sessions ---------------------------------------------------------------------------------------------------


async def test_a_session_is_not_found_at_the_address_of_another_profile(server: LiveServer) -> None:
    credential = await server.bearer("ada")
    research = await LegacyAt.open(server, "/mcp/research", credential)

    assert (await research.request("tools/list", "/mcp/compact")).status == 404
    assert (await research.request("tools/list", "/mcp/default")).status == 404
    deleted = await fetch(server.url, "DELETE", "/mcp/compact", {**JSON_AND_EVENTS, **research.headers})
    assert deleted.status == 404
    assert tool_names((await research.request("tools/list", "/mcp")).json()) == RESEARCH
    assert await research.tool_names() == RESEARCH


async def test_a_configured_legacy_client_gets_its_profile_at_the_plain_address_only(server: LiveServer) -> None:
    credential = await server.bearer("ada")

    assert await (await LegacyAt.open(server, "/mcp", credential, "openai-mcp")).tool_names() == RESEARCH
    assert await (await LegacyAt.open(server, "/mcp", credential, "OpenAI-MCP")).tool_names() == RESEARCH
    assert await (await LegacyAt.open(server, "/mcp/compact", credential, "openai-mcp")).tool_names() == COMPACT
    assert len(await (await LegacyAt.open(server, "/mcp", credential, "another")).tool_names()) == 15


async def test_the_name_of_a_modern_client_has_no_effect(server: LiveServer) -> None:
    ada = await ModernClient.of(server, "ada")
    client = {"io.modelcontextprotocol/clientInfo": {"name": "openai-mcp", "version": "1"}}

    assert tool_names((await ada.request("tools/list", **client)).json()) == tool_names(
        (await ada.request("tools/list")).json()
    )


# -- over WebSocket ---------------------------------------------------------------------------------------------


@each_case("path", ["/mcp/research/ws", "/mcp/ws?profile=research"])
async def test_a_websocket_has_the_profile_of_its_address_in_both_eras(server: LiveServer, path: str) -> None:
    async with WebSocketClient.open(server.url.replace("http", "ws", 1) + path, await server.bearer("ada")) as socket:
        assert tool_names(await socket.request("tools/list", modern_params())) == RESEARCH
        assert "First search" in (await socket.initialize())["result"]["instructions"]
        assert tool_names(await socket.request("tools/list")) == RESEARCH


async def test_a_configured_legacy_client_gets_its_profile_over_websocket(server: LiveServer) -> None:
    initialize = handshake(request_id="h")
    initialize["params"]["clientInfo"]["name"] = "openai-mcp"

    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.send(initialize)
        await socket.response("h")
        assert tool_names(await socket.request("tools/list")) == RESEARCH
        assert len(tool_names(await socket.request("tools/list", modern_params()))) == 15


@each_case(
    ("path", "status"),
    [
        ("/mcp/nowhere/ws", 404),
        ("/mcp/ws?profile=nowhere", 404),
        ("/mcp/ws?profile=%F0%9F%A6%8A" + "%F0%9F%A6%8A" * 50, 404),
        ("/mcp/ws?profile=research&profile=compact", 400),
        ("/mcp/research/ws?profile=compact", 400),
        ("/mcp/ws?" + "&".join(f"p{n}=1" for n in range(40)), 400),
    ],
)
async def test_a_websocket_with_an_invalid_address_is_refused_with_a_specific_status(
    server: LiveServer, path: str, status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with WebSocketClient.open(server.url.replace("http", "ws", 1) + path, await server.bearer("ada")):
            pass

    assert refused.value.response.status_code == status


# -- by API key -------------------------------------------------------------------------------------------------


@each_case("path", ["/mcp", "/mcp/research", "/mcp/compact", "/mcp/full"])
async def test_a_restricted_key_has_its_profile_at_every_address(server: LiveServer, path: str) -> None:
    restricted = await create_key(server, "ada", "research")

    assert tool_names((await modern(server, path, restricted, "tools/list")).json()) == RESEARCH
    assert await (await LegacyAt.open(server, path, restricted, "another")).tool_names() == RESEARCH
    async with WebSocketClient.open(f"{server.url.replace('http', 'ws', 1)}{path}/ws", restricted) as socket:
        await socket.initialize()
        assert tool_names(await socket.request("tools/list")) == RESEARCH
        assert tool_names(await socket.request("tools/list", modern_params())) == RESEARCH


async def test_a_restricted_key_finds_its_session_at_every_address(server: LiveServer) -> None:
    session = await LegacyAt.open(server, "/mcp/full", await create_key(server, "ada", "research"))

    for path in ("/mcp", "/mcp/compact", "/mcp/full"):
        assert tool_names((await session.request("tools/list", path)).json()) == RESEARCH


async def test_a_restricted_key_cannot_call_other_tools_over_any_transport(server: LiveServer) -> None:
    restricted = await create_key(server, "ada", "research")
    call: dict[str, Any] = {"name": "knowledge_search", "arguments": {"query": "galleon"}}

    responses = [(await modern(server, "/mcp/full", restricted, "tools/call", **call)).json()]
    responses.append(
        (await (await LegacyAt.open(server, "/mcp/full", restricted)).request("tools/call", **call)).json()
    )
    async with WebSocketClient.open(f"{server.ws}?profile=full", restricted) as socket:
        responses.append(await socket.request("tools/call", modern_params(call)))
    ticket = (await fetch(server.url, "POST", "/mcp/ticket", restricted)).json()["ticket"]
    async with WebSocketClient.open(f"{server.ws}?ticket={ticket}") as socket:
        responses.append(await socket.request("tools/call", modern_params(call)))

    for response in responses:
        assert response["error"]["code"] == -32602
        assert "not part of the profile 'research'" in response["error"]["message"]


async def test_a_restricted_key_cannot_read_resources_and_another_key_of_the_user_can(server: LiveServer) -> None:
    restricted, unrestricted = await create_key(server, "ada", "research"), await create_key(server, "ada", None)
    user = await server.user("ada")
    principal = Principal(user.id, "ada", ClientId("test"), frozenset(SCOPES), "local", "test")
    async with server.runtime.libraries.library(
        build_context(principal, server.runtime.data_root, "request")
    ) as library:
        note = await library.notes.create(NoteDraft(title="Log", content="A galleon."))
        await library.prompts.create(PromptDraft(name="Greet", user_prompt="Hello."))

    assert (await modern(server, "/mcp", restricted, "prompts/list")).json()["result"]["prompts"] == []
    assert (await modern(server, "/mcp", unrestricted, "prompts/list")).json()["result"]["prompts"]
    assert (await modern(server, "/mcp", restricted, "resources/read", uri=f"notes://{note.id}")).status == 400
    for method, name in (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")):
        assert (await modern(server, "/mcp", restricted, method)).json()["result"][name] == []
        assert (await modern(server, "/mcp", unrestricted, method)).json()["result"][name]
    assert (await modern(server, "/mcp", restricted, "resources/read", uri="media://types")).status == 400
    assert (await modern(server, "/mcp", unrestricted, "resources/read", uri="media://types")).status == 200


async def test_keys_of_two_users_have_their_own_profiles(server: LiveServer) -> None:
    for user, profile, expected in (("ada", "research", RESEARCH), ("ben", "compact", COMPACT)):
        restricted = await create_key(server, user, profile)
        assert tool_names((await modern(server, "/mcp", restricted, "tools/list")).json()) == expected


async def test_a_key_restricted_to_a_removed_profile_is_rejected(server: LiveServer) -> None:
    response = await modern(server, "/mcp", await create_key(server, "ada", "retired"), "tools/list")

    assert (response.status, response.json()["error"]["message"]) == (404, f"profile 'retired' not found; {KNOWN}")


async def test_dotted_names_are_listed_if_configured(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with live(make_settings(tmp_path_factory.mktemp("dotted"), tool_names="dotted")) as server:
        client = await LegacyClient.open(server, "ada")
        listed = tool_names((await client.request("tools/list")).json())
        responses = [
            (await client.call(name, {"query": "galleon"})).json() for name in ("notes.search", "notes_search")
        ]

    assert listed[:4] == ["knowledge.search", "knowledge.get", "search", "fetch"]
    assert all("isError" not in response["result"] for response in responses)
