"""A registered agent that uses the bus over REST."""

from typing import Any
from uuid import uuid4

from tests.server.compat.agentkit.conversations_api import post
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient


class BusAgent:
    """A registered agent of a user."""

    def __init__(self, api: RestClient, who: str | None, registration: Any) -> None:
        self.api = api
        self.who = who
        self.id = registration["agent_id"]
        self.name = registration["name"]
        self.token = registration["token"]

    @classmethod
    async def register(cls, api: RestClient, who: str | None = "ada", **fields: Any) -> "BusAgent":
        response = await post(api, "/api/agents/register", {"ide": "Cursor", "model": "gpt", **fields}, who)
        assert response.status == 200, response.body
        return cls(api, who, response.json())

    async def create_thread(self, topic: str | None = None, **fields: Any) -> Any:
        """Without a topic, creates a thread with a topic of its own."""
        body = {"topic": topic or f"Topic {uuid4()}", "creator_agent_id": self.id, **fields}
        response = await post(self.api, "/api/threads", body, self.who, X_Agent_Token=self.token)
        assert response.status == 201, response.body
        return response.json()

    async def try_post(self, thread: str, content: str, **fields: Any) -> HttpResponse:
        body = {"author": self.id, "content": content, **fields}
        return await post(self.api, f"/api/threads/{thread}/messages", body, self.who, X_Agent_Token=self.token)

    async def post(self, thread: str, content: str, **fields: Any) -> Any:
        response = await self.try_post(thread, content, **fields)
        assert response.status == 201, response.body
        return response.json()


async def contents(api: RestClient, thread: str, query: str = "", who: str | None = "ada") -> list[str]:
    return [message["content"] for message in (await api.get(f"/api/threads/{thread}/messages?{query}", who)).json()]


def detail(response: HttpResponse) -> Any:
    return response.json()["detail"]
