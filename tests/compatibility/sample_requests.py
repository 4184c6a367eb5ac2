"""A valid request for every REST operation and every tool, about data in Ada's library.

Names in braces are placeholders for values of her library, such as ids.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from auth.accounts.service import AccountLinks
from auth.context import READ, ShareRule
from auth.follows import Deployment, Deployments, FollowRecord, Follows
from auth.oauth.grants import GrantRequest, OAuthGrants, TokenResource
from auth.registry import Registry, UserRecord
from auth.sharing import Sharing
from server.compat.agentchatbus.threads import NAMESPACE
from sources.drafts import MessageDraft
from sources.records import Segment
from sources.storage.contract import FollowedFile
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

WORD = "galleon"
CHAT = "6f1c1d5e-0000-4000-8000-00000000abcd"
MESSAGE = "6f1c1d5e-0000-4000-8000-00000000ffff"
NOTE = "6f1c1d5e-0000-4000-8000-000000000001"
THREAD = "6f1c1d5e-0000-4000-8000-000000000002"
OWN_CHAT = "6f1c1d5e-0000-4000-8000-000000000003"
OWN_MESSAGE = "6f1c1d5e-0000-4000-8000-000000000004"
SESSION = "session-of-the-galleon"
SPACE = "galleons"
FILE = {"Content-Type": "application/octet-stream"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TIME = "2026-01-02T03:04:05.000Z"
OBSERVATIONS = {"observations": [{"title": f"The {WORD} leaks", "project": "harbour"}], "idempotency_key": "key-record"}
_NEW_CONVERSATION = {"session_id": "begun", "title": "Begun", "messages": [{"role": "user", "content": f"a {WORD}?"}]}
_NEW_MESSAGE = {"role": "user", "content": f"the {WORD} again"}
_SYNC_FIELDS = {"expected_last_seq": "{seq}", "reply_token": "{reply_token}", "author": "{agent}"}
_SELECTED = [{"uri": "notes://{spare_note}"}]
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class SampleRequest(Struct, frozen=True):
    """`has_content` says whether a successful response contains `WORD`; `headers` are sent with the credential.
    `status` is the beginning of the expected one."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = {}
    has_content: bool = True
    status: str = "20"


