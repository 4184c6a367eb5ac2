"""Who can see which events, and which calls count as reads."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from auth.context import ADMIN, READ, WRITE
from sources.drafts import ObservationDraft
from sources.records import Segment
from tests.cases import each_case
from tests.server.clients import JSON_AND_EVENTS, message, modern_headers, modern_params
from tests.server.in_process import call_app
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser


async def key_of(api: RestClient, name: str, *scopes: str, **limits: Any) -> tuple[str, dict[str, str]]:
    user = await api.server.user(name)
    key, secret = await api.server.runtime.registry.create_key(user.id, f"key of {name}", scopes, **limits)
    return key.id, {"Authorization": f"Bearer {secret}"}


async def get(api: RestClient, path: str, headers: dict[str, str]) -> Any:
    response = await call_app(api.app, "GET", path, headers)
    assert response.status == 200, response.body
    return response.json()


async def mcp(api: RestClient, headers: dict[str, str], method: str, params: dict[str, Any]) -> None:
    body = msgspec.json.encode(message(method, modern_params(params), 1))
    sent = {**modern_headers(method, params), **JSON_AND_EVENTS, **headers}
    response = (await call_app(api.app, "POST", "/mcp/full", sent, body)).json()
    assert "result" in response, response
    assert not response["result"].get("isError"), response


async def test_users_see_which_client_read_which_of_their_items(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    note, other = await ada.add_note("Tides", "high and low"), await ben.add_note("Ships", "of Ben")
    key_id, ada_key = await key_of(api, "ada", READ)
    _, ben_key = await key_of(api, "ben", READ)
    await mcp(api, ada_key, "tools/call", {"name": "notes_get", "arguments": {"note_id": note}})
    await get(api, f"/api/v1/items/notes/{other}", ben_key)

    [read] = (await get(api, "/api/v1/reads", ada_key))["reads"]
    assert (read["uri"], read["client"], read["client_name"], read["count"]) == (
        f"notes://{note}",
        key_id,
        "key of ada",
        1,
    )
    assert [read["uri"] for read in (await get(api, "/api/v1/reads", ben_key))["reads"]] == [f"notes://{other}"]
    assert (await get(api, f"/api/v1/reads?uri=notes://{other}", ada_key))["reads"] == []


async def fill(ada: LibraryUser) -> dict[str, Any]:
    ids: dict[str, Any] = {
        "note": await ada.add_note("Tides", "high water"),
        "media": await ada.add_media(
            "Talk", "high water", media_type="video", segments=[Segment(start_ms=0, end_ms=9, text="high water")]
        ),
        "chat": await ada.add_chat("Chat", "high water", "low water"),
        "thread": await ada.add_chat("Thread", "high water", namespace="bus"),
        "character": await ada.add_character("Ana", "high water"),
        "prompt": await ada.add_prompt("Ask", "high water"),
    }
    async with ada.libraries.library(ada.context) as library:
        draft = ObservationDraft(title="high water")
        ids["observation"] = (await library.observations.create(draft)).id
        ids["message"] = (await library.chats.messages(ids["chat"], 1, 0)).rows[0].id
    return ids


# Calls by MCP or REST, and the URIs that they read.
READS: list[tuple[str, Any, list[str]]] = [
    ("knowledge_get", {"uri": "notes://{note}"}, ["notes://{note}"]),
    ("fetch", {"id": "media://{media}"}, ["media://{media}"]),
    ("notes_get", {"note_id": "{note}"}, ["notes://{note}"]),
    ("chats_get", {"conversation_id": "{chat}"}, ["chats://{chat}"]),
    ("media_transcript", {"media_id": "{media}"}, ["media://{media}"]),
    ("msg_list", {"thread_id": "{thread}"}, ["chats://{thread}"]),
    ("bus_connect", {"thread_id": "{thread}", "ide": "x", "model": "y"}, ["chats://{thread}"]),
    ("memory_get_observations", {"ids": ["{observation}"]}, ["observations://{observation}"]),
    ("memory_read", {"path": "chats://{chat}"}, ["chats://{chat}"]),
    ("resources/read", {"uri": "characters://{character}"}, ["characters://{character}"]),
    ("resources/read", {"uri": "chats://{chat}/{message}"}, ["chats://{chat}/{message}"]),
    ("prompts/get", {"name": "prompt_{prompt}"}, ["prompts://{prompt}"]),
    ("GET", "/api/v1/items/prompts/{prompt}", ["prompts://{prompt}"]),
    ("GET", "/items/notes/{note}", ["notes://{note}"]),
    ("GET", "/api/v1/items/fields?uri=notes://{note}", ["notes://{note}"]),
    ("GET", "/conversations/{chat}", ["chats://{chat}"]),
    ("POST", "/conversations/{chat}/export", ["chats://{chat}"]),
    ("GET", "/conversations/export", ["chats://"]),
    ("GET", "/conversations/search/messages?query=low", ["chats://{chat}/*"]),
    ("GET", "/api/threads/{thread}/messages", ["chats://{thread}"]),
    ("conversation_search", {"query": "low water"}, ["chats://{chat}/*"]),
    # No text of an item is delivered, except for snippets.
    ("knowledge_search", {"query": "high water"}, []),
    ("search", {"query": "high water"}, []),
    ("items_similar", {"uri": "notes://{note}"}, []),
    ("resources/read", {"uri": "media://types"}, []),
    ("items_update", {"uri": "notes://{note}", "title": "Tide"}, []),
    ("resources/list", {}, []),
    ("prompts/list", {}, []),
]


@pytest.mark.parametrize(("call", "arguments", "uris"), READS, ids=[f"{call}-{args}" for call, args, _ in READS])
async def test_calls_that_deliver_text_are_recorded(
    api: RestClient, ada: LibraryUser, call: str, arguments: Any, uris: list[str]
) -> None:
    ids = await fill(ada)
    _, key = await key_of(api, "ada", READ, WRITE)

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.format(**ids)
        if isinstance(value, dict):
            return {name: filled(one) for name, one in value.items()}
        return [filled(one) for one in value]

    if call in ("GET", "POST"):
        assert (await call_app(api.app, call, filled(arguments), key)).status == 200
    elif "/" in call:
        await mcp(api, key, call, filled(arguments))
    else:
        await mcp(api, key, "tools/call", {"name": call, "arguments": filled(arguments)})
    read = {entry["uri"] for entry in (await get(api, "/api/v1/reads", key))["reads"]}
    expected = {uri.format(**ids) for uri in uris}
    assert {
        uri.rsplit("/", 1)[0] + "/*" if f"{uri.rsplit('/', 1)[0]}/*" in expected else uri for uri in read
    } == expected


async def test_only_administrators_see_events_of_others(api: RestClient) -> None:
    registry, audit = api.server.runtime.registry, api.server.runtime.audit
    ada, ben = await api.server.user("ada"), await api.server.user("ben")
    audit.record("sign_in", ada.id, address="192.0.2.1")
    audit.record("sign_in", ben.id, address="192.0.2.2")
    audit.record("user.disable", ben.id, target=ada.id)
    _, writer = await key_of(api, "ada", READ, WRITE)
    _, admin = await key_of(api, "ben", READ, ADMIN)

    own = (await get(api, "/api/v1/audit", writer))["events"]
    assert [(event["user"], event["address"]) for event in own] == [("ada", "192.0.2.1")]
    for path in ("/api/v1/audit?user=ben", "/api/v1/audit?user=nobody"):
        assert (await call_app(api.app, "GET", path, writer)).status == 403
    everyone = (await get(api, "/api/v1/audit?action=sign_in", admin))["events"]
    assert {event["user"] for event in everyone} == {"ada", "ben"}
    [disabled] = (await get(api, "/api/v1/audit?action=user.disable", admin))["events"]
    assert (disabled["target"], disabled["target_name"]) == (ada.id, "ada")
    assert [event["user"] for event in (await get(api, "/api/v1/audit?user=ada", admin))["events"]] == ["ada"]
    assert (await call_app(api.app, "GET", "/api/v1/audit?user=nobody", admin)).status == 404
    await registry.set_role(ben.id, "writer")
    assert (await call_app(api.app, "GET", "/api/v1/audit?user=ada", admin)).status == 403


async def test_events_are_paged_and_filtered_by_time(api: RestClient) -> None:
    ada = await api.server.user("ada")
    for number in range(5):
        api.server.runtime.audit.record("sign_in", ada.id, detail=str(number))
    _, key = await key_of(api, "ada", READ)
    first = await get(api, "/api/v1/audit?limit=3", key)
    second = await get(api, f"/api/v1/audit?limit=3&before={first['next_before']}", key)
    assert [event["detail"] for event in (*first["events"], *second["events"])] == ["4", "3", "2", "1", "0"]
    assert second["next_before"] is None
    assert (await get(api, "/api/v1/audit?since=2099-01-01T00:00:00Z", key))["events"] == []
    assert (await call_app(api.app, "GET", "/api/v1/audit?since=soon", key)).status == 400


@each_case("limits", [{"profile": "research"}, {"profile": "compact"}, {"sources": ["notes"]}])
async def test_restricted_keys_do_not_see_the_log(tmp_path: Path, limits: dict[str, Any]) -> None:
    async with open_rest_client(tmp_path) as api:
        _, key = await key_of(api, "ada", READ, **limits)
        for path in ("/api/v1/audit", "/api/v1/reads"):
            assert (await call_app(api.app, "GET", path, key)).status == 403


async def test_rejected_credentials_are_recorded_for_administrators(api: RestClient) -> None:
    _, admin = await key_of(api, "ada", ADMIN)
    _, ben = await key_of(api, "ben", READ)
    wrong = {"Authorization": "Bearer flo_wrong"}
    for path in ("/api/v1/reads", "/api/v1/audit", "/mcp"):
        assert (await call_app(api.app, "GET", path, wrong)).status == 401
    assert (await call_app(api.app, "GET", "/api/v1/reads")).status == 401

    [rejected] = (await get(api, "/api/v1/audit?action=credential.reject", admin))["events"]
    assert (rejected["user"], rejected["detail"], rejected["count"]) == ("", "API key not accepted", 1)
    assert (await get(api, "/api/v1/audit?action=credential.reject", ben))["events"] == []
    api.server.runtime.admission.record_rejections(is_last=True)
    counts = [event["count"] for event in (await get(api, "/api/v1/audit?action=credential.reject", admin))["events"]]
    assert counts == [2, 1]


async def test_the_scope_admin_is_enough_for_the_log_of_all_users(own_api: RestClient) -> None:
    ben = await own_api.library_user("ben")
    _, admin = await key_of(own_api, "ada", ADMIN)
    _, writer = await key_of(own_api, "carl", WRITE)
    await get(
        own_api, f"/api/v1/items/notes/{await ben.add_note('Ships', 'of Ben')}", (await key_of(own_api, "ben", READ))[1]
    )
    assert [event["user"] for event in (await get(own_api, "/api/v1/audit", admin))["events"]] == ["ben"]
    assert (await call_app(own_api.app, "GET", "/api/v1/audit", writer)).status == 403
    assert (await call_app(own_api.app, "GET", "/api/v1/reads", admin)).status == 403
