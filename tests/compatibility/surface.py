"""Everything that can be asked for, as a table: one good request for each operation and each tool, made of what Ada
keeps. What is in braces is filled with what the scene knows of her library.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from server.compat.agentchatbus.threads import NAMESPACE
from sources.drafts import MessageDraft
from sources.records import Segment
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
MOMENT = "2026-01-02T03:04:05.000Z"
RECORDED = {"observations": [{"title": f"The {WORD} leaks", "project": "harbour"}], "idempotency_key": "both learn"}
_BEGUN = {"session_id": "begun", "title": "Begun", "messages": [{"role": "user", "content": f"a {WORD}?"}]}
_SAID = {"role": "user", "content": f"the {WORD} again"}
_REPLY = {"expected_last_seq": "{seq}", "reply_token": "{reply_token}", "author": "{agent}"}
_BRACES = re.compile(r"\{(\w+)\}")


class Asked(Struct, frozen=True):
    """A request. `tells` is whether a good answer to it holds Ada's word; `headers` are sent beside the credential."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = {}
    tells: bool = True


ROUTES: Mapping[str, tuple[Asked, ...]] = {
    "search_knowledge": (
        Asked("POST", "/api/v1/search", {"query": WORD}),
        Asked("POST", "/api/v1/search", {"query": WORD, "session": "{rest_handle}", "dedupe": "off"}),
    ),
    "read_item": (
        Asked("GET", "/api/v1/items/notes/{note}?mode=full"),
        Asked("GET", "/api/v1/items/media/{media}?mode=full"),
        Asked("GET", "/api/v1/items/chats/{chat}?mode=full"),
        Asked("GET", "/api/v1/items/characters/{character}?mode=full"),
        Asked("GET", "/api/v1/items/prompts/{prompt}?mode=full"),
    ),
    "read_item_by_uri": (Asked("GET", "/api/v1/items?uri=chats://{chat}/{message}&mode=full"),),
    "list_conversations": (
        Asked("GET", "/conversations"),
        Asked("GET", f"/conversations?search={WORD}"),
        Asked("GET", "/conversations?namespace={space}"),
    ),
    "search_messages": (
        Asked("GET", f"/conversations/search/messages?query={WORD}"),
        Asked("GET", f"/conversations/search/messages?query={WORD}&conversation_id={{chat}}"),
    ),
    "read_conversation": (Asked("GET", "/conversations/{chat}"),),
    "rename_conversation": (Asked("PUT", "/conversations/{chat}?title=Renamed", tells=False),),
    "delete_conversation": (
        Asked("DELETE", "/conversations/{chat}", tells=False),
        Asked("DELETE", "/conversations/{chat}?purge=true", tells=False),
    ),
    "export_conversation": (
        Asked("POST", "/conversations/{chat}/export?format=json"),
        Asked("POST", "/conversations/{chat}/export?format=md"),
    ),
    "create_conversation": (Asked("POST", "/conversations", _BEGUN, {"Idempotency-Key": "both begin"}, tells=False),),
    "add_message": (Asked("POST", "/conversations/{chat}/messages", _SAID, {"Idempotency-Key": "both say"}),),
    "add_messages": (Asked("POST", "/conversations/{chat}/messages/bulk", {"messages": [_SAID]}),),
    "export_conversations": (Asked("GET", "/conversations/export", tells=False),),
    "import_conversations": (
        Asked("POST", "/conversations/import", b"{archive}", {"Content-Type": "application/zip"}, tells=False),
    ),
    "chat": (
        Asked(
            "POST",
            "/chat",
            f"message=where+is+the+{WORD}&model=any&session_id={SESSION}".encode(),
            FORM,
        ),
    ),
    "create_chat_completion": (
        Asked(
            "POST",
            "/v1/chat/completions",
            {"model": "extractive", "messages": [{"role": "user", "content": f"where is the {WORD}?"}]},
            {"X-Conversation-Id": "{chat}"},
        ),
    ),
    "list_models": (Asked("GET", "/v1/models", tells=False),),
    "list_namespaces": (Asked("GET", "/namespaces"),),
    "create_namespace": (Asked("POST", "/namespaces", b"name=harbour", FORM, tells=False),),
    "rename_namespace": (Asked("PUT", "/namespaces/{space}/rename", b"new_name=hulls", FORM, tells=False),),
    "delete_namespace": (Asked("DELETE", "/namespaces/{space}", tells=False),),
    "import_file": (
        Asked("POST", "/api/v1/import?name=harbour.md", b"# Harbour\n\nA harbour at dawn.\n", FILE, tells=False),
    ),
    "list_imports": (Asked("GET", "/api/v1/import"),),
    "get_import": (Asked("GET", "/api/v1/import/{job}"),),
    "follow_import": (Asked("GET", "/api/v1/import/{job}/events"),),
    "cancel_import": (Asked("DELETE", "/api/v1/import/{job}"),),
    "search_bus": (
        Asked("GET", f"/api/search?q={WORD}"),
        Asked("GET", f"/api/search?q={WORD}&thread_id={{chat}}"),
    ),
    "register_agent": (Asked("POST", "/api/agents/register", {"ide": "api", "model": "m"}, tells=False),),
    "list_threads": (Asked("GET", "/api/threads"),),
    "open_thread": (
        Asked(
            "POST",
            "/api/threads",
            {"topic": "Harbour", "creator_agent_id": "{agent}"},
            {"X-Agent-Token": "{agent_token}"},
            tells=False,
        ),
    ),
    "sync_thread": (Asked("POST", "/api/threads/{thread}/sync-context", {}, tells=False),),
    "read_thread": (Asked("GET", "/api/threads/{thread}/messages"),),
    "post_message": (
        Asked(
            "POST",
            "/api/threads/{thread}/messages",
            {**_SAID, **_REPLY},
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
    "notes_get": ({"note_id": "{note}"},),
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
    "msg_search": ({"query": WORD}, {"query": WORD, "thread_id": "{chat}"}),
    "memory_search": ({"query": WORD}, {"query": [WORD, "sail"], "response_format": "json"}),
    "memory_get_observations": ({"ids": ["{observation}"]},),
    "memory_read": ({"path": "chats://{chat}"},),
    "observations_record": (RECORDED,),
    "notes_create": ({"title": f"The other {WORD}", "idempotency_key": "both write"},),
    "notes_update": ({"note_id": "{note}", "tags": ["ship"]},),
    "notes_append": ({"note_id": "{note}", "text": "It leaks."},),
    "notes_delete": ({"note_id": "{spare_note}"},),
    "chats_append": ({"conversation_id": "{chat}", "messages": [_SAID]}, {"title": f"A {WORD}?", "messages": [_SAID]}),
    "prompts_save": ({"name": f"A {WORD} in prompts", "details": "For sailors."},),
    "media_add_text": ({"title": f"On the {WORD}", "text": "Built of oak."},),
    "items_tag": ({"uri": "notes://{note}", "add": ["ship"]}, {"uri": "media://{media}", "add": ["ship"]}),
    "session_configure": ({"session": "{handle}", "snippet_length": 50},),
    "session_reset": ({"session": "{handle}"},),
    "server_info": ({},),
}
# Their good answers hold nothing of a library.
SILENT_TOOLS = frozenset(("notes_delete", "session_configure", "session_reset", "server_info"))


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """The value with what is known in place of the braces; a brace alone becomes the value itself."""
    match value:
        case str():
            alone = _BRACES.fullmatch(value)
            return known[alone[1]] if alone else _BRACES.sub(lambda found: str(known[found[1]]), value)
        case dict():
            return {name: filled(inner, known) for name, inner in value.items()}
        case list():
            return [filled(inner, known) for inner in value]
    return value


async def send(api: RestClient, asked: Asked, known: Mapping[str, Any], who: str) -> HttpResponse:
    headers = {name: str(filled(value, known)) for name, value in asked.headers.items()}
    if asked.body is None or isinstance(asked.body, bytes):
        body = known["archive"] if asked.body == b"{archive}" else asked.body or b""
    else:
        body, headers = msgspec.json.encode(filled(asked.body, known)), {"Content-Type": "application/json", **headers}
    return await api.request(asked.method, filled(asked.path, known), who, headers, body)


async def settle(api: RestClient, ada: LibraryUser) -> dict[str, Any]:
    """Ada's library, with something in every corner of it; and what of it can be named."""
    segments = [Segment(start_ms=n * 1000, end_ms=n * 1000 + 999, text=f"{WORD} {n}") for n in range(3)]
    said = MessageDraft(role="user", sender="Ana", content=f"a {WORD} under sail", uuid=MESSAGE, created_at=MOMENT)
    known = {
        "note": await ada.add_note(f"The {WORD}", f"A {WORD} under sail.", uuid=NOTE),
        "spare_note": await ada.add_note(f"Another {WORD}", f"A {WORD} to be forgotten."),
        "media": await ada.add_media(f"The {WORD}", segments=segments),
        "chat": await ada.add_chat(f"The {WORD}", said, uuid=CHAT, session_id=SESSION, namespace=SPACE),
        "thread": await ada.add_chat(f"The {WORD}", f"a {WORD} in a thread", uuid=THREAD, namespace=NAMESPACE),
        "character": await ada.add_character(f"A {WORD} in characters", f"A {WORD} that speaks."),
        "prompt": await ada.add_prompt(f"A {WORD} in prompts", f"Describe a {WORD}."),
        "message": MESSAGE,
        "space": SPACE,
        "handle": (await ada.call("knowledge_search", query=WORD))["session"],
        "rest_handle": (await api.search({"query": WORD})).json()["session"],
        "observation": (await ada.call("observations_record", **RECORDED))["observations"][0]["id"],
        "archive": (await api.request("GET", "/conversations/export", "ada")).body,
    }
    return known | await _at_the_bus(api) | {"job": await _imported(api)}


async def _imported(api: RestClient) -> str:
    """The job of an import that is over."""
    text = f"# The {WORD}\n\nA {WORD} from a file.\n".encode()
    job = (await api.request("POST", f"/api/v1/import?name={WORD}.md", "ada", FILE, text)).json()["id"]
    await api.request("GET", f"/api/v1/import/{job}/events", "ada")
    return str(job)


async def _at_the_bus(api: RestClient) -> dict[str, Any]:
    [register] = ROUTES["register_agent"]
    agent = (await send(api, register, {}, "ada")).json()
    step = (
        await api.request(
            "POST", f"/api/threads/{THREAD}/sync-context", "ada", {"Content-Type": "application/json"}, b"{}"
        )
    ).json()
    return {
        "agent": agent["agent_id"],
        "agent_token": agent["token"],
        "seq": step["current_seq"],
        "reply_token": step["reply_token"],
    }


async def settle_beside(ben: LibraryUser) -> None:
    """Ben's library, without Ada's word: what is counted and listed for him is his own."""
    said = MessageDraft(role="user", sender="Ben", content="a harbour at dawn", uuid=OWN_MESSAGE, created_at=MOMENT)
    await ben.add_note("Harbour", "A harbour at dawn.")
    await ben.add_chat("Harbour", said, uuid=OWN_CHAT, created_at=MOMENT, last_modified=MOMENT)