ROUTES: Mapping[str, tuple[SampleRequest, ...]] = {
    "search_knowledge": (
        SampleRequest("POST", "/api/v1/search", {"query": WORD}),
        SampleRequest("POST", "/api/v1/search", {"query": WORD, "session": "{rest_handle}", "dedupe": "off"}),
    ),
    "ask": (
        SampleRequest("POST", "/api/v1/ask", {"question": f"Where is the {WORD}?"}),
        SampleRequest("POST", "/api/v1/ask", {"question": "?", "conversation_id": "{chat}"}, {}, False, "4"),
    ),
    "stream_answer": (SampleRequest("POST", "/api/v1/ask/stream", {"question": f"Where is the {WORD}?"}),),
    "get_ask_model": (SampleRequest("GET", "/api/v1/ask/model", has_content=False),),
    "set_ask_model": (SampleRequest("PUT", "/api/v1/ask/model", {"url": "https://1.1.1.1/v1"}, has_content=False),),
    "remove_ask_model": (SampleRequest("DELETE", "/api/v1/ask/model", has_content=False),),
    "read_item": (
        SampleRequest("GET", "/api/v1/items/notes/{note}?mode=full"),
        SampleRequest("GET", "/api/v1/items/media/{media}?mode=full"),
        SampleRequest("GET", "/api/v1/items/chats/{chat}?mode=full"),
        SampleRequest("GET", "/api/v1/items/characters/{character}?mode=full"),
        SampleRequest("GET", "/api/v1/items/prompts/{prompt}?mode=full"),
    ),
    "get_library": (SampleRequest("GET", "/api/v1/library", has_content=False),),
    "list_items": (SampleRequest("GET", "/api/v1/library/items", has_content=False),),
    "get_library_timeline": (SampleRequest("GET", "/api/v1/library/timeline", has_content=False),),
    "list_saved_searches": (SampleRequest("GET", "/api/v1/searches", has_content=False),),
    "save_search": (SampleRequest("PUT", "/api/v1/searches/mine", {"q": WORD}, has_content=False),),
    "delete_saved_search": (SampleRequest("DELETE", "/api/v1/searches/mine", has_content=False),),
    "get_item_links": (SampleRequest("GET", "/api/v1/items/links?uri=notes://{note}", has_content=False),),
    "read_editable_item": (SampleRequest("GET", "/api/v1/items/fields?uri=notes://{note}"),),
    "restore_item": (
        SampleRequest("POST", "/api/v1/items/restore", {"uri": "notes://{deleted_note}"}, has_content=False),
    ),
    "find_similar_items": (SampleRequest("GET", "/api/v1/items/similar?uri=notes://{note}", has_content=False),),
    "read_item_by_uri": (SampleRequest("GET", "/api/v1/items?uri=chats://{chat}/{message}&mode=full"),),
    "create_item": (
        SampleRequest("POST", "/api/v1/items/notes", {"title": f"The {WORD}", "content": "It leaks."}),
        SampleRequest("POST", "/api/v1/items/chats", {"title": f"A {WORD}?", "fields": {"messages": [_NEW_MESSAGE]}}),
        SampleRequest("POST", "/api/v1/items/characters", {"title": f"A {WORD} at anchor"}),
    ),
    "update_item": (
        SampleRequest("PATCH", "/api/v1/items/notes/{note}", {"content": "It leaks.", "expected_version": 1}),
        SampleRequest("PATCH", "/api/v1/items/media/{media}", {"fields": {"author": "Ana"}}),
        SampleRequest("PATCH", "/api/v1/items/chats/{chat}/{message}", {"content": "It leaks."}, has_content=False),
    ),
    "update_item_by_uri": (
        SampleRequest("PATCH", "/api/v1/items?uri=prompts://{prompt}", {"fields": {"details": "For sailors."}}),
    ),
    "delete_item": (
        SampleRequest("DELETE", "/api/v1/items/characters/{character}", has_content=False),
        SampleRequest("DELETE", "/api/v1/items/chats/{chat}", has_content=False),
        SampleRequest("DELETE", "/api/v1/items/chats/{chat}/{message}", has_content=False),
    ),
    "delete_item_by_uri": (SampleRequest("DELETE", "/api/v1/items?uri=media://{media}", has_content=False),),
    "tag_item": (SampleRequest("POST", "/api/v1/items/notes/{note}/tags", {"add": ["ship"]}),),
    "tag_item_by_uri": (SampleRequest("POST", "/api/v1/items/tags", {"uri": "chats://{chat}", "add": ["ship"]}),),
    "append_chat_messages": (
        SampleRequest("POST", "/api/v1/items/chats/{chat}/messages", {"messages": [_NEW_MESSAGE]}),
    ),
    "list_conversations": (
        SampleRequest("GET", "/conversations"),
        SampleRequest("GET", f"/conversations?search={WORD}"),
        SampleRequest("GET", "/conversations?namespace={space}"),
    ),
    "search_messages": (
        SampleRequest("GET", f"/conversations/search/messages?query={WORD}"),
        SampleRequest("GET", f"/conversations/search/messages?query={WORD}&conversation_id={{chat}}"),
    ),
    "read_conversation": (SampleRequest("GET", "/conversations/{chat}"),),
    "rename_conversation": (SampleRequest("PUT", "/conversations/{chat}?title=Renamed", has_content=False),),
    "update_conversation": (
        SampleRequest("PATCH", "/conversations/{chat}", {"title": f"The {WORD}", "pinned": True}),
        SampleRequest("PATCH", "/conversations/{chat}", {"archived": True}, has_content=False),
    ),
    "download_conversation": (
        SampleRequest("GET", "/conversations/{chat}/download"),
        SampleRequest("GET", "/conversations/{chat}/download?format=md"),
    ),
    "follow_conversations": (SampleRequest("GET", "/api/v1/conversations/events", has_content=False),),
    "delete_conversation": (
        SampleRequest("DELETE", "/conversations/{chat}", has_content=False),
        SampleRequest("DELETE", "/conversations/{chat}?purge=true", has_content=False),
    ),
    "export_conversation": (
        SampleRequest("POST", "/conversations/{chat}/export?format=json"),
        SampleRequest("POST", "/conversations/{chat}/export?format=md"),
    ),
    "create_conversation": (
        SampleRequest(
            "POST", "/conversations", _NEW_CONVERSATION, {"Idempotency-Key": "key-create"}, has_content=False
        ),
    ),
    "add_message": (
        SampleRequest("POST", "/conversations/{chat}/messages", _NEW_MESSAGE, {"Idempotency-Key": "key-add"}),
    ),
    "add_messages": (SampleRequest("POST", "/conversations/{chat}/messages/bulk", {"messages": [_NEW_MESSAGE]}),),
    "export_conversations": (SampleRequest("GET", "/conversations/export", has_content=False),),
    "import_conversations": (
        SampleRequest(
            "POST", "/conversations/import", b"{archive}", {"Content-Type": "application/zip"}, has_content=False
        ),
    ),
    "chat": (
        SampleRequest(
            "POST",
            "/chat",
            f"message=where+is+the+{WORD}&model=any&session_id={SESSION}".encode(),
            FORM,
        ),
    ),
    "create_chat_completion": (
        SampleRequest(
            "POST",
            "/v1/chat/completions",
            {"model": "extractive", "messages": [{"role": "user", "content": f"where is the {WORD}?"}]},
            {"X-Conversation-Id": "{chat}"},
        ),
    ),
    "list_available_models": (SampleRequest("GET", "/models", has_content=False),),
    "list_models": (SampleRequest("GET", "/v1/models", has_content=False),),
    "list_namespaces": (SampleRequest("GET", "/namespaces"),),
    "create_namespace": (SampleRequest("POST", "/namespaces", b"name=harbour", FORM, has_content=False),),
    "rename_namespace": (
        SampleRequest("PUT", "/namespaces/{space}/rename", b"new_name=hulls", FORM, has_content=False),
    ),
    "delete_namespace": (SampleRequest("DELETE", "/namespaces/{space}", has_content=False),),
    "import_file": (
        SampleRequest(
            "POST", "/api/v1/import?name=harbour.md", b"# Harbour\n\nA harbour at dawn.\n", FILE, has_content=False
        ),
    ),
    "get_usage": (SampleRequest("GET", "/api/v1/usage", has_content=False),),
    "get_account": (SampleRequest("GET", "/api/v1/account", has_content=False),),
    "copy_item": (
        SampleRequest("POST", "/api/v1/items/copy", {"uri": "notes://{note}", "to": "{group}"}, has_content=False),
    ),
    "list_tags": (SampleRequest("GET", "/api/v1/tags", has_content=False),),
    "rename_tag": (
        SampleRequest("POST", "/api/v1/tags/rename", {"tag": "ship", "new_tag": "hull"}, has_content=False),
    ),
    "delete_tag": (SampleRequest("DELETE", "/api/v1/tags?tag=ship", has_content=False),),
    "tag_items": (
        SampleRequest("POST", "/api/v1/items/selection/tags", {"items": _SELECTED, "add": ["oak"]}, has_content=False),
    ),
    "delete_items": (SampleRequest("POST", "/api/v1/items/selection/delete", {"items": _SELECTED}, has_content=False),),
    "update_items": (
        SampleRequest(
            "POST", "/api/v1/items/selection/update", {"items": _SELECTED, "pinned": True}, has_content=False
        ),
    ),
    "export_items": (SampleRequest("POST", "/api/v1/items/selection/export", {"items": _SELECTED}, has_content=False),),
    "undo_change": (SampleRequest("POST", "/api/v1/items/undo", {"undo": "{undo}"}, has_content=False),),
    "list_changes": (SampleRequest("GET", "/api/v1/items/changes", has_content=False),),
    "find_duplicates": (SampleRequest("POST", "/api/v1/duplicates", {}, has_content=False),),
    "list_duplicates": (SampleRequest("GET", "/api/v1/duplicates", has_content=False),),
    "merge_items": (
        SampleRequest(
            "POST", "/api/v1/items/merge", {"uris": ["notes://{note}", "notes://{spare_note}"]}, has_content=False
        ),
    ),
    "list_libraries": (SampleRequest("GET", "/api/v1/libraries"),),
    "list_groups": (SampleRequest("GET", "/api/v1/groups"),),
    # 201, or 409 if Ben has taken the name: those of groups and users are one list.
    "create_group": (SampleRequest("POST", "/api/v1/groups", {"name": f"{WORD}-crew"}, has_content=False, status=""),),
    "rename_group": (SampleRequest("PATCH", "/api/v1/groups/{group}", {"new_name": f"{WORD}-crew"}),),
    "delete_group": (SampleRequest("DELETE", "/api/v1/groups/{group}"),),
    "list_members": (SampleRequest("GET", "/api/v1/groups/{group}/members"),),
    "set_member_role": (SampleRequest("PUT", "/api/v1/groups/{group}/members/{other_user}", {"role": "manager"}),),
    "remove_member": (SampleRequest("DELETE", "/api/v1/groups/{group}/members/{other_user}"),),
    # The last manager cannot leave.
    "leave_group": (SampleRequest("POST", "/api/v1/groups/{group}/leave", {}, has_content=False, status="409"),),
    "invite_member": (SampleRequest("POST", "/api/v1/groups/{group}/invitations", {}),),
    "list_group_invitations": (SampleRequest("GET", "/api/v1/groups/{group}/invitations"),),
    "revoke_group_invitation": (
        SampleRequest("DELETE", "/api/v1/groups/{group}/invitations/{group_invitation}", has_content=False),
    ),
    "list_incoming_invitations": (SampleRequest("GET", "/api/v1/group-invitations"),),
    "accept_invitation": (
        SampleRequest("POST", "/api/v1/group-invitations/accept", {"invitation": "{incoming_invitation}"}),
    ),
    "decline_invitation": (
        SampleRequest("POST", "/api/v1/group-invitations/decline", {"invitation": "{incoming_invitation}"}),
    ),
    "list_shares": (SampleRequest("GET", "/api/v1/shares"),),
    # Whether a name exists is what a share with it tells; Ada and Ben get the same for a name that nobody has.
    "create_share": (
        SampleRequest(
            "POST",
            "/api/v1/shares",
            {"by": "tag", "value": "ship", "to": "nobody"},
            has_content=False,
            status="404",
        ),
    ),
    "delete_share": (SampleRequest("DELETE", "/api/v1/shares/{share}"),),
    "list_keys": (SampleRequest("GET", "/api/v1/keys"),),
    "create_key": (SampleRequest("POST", "/api/v1/keys", {"name": f"The {WORD}"}),),
    "revoke_key": (SampleRequest("DELETE", "/api/v1/keys/{key}"),),
    "list_connections": (SampleRequest("GET", "/api/v1/connections"),),
    "revoke_connection": (SampleRequest("DELETE", "/api/v1/connections/{connection}"),),
    "export_library": (SampleRequest("GET", "/api/v1/export", has_content=False),),
    "prepare_deletion": (SampleRequest("POST", "/api/v1/account/deletion", {}, has_content=False),),
    "delete_data": (SampleRequest("DELETE", "/api/v1/account/data?token={deletion_token}", has_content=False),),
    "delete_account": (SampleRequest("DELETE", "/api/v1/account?token={deletion_token}", has_content=False),),
    "list_browser_sessions": (SampleRequest("GET", "/api/v1/browser-sessions"),),
    "end_browser_session": (SampleRequest("DELETE", "/api/v1/browser-sessions/{browser_session}"),),
    "end_browser_sessions": (SampleRequest("DELETE", "/api/v1/browser-sessions"),),
    "list_passkeys": (SampleRequest("GET", "/api/v1/passkeys"),),
    "remove_passkey": (SampleRequest("DELETE", "/api/v1/passkeys/{passkey}"),),
    "list_audit_events": (SampleRequest("GET", "/api/v1/audit", has_content=False),),
    "list_reads": (SampleRequest("GET", "/api/v1/reads", has_content=False),),
    "list_users": (SampleRequest("GET", "/api/v1/users", has_content=False),),
    "add_user": (SampleRequest("POST", "/api/v1/users", {"name": f"{WORD}.two"}),),
    "get_user": (SampleRequest("GET", "/api/v1/users/{other_user}"),),
    "update_user": (SampleRequest("PATCH", "/api/v1/users/{other_user}", {"role": "reader"}),),
    "delete_user": (SampleRequest("DELETE", "/api/v1/users/{other_user}"),),
    "invite_user": (SampleRequest("POST", "/api/v1/invitations", {"name": f"{WORD}.three"}, has_content=False),),
    "list_invitations": (SampleRequest("GET", "/api/v1/invitations"),),
    "revoke_invitation": (SampleRequest("DELETE", "/api/v1/invitations/{invitation}"),),
    "reset_password": (SampleRequest("POST", "/api/v1/users/{other_user}/password-reset", {}, has_content=False),),
    # Only the operator may do this.
    "adopt_local": (
        SampleRequest("POST", "/api/v1/users/{other_user}/adopt-local", {}, has_content=False, status="403"),
    ),
    "get_quotas": (SampleRequest("GET", "/api/v1/users/{other_user}/quotas", has_content=False),),
    "set_quotas": (SampleRequest("PUT", "/api/v1/users/{other_user}/quotas", {"max_items": 1000}, has_content=False),),
    "get_server_status": (SampleRequest("GET", "/api/v1/server", has_content=False),),
    "list_calls": (SampleRequest("GET", "/api/v1/calls", has_content=False),),
    "test_connection": (SampleRequest("POST", "/api/v1/connection-test", {"client": "any"}, has_content=False),),
    "list_import_formats": (SampleRequest("GET", "/api/v1/import/formats", has_content=False),),
    "list_imports": (SampleRequest("GET", "/api/v1/import"),),
    "get_import": (SampleRequest("GET", "/api/v1/import/{job}"),),
    "follow_import": (SampleRequest("GET", "/api/v1/import/{job}/events"),),
    "cancel_import": (SampleRequest("DELETE", "/api/v1/import/{job}"),),
    "add_follow": (
        SampleRequest("POST", "/api/v1/follows", {"location": "https://harbour.invalid/"}, has_content=False),
    ),
    "list_follows": (SampleRequest("GET", "/api/v1/follows"),),
    "get_follow": (SampleRequest("GET", "/api/v1/follows/{follow}"),),
    "update_follow": (SampleRequest("PATCH", "/api/v1/follows/{follow}", {"paused": True}),),
    "run_follow": (SampleRequest("POST", "/api/v1/follows/{resumed_follow}/run", {}),),
    "resolve_follow_conflict": (
        SampleRequest("POST", "/api/v1/follows/{follow}/resolve", {"file": "Tea.md", "keep": "library"}),
    ),
    "remove_follow": (SampleRequest("DELETE", "/api/v1/follows/{follow}"),),
    "add_follow_deployment": (
        SampleRequest("POST", "/api/v1/follow-deployments", {"location": "{tldw_folder}"}, has_content=False),
    ),
    "list_follow_deployments": (SampleRequest("GET", "/api/v1/follow-deployments", has_content=False),),
    "get_follow_deployment": (SampleRequest("GET", "/api/v1/follow-deployments/{deployment}", has_content=False),),
    "update_follow_deployment": (
        SampleRequest("PATCH", "/api/v1/follow-deployments/{deployment}", {"paused": True}, has_content=False),
    ),
    "remove_follow_deployment": (
        SampleRequest("DELETE", "/api/v1/follow-deployments/{deployment}", has_content=False),
    ),
    "search_bus": (
        SampleRequest("GET", f"/api/search?q={WORD}"),
        SampleRequest("GET", f"/api/search?q={WORD}&thread_id={{chat}}"),
    ),
    "follow_bus": (SampleRequest("GET", "/events", has_content=False),),
    "register_agent": (SampleRequest("POST", "/api/agents/register", {"ide": "api", "model": "m"}, has_content=False),),
    "list_threads": (
        SampleRequest("GET", "/api/threads"),
        SampleRequest("GET", "/api/threads?status=discuss&include_archived=true&limit=1&before=2999-01-01"),
    ),
    "open_thread": (
        SampleRequest(
            "POST",
            "/api/threads",
            {"topic": "Harbour", "creator_agent_id": "{agent}"},
            {"X-Agent-Token": "{agent_token}"},
            has_content=False,
        ),
    ),
    "sync_thread": (SampleRequest("POST", "/api/threads/{thread}/sync-context", {}, has_content=False),),
    "state_thread": (SampleRequest("POST", "/api/threads/{thread}/state", {"state": "review"}, has_content=False),),
    "archive_thread": (SampleRequest("POST", "/api/threads/{thread}/archive", {}, has_content=False),),
    "unarchive_thread": (SampleRequest("POST", "/api/threads/{thread}/unarchive", {}, has_content=False),),
    "read_thread": (
        SampleRequest("GET", "/api/threads/{thread}/messages"),
        SampleRequest("GET", "/api/threads/{thread}/messages?priority=normal&include_system_prompt=true"),
    ),
    "post_message": (
        SampleRequest(
            "POST",
            "/api/threads/{thread}/messages",
            {**_NEW_MESSAGE, **_SYNC_FIELDS},
            {"X-Agent-Token": "{agent_token}"},
        ),
    ),
}

