"""A credential restricted to some sources behaves as if the others did not exist.

Ada has items in every source. For each source there is another user who has the same items in that source and none in
the others. A key restricted to that source must get the same response from both libraries, whatever it asks for.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import msgspec
import pytest
from starlette.routing import Route

from auth.context import READ, WRITE
from auth.oauth.clients import METADATA_PATH
from server.console.routes import console_routes, library_page_routes
from server.console.sharing_page import ACTIONS
from server.http_services import build_http_services
from server.oauth.endpoints import oauth_routes
from server.operations.operation import Operation
from server.rest.routes import rest_operations
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft, ObservationDraft
from tests.cases import each_case
from tests.server.clients import JSON_AND_EVENTS, message, modern_headers, modern_params
from tests.server.http_client import HttpResponse
from tests.server.in_process import call_app
from tests.server.rest.rest_client import RestClient, open_rest_client

SOURCES = ("notes", "media", "chats", "characters", "prompts")
NOTE = "00000000-0000-4000-8000-000000000001"
CHAT = "00000000-0000-4000-8000-000000000002"
THREAD = "00000000-0000-4000-8000-000000000003"
MESSAGE = "00000000-0000-4000-8000-000000000004"
OBSERVATION = "00000000-0000-4000-8000-000000000005"
# The beginning of a word that only the items of one source contain.
SECRET = "quixot"
URIS = {
    "notes": f"notes://{NOTE}",
    "media": "media://1",
    "chats": f"chats://{CHAT}",
    "characters": "characters://1",
    "prompts": "prompts://1",
}
QUERIES = (
    *("harbour", "fruit harbour", f"{SECRET}*", *(f"{SECRET}{source}" for source in SOURCES)),
    # Misspelled: near words come from the searched sources only.
    *(f"{SECRET}x{source}" for source in SOURCES),
    *("harbuor", "tag:secret", "source:chats harbour", "harbour OR mango"),
)
_VOLATILE = re.compile(
    rb'"(session|request_id|timestamp|time_ago|next_cursor|user)\\?":\\?"[^"]*"|\\nsession: [\w-]+|"ms\\?":\d+'
    rb"|20[2-9]\d-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?|(?!0{8})[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
# The name and id of the user, and the token of forms in a page.
_USERS = rb"(?:ada|notes|media|chats|characters|prompts)"
_NAMES_AND_TOKENS = re.compile(rb">\s*" + _USERS + rb"\s*<|[0-9a-f]{64}|\"(?:id|name)\":\"(?:u_\w+|" + _USERS + rb")\"")

Arguments = tuple[Mapping[str, Any], ...]
_SEARCHES: Arguments = tuple({"query": query} for query in QUERIES)
_READS: Arguments = tuple({"uri": uri} for uri in URIS.values())
_MESSAGES = [{"role": "user", "content": "a new message"}]

# The source of every tool that belongs to one; for the tools of all sources, calls that name each of them. A tool that
# is missing here fails the test: decide whether it belongs to a source.
TOOLS: Mapping[str, str | Arguments] = {
    "knowledge_search": (
        *({"query": query, "explain": True} for query in QUERIES),
        *({"query": "harbour", "sources": [source]} for source in SOURCES),
        *({"query": "harbour", "filters": {source: {}}} for source in SOURCES),
    ),
    "knowledge_get": (
        *({"uri": uri} for uri in (*URIS.values(), f"chats://{CHAT}/{MESSAGE}")),
        *({"source": source, "id": URIS[source].partition("://")[2]} for source in SOURCES),
    ),
    "search": _SEARCHES,
    "fetch": tuple({"id": uri} for uri in URIS.values()),
    "items_similar": _READS,
    "session_configure": ({"snippet_length": 100},),
    "session_reset": ({"session": "unknown"},),
    "server_info": ({},),
    "libraries_list": ({},),
    "items_create": tuple({"source": source, "title": "A title", "content": "A text"} for source in SOURCES),
    "items_update": tuple({"uri": uri, "title": "Changed"} for uri in URIS.values()),
    "items_tag": tuple({"uri": uri, "add": ["new"]} for uri in URIS.values()),
    "items_copy": tuple({"uri": uri, "to": "Team"} for uri in URIS.values()),
    "items_delete": _READS,
    **dict.fromkeys(("notes_search", "notes_get", "notes_create", "notes_update", "notes_append"), "notes"),
    "notes_delete": "notes",
    **dict.fromkeys(("media_search", "media_get", "media_transcript", "media_add_text"), "media"),
    **dict.fromkeys(("chats_search", "chats_get", "chats_append", "conversation_search"), "chats"),
    **dict.fromkeys(("bus_connect", "msg_post", "msg_list", "msg_search"), "chats"),
    **dict.fromkeys(("memory_search", "memory_get_observations", "memory_read", "observations_record"), "chats"),
    **dict.fromkeys(("characters_search", "characters_get"), "characters"),
    **dict.fromkeys(("prompts_search", "prompts_get", "prompts_save"), "prompts"),
}

ALL = "all sources"
# Needs the scope admin, and all sources.
ADMINISTRATION = "the scope admin"
Body = Mapping[str, Any] | None
# The same for REST operations: their source, or ALL; or requests that name each source.
OPERATIONS: Mapping[str, str | tuple[tuple[str, str, Body], ...]] = {
    "search_knowledge": tuple(("POST", "/api/v1/search", {"query": query}) for query in QUERIES),
    "read_item": tuple(("GET", f"/api/v1/items/{uri.replace('://', '/')}", None) for uri in URIS.values()),
    "read_item_by_uri": tuple(("GET", f"/api/v1/items?uri={uri}", None) for uri in URIS.values()),
    "find_similar_items": tuple(("GET", f"/api/v1/items/similar?uri={uri}", None) for uri in URIS.values()),
    "create_item": tuple(("POST", f"/api/v1/items/{source}", {"title": "A title"}) for source in SOURCES),
    "update_item": tuple(
        ("PATCH", f"/api/v1/items/{uri.replace('://', '/')}", {"title": "New"}) for uri in URIS.values()
    ),
    "update_item_by_uri": tuple(("PATCH", f"/api/v1/items?uri={uri}", {"title": "New"}) for uri in URIS.values()),
    "delete_item": tuple(("DELETE", f"/api/v1/items/{uri.replace('://', '/')}", None) for uri in URIS.values()),
    "delete_item_by_uri": tuple(("DELETE", f"/api/v1/items?uri={uri}", None) for uri in URIS.values()),
    "tag_item": tuple(
        ("POST", f"/api/v1/items/{uri.replace('://', '/')}/tags", {"add": ["new"]}) for uri in URIS.values()
    ),
    "tag_item_by_uri": tuple(("POST", "/api/v1/items/tags", {"uri": uri, "add": ["new"]}) for uri in URIS.values()),
    "copy_item": tuple(("POST", "/api/v1/items/copy", {"uri": uri, "to": "Team"}) for uri in URIS.values()),
    "restore_item": tuple(("POST", "/api/v1/items/restore", {"uri": uri}) for uri in URIS.values()),
    "read_editable_item": tuple(("GET", f"/api/v1/items/fields?uri={uri}", None) for uri in URIS.values()),
    "get_item_links": "notes",
    "get_library": (("GET", "/api/v1/library", None),),
    "get_library_timeline": (("GET", "/api/v1/library/timeline", None),),
    **dict.fromkeys(("list_saved_searches", "save_search", "delete_saved_search"), ALL),
    "list_items": (
        ("GET", "/api/v1/library/items", None),
        ("GET", "/api/v1/library/items?tag=secret", None),
        *(("GET", f"/api/v1/library/items?source={source}", None) for source in SOURCES),
    ),
    **dict.fromkeys(("import_file", "list_imports", "get_import", "follow_import", "cancel_import"), ALL),
    **dict.fromkeys(("list_import_formats", "list_calls", "test_connection"), ALL),
    **dict.fromkeys(("add_follow", "list_follows", "get_follow", "update_follow", "run_follow"), ALL),
    **dict.fromkeys(("resolve_follow_conflict", "remove_follow"), ALL),
    **dict.fromkeys(("add_follow_deployment", "list_follow_deployments", "get_follow_deployment"), ADMINISTRATION),
    **dict.fromkeys(("update_follow_deployment", "remove_follow_deployment"), ADMINISTRATION),
    **dict.fromkeys(("get_usage", "list_audit_events", "list_reads"), ALL),
    **dict.fromkeys(("export_library", "prepare_deletion", "delete_data", "delete_account"), ALL),
    **dict.fromkeys(("list_browser_sessions", "end_browser_session", "end_browser_sessions"), ALL),
    **dict.fromkeys(("list_passkeys", "remove_passkey"), ALL),
    "get_account": (("GET", "/api/v1/account", None),),
    "list_libraries": (("GET", "/api/v1/libraries", None),),
    **dict.fromkeys(("list_groups", "create_group", "rename_group", "delete_group", "list_members"), ALL),
    **dict.fromkeys(("set_member_role", "remove_member", "leave_group", "invite_member"), ALL),
    **dict.fromkeys(("list_group_invitations", "revoke_group_invitation", "list_incoming_invitations"), ALL),
    **dict.fromkeys(("accept_invitation", "decline_invitation", "list_shares", "create_share", "delete_share"), ALL),
    **dict.fromkeys(("ask", "stream_answer", "get_ask_model", "set_ask_model", "remove_ask_model"), ALL),
    "list_tags": (("GET", "/api/v1/tags", None),),
    **dict.fromkeys(("rename_tag", "delete_tag", "tag_items", "delete_items", "update_items", "export_items"), ALL),
    **dict.fromkeys(("undo_change", "list_changes", "find_duplicates", "list_duplicates", "merge_items"), ALL),
    **dict.fromkeys(("list_keys", "create_key", "revoke_key", "list_connections", "revoke_connection"), ALL),
    **dict.fromkeys(
        ("list_users", "add_user", "get_user", "update_user", "delete_user", "invite_user"), ADMINISTRATION
    ),
    **dict.fromkeys(("reset_password", "get_quotas", "set_quotas", "adopt_local", "get_server_status"), ADMINISTRATION),
    **dict.fromkeys(("list_invitations", "revoke_invitation"), ADMINISTRATION),
    **dict.fromkeys(("append_chat_messages", "list_conversations", "search_messages", "read_conversation"), "chats"),
    **dict.fromkeys(("export_conversation", "rename_conversation", "delete_conversation"), "chats"),
    **dict.fromkeys(("update_conversation", "download_conversation", "follow_conversations"), "chats"),
    **dict.fromkeys(("create_conversation", "add_message", "add_messages", "export_conversations"), "chats"),
    **dict.fromkeys(("import_conversations", "chat", "list_available_models", "create_chat_completion"), "chats"),
    **dict.fromkeys(("list_models", "list_namespaces", "create_namespace", "rename_namespace"), "chats"),
    **dict.fromkeys(("delete_namespace", "search_bus", "register_agent", "list_threads", "open_thread"), "chats"),
    **dict.fromkeys(("sync_thread", "state_thread", "archive_thread", "unarchive_thread"), "chats"),
    **dict.fromkeys(("read_thread", "post_message", "follow_bus"), "chats"),
}

PEOPLE = "people who are signed in"
NO_USER_DATA = "no data of a user"
# The same for pages, which also accept an API key where they show a library. A person who is signed in has all sources.
# The forms that such a page sends are in the third place.
PAGES: Mapping[str, str | tuple[tuple[str, str, Mapping[str, str] | None], ...]] = {
    "/": (
        ("GET", "/", None),
        *(("GET", f"/?{urlencode({'q': query})}", None) for query in QUERIES),
        *(("GET", f"/?q=harbour&source={source}", None) for source in SOURCES),
        ("GET", "/?q=harbour&part=filters", None),
        *(("GET", f"/?similar={uri}", None) for uri in URIS.values()),
        ("GET", "/?q=harbour&namespace=bus", None),
        ("GET", "/?tag=secret&sort=recent", None),
    ),
    "/library": (
        ("GET", "/library", None),
        ("GET", "/library?tag=secret", None),
        *(("GET", f"/library?source={source}", None) for source in SOURCES),
    ),
    "/items/{source}/{id:path}": tuple(("GET", f"/items/{uri.replace('://', '/')}", None) for uri in URIS.values()),
    "/note-images/{id}/{name:path}": (("GET", f"/note-images/{NOTE}/mast.png", None),),
    "/pdf-pages/{id}/{page:int}": (("GET", "/pdf-pages/1/1", None),),
    "/history": (("GET", "/history", None), ("GET", "/history?q=quixot&shown=500", None)),
    "/history/{id}": (
        ("GET", f"/history/{CHAT}", None),
        *(("POST", f"/history/{CHAT}", {"action": action, "title": "New"}) for action in ("rename", "pin", "delete")),
    ),
    "/threads": tuple(("GET", f"/threads?{urlencode({'q': query})}", None) for query in ("", *QUERIES)),
    "/threads/{id}": (("GET", f"/threads/{THREAD}", None), ("GET", f"/threads/{CHAT}?q=harbour&at={MESSAGE}", None)),
    "/library/timeline": (("GET", "/library/timeline", None),),
    **dict.fromkeys(("/searches", "/searches/delete", "/ask"), ALL),
    "/palette": tuple(("GET", f"/palette?{urlencode({'q': query})}", None) for query in QUERIES),
    "/tags": (("GET", "/tags", None),),
    "/tags/rename": (("GET", "/tags/rename?tag=secret", None),),
    **dict.fromkeys(("/tags/delete", "/duplicates", "/duplicates/merge", "/pin", "/changes/undo"), ALL),
    "/library/bulk": tuple(
        ("POST", "/library/bulk", {"action": "delete", "uri": uri, "tag": "new"}) for uri in URIS.values()
    ),
    "/new": (
        *(("GET", f"/new?source={source}", None) for source in SOURCES),
        *(("POST", "/new", {"source": source, "title": "A title", "content": "A text"}) for source in SOURCES),
    ),
    "/edit/{source}/{id:path}": tuple(
        (method, f"/edit/{uri.replace('://', '/')}", form)
        for uri in URIS.values()
        for method, form in (("GET", None), ("POST", {"title": "New", "content": "new"}))
    ),
    **{
        f"/{name}/{{source}}/{{id:path}}": tuple(
            ("POST", f"/{name}/{uri.replace('://', '/')}", {"tag": "new"}) for uri in URIS.values()
        )
        for name in ("tag", "delete")
    },
    "/restore": tuple(("POST", "/restore", {"uri": uri}) for uri in URIS.values()),
    **dict.fromkeys(("/import", "/import/cancel", "/import/follows", "/import/follows/change"), ALL),
    **dict.fromkeys(("/account", "/account/password", "/account/sessions", "/account/delete"), PEOPLE),
    "/account/notices": PEOPLE,
    **dict.fromkeys(("/account/passkeys", "/account/passkeys/options", "/account/passkeys/remove"), PEOPLE),
    **dict.fromkeys(("/admin", "/admin/usage", "/admin/users", "/admin/users/{name}", "/admin/audit"), PEOPLE),
    **dict.fromkeys(("/admin/invitations", "/admin/invitations/revoke"), PEOPLE),
    **dict.fromkeys(("/authorize", "/device"), PEOPLE),
    **dict.fromkeys(("/connect", "/connect/keys", "/connect/keys/revoke"), PEOPLE),
    **dict.fromkeys(("/connect/applications", "/connect/test", "/join/{secret}", "/sharing", "/ask/model"), PEOPLE),
    **dict.fromkeys((f"/sharing/{action}" for action in ACTIONS), PEOPLE),
    **dict.fromkeys(("/static/{version}/{name}", "/favicon.ico", "/about/{page}"), NO_USER_DATA),
    **dict.fromkeys(("/manifest.webmanifest", "/service-worker.js", "/offline", "/preferences"), NO_USER_DATA),
    **dict.fromkeys(("/share", "/share/review"), NO_USER_DATA),
    **dict.fromkeys(("/sign-in", "/sign-out"), NO_USER_DATA),
    **dict.fromkeys(("/sign-in/openid/{provider}", "/sign-in/openid/{provider}/callback"), NO_USER_DATA),
    **dict.fromkeys(("/sign-in/passkey", "/sign-in/passkey/options"), NO_USER_DATA),
    **dict.fromkeys(("/sign-in/second-factor", "/sign-in/second-factor/options"), NO_USER_DATA),
    **dict.fromkeys(("/setup/{secret}", "/invitation/{secret}", "/reset/{secret}"), NO_USER_DATA),
    **dict.fromkeys((METADATA_PATH, METADATA_PATH + "/{path:path}"), NO_USER_DATA),
    **dict.fromkeys(("/register", "/token", "/revoke", "/device_authorization"), NO_USER_DATA),
}


@pytest.fixture(params=["off"])
async def api(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[RestClient]:
    """Ada has all items. The user named after a source has only those of that source."""
    settings = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "semantic_model": request.param}
    settings |= {"semantic_timeout_ms": 60_000, "search_deadline_ms": 60_000}
    async with open_rest_client(tmp_path, **settings) as client:
        await fill(client, "ada", SOURCES)
        for source in SOURCES:
            await fill(client, source, (source,))
        yield client


async def fill(api: RestClient, name: str, sources: tuple[str, ...]) -> None:
    user = await api.library_user(name)
    created: dict[str, Any] = {"created_at": "2025-01-01T00:00:00Z"}
    async with user.libraries.library(user.context) as library:
        if "notes" in sources:
            await library.notes.create(
                NoteDraft(title="Notes", content=_text("notes"), uuid=NOTE, tags=["secret"], **created)
            )
        if "chats" in sources:
            said = [
                MessageDraft(role="user", sender="Ana", content=_text("chats"), uuid=MESSAGE, **created),
                MessageDraft(role="assistant", sender="Guide", content="harbour", **created),
            ]
            await library.chats.create(ConversationDraft(title="Chats", uuid=CHAT, tags=["secret"], **created), said)
            thread = ConversationDraft(title="Thread", uuid=THREAD, namespace="bus", **created)
            await library.chats.create(thread, [msgspec.structs.replace(said[0], uuid="thread-1")])
            observed = ObservationDraft(uuid=OBSERVATION, title=f"{SECRET}chats observed", **created)
            await library.observations.create(observed)
    if "media" in sources:
        await user.add_media("Media", _text("media"), tags=["secret"])
    if "characters" in sources:
        await user.add_character("Characters", _text("characters"), tags=["secret"])
    if "prompts" in sources:
        await user.add_prompt("Prompts", _text("prompts"), tags=["secret"])
    await user.libraries.embed(user.context.user_id)


def _text(source: str) -> str:
    return f"{SECRET}{source} lies at the harbour, with fruit"


# Creating a key writes to the disk, and a test needs each of them many times.
_KEYS: WeakKeyDictionary[Any, dict[tuple[str, ...], dict[str, str]]] = WeakKeyDictionary()


async def key_of(api: RestClient, name: str, *sources: str) -> dict[str, str]:
    keys = _KEYS.setdefault(api.app, {})
    if (name, *sources) not in keys:
        keys[name, *sources] = await create_key(api, name, *sources)
    return keys[name, *sources]


async def create_key(api: RestClient, name: str, *sources: str) -> dict[str, str]:
    user = await api.server.user(name)
    _, secret = await api.server.runtime.registry.create_key(user.id, "test", (READ, WRITE), sources=sources)
    return {"Authorization": f"Bearer {secret}"}


async def mcp(api: RestClient, key: Mapping[str, str], method: str, params: Mapping[str, Any]) -> HttpResponse:
    body = msgspec.json.encode(message(method, modern_params(dict(params)), 1))
    headers = {**modern_headers(method, dict(params)), **JSON_AND_EVENTS, **key}
    return await call_app(api.app, "POST", "/mcp/full", headers, body)


async def rest(api: RestClient, key: Mapping[str, str], method: str, path: str, body: Body = None) -> HttpResponse:
    content = {"Content-Type": "application/json"} if body is not None else {}
    return await call_app(api.app, method, path, {**key, **content}, b"" if body is None else msgspec.json.encode(body))


def require_equal(what: Any, source: str, ada: HttpResponse, other: HttpResponse) -> None:
    masked = [_NAMES_AND_TOKENS.sub(b"", _VOLATILE.sub(b"", response.body)) for response in (ada, other)]
    assert (ada.status, masked[0]) == (other.status, masked[1]), f"{what} with a key for {source}"
    for hidden in set(SOURCES) - {source}:
        own_words = msgspec.json.encode(what)
        found = f"{SECRET}{hidden}".encode() in ada.body and f"{SECRET}{hidden}".encode() not in own_words
        assert not found, f"{what} with a key for {source} shows {hidden}: {ada.body.decode()}"


async def compare_mcp(api: RestClient, method: str, params: Mapping[str, Any]) -> None:
    for source in SOURCES:
        ada, other = await key_of(api, "ada", source), await key_of(api, source, source)
        responses = [await mcp(api, key, method, params) for key in (ada, other)]
        require_equal([method, params], source, *responses)


async def listed(api: RestClient, key: Mapping[str, str], method: str, field: str) -> list[dict[str, Any]]:
    return list((await mcp(api, key, method, {})).json()["result"][field])


def operations(api: RestClient) -> dict[str, Operation]:
    runtime = api.server.runtime
    return {operation.id: operation for operation in rest_operations(runtime, build_http_services(runtime))}


async def test_every_tool_and_operation_is_decided_here(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        assert set(api.server.runtime.dispatcher.catalog.tools) == set(TOOLS)
        assert set(operations(api)) == set(OPERATIONS)


async def test_only_tools_of_permitted_sources_are_listed_and_callable(api: RestClient) -> None:
    for source in SOURCES:
        key = await key_of(api, "ada", source)
        names = {tool["name"] for tool in await listed(api, key, "tools/list", "tools")}
        visible = {name for name, decision in TOOLS.items() if not isinstance(decision, str) or decision == source}
        assert names == visible
        for name in set(TOOLS) - visible:
            error = (await mcp(api, key, "tools/call", {"name": name, "arguments": {}})).json()["error"]
            assert error["message"] == f"Unknown tool: {name}"


@each_case("tool", [name for name, decision in TOOLS.items() if not isinstance(decision, str)])
async def test_tools_of_all_sources_know_only_the_permitted_ones(api: RestClient, tool: str) -> None:
    for arguments in TOOLS[tool]:
        await compare_mcp(api, "tools/call", {"name": tool, "arguments": arguments})


@pytest.mark.slow("embeds several libraries")
@pytest.mark.parametrize("api", ["fast"], indirect=True)
@pytest.mark.parametrize("tool", ["knowledge_search", "items_similar"])
async def test_searches_by_meaning_know_only_the_permitted_sources(api: RestClient, tool: str) -> None:
    for arguments in TOOLS[tool]:
        await compare_mcp(api, "tools/call", {"name": tool, "arguments": arguments})


async def test_tools_of_a_permitted_source_do_not_depend_on_the_others(api: RestClient) -> None:
    for source in SOURCES:
        ada, other = await key_of(api, "ada", source), await key_of(api, source, source)
        for query in QUERIES:
            call = {"name": f"{source}_search", "arguments": {"query": query}}
            responses = [await mcp(api, key, "tools/call", call) for key in (ada, other)]
            require_equal(call, source, *responses)


async def test_listed_arguments_name_only_permitted_sources(api: RestClient) -> None:
    key = await key_of(api, "ada", "notes", "media")
    schemas = {tool["name"]: tool["inputSchema"] for tool in await listed(api, key, "tools/list", "tools")}
    assert schemas["knowledge_search"]["properties"]["sources"]["items"]["enum"] == ["notes", "media"]
    assert schemas["items_create"]["properties"]["source"]["enum"] == ["media", "notes"]


async def test_resources_and_prompts_of_other_sources_do_not_exist(api: RestClient) -> None:
    for method in ("resources/list", "resources/templates/list", "prompts/list"):
        await compare_mcp(api, method, {})
    for uri in (*URIS.values(), f"chats://{CHAT}/{MESSAGE}", "media://types"):
        await compare_mcp(api, "resources/read", {"uri": uri})
    for name in ("prompt_1_prompts", "character_1_characters"):
        await compare_mcp(api, "prompts/get", {"name": name})
    for template in api.server.runtime.dispatcher.catalog.templates:
        ref = {"type": "ref/resource", "uri": template}
        await compare_mcp(api, "completion/complete", {"ref": ref, "argument": {"name": "id", "value": "harb"}})
    key = await key_of(api, "ada", "notes")
    assert [entry["uri"] for entry in await listed(api, key, "resources/list", "resources")] == [URIS["notes"]]
    assert await listed(api, key, "prompts/list", "prompts") == []


async def test_operations_of_other_sources_are_refused(api: RestClient) -> None:
    for source in SOURCES:
        key = await key_of(api, "ada", source)
        for name, operation in operations(api).items():
            decision = OPERATIONS[name]
            if isinstance(decision, str) and decision != source:
                path = re.sub(r"\{\w+\}", CHAT, operation.public_path)
                response = await rest(api, key, operation.method, path, {} if operation.has_body else None)
                assert response.status == 403, name
                if decision == ADMINISTRATION:
                    assert response.json()["error"]["data"]["scope"] == "admin"
                    continue
                assert f"restricted to {source}" in response.body.decode(), name


@each_case("name", [name for name, decision in OPERATIONS.items() if not isinstance(decision, str)])
async def test_operations_on_all_sources_know_only_the_permitted_ones(api: RestClient, name: str) -> None:
    for request in OPERATIONS[name]:
        assert not isinstance(request, str)
        for source in SOURCES:
            ada, other = await key_of(api, "ada", source), await key_of(api, source, source)
            responses = [await rest(api, key, *request) for key in (ada, other)]
            require_equal(request, source, *responses)


async def test_every_page_is_decided_here(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        runtime, services = api.server.runtime, build_http_services(api.server.runtime)
        routes = (
            *library_page_routes(runtime, services),
            *console_routes(runtime, services),
            *oauth_routes(runtime, services),
        )
        assert {route.path for route in routes if isinstance(route, Route)} == set(PAGES)


async def open_page(
    api: RestClient, key: Mapping[str, str], method: str, path: str, form: Mapping[str, str] | None = None
) -> HttpResponse:
    """Sends the key and, with a form, the token that everyone gets with the sign-in page."""
    headers = {**key, "Accept": "text/html"}
    if form is None:
        return await call_app(api.app, method, path, headers)
    page = await call_app(api.app, "GET", "/sign-in", {"Accept": "text/html"})
    token = re.search(rb'name="csrf_token" value="([^"]+)"', page.body)
    assert token is not None
    headers["Cookie"] = (page.header("set-cookie") or "").partition(";")[0]
    headers |= {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    body = urlencode({**form, "csrf_token": token[1].decode()}).encode()
    return await call_app(api.app, method, path, headers, body)


@pytest.mark.slow("compares all pages")
@each_case("page", [page for page, decision in PAGES.items() if not isinstance(decision, str)])
async def test_pages_know_only_the_permitted_sources(api: RestClient, page: str) -> None:
    for request in PAGES[page]:
        assert not isinstance(request, str)
        for source in SOURCES:
            ada, other = await key_of(api, "ada", source), await key_of(api, source, source)
            responses = [await open_page(api, key, *request) for key in (ada, other)]
            require_equal(request, source, *responses)
            if page.startswith("/items/"):
                assert (responses[0].status == 200) == request[1].startswith(f"/items/{source}/")


async def test_forms_change_only_items_of_permitted_sources(api: RestClient) -> None:
    key, unrestricted = await key_of(api, "ada", "notes"), await key_of(api, "ada", *SOURCES)
    uris = [uri for source, uri in URIS.items() if source != "notes"]

    async def items() -> list[bytes]:
        paths = [f"/api/v1/items/fields?uri={uri}" for uri in uris]
        return [(await rest(api, unrestricted, "GET", path)).body for path in paths]

    before = await items()
    for decision in PAGES.values():
        for method, path, form in () if isinstance(decision, str) else decision:
            if form is not None:
                await open_page(api, key, method, path, form)
    assert await items() == before
    assert (await rest(api, unrestricted, "GET", f"/api/v1/items/notes/{NOTE}")).status == 404


async def test_pages_of_accounts_and_administration_are_not_for_keys(api: RestClient) -> None:
    key = await key_of(api, "ada", "notes")
    for page, decision in PAGES.items():
        path = re.sub(r"\{\w+\}", "ada", page)
        for method, form in (("GET", None), ("POST", {})):
            if decision not in (ALL, PEOPLE):
                continue
            response = await open_page(api, key, method, path, form)
            is_sign_in = response.status == 303 and (response.header("location") or "").startswith("/sign-in")
            assert is_sign_in or response.status in (400, 403, 405), (page, method)
            if decision == ALL and response.status != 405:
                assert "restricted to notes" in response.body.decode(), page


async def test_a_restricted_key_reads_and_writes_its_own_sources(api: RestClient) -> None:
    key = await key_of(api, "ada", "notes", "chats")
    found = (await rest(api, key, "POST", "/api/v1/search", {"query": "harbour"})).json()
    assert {hit["source"] for hit in found["results"]} == {"notes", "chats"}
    created = await rest(api, key, "POST", "/api/v1/items/notes", {"title": "New", "content": "written by the key"})
    assert created.status == 201
    refused = await rest(api, key, "POST", "/api/v1/items/prompts", {"title": "New"})
    assert (refused.status, refused.json()["error"]["message"]) == (404, "source 'prompts' not found")


async def test_subscriptions_to_other_sources_are_not_accepted(api: RestClient) -> None:
    key = await key_of(api, "ada", "notes")
    legacy = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    headers = {**JSON_AND_EVENTS, **key}
    body = msgspec.json.encode(message("initialize", legacy, 1))
    session = await call_app(api.app, "POST", "/mcp", headers, body)
    headers["Mcp-Session-Id"] = dict(session.headers)["mcp-session-id"]
    for source, uri in URIS.items():
        body = msgspec.json.encode(message("resources/subscribe", {"uri": uri}, 2))
        answer = (await call_app(api.app, "POST", "/mcp", headers, body)).json()
        assert ("result" in answer) == (source == "notes"), answer


async def test_searches_of_differently_restricted_keys_do_not_mix(api: RestClient) -> None:
    keys = {source: await key_of(api, "ada", source) for source in SOURCES}
    searches = [rest(api, key, "POST", "/api/v1/search", {"query": "harbour"}) for key in keys.values()]
    for source, response in zip(keys, await asyncio.gather(*searches), strict=True):
        assert {hit["source"] for hit in response.json()["results"]} == {source}
