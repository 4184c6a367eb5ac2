"""Inputs and results of the bus's REST operations. Those of its tools are in `tool_schemas`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

# The author of messages without one.
HUMAN = "human"
SEARCH_LIMIT = 50
_MESSAGES_LIMIT = 200

Priority = Literal["normal", "urgent", "system"]
ThreadStatus = Literal["discuss", "implement", "review", "done", "closed", "archived"]
Role = Annotated[Literal["user", "assistant", "system"], Meta(description="The author's role.")]
ThreadId = Annotated[str, Meta(description="Id of a thread.")]
AgentToken = Annotated[str | None, Meta(description="The token from the agent's registration.")]
Names = tuple[str, ...]
JsonObjects = tuple[Mapping[str, Any], ...]


# Search


class BusSearchRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    q: Annotated[str | None, Meta(description="FTS5 expression; must not be empty.")] = None
    query: Annotated[str | None, Meta(description="Alias of q.")] = None
    thread_id: Annotated[str | None, Meta(description="Only messages of this thread.")] = None
    limit: Annotated[int, Meta(description="Messages to return, clamped to the allowed range.")] = SEARCH_LIMIT


class MessageMatch(Struct, frozen=True, kw_only=True):
    """A matching message. `id` equals `message_id`: clients read one or the other."""

    message_id: str
    id: str
    thread_id: str
    thread_topic: str
    author: str
    seq: int
    created_at: str
    snippet: Annotated[str, Meta(description="HTML of at most 20 words: text escaped, matches in <mark>.")]


class FullMessageMatch(MessageMatch, frozen=True, kw_only=True):
    """A matching message with its content; `metadata` is JSON in a string."""

    content: str
    metadata: str | None


class BusSearchResults(Struct, frozen=True, kw_only=True):
    """`total` counts the rows of this response."""

    results: tuple[FullMessageMatch, ...]
    total: int
    query: str
    read_as: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


# Events


class FollowBusRequest(Struct, frozen=True, kw_only=True):
    """The stream has no arguments. AgentChatBus ignores those that a client sends, too."""


# Agents


class RegisterRequest(Struct, frozen=True, kw_only=True):
    ide: Annotated[str, Meta(description="The program in which the agent runs.")]
    model: Annotated[str, Meta(description="The agent's model.")]
    display_name: Annotated[str | None, Meta(description="The agent's name; default: `ide (model)`.")] = None
    capabilities: Annotated[Names | None, Meta(description="Returned unchanged; not used.")] = None
    skills: Annotated[JsonObjects | None, Meta(description="Returned unchanged; not used.")] = None


class Registration(Struct, frozen=True, kw_only=True):
    agent_id: str
    name: str
    display_name: str
    alias_source: Literal["user", "auto"]
    token: str
    capabilities: Names
    skills: JsonObjects


# Threads


class BusThread(Struct, frozen=True, kw_only=True):
    id: str
    topic: str
    status: ThreadStatus
    system_prompt: str | None
    created_at: str
    updated_at: str
    message_count: int


class CreateThreadRequest(Struct, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(description="The topic. If a thread has it already, that thread is returned.")]
    creator_agent_id: Annotated[str, Meta(description="agent_id of the agent that creates the thread.")]
    metadata: Annotated[Mapping[str, Any] | None, Meta(description="Any other data, as an object.")] = None
    system_prompt: Annotated[str | None, Meta(description="Stored with the thread.")] = None
    agent_token: AgentToken = None


class ReplyWindow(Struct, frozen=True, kw_only=True):
    """When the reply token expires, and how many messages others may post before that."""

    expires_at: str
    max_new_messages: int = 0


class SyncContext(Struct, frozen=True, kw_only=True):
    """What the next message must contain to be in sync with its thread."""

    current_seq: int
    reply_token: str
    reply_window: ReplyWindow


class CreatedThread(BusThread, frozen=True, kw_only=True):
    template_id: str | None = None
    current_seq: int
    reply_token: str
    reply_window: ReplyWindow


class ListThreadsRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[ThreadStatus | None, Meta(description="Only threads with this status.")] = None
    include_archived: Annotated[bool, Meta(description="Include archived threads if status is not set.")] = False
    limit: Annotated[int, Meta(description="Threads per page; 0 for as many as allowed.")] = 0
    before: Annotated[
        str | None, Meta(description="next_cursor of the previous page, or a time: only threads created before it.")
    ] = None


class ThreadList(Struct, frozen=True, kw_only=True):
    """`total` counts the threads of all pages. `next_cursor` is the value of `before` for the next page."""

    threads: tuple[BusThread, ...]
    total: int
    has_more: bool
    next_cursor: str | None


class ThreadStateRequest(Struct, frozen=True, kw_only=True):
    thread_id: ThreadId
    state: Annotated[ThreadStatus, Meta(description="The new status.")]


class ArchiveThreadRequest(Struct, frozen=True, kw_only=True):
    thread_id: ThreadId


class ThreadChanged(Struct, frozen=True, kw_only=True):
    ok: bool = True
    thread_id: str
    status: ThreadStatus


class SyncRequest(Struct, frozen=True, kw_only=True):
    thread_id: ThreadId


# Messages


class BusMessage(Struct, frozen=True, kw_only=True):
    """`seq` increases with every message of the whole library; `metadata` is JSON in a string."""

    id: str
    thread_id: str
    seq: int
    author: str
    author_id: str | None
    author_name: str
    role: str
    content: str
    created_at: str
    priority: str
    reply_to_msg_id: str | None
    metadata: str | None


class PostRequest(Struct, frozen=True, kw_only=True):
    thread_id: ThreadId
    content: Annotated[str, Meta(description="The text of the message.")]
    author: Annotated[str, Meta(description="agent_id of a registered agent, or any name.")] = HUMAN
    role: Role = "user"
    metadata: Annotated[Mapping[str, Any] | None, Meta(description="Any other data, as an object.")] = None
    mentions: Annotated[Names | None, Meta(description="Agents that the message addresses.")] = None
    images: Annotated[JsonObjects | None, Meta(description="Objects that describe images.")] = None
    priority: Annotated[Priority, Meta(description="How urgent it is.")] = "normal"
    reply_to_msg_id: Annotated[str | None, Meta(description="Id of the message that this one answers.")] = None
    expected_last_seq: Annotated[int | None, Meta(description="seq of the last message that the agent has read.")] = (
        None
    )
    reply_token: Annotated[
        str | None, Meta(description="From the thread's creation or its sync-context; can be used once.")
    ] = None
    agent_token: AgentToken = None


class MessagesRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thread_id: ThreadId
    after_seq: Annotated[int, Meta(description="Only messages after this seq.")] = 0
    limit: Annotated[int, Meta(description="Messages to return, clamped to the allowed range.")] = _MESSAGES_LIMIT
    priority: Annotated[Priority | None, Meta(description="Only messages with this priority.")] = None
    include_system_prompt: Annotated[
        bool, Meta(description="Begin with the thread's system prompt, if after_seq is 0.")
    ] = False