TOOLS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "knowledge_search": ({"query": WORD}, {"query": WORD, "session": "{handle}", "dedupe": "off"}),
    "knowledge_get": ({"uri": "notes://{note}"}, {"uri": "chats://{chat}/{message}"}),
    "search": ({"query": WORD},),
    "fetch": ({"id": "notes://{note}"},),
    "notes_search": ({"query": WORD},),
    "notes_get": ({"note_id": "{note}"}, {"uri": "notes://{note}"}),
    "media_search": ({"query": WORD},),
    "media_get": ({"media_id": "{media}"},),
    "media_transcript": ({"media_id": "{media}"},),
    "chats_search": ({"query": WORD},),
    "chats_get": ({"conversation_id": "{chat}"},),
    "characters_search": ({"query": WORD},),
    "characters_get": ({"character_id": "{character}"},),
    "prompts_search": ({"query": WORD},),
    "prompts_get": ({"prompt_id_or_name": "{prompt}"}, {"prompt_id_or_name": f"A {WORD} in prompts"}),
    "conversation_search": ({"query": WORD}, {"query": WORD, "format": "json"}),
    "bus_connect": ({"thread_id": "{thread}"}, {"thread_name": f"The {WORD}"}),
    "msg_post": ({"thread_id": "{thread}", "author": "Ana", "content": f"the {WORD} again"},),
    "msg_list": ({"thread_id": "{thread}"}, {"thread_id": "{thread}", "return_format": "json"}),
    "msg_search": ({"query": WORD}, {"query": WORD, "thread_id": "{chat}"}),
    "memory_search": ({"query": WORD}, {"query": [WORD, "sail"], "response_format": "json"}),
    "memory_get_observations": ({"ids": ["{observation}"]},),
    "memory_read": ({"path": "chats://{chat}"},),
    "observations_record": (OBSERVATIONS,),
    "notes_create": ({"title": f"The other {WORD}", "idempotency_key": "key-note"},),
    "notes_update": ({"note_id": "{note}", "tags": ["ship"]},),
    "notes_append": ({"note_id": "{note}", "text": "It leaks."},),
    "notes_delete": ({"note_id": "{spare_note}"},),
    "chats_append": (
        {"conversation_id": "{chat}", "messages": [_NEW_MESSAGE]},
        {"title": f"A {WORD}?", "messages": [_NEW_MESSAGE]},
    ),
    "prompts_save": ({"name": f"A {WORD} in prompts", "details": "For sailors."},),
    "media_add_text": ({"title": f"On the {WORD}", "text": "Built of oak."},),
    "items_create": (
        {"source": "notes", "title": f"The new {WORD}", "idempotency_key": "key-item"},
        {"source": "prompts", "title": f"The new {WORD}", "content": "Describe it."},
    ),
    "items_update": (
        {"uri": "notes://{note}", "tags": ["ship", "oak"]},
        {"uri": "media://{media}", "fields": {"author": "Ana"}},
        {"uri": "characters://{character}", "fields": {"nickname": "Oak"}},
    ),
    "items_copy": ({"uri": "notes://{note}", "to": "{group}"},),
    "libraries_list": ({},),
    "items_delete": ({"uri": "prompts://{spare_prompt}"}, {"uri": "chats://{spare_chat}"}),
    "items_similar": ({"uri": "notes://{note}"}, {"uri": "chats://{chat}/{message}"}),
    "items_tag": ({"uri": "notes://{note}", "add": ["ship"]}, {"uri": "media://{media}", "add": ["ship"]}),
    "session_configure": ({"session": "{handle}", "snippet_length": 50},),
    "session_reset": ({"session": "{handle}"},),
    "server_info": ({},),
}
# Their results contain nothing of a library.
TOOLS_WITHOUT_CONTENT = frozenset(
    (
        "items_similar",
        "items_copy",
        "msg_post",
        "notes_delete",
        "items_delete",
        "session_configure",
        "session_reset",
        "server_info",
    )
)


