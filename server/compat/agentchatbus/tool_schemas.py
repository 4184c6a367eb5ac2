"""Arguments and results of the bus's MCP tools."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from server.compat.agentchatbus import schemas

MESSAGES_LIMIT = 100


class MsgSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description='FTS5 expression: words, "phrases", prefix*, AND OR NOT, NEAR().')]
    thread_id: Annotated[str | None, Meta(description="Only messages of this thread.")] = None
    limit: Annotated[int, Meta(description="Messages, 1 to 200.")] = schemas.SEARCH_LIMIT


class MsgSearchResults(Struct, frozen=True, kw_only=True):
    """`total` counts the rows of this response."""

    results: tuple[schemas.MessageMatch, ...]
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
    capabilities: Annotated[schemas.Names, Meta(description="Not used.")] = ()
    skills: Annotated[schemas.JsonObjects, Meta(description="Not used.")] = ()
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
    status: schemas.ThreadStatus
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
    reply_window: schemas.ReplyWindow


class MsgPost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thread_id: Annotated[str, Meta(description="Id of a thread.")]
    author: Annotated[str, Meta(description="agent_id of your registration, or any name.")]
    content: Annotated[str, Meta(description="The text of the message.")]
    expected_last_seq: Annotated[int | None, Meta(description="Last seq you have read. Required for agents.")] = None
    reply_token: Annotated[str | None, Meta(description="From bus_connect or msg_post. Required for agents.")] = None
    role: schemas.Role = "user"
    priority: Annotated[schemas.Priority, Meta(description="How urgent it is.")] = "normal"
    mentions: Annotated[schemas.Names | None, Meta(description="Agents that the message addresses.")] = None
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
    reply_window: schemas.ReplyWindow | UnsetType = UNSET


class MsgList(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thread_id: Annotated[str, Meta(description="Id of a thread.")]
    after_seq: Annotated[int, Meta(description="Only messages after this seq.")] = 0
    limit: Annotated[int, Meta(description="Messages, 1 to 1000.")] = MESSAGES_LIMIT
    priority: Annotated[schemas.Priority | None, Meta(description="Only messages with this priority.")] = None
    return_format: Annotated[
        Literal["blocks", "json"], Meta(description="blocks: header and text of each message; json: one array.")
    ] = "blocks"
    include_system_prompt: Annotated[bool, Meta(description="Begin with the thread's system prompt.")] = True
    include_attachments: Annotated[bool, Meta(description="Show images, in blocks.")] = True
