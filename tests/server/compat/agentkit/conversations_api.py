"""Shortcuts for tests of the conversations API."""

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


async def create_conversation(api: RestClient, *messages: Any, who: str = "ada", **fields: Any) -> str:
    """Creates a conversation of a user and returns its id."""
    response = await post(api, "/conversations", {"messages": messages, **fields}, who)
    assert response.status == 201, response.body
    return str(response.json()["id"])


async def conversation_ids(api: RestClient, query: str = "", who: str = "ada") -> list[str]:
    page = (await api.get(f"/conversations?{query}", who)).json()
    return [conversation["id"] for conversation in page["conversations"]]


async def search_contents(api: RestClient, query: str, who: str = "ada") -> list[str]:
    """Returns the contents of the messages that a search finds."""
    results = (await api.get(f"/conversations/search/messages?query={query}", who)).json()
    assert results["total"] == len(results["messages"])
    return [message["content"] for message in results["messages"]]