def fill_placeholders(value: Any, values: Mapping[str, Any]) -> Any:
    """Replaces placeholders; a string that is only a placeholder becomes the value itself, of any type."""
    match value:
        case str():
            whole = _PLACEHOLDER.fullmatch(value)
            return values[whole[1]] if whole else _PLACEHOLDER.sub(lambda match: str(values[match[1]]), value)
        case dict():
            return {name: fill_placeholders(inner, values) for name, inner in value.items()}
        case list():
            return [fill_placeholders(inner, values) for inner in value]
    return value


async def send(api: RestClient, request: SampleRequest, values: Mapping[str, Any], who: str) -> HttpResponse:
    headers = {name: str(fill_placeholders(value, values)) for name, value in request.headers.items()}
    if request.body is None or isinstance(request.body, bytes):
        body = values["archive"] if request.body == b"{archive}" else request.body or b""
    else:
        body = msgspec.json.encode(fill_placeholders(request.body, values))
        headers = {"Content-Type": "application/json", **headers}
    return await api.request(request.method, fill_placeholders(request.path, values), who, headers, body)


async def fill_library_of_ada(
    api: RestClient, ada: LibraryUser, request: SampleRequest | None = None
) -> dict[str, Any]:
    """Adds something of every kind and returns the values of the placeholders.

    An import takes as long as everything else. If only `request` will be sent, a file is imported only if it names one.
    """
    segments = [Segment(start_ms=n * 1000, end_ms=n * 1000 + 999, text=f"{WORD} {n}") for n in range(3)]
    message = MessageDraft(role="user", sender="Ana", content=f"a {WORD} under sail", uuid=MESSAGE, created_at=TIME)
    values = {
        "note": await ada.add_note(f"The {WORD}", f"A {WORD} under sail.", uuid=NOTE),
        "spare_note": await ada.add_note(f"Another {WORD}", f"A {WORD} to be deleted.", tags=("ship",)),
        "deleted_note": await add_deleted_note(ada, f"A {WORD} that is gone."),
        "media": await ada.add_media(f"The {WORD}", segments=segments),
        "chat": await ada.add_chat(f"The {WORD}", message, uuid=CHAT, session_id=SESSION, namespace=SPACE),
        "thread": await ada.add_chat(f"The {WORD}", f"a {WORD} in a thread", uuid=THREAD, namespace=NAMESPACE),
        "character": await ada.add_character(f"A {WORD} in characters", f"A {WORD} that speaks."),
        "prompt": await ada.add_prompt(f"A {WORD} in prompts", f"Describe a {WORD}."),
        "spare_prompt": await ada.add_prompt(f"Another {WORD}", "To be deleted."),
        "spare_chat": await ada.add_chat(f"Another {WORD}", "to be deleted"),
        "message": MESSAGE,
        "space": SPACE,
        "handle": (await ada.call("knowledge_search", query=WORD))["session"],
        "rest_handle": (await api.search({"query": WORD})).json()["session"],
        "observation": (await ada.call("observations_record", **OBSERVATIONS))["observations"][0]["id"],
        "archive": (await api.request("GET", "/conversations/export", "ada")).body,
    }
    await send(api, ROUTES["save_search"][0], {}, "ada")
    values["undo"] = (await send(api, ROUTES["tag_items"][0], values, "ada")).json()["undo"]
    values |= await add_account_data(api, "ada", f"The {WORD}")
    values |= await add_groups(api, "ada", values["other_user"])
    await api.server.runtime.registry.set_role((await api.server.user("ada")).id, "admin")
    if request is None or "{job}" in request.path:
        values["job"] = await _import_file(api)
    if request is None or "{resumed_follow}" in request.path:
        values["resumed_follow"] = await add_followed_folder(api, "ada", f"/The {WORD}/diary", is_paused=False)
    return values | await _register_agent(api)


