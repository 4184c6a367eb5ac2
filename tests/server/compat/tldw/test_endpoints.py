"""Clients of tldw at its own addresses, as they send their requests."""

import base64
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from auth.context import READ, WRITE
from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.clients import WebSocketClient, message
from tests.server.http_client import HttpResponse, fetch
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

JSON = {"Content-Type": "application/json"}
REQUEST = "/api/v1/mcp/request"


async def post(
    api: RestClient, path: str, body: Any, user: str | None = "ada", headers: dict[str, str] | None = None
) -> HttpResponse:
    return await api.request("POST", path, user, {**JSON, **(headers or {})}, msgspec.json.encode(body))


async def key_of_ada(api: RestClient, **restrictions: Any) -> str:
    """Returns a restricted API key."""
    _, secret = await api.server.runtime.registry.create_key(
        (await api.server.user("ada")).id, "restricted", [READ], **restrictions
    )
    return secret


async def search(api: RestClient, query: str, session: str = "", user: str = "ada") -> list[str]:
    """Returns the ids of the hits of `knowledge.search`."""
    call = message("tools/call", {"name": "knowledge.search", "arguments": {"query": query}}, 1)
    headers = {"mcp-session-id": session} if session else {}
    response = (await post(api, REQUEST, call, user, headers)).json()
    return [item["id"] for item in response["result"]["structuredContent"]["results"]]


