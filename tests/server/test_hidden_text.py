"""What an agent can learn does not depend on the text of human-only messages.

Ada and Ben have the same library, except for what their human-only messages say. An agent of either must get the same
response to every request, whatever it asks for. Volatile values, such as session handles, are masked.
"""

import io
import re
import string
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from auth.context import SCOPES
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.collections.chats import HIDDEN
from tests.cases import each_case
from tests.server.clients import JSON_AND_EVENTS, message, modern_headers, modern_params
from tests.server.compat.agentkit.conversations_api import post
from tests.server.rest.rest_client import RestClient, open_rest_client

SECRETS = {
    "ada": "the password is mango zeppelin 4711",
    "ben": "otters sleep holding hands, and nobody knows why they would do such a thing in the cold sea",
}
MARKS: tuple[dict[str, Any], ...] = ({"human_only": True}, {"visibility": "human_only"}, {"audience": "human"})
TITLED = "00000000-0000-4000-8000-000000000001"
UNTITLED = "00000000-0000-4000-8000-000000000002"
THREAD = "00000000-0000-4000-8000-000000000003"
HIDDEN_MESSAGE = "00000000-0000-4000-8000-0000000000ff"
# Words of both secrets, beginnings of them, words of public messages, and both together, for their order and scores.
QUERIES = (
    *("mango", "otters", "zeppelin", "4711", "password", "holding hands", "the password is mango", "nobody"),
    *("m*", "ma*", "man*", "ott*", "pass*"),
    *("mangoo", "oters", "zepelin", "zeppelinn ripe", "pasword", "zeppel", "mang -harbour", '"mango otters"'),
    *("mango ripe", "otters ripe", "ripe mango harbour", "ripe otters harbour", "harbour", "mango OR harbour"),
    *("secret credentials", "sea mammals asleep", "tropical fruit", "animals near the port"),
    *("ripe -mango", "ripe -otters", "sender:Ana", "after:2024-01-01", "title:mango", "title:talk", "talk"),
)
SEARCH_TOOLS = (
    *(
        ("default", "chats_search"),
        ("compact", "knowledge_search"),
        ("research", "search"),
        ("write", "knowledge_search"),
    ),
    *(("memory", "search"), ("letta", "conversation_search"), ("bus", "msg_search"), ("full", "memory_search")),
)
_VOLATILE = re.compile(
    rb'"(session|request_id|timestamp|time_ago|next_cursor)\\?":\\?"[^"]*"|\\nsession: [\w-]+'
    rb'|"ms\\?":\d+|name="csrf_token" value="[0-9a-f]+"'
    rb"|2026-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?"
    rb"|(?!0{8})[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
# Omitted if an item was created and last modified in the same second.
_CREATED_NOW = re.compile(
    rb'\\?"created_at\\?":\\?"2026-[^"]*",|<span>(?:created|changed) <time datetime="2026-[^>]*>[^<]*</time></span>'
)


@pytest.fixture(
    params=["off", pytest.param("fast", marks=pytest.mark.slow("makes hundreds of searches that compare meanings"))]
)
async def api(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[RestClient]:
    """With a model, everything is embedded, also the human-only messages."""
    settings = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "semantic_model": request.param}
    # A search that ends early, on a busy machine, finds less for one user than for the other.
    settings |= {"semantic_timeout_ms": 60_000, "search_deadline_ms": 60_000}
    async with open_rest_client(tmp_path, **settings) as client:
        for name in SECRETS:
            await fill_library(client, name)
            user = await client.library_user(name)
            await user.libraries.embed(user.context.user_id)
        yield client


async def fill_library(api: RestClient, name: str) -> None:
    """Adds human-only messages as first message, between others, and as the last one, with everything they can have."""
    secret = SECRETS[name]
    user = await api.library_user(name)
    hidden = [
        MessageDraft(
            role="user",
            sender="Ana",
            content=f"{secret} {number}",
            attachments=[{"name": secret}],
            citations=[{"quote": secret}],
            metadata={**mark, "images": [{"alt": secret}], "note": secret},
            created_at=f"2025-01-0{number + 1}T00:00:00Z",
            uuid=HIDDEN_MESSAGE if number == 0 else f"hidden-{number}",
        )
        for number, mark in enumerate(MARKS)
    ]
    public = [
        MessageDraft(
            role="assistant", sender="Guide", content=text, uuid=f"public-{number}", created_at="2025-02-01T00:00:00Z"
        )
        for number, text in enumerate(
            ("is the fruit ripe", "mango is a fruit", "otters in the harbour", "a ripe fruit in the harbour")
        )
    ]
    messages = [hidden[0], public[0], hidden[1], *public[1:], hidden[2]]
    draft = ConversationDraft(title="Talk", uuid=TITLED, created_at="2025-01-01T00:00:00Z")
    async with user.libraries.library(msgspec.structs.replace(user.context, is_agent=False)) as library:
        await library.chats.create(draft, messages)
        thread = ConversationDraft(title="Plans", uuid=THREAD, namespace="bus", created_at="2025-01-01T00:00:00Z")
        renamed = [msgspec.structs.replace(one, uuid=f"thread-{one.uuid}") for one in messages]
        await library.chats.create(thread, renamed)
    # Its title is made by the server.
    untitled = {
        "id": UNTITLED,
        "messages": [
            {"id": "u1", "role": "user", "content": secret, "metadata": MARKS[0], "timestamp": "2025-01-01T00:00:00Z"}
        ],
    }
    assert (await post(api, "/conversations", untitled, name)).status == 201
    question = {"id": "u2", "role": "user", "content": "any fruit ripe?", "timestamp": "2025-01-02T00:00:00Z"}
    assert (await post(api, f"/conversations/{UNTITLED}/messages", question, name)).status == 201
    # A question of the user, whose answer quotes what only the user may read.
    chat = {"messages": [{"role": "user", "content": "password of the otters"}], "metadata": {"session_id": "s"}}
    assert (await post(api, "/v1/chat/completions", chat, name)).status == 200


def tool(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": name, "arguments": arguments}


def mcp_requests() -> Iterator[tuple[str, dict[str, Any]]]:
    for query in QUERIES:
        yield tool("chats_search", query=query, limit=50)
        yield tool("chats_search", query=query, by="title")
        yield tool("knowledge_search", query=query, order_by="recent")
        yield tool("knowledge_search", query=query, explain=True)
        yield tool("search", query=query)
        yield tool("msg_search", query=query)
        yield tool("msg_search", query=query, thread_id=THREAD)
        yield tool("conversation_search", query=query)
        yield tool("conversation_search", query=query, format="json", roles=["user"])
        yield tool("memory_search", query=query, mode="text")
        yield tool("memory_search", query=[query, "harbour"])
        yield tool("chats_get", conversation_id=TITLED, query=query)
        yield tool("knowledge_get", source="chats", id=TITLED, query=query)
    yield tool("conversation_search")
    for chat in (TITLED, UNTITLED, THREAD):
        yield tool("chats_get", conversation_id=chat)
        yield tool("chats_get", conversation_id=chat, loc={"message_index": 0}, retrieval={"mode": "snippet"})
        yield tool("fetch", id=f"chats://{chat}")
        yield tool("memory_read", path=f"chats://{chat}")
        yield "resources/read", {"uri": f"chats://{chat}"}
    yield tool("chats_get", uri=f"chats://{TITLED}/{HIDDEN_MESSAGE}")
    yield "resources/read", {"uri": f"chats://{TITLED}/{HIDDEN_MESSAGE}"}
    yield "resources/list", {}
    yield "resources/templates/list", {}
    yield "prompts/list", {}
    for prefix in ("m", "o", ""):
        reference = {"type": "ref/resource", "uri": "chats://{id}"}
        yield "completion/complete", {"ref": reference, "argument": {"name": "id", "value": prefix}}


REST_PATHS = (
    *("/conversations", "/conversations?search=mango", "/conversations?search=otters", "/namespaces"),
    *(f"/conversations/{chat}" for chat in (TITLED, UNTITLED, THREAD)),
    *(f"/conversations/search/messages?query={query}" for query in ("", "mango", "mang", "otters", "ripe")),
    *("/api/threads", f"/api/threads/{THREAD}/messages", f"/api/threads/{TITLED}/messages"),
    *(f"/api/search?q={query}" for query in ("mango", "man*", "otters", "ripe", "ripe+OR+mango")),
    *(f"/api/v1/items/chats/{chat}?mode=full" for chat in (TITLED, UNTITLED)),
    *(f"/items/chats/{chat}" for chat in (TITLED, UNTITLED)),
)
EXPORTS = tuple(
    f"/conversations/{chat}/export?format={kind}" for chat in (TITLED, THREAD) for kind in ("json", "txt", "md")
)


async def agent_key(api: RestClient, name: str, profile: str) -> dict[str, str]:
    user = await api.server.user(name)
    _, secret = await api.server.runtime.registry.create_key(user.id, "agent", SCOPES, profile=profile)
    return {"Authorization": f"Bearer {secret}"}


def masked(body: bytes) -> bytes:
    """Masks what differs between any two users: random handles and the times of this run."""
    return _VOLATILE.sub(b"*", _CREATED_NOW.sub(b"", body))


def require_equal(request: Any, responses: dict[str, bytes]) -> None:
    for response in responses.values():
        assert not any(text in response for text in (b"mango zeppelin", b"hands, and nobody", b'"isError"')), request
    assert masked(responses["ada"]) == masked(responses["ben"]), request


@pytest.mark.slow("compares the responses of all tools")
async def test_no_mcp_response_depends_on_hidden_text(api: RestClient) -> None:
    users = {name: await api.library_user(name) for name in SECRETS}
    for method, params in mcp_requests():
        responses = {name: msgspec.json.encode(await user.request(method, **params)) for name, user in users.items()}
        require_equal((method, params), responses)


@each_case("profile", ["default", "full", "bus"])
async def test_no_rest_response_to_a_profile_key_depends_on_hidden_text(api: RestClient, profile: str) -> None:
    keys = {name: await agent_key(api, name, profile) for name in SECRETS}
    for method, path in (*(("GET", path) for path in REST_PATHS), *(("POST", path) for path in EXPORTS)):
        responses = {name: (await api.request(method, path, None, key)).body for name, key in keys.items()}
        require_equal(path, responses)


async def test_archive_for_a_profile_key_contains_no_hidden_text_and_keeps_the_marks(api: RestClient) -> None:
    key = await agent_key(api, "ada", "full")
    response = await api.request("GET", "/conversations/export", None, key)

    with zipfile.ZipFile(io.BytesIO(response.body)) as archive:
        files = [archive.read(name) for name in archive.namelist()]
    assert not any(b"mango zeppelin" in file for file in files)
    [talk] = [msgspec.json.decode(file) for file in files if b'"title":"Talk"' in file]
    hidden = [one for one in talk["messages"] if one["content"] == HIDDEN]
    assert [one["metadata"] for one in hidden] == [{"human_only": True}] * len(MARKS)


@pytest.mark.parametrize(
    "characters", ["lmn", pytest.param(string.ascii_lowercase, marks=pytest.mark.slow("makes hundreds of searches"))]
)
@each_case(("profile", "tool_name"), SEARCH_TOOLS)
async def test_hidden_message_cannot_be_recovered_by_searching_prefixes(
    api: RestClient, profile: str, tool_name: str, characters: str
) -> None:
    """An agent that knows the beginning of Ada's message tries the next character. Its guess is right if the response
    differs from that of Ben's library, which does not contain the message."""
    keys = {name: await agent_key(api, name, profile) for name in SECRETS}
    for character in characters:
        text = f"the password is {character}"
        query = text if tool_name == "conversation_search" else f'"{text}"*'
        responses = {name: await call_tool(api, profile, key, tool_name, query) for name, key in keys.items()}
        require_equal(query, responses)


async def call_tool(api: RestClient, profile: str, key: dict[str, str], name: str, query: str) -> bytes:
    params = {"name": name, "arguments": {"query": query}}
    body = message("tools/call", modern_params(params), 1)
    headers = {**JSON_AND_EVENTS, **modern_headers("tools/call", params), **key}
    response = await api.request("POST", f"/mcp/{profile}", None, headers, msgspec.json.encode(body))
    assert response.status == 200, response.body
    return response.body