async def add_account_data(api: RestClient, name: str, label: str) -> dict[str, Any]:
    """Gives a user a key, a connected application, a browser session and a passkey, and adds another user and an
    invitation to manage."""
    runtime = api.server.runtime
    registry, user = runtime.registry, await api.server.user(name)
    key, _ = await registry.create_key(user.id, label, [READ])
    grants = OAuthGrants(registry.database, runtime.settings)
    await grants.approve(
        GrantRequest(
            user=user,
            client_id="c_sample",
            client_name=label,
            redirect_uri="http://127.0.0.1/callback",
            scopes=frozenset((READ,)),
            resource=TokenResource(runtime.settings.resource_url, None),
            sources=None,
        ),
        "challenge",
    )
    [connection] = await grants.list(user.id)
    preview = await send(api, ROUTES["prepare_deletion"][0], {}, name)
    await runtime.browser_sessions.create(user, "127.0.0.1", label)
    [session] = await runtime.browser_sessions.list(user.id)
    links = AccountLinks(registry.database)
    await links.create_invitation("writer", f"{WORD}.invited.{name}")
    followed = str(_tldw_folder(api, f"followed of {label}"))
    return {
        "browser_session": session.id,
        "passkey": await _add_passkey(registry, user, label),
        "invitation": (await links.pending_invitations())[0].id,
        "key": key.id,
        "connection": connection.id,
        "deletion_token": preview.json()["token"],
        # An administrator, because the last one cannot delete the own account.
        "other_user": (await registry.add_user(f"{WORD}.{name}", role="admin")).name,
        "follow": await add_followed_folder(api, name, f"/{label}/vault"),
        "tldw_folder": str(_tldw_folder(api, f"tldw of {label}")),
        "deployment": (await Deployments(registry.database).add(Deployment(location=followed))).id,
    }