async def test_request_needs_neither_a_session_nor_a_handshake(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    assert await search(api, "galleon") == [note]
    assert await search(api, "galleon") == [note]
    assert await search(api, "galleon", user="ben") == []


async def test_initialize_without_parameters_returns_a_session(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    response = await post(api, REQUEST, message("initialize", {}, 1))
    session = response.header("mcp-session-id") or ""

    assert response.json()["result"]["protocolVersion"] == "2024-11-05"
    assert await search(api, "galleon", session) == [note]
    assert await search(api, "galleon", session) == [note]  # the results were exhausted


async def test_client_chooses_its_session_id(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    notes = {await user.add_note(f"Voyage {n}", f"A galleon of {n} masts.") for user in (ada, ben) for n in range(3)}
    searching = message("tools/call", {"name": "knowledge.search", "arguments": {"query": "galleon", "limit": 2}}, 1)

    seen = []
    for user in ("ada", "ben"):
        for _ in range(2):
            response = await post(api, f"{REQUEST}?mcp_session_id=mine", searching, user)
            seen += [item["id"] for item in response.json()["result"]["structuredContent"]["results"]]

    assert sorted(seen) == sorted(notes), "each user's second search delivers what the first did not"


async def test_initialize_keeps_the_id_that_the_client_chose(api: RestClient, ada: LibraryUser) -> None:
    initialize = message("initialize", {"clientInfo": {"name": "tldw-ui"}}, 1)

    response = await post(api, REQUEST, initialize, headers={"mcp-session-id": "my session"})

    assert response.header("mcp-session-id") == "my session"


async def test_deleted_session_has_no_state(api: RestClient, ada: LibraryUser) -> None:
    for number in range(2):
        await ada.add_note(f"Voyage {number}", f"A galleon of {number} masts.")
    one = message("tools/call", {"name": "knowledge.search", "arguments": {"query": "galleon", "limit": 1}}, 1)
    headers = {"mcp-session-id": "mine"}
    before = (await post(api, REQUEST, one, headers=headers)).json()

    deleted = await api.request("DELETE", REQUEST, "ada", headers)
    after = (await post(api, REQUEST, one, headers=headers)).json()

    assert deleted.status == 204
    assert before["result"]["structuredContent"]["results"] == after["result"]["structuredContent"]["results"]


async def test_deleting_an_unknown_session_opens_none(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, session_max=1) as api:
        await post(api, REQUEST, message("initialize", {}, 1))

        deleted = await api.request("DELETE", REQUEST, "ben", {"mcp-session-id": "mine"})

        assert (deleted.status, len(api.server.runtime.sessions)) == (204, 1)


async def test_notification_is_answered_with_204(api: RestClient) -> None:
    response = await post(api, REQUEST, message("notifications/initialized", {}))

    assert (response.status, response.body) == (204, b"")


async def test_batch_is_answered_in_order(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "A galleon.")
    messages = [
        message("initialize", {}, 1),
        message("notifications/initialized", {}),
        message("tools/call", {"name": "notes.search", "arguments": {"query": "galleon"}}, 2),
        {"id": 3},
        message("nothing/there", {}, 4),
    ]

    response = await post(api, f"{REQUEST}/batch", messages)

    assert [entry.get("id") for entry in response.json()] == [1, 2, 3, 4]
    assert ["result" in entry for entry in response.json()] == [True, True, False, False]
    assert response.header("mcp-session-id")


@each_case("body", [{}, [], [message("ping", {}, 1)] * 1000])
async def test_batch_of_the_wrong_size_is_rejected(api: RestClient, body: Any) -> None:
    assert (await post(api, f"{REQUEST}/batch", body)).status == 400


async def test_errors_of_json_rpc_have_status_200(api: RestClient) -> None:
    for body, code in ((message("nothing/there", {}, 7), -32601), ({"id": 7}, -32600)):
        response = await post(api, REQUEST, body)

        assert (response.status, response.json()["id"], response.json()["error"]["code"]) == (200, 7, code)


async def test_tools_are_listed_and_executed(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Voyage", "A galleon.")

    tools = (await api.get("/api/v1/mcp/tools")).json()["tools"]
    body = {"tool_name": "notes.search", "arguments": {"query": "galleon"}}
    result = (await post(api, "/api/v1/mcp/tools/execute", body)).json()
    of_ben = (await post(api, "/api/v1/mcp/tools/execute", body, "ben")).json()

    assert {"notes.search", "notes.get", "knowledge.search"} <= {tool["name"] for tool in tools if tool["canExecute"]}
    assert "galleon" in result["result"]
    assert result["module"] == "notes"
    assert result["execution_time_ms"] > 0
    assert "galleon" not in of_ben["result"]


async def test_prompts_resources_and_modules_are_listed(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_prompt("Captain's log", user_prompt="Write a log.")

    for name in ("prompts", "resources", "modules"):
        assert (await api.get(f"/api/v1/mcp/{name}")).json()[name]
    assert (await api.get("/api/v1/mcp/health", None)).json()["status"] == "healthy"


@pytest.mark.sqlite  # damages a file
async def test_module_is_inactive_for_the_user_whose_library_is_damaged(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, breaker_failures=1) as api:
        paths = api.server.runtime.data_root.prepare_user((await api.server.user("ada")).id)
        paths.prompts.write_bytes(b"not a database " * 1000)

        before = await modules(api, "ada")
        await search(api, "galleon")
        of_ada, of_ben = await modules(api, "ada"), await modules(api, "ben")

    assert set(before.values()) == set(of_ben.values()) == {"active"}
    assert of_ada == {**before, "prompts": "inactive"}


async def modules(api: RestClient, user: str) -> dict[str, str]:
    """Returns the status of each module by its id."""
    listed = (await api.get("/api/v1/mcp/modules", user)).json()["modules"]
    return {module["id"]: module["status"] for module in listed}


async def test_modules_are_a_method_of_the_protocol_too(api: RestClient, ada: LibraryUser) -> None:
    listing = message("modules/list", {}, 1)
    own_key = await key_of_ada(api, sources=["notes"])

    listed = (await post(api, REQUEST, listing)).json()["result"]["modules"]
    (in_batch,) = (await post(api, f"{REQUEST}/batch", [listing])).json()
    of_key = (await post(api, REQUEST, listing, None, {"X-API-KEY": own_key})).json()["result"]["modules"]
    stranger = await post(api, REQUEST, listing, None)

    assert {"notes", "media", "chats", "characters", "prompts"} <= {module["module_id"] for module in listed}
    assert {(module["status"], module["config"]["enabled"]) for module in listed} == {("active", True)}
    assert in_batch["result"]["modules"] == listed == (await api.get("/api/v1/mcp/modules")).json()["modules"]
    assert [module["module_id"] for module in of_key] == ["notes"]
    assert (stranger.status, b"notes" in stranger.body) == (401, False)


async def test_metrics_are_for_administrators_only(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        reader, path = await server.bearer("ada", (READ, WRITE)), "/api/v1/mcp/tools/execute"
        for tool, arguments in (("knowledge.search", {"query": "galleon"}), ("notes.get", {"note_id": "none"})):
            body = msgspec.json.encode({"tool_name": tool, "arguments": arguments})
            await fetch(server.url, "POST", path, {**reader, **JSON}, body)

        refused = await fetch(server.url, "GET", "/api/v1/mcp/metrics", reader)
        metrics = (await fetch(server.url, "GET", "/api/v1/mcp/metrics", await server.bearer("root"))).json()

    assert (refused.status, b"modules" in refused.body) == (403, False)
    assert set(metrics["connections"]) == {"active", "total_messages", "total_errors"}
    assert metrics["connections"]["total_messages"] >= 2
    assert set(metrics["modules"]["media"]) == {"requests", "errors", "error_rate", "avg_latency_ms"}
    assert metrics["modules"]["knowledge"]["requests"] == 1
    assert (metrics["modules"]["notes"]["errors"], metrics["modules"]["media"]["requests"]) == (1, 0)


async def test_profiles_are_tool_catalogs(api: RestClient, ada: LibraryUser) -> None:
    catalogs = (await api.get("/api/v1/mcp/tool_catalogs")).json()
    ids = {catalog["name"]: catalog["id"] for catalog in catalogs}

    async def tools(query: str) -> list[str]:
        return [tool["name"] for tool in (await api.get(f"/api/v1/mcp/tools{query}")).json()["tools"]]

    assert {"default", "compact", "full"} <= set(ids)
    assert all(catalog["is_active"] and catalog["org_id"] is catalog["team_id"] is None for catalog in catalogs)
    assert (await api.get("/api/v1/mcp/tool_catalogs?scope=global")).json() == catalogs
    assert (await api.get("/api/v1/mcp/tool_catalogs?scope=team")).json() == []
    assert (await api.get("/api/v1/mcp/tool_catalogs?scope=mine")).status == 422
    compact = ["knowledge.search", "knowledge.get"]
    assert await tools("?catalog=compact") == await tools(f"?catalog_id={ids['compact']}&catalog=full") == compact
    assert await tools("?catalog=none") == await tools("")
    assert await tools("?catalog=none&catalog_strict=true") == []


async def test_a_restricted_key_has_only_its_own_catalog(api: RestClient, ada: LibraryUser) -> None:
    headers = {"X-API-KEY": await key_of_ada(api, profile="compact")}

    (catalog,) = (await api.request("GET", "/api/v1/mcp/tool_catalogs", None, headers)).json()
    tools = (await api.request("GET", "/api/v1/mcp/tools?catalog=full", None, headers)).json()["tools"]

    assert catalog["name"] == "compact"
    assert [tool["name"] for tool in tools] == ["knowledge.search", "knowledge.get"]


@each_case(
    ("body", "status"),
    [
        ({"tool_name": "nothing.there"}, 400),
        ({"tool_name": "notes.search", "arguments": {"limit": "many"}}, 400),
        ({"tool_name": "notes.search", "arguments": []}, 400),
        ({"arguments": {}}, 400),
        ("text", 400),
    ],
)
async def test_invalid_execution_is_rejected(api: RestClient, body: Any, status: int) -> None:
    assert (await post(api, "/api/v1/mcp/tools/execute", body)).status == status


@each_case(
    ("method", "path"),
    [
        ("POST", "/request"),
        ("POST", "/request/batch"),
        ("DELETE", "/request"),
        ("GET", "/tools"),
        ("POST", "/tools/execute"),
        ("GET", "/modules"),
        ("GET", "/metrics"),
        ("GET", "/tool_catalogs"),
        ("GET", "/prompts"),
        ("GET", "/resources"),
    ],
)
async def test_every_endpoint_needs_a_credential(api: RestClient, method: str, path: str) -> None:
    response = await api.request(method, f"/api/v1/mcp{path}", None, JSON, b"{}")

    assert response.status == 401
    assert response.header("www-authenticate")


async def test_form_of_another_site_is_rejected(api: RestClient) -> None:
    body = msgspec.json.encode(message("tools/list", {}, 1))

    response = await api.request("POST", REQUEST, "ada", {"Content-Type": "text/plain"}, body)

    assert response.status == 415


async def test_session_id_is_limited(api: RestClient) -> None:
    response = await post(api, REQUEST, message("ping", {}, 1), headers={"mcp-session-id": "x" * 201})

    assert "200 characters" in response.json()["error"]["message"]


async def test_websocket_needs_no_handshake(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        url = server.ws.replace("/mcp/ws", "/api/v1/mcp/ws?client_id=ui")
        async with WebSocketClient.open(url, None, ["bearer", await server.token("ada")]) as client:
            tools = await client.request("tools/list")
            modules = await client.request("modules/list")
            initialized = await client.request("initialize", {"clientInfo": {"name": "ui"}})
            searched = await client.request("tools/call", {"name": "notes.search", "arguments": {"query": "galleon"}})

    listed = tools["result"]["tools"]
    assert {"notes.search", "knowledge.get"} <= {tool["name"] for tool in listed if tool["canExecute"]}
    assert "notes" in {module["module_id"] for module in modules["result"]["modules"]}
    assert initialized["result"]["protocolVersion"] == "2024-11-05"
    assert searched["result"]["structuredContent"]["results"] == []


async def test_config_keys_of_tldw_apply_in_every_place_of_a_config(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    for number in range(3):
        await ada.add_note(f"Voyage {number}", f"A galleon of {number} masts.")
    config = {"aliasMode": True, "compactShape": True, "maxSessionUris": 1}
    encoded = base64.b64encode(msgspec.json.encode(config)).decode()
    initialize = message("initialize", {"config": config}, 1)
    opened = (await post(api, REQUEST, initialize)).header("mcp-session-id") or ""
    one = message("tools/call", {"name": "knowledge.search", "arguments": {"query": "galleon", "limit": 1}}, 1)

    places = {
        "header": (REQUEST, {"Mcp-Config": encoded, "mcp-session-id": "first"}),
        "query": (f"{REQUEST}?config={quote(encoded)}", {"mcp-session-id": "second"}),
        "handshake": (REQUEST, {"mcp-session-id": opened}),
    }
    for place, (path, headers) in places.items():
        found = []
        for _ in range(3):
            response = (await post(api, path, one, headers=headers)).json()
            found += response["result"]["structuredContent"]["results"]
        first, second, third = (item["id"] for item in found)
        assert all(list(item) == ["id", "title", "text", "url", "metadata"] for item in found), place
        assert first != second, place
        assert first == third, f"{place}: the session remembers only the last item"
        theirs = (await post(api, path, one, "ben", headers)).json()
        assert theirs["result"]["structuredContent"]["results"] == [], place


async def test_refused_config_keys_of_tldw_say_what_to_use_instead(api: RestClient, ada: LibraryUser) -> None:
    encoded = base64.b64encode(msgspec.json.encode({"aliasMode": False})).decode()
    listing = message("tools/list", {}, 1)

    refused = [
        await post(api, REQUEST, listing, headers={"Mcp-Config": encoded}),
        await post(api, f"{REQUEST}?config={quote(encoded)}", listing),
        await post(api, REQUEST, message("initialize", {"config": {"aliasMode": False}}, 1)),
    ]

    for response in refused:
        assert "search and fetch are always listed" in response.body.decode()
        assert "/mcp/compact" in response.body.decode()
