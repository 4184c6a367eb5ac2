"""What the operations of the message bus are asked, and what they answer beside messages and threads."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from server.compat.agentchatbus.threads import DEFAULT_LIMIT, BusThread

HUMAN = "human"
_PAGE = 100

ThreadId = Annotated[str, Meta(description="id of a thread.")]
AgentToken = Annotated[str | None, Meta(description="The token from the agent's registration.")]
Names = tuple[str, ...]
Objects = tuple[Mapping[str, Any], ...]


class SearchRequest(Struct, frozen=True, kw_only=True):
    q: Annotated[str | None, Meta(description="FTS5 expression; must not be empty.")] = None
    query: Annotated[str | None, Meta(description="Another name for q.")] = None
    thread_id: Annotated[str | None, Meta(description="Only messages of this thread.")] = None
    limit: Annotated[int, Meta(description="Messages, moved into what is allowed.")] = DEFAULT_LIMIT


class RegisterRequest(Struct, frozen=True, kw_only=True):
    ide: Annotated[str, Meta(description="The program the agent runs in.")]
    model: Annotated[str, Meta(description="The model it runs on.")]
    display_name: Annotated[str | None, Meta(description="How it is to be called; default `ide (model)`.")] = None
    capabilities: Annotated[Names | None, Meta(description="Said back; nothing is made of them.")] = None
    skills: Annotated[Objects | None, Meta(description="Said back; nothing is made of them.")] = None


class Registration(Struct, frozen=True, kw_only=True):
    agent_id: str
    name: str
    display_name: str
    alias_source: Literal["user", "auto"]
    token: str
    capabilities: Names
    skills: Objects


class ThreadRequest(Struct, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(description="What it is about: the title of the conversation.")]
    creator_agent_id: Annotated[str, Meta(description="agent_id of the agent that opens it.")]
    metadata: Annotated[Mapping[str, Any] | None, Meta(description="Anything else, as an object.")] = None
    system_prompt: Annotated[str | None, Meta(description="Kept with the thread.")] = None
    agent_token: AgentToken = None


class ReplyWindow(Struct, frozen=True, kw_only=True):
    """How many messages of others may have come meanwhile, and until when the token is good."""

    expires_at: str
    max_new_messages: int = 0


class InStep(Struct, frozen=True, kw_only=True):
    """What a message has to name that is written next."""

    current_seq: int
    reply_token: str
    reply_window: ReplyWindow


class OpenedThread(BusThread, frozen=True, kw_only=True):
    template_id: str | None = None
    current_seq: int
    reply_token: str
    reply_window: ReplyWindow


class ThreadsRequest(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Threads per page, moved into what is allowed.")] = _PAGE
    offset: Annotated[int, Meta(description="Threads to pass over.", ge=0, le=2**53 - 1)] = 0


class Threads(Struct, frozen=True, kw_only=True):
    threads: tuple[BusThread, ...]
    total: int
    has_more: bool


class StepRequest(Struct, frozen=True, kw_only=True):
    thread_id: ThreadId


class PostRequest(Struct, frozen=True, kw_only=True):
    thread_id: ThreadId
    content: Annotated[str, Meta(description="What is said.")]
    author: Annotated[str, Meta(description="agent_id of a registered agent, or any name.")] = HUMAN
    role: Annotated[Literal["user", "assistant", "system"], Meta(description="Who speaks.")] = "user"
    metadata: Annotated[Mapping[str, Any] | None, Meta(description="Anything else, as an object.")] = None
    mentions: Annotated[Names | None, Meta(description="Agents that are spoken to.")] = None
    images: Annotated[Objects | None, Meta(description="Objects about images.")] = None
    priority: Annotated[Literal["normal", "urgent", "system"], Meta(description="How urgent it is.")] = "normal"
    reply_to_msg_id: Annotated[str | None, Meta(description="id of the message this answers.")] = None
    expected_last_seq: Annotated[int | None, Meta(description="seq of the last message that was read.")] = None
    reply_token: Annotated[str | None, Meta(description="From the thread or its sync-context; good once.")] = None
    agent_token: AgentToken = None


class MessagesRequest(Struct, frozen=True, kw_only=True):
    thread_id: ThreadId
    after_seq: Annotated[int, Meta(description="Only messages after this seq.")] = 0
    limit: Annotated[int, Meta(description="Messages, moved into what is allowed.")] = _PAGE