async def add_groups(api: RestClient, name: str, other_user: str) -> dict[str, Any]:
    """Makes a user the manager of a group that has another member, and invites the user to another one."""
    registry = api.server.runtime.registry
    sharing, user = Sharing(registry.database), await api.server.user(name)
    other = await registry.add_user(f"{WORD}.guild.{name}")
    group = await sharing.create_group(user.id, f"{WORD}-team-{name}")
    await sharing.add_member(group.name, other_user, "writer")
    invitation, _ = await sharing.invite(user.id, group.name, "reader")
    share = await sharing.create_share(user.id, ShareRule("tag", "ship"), group.name)
    foreign = await sharing.create_group(other.id, f"{WORD}-guild-{name}")
    incoming, _ = await sharing.invite(other.id, foreign.name, "reader", name)
    return {
        "group": group.handle,
        "group_invitation": invitation.id,
        "share": share.id,
        "incoming_invitation": incoming.id,
    }


async def _add_passkey(registry: Registry, user: UserRecord, label: str) -> str:
    """Returns the id of a passkey that no device has."""
    identity = f"passkey of {user.name}".encode()
    values = (identity, user.id, label, b"key", 0, "", 0.0)
    statement = "INSERT INTO passkeys VALUES (?, ?, ?, ?, ?, ?, ?, NULL)"
    await registry.database.write(lambda db: db.execute(statement, values))
    return identity.hex()


