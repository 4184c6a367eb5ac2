"""Inputs, results and errors of the bus: of its REST operations, then of its MCP tools."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from config.errors import FlorilegiumError, Unauthenticated

# The author of messages without one.
HUMAN = "human"
SEARCH_LIMIT = 50
_MESSAGES_LIMIT = 200
TOOL_MESSAGES_LIMIT = 100

Priority = Literal["normal", "urgent", "system"]
ThreadStatus = Literal["discuss", "implement", "review", "done", "closed", "archived"]
Role = Annotated[Literal["user", "assistant", "system"], Meta(description="The author's role.")]
ThreadId = Annotated[str, Meta(description="Id of a thread.")]
AgentToken = Annotated[str | None, Meta(description="The token from the agent's registration.")]
Names = tuple[str, ...]
JsonObjects = tuple[Mapping[str, Any], ...]


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


class ThreadChanged(Struct, frozen=True, kw_only=True):
    ok: bool = True
    thread_id: str
    status: ThreadStatus


class ThreadRequest(Struct, frozen=True, kw_only=True):
    thread_id: ThreadId


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


# -- tools -------------------------------------------------------------------------------------------------------------


class MsgSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description='FTS5 expression: words, "phrases", prefix*, AND OR NOT, NEAR().')]
    thread_id: Annotated[str | None, Meta(description="Only messages of this thread.")] = None
    limit: Annotated[int, Meta(description="Messages, 1 to 200.")] = SEARCH_LIMIT


class MsgSearchResults(Struct, frozen=True, kw_only=True):
    """`total` counts the rows of this response."""

    results: tuple[MessageMatch, ...]
    total: int
    query: str
    read_as: Annotated[str, Meta(description="How the query was interpreted, if not literally.")] | UnsetType = UNSET
    note: Annotated[str, Meta(description="Why results may be missing or in another order.")] | UnsetType = UNSET


class BusConnect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thread_name: Annotated[str | None, Meta(description="Topic of the thread to join; created if missing.")] = None
    thread_id: Annotated[str | None, Meta(description="Instead: id of an existing thread.")] = None
    agent_id: Annotated[str | None, Meta(description="To resume as this agent; needs token.")] = None
    token: Annotated[str | None, Meta(description="The agent's token.")] = None
    ide: Annotated[str, Meta(description="Program of a new agent.")] = "Unknown IDE"
    model: Annotated[str, Meta(description="Model of a new agent.")] = "Unknown Model"
    display_name: Annotated[str | None, Meta(description="Name of a new agent.")] = None
    description: Annotated[str, Meta(description="Not used.")] = ""
    capabilities: Annotated[Names, Meta(description="Not used.")] = ()
    skills: Annotated[JsonObjects, Meta(description="Not used.")] = ()
    after_seq: Annotated[int, Meta(description="Only messages after this seq.")] = 0
    system_prompt: Annotated[str | None, Meta(description="Rules for a new thread.")] = None


class ConnectedAgent(Struct, frozen=True, kw_only=True):
    agent_id: str
    name: str
    registered: bool = True
    token: Annotated[str, Meta(description="Store it with agent_id to resume later.")]
    is_administrator: bool
    role_assignment: str


class ThreadAdministrator(Struct, frozen=True, kw_only=True):
    agent_id: str
    name: str


class ConnectedThread(Struct, frozen=True, kw_only=True):
    thread_id: str
    topic: str
    status: ThreadStatus
    created: bool
    system_prompt: str | UnsetType = UNSET
    administrator: ThreadAdministrator | UnsetType = UNSET


class ThreadMessage(Struct, frozen=True, kw_only=True):
    seq: int
    author: str
    role: str
    content: str
    created_at: str


class BusConnection(Struct, frozen=True, kw_only=True):
    agent: ConnectedAgent
    thread: ConnectedThread
    messages: tuple[ThreadMessage, ...]
    has_more: Annotated[bool, Meta(description="Read the rest with msg_list and the last seq as after_seq.")]
    current_seq: Annotated[int, Meta(description="expected_last_seq of the next msg_post.")]
    reply_token: Annotated[str, Meta(description="For one msg_post.")]
    reply_window: ReplyWindow


class MsgPost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thread_id: Annotated[str, Meta(description="Id of a thread.")]
    author: Annotated[str, Meta(description="agent_id of your registration, or any name.")]
    content: Annotated[str, Meta(description="The text of the message.")]
    expected_last_seq: Annotated[int | None, Meta(description="Last seq you have read. Required for agents.")] = None
    reply_token: Annotated[str | None, Meta(description="From bus_connect or msg_post. Required for agents.")] = None
    role: Role = "user"
    priority: Annotated[Priority, Meta(description="How urgent it is.")] = "normal"
    mentions: Annotated[Names | None, Meta(description="Agents that the message addresses.")] = None
    metadata: Annotated[Mapping[str, Any] | None, Meta(description="Any other data.")] = None
    reply_to_msg_id: Annotated[str | None, Meta(description="Id of the message that this one answers.")] = None


class PostedMessage(Struct, frozen=True, kw_only=True):
    """The fields for the next message are present if the author is a registered agent."""

    msg_id: str
    seq: int
    reply_to_msg_id: str | None
    priority: str
    current_seq: int | UnsetType = UNSET
    reply_token: str | UnsetType = UNSET
    reply_window: ReplyWindow | UnsetType = UNSET


class MsgList(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thread_id: Annotated[str, Meta(description="Id of a thread.")]
    after_seq: Annotated[int, Meta(description="Only messages after this seq.")] = 0
    limit: Annotated[int, Meta(description="Messages, 1 to 1000.")] = TOOL_MESSAGES_LIMIT
    priority: Annotated[Priority | None, Meta(description="Only messages with this priority.")] = None
    return_format: Annotated[
        Literal["blocks", "json"], Meta(description="blocks: header and text of each message; json: one array.")
    ] = "blocks"
    include_system_prompt: Annotated[bool, Meta(description="Begin with the thread's system prompt.")] = True
    include_attachments: Annotated[bool, Meta(description="Show images, in blocks.")] = True


# -- errors ------------------------------------------------------------------------------------------------------------
# AgentChatBus clients match on these codes and sentences.

THREAD_NOT_FOUND = "Thread not found"


class InvalidAgentToken(Unauthenticated):
    """The agent's token is missing or wrong."""


class DetailedBusError(FlorilegiumError, status=400):
    """An error whose `data` is the detail of the response: a code in `error`, and what the client needs to recover."""

    def __init__(self, error: str, **details: Any) -> None:
        super().__init__(error, {"error": error, **details})


class OutOfSync(DetailedBusError):
    """The agent's view of the thread is not current; `action` says how to recover."""

    def __init__(self, error: str, action: str = "CALL_SYNC_CONTEXT_THEN_RETRY", **details: Any) -> None:
        super().__init__(error, **details, action=action)


class SeqMismatch(OutOfSync, status=409):
    """Others have posted since the message that the agent names as the last one."""


class BlockedContent(DetailedBusError):
    """The content filter found a secret; `pattern` is its kind."""
