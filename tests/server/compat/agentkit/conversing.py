"""What tests of the conversations API have in common: sending JSON, and keeping a conversation."""

from typing import Any

import msgspec

from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import JSON, RestClient

HELLO = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi there!", "model": "gemini-2.0-flash-001", "tool_used": "idle"},
)


async def post(api: RestClient, path: str, body: Any, who: str | None = "ada", **headers: str) -> HttpResponse:
    return await api.request("POST", path, who, {**JSON, **headers}, msgspec.json.encode(body))


async def keep(api: RestClient, *messages: Any, who: str = "ada", **given: Any) -> str:
    """A conversation of that user; its id."""
    made = await post(api, "/conversations", {"messages": messages, **given}, who)
    assert made.status == 201, made.body
    return str(made.json()["id"])


async def ids(api: RestClient, query: str = "", who: str = "ada") -> list[str]:
    listed = (await api.get(f"/conversations?{query}", who)).json()
    return [conversation["id"] for conversation in listed["conversations"]]


async def found(api: RestClient, query: str, who: str = "ada") -> list[str]:
    answer = (await api.get(f"/conversations/search/messages?query={query}", who)).json()
    assert answer["total"] == len(answer["messages"])
    return [message["content"] for message in answer["messages"]]
