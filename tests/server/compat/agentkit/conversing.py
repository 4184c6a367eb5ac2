"""What tests of the conversations API have in common: sending JSON, and keeping a conversation."""

from typing import Any

import msgspec

from tests.server.rest.scene import JSON, Desk
from tests.server.wire import Answer

HELLO = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi there!", "model": "gemini-2.0-flash-001", "tool_used": "idle"},
)


async def post(desk: Desk, path: str, body: Any, who: str | None = "ada", **headers: str) -> Answer:
    return await desk.ask("POST", path, who, {**JSON, **headers}, msgspec.json.encode(body))


async def keep(desk: Desk, *messages: Any, who: str = "ada", **given: Any) -> str:
    """A conversation of that user; its id."""
    made = await post(desk, "/conversations", {"messages": messages, **given}, who)
    assert made.status == 201, made.body
    return str(made.json()["id"])


async def ids(desk: Desk, query: str = "", who: str = "ada") -> list[str]:
    listed = (await desk.get(f"/conversations?{query}", who)).json()
    return [conversation["id"] for conversation in listed["conversations"]]


async def found(desk: Desk, query: str, who: str = "ada") -> list[str]:
    answer = (await desk.get(f"/conversations/search/messages?query={query}", who)).json()
    assert answer["total"] == len(answer["messages"])
    return [message["content"] for message in answer["messages"]]