def _tldw_folder(api: RestClient, name: str) -> Path:
    """Returns the folder of a deployment without users."""
    folder = Path(api.server.runtime.settings.data_dir).resolve().parent / name
    folder.mkdir(exist_ok=True)
    return folder


async def add_followed_folder(api: RestClient, name: str, location: str, *, is_paused: bool = True) -> str:
    """Adds a source with one conflict and returns its id."""
    runtime, user = api.server.runtime, await api.library_user(name)
    follows = Follows(runtime.registry.database)
    record = await follows.add(FollowRecord(user_id=user.context.user_id, location=location), per_user_max=20)
    if is_paused:
        await follows.pause(record.user_id, record.id)
    async with runtime.libraries.library(user.context) as library:
        file = FollowedFile(name=b"Tea.md", signature="known", conflicts=1)
        await library.followed_files.save(record.id, file, [])
    return record.id


async def add_deleted_note(user: LibraryUser, text: str) -> str:
    note = await user.add_note("Deleted", text)
    async with user.libraries.library(user.context) as library:
        await library.notes.delete(note)
    return note


async def _import_file(api: RestClient) -> str:
    """Returns the id of a finished import job."""
    text = f"# The {WORD}\n\nA {WORD} from a file.\n".encode()
    job = (await api.request("POST", f"/api/v1/import?name={WORD}.md", "ada", FILE, text)).json()["id"]
    await api.request("GET", f"/api/v1/import/{job}/events", "ada")
    return str(job)


async def _register_agent(api: RestClient) -> dict[str, Any]:
    [register] = ROUTES["register_agent"]
    agent = (await send(api, register, {}, "ada")).json()
    sync_context = (
        await api.request(
            "POST", f"/api/threads/{THREAD}/sync-context", "ada", {"Content-Type": "application/json"}, b"{}"
        )
    ).json()
    return {
        "agent": agent["agent_id"],
        "agent_token": agent["token"],
        "seq": sync_context["current_seq"],
        "reply_token": sync_context["reply_token"],
    }


async def fill_library_of_ben(ben: LibraryUser) -> None:
    """Adds data without Ada's word, so that lists and counts of Ben are not empty."""
    message = MessageDraft(role="user", sender="Ben", content="a harbour at dawn", uuid=OWN_MESSAGE, created_at=TIME)
    await ben.add_note("Harbour", "A harbour at dawn.")
    await ben.add_chat("Harbour", message, uuid=OWN_CHAT, created_at=TIME, last_modified=TIME)
