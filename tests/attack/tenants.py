"""Users whose libraries contain something of every kind, each with a canary, and what an attacker knows of them.

An attacker is assumed to know every identifier of the victim: ids, URIs, cursors, session handles, tokens of agents,
names of namespaces. They are collected from the responses that the victim gets.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from server.compat.agentchatbus.threads import NAMESPACE
from sources.drafts import MessageDraft
from sources.records import Segment
from tests.attack.leak_detector import new_canary
from tests.compatibility.sample_requests import (
    FILE,
    ROUTES,
    TOOLS,
    WORD,
    add_account_data,
    add_deleted_note,
    add_followed_folder,
    add_groups,
    fill_placeholders,
    send,
)
from tests.server.clients import JSON_AND_EVENTS, handshake, message
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import JSON, RestClient, RpcError
from tests.sources.source_fixture import LibraryUser

# Ada and Ben attack each other and Cyd, who sends nothing.
USERS = ("ada", "ben", "cyd")
ATTACKERS = ("ada", "ben")
_NOTES = 30
_KNOWN_MAX_CHARS = 600
# These samples of tools change nothing, so their responses can be collected from the victim.
_READ_SUFFIXES = ("search", "get", "fetch", "list", "read", "transcript", "info")


class Tenant(Struct, frozen=True):
    """`values` are the placeholders of the sample requests. `known` are the identifiers by the name of their field."""

    name: str
    canary: str
    credential: Mapping[str, str]
    session_id: str
    values: Mapping[str, Any]
    known: Mapping[str, Sequence[Any]]

    @property
    def is_attacker(self) -> bool:
        return self.name in ATTACKERS


async def plant_tenant(api: RestClient, name: str) -> Tenant:
    user, canary = await api.library_user(name), new_canary(name)
    values = await _fill_library(api, user, canary) | await add_account_data(api, name, f"{WORD} {canary}")
    values["resumed_follow"] = await add_followed_folder(api, name, f"/{WORD} {canary}/diary", is_paused=False)
    values["undo"] = (await send(api, ROUTES["tag_items"][0], values, name)).json()["undo"]
    values |= await add_groups(api, name, values["other_user"])
    # An administrator may see the other users.
    await api.server.runtime.registry.set_role((await api.server.user(name)).id, "writer")
    session_id = await _open_legacy_session(api, name)
    known = await _collect(api, user, values, canary)
    known["session_id"].add(session_id)
    credential = await api.server.bearer(name)
    return Tenant(name, canary, credential, session_id, values, {key: (*found,) for key, found in known.items()})


def own_tag(name: str) -> str:
    """A tag of the items that `own_data` reads, which no other user has."""
    return f"tag-of-{name}"


async def _fill_library(api: RestClient, user: LibraryUser, canary: str) -> dict[str, Any]:
    text, name = f"a {WORD} {canary} under sail", user.name
    segments = [Segment(start_ms=n * 1000, end_ms=n * 1000 + 999, text=f"{text} {n}") for n in range(3)]
    space = f"space-of-{name}"
    for number in range(_NOTES):
        await user.add_note(f"{WORD} {number} {canary}", text, tags=[canary])
    values = {
        "note": await user.add_note(f"{WORD} {canary}", text, tags=[canary, own_tag(name)]),
        "spare_note": await user.add_note(f"{WORD} {canary}", text),
        "deleted_note": await add_deleted_note(user, text),
        "media": await user.add_media(f"{WORD} {canary}", segments=segments),
        "chat": await user.add_chat(
            f"{WORD} {canary}",
            *[text] * 12,
            session_id=f"session-of-{name}",
            namespace=space,
            tags=[canary, own_tag(name)],
        ),
        "thread": await user.add_chat(f"{WORD} {canary}", *[text] * 3, namespace=NAMESPACE, tags=[own_tag(name)]),
        "character": await user.add_character(f"{WORD} {canary}", text),
        "prompt": await user.add_prompt(f"{WORD} prompt of {name}", text),
        "spare_prompt": await user.add_prompt(f"{WORD} {canary}", text),
        "space": space,
    }
    message_draft = MessageDraft(role="user", sender=canary, content=text)
    values["spare_chat"] = await user.add_chat(f"{WORD} {canary}", message_draft)
    conversation = (await api.get(f"/conversations/{values['chat']}", name)).json()
    values["message"] = next(value for key, value in _leaves(conversation.get("messages", [])) if key == "id")
    return values | await _use_library(api, user, values, canary)


async def _use_library(api: RestClient, user: LibraryUser, values: Mapping[str, Any], canary: str) -> dict[str, Any]:
    """Creates what arises from use: sessions, observations, agents, an import job."""
    [register] = ROUTES["register_agent"]
    agent = (await send(api, register, {}, user.name)).json()
    synced = await api.request("POST", f"/api/threads/{values['thread']}/sync-context", user.name, JSON, b"{}")
    observation = {"title": f"{WORD} {canary}", "project": "harbour"}
    recorded = await user.call("observations_record", observations=[observation], idempotency_key=f"key-{user.name}")
    file = f"# {WORD} {canary}\n\nA {WORD} {canary} from a file.\n".encode()
    job = (await api.request("POST", f"/api/v1/import?name={canary}.md", user.name, FILE, file)).json()["id"]
    await api.request("GET", f"/api/v1/import/{job}/events", user.name)
    return {
        "handle": (await user.call("knowledge_search", query=WORD))["session"],
        "rest_handle": (await api.search({"query": WORD}, user.name)).json()["session"],
        "observation": recorded["observations"][0]["id"],
        "archive": b"",
        "agent": agent["agent_id"],
        "agent_token": agent["token"],
        "seq": synced.json()["current_seq"],
        "reply_token": synced.json()["reply_token"],
        "job": job,
    }


async def _open_legacy_session(api: RestClient, name: str) -> str:
    body = msgspec.json.encode(handshake())
    response = await api.request("POST", "/mcp", name, JSON_AND_EVENTS, body)
    return response.header("mcp-session-id") or ""


async def _collect(
    api: RestClient, user: LibraryUser, values: Mapping[str, Any], canary: str
) -> defaultdict[str, set[Any]]:
    known: defaultdict[str, set[Any]] = defaultdict(set)

    def add(key: str, value: Any) -> None:
        if isinstance(value, str | int) and canary not in (text := str(value)) and 0 < len(text) < _KNOWN_MAX_CHARS:
            known[key.lower()].add(value)

    for key, value in values.items():
        add(key, value)
    async for response in _own_responses(api, user, values):
        for key, value in response:
            add(key, value)
    return known


async def _own_responses(
    api: RestClient, user: LibraryUser, values: Mapping[str, Any]
) -> AsyncIterator[list[tuple[str, Any]]]:
    """Yields what the user gets from every reading tool and route, with short pages so that there are cursors."""
    for name, samples in TOOLS.items():
        for sample in samples if name.endswith(_READ_SUFFIXES) else ():
            for page in ({}, {"limit": 2}):
                try:
                    arguments = {**fill_placeholders(sample, values), **page}
                    yield [*_leaves(await user.request("tools/call", name=name, arguments=arguments))]
                except RpcError:
                    continue
    for method in ("resources/list", "prompts/list", "resources/templates/list"):
        yield [*_leaves(await user.request(method))]
    for requests in ROUTES.values():
        for request in requests:
            if request.method == "GET":
                yield _response_leaves(await send(api, request, values, user.name))


def _response_leaves(response: HttpResponse) -> list[tuple[str, Any]]:
    headers = [(name, value) for name, value in response.headers if name.startswith(("x-", "link", "etag"))]
    try:
        return [*headers, *_leaves(response.json())]
    except msgspec.DecodeError:
        return headers


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for name, inner in value.items():
                yield from _leaves(inner, str(name))
        case list():
            for inner in value:
                yield from _leaves(inner, key)
        case str() | int() if not isinstance(value, bool):
            yield key, value


def ping(request_id: int = 1) -> bytes:
    return msgspec.json.encode(message("ping", {}, request_id))


async def own_data(api: RestClient, tenant: Tenant) -> list[bytes]:
    """Returns what others could try to change, under ids that no other user has."""
    paths = ["/api/v1/items/notes/{note}?mode=full", "/conversations/{chat}", "/api/threads/{thread}/messages"]
    if not tenant.is_attacker:  # attackers import so many files that their own first import is forgotten
        paths.append("/api/v1/import/{job}")
    responses = [await api.get(fill_placeholders(path, tenant.values), tenant.name) for path in paths]
    headers = {**JSON_AND_EVENTS, "Mcp-Session-Id": tenant.session_id}
    session = await api.request("POST", "/mcp", tenant.name, headers, ping())
    return [response.body for response in (*responses, session)]
