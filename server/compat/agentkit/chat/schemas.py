"""Inputs and results of the chat operations."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from config.settings import Settings
from server.protocol.schema import input_schema
from server.rest.forms import FormFile
from sources.storage.contract import DEFAULT_NAMESPACE

DEFAULT_SESSION = "default"
MODEL_MAX_CHARS = 100
SESSION_MAX_CHARS = 128
NAMESPACE_PATTERN = "^[a-zA-Z0-9_-]{1,64}$"


class ChatRequest(Struct, frozen=True, kw_only=True):
    message: Annotated[str, Meta(description="The user's message.")]
    model: Annotated[str, Meta(description="The model to use, unless the operator has set one.")]
    history: Annotated[str, Meta(description='Earlier turns as JSON: [{"role": "user", "content": "…"}].')] = "[]"
    files: Annotated[tuple[FormFile, ...], Meta(description="Text files to use as context for this turn.")] = ()
    namespace: Annotated[str, Meta(description="Namespace of a conversation that this message starts.")] = (
        DEFAULT_NAMESPACE
    )
    session_id: Annotated[str, Meta(description="Each session has one conversation.")] = DEFAULT_SESSION
    search_mode: Annotated[
        Literal["auto", "web", "documents", "hybrid"], Meta(description="Every mode searches the library.")
    ] = "auto"


class ChatAnswer(Struct, frozen=True, kw_only=True):
    """`model` is `extractive` if the answer consists of passages. `notice` says what was ignored or not stored."""

    answer: str
    tool_used: str | None
    tool_output: str | None
    model: str | None
    context: str | None
    summary: str
    citations: tuple[dict[str, Any], ...]
    conversation_id: str | None
    notice: str | None = None


class CompletionHeaders(Struct, frozen=True, kw_only=True):
    """The headers that are read in addition to OpenAI's request body."""

    conversation_id: Annotated[
        str | None, Meta(description="The conversation: the id of an existing one, or any name you choose.")
    ] = None
    session_id: Annotated[str | None, Meta(description="Same as X-Conversation-Id, for clients that send this.")] = None
    idempotency_key: Annotated[
        str | None, Meta(description="Identifies this turn: a retry with the same key is stored once.")
    ] = None


class AvailableModels(Struct, frozen=True, kw_only=True):
    """`default_model` is the operator's choice, or else the first model."""

    available_models: tuple[str, ...]
    default_model: str


class ModelsRequest(Struct, frozen=True, kw_only=True):
    """Takes no input."""


_MESSAGE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"description": "A string, or a list of parts."},
    },
    "required": ["role"],
}
COMPLETION_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "description": "An OpenAI chat completions request. It is relayed unchanged.",
    "properties": {
        "model": {"type": "string", "description": "A model of the upstream."},
        "messages": {"type": "array", "items": _MESSAGE_SCHEMA, "description": "The conversation so far."},
        "stream": {"type": "boolean", "description": "Return the answer as a stream of events."},
        "metadata": {
            "type": "object",
            "description": "`conversation_id` or `session_id` in it identifies the conversation.",
        },
    },
    "required": ["messages"],
    "additionalProperties": True,
}


def chat_schema(settings: Settings) -> Mapping[str, Any]:
    """Returns the schema of `ChatRequest` with the configured limits, and files in OpenAPI's notation."""
    schema = input_schema(ChatRequest)
    limits = {
        "message": {"minLength": 1, "maxLength": settings.chat_message_max_chars},
        "model": {"minLength": 1, "maxLength": MODEL_MAX_CHARS},
        "history": {"maxLength": settings.chat_history_max_chars},
        "namespace": {"pattern": NAMESPACE_PATTERN},
        "session_id": {"minLength": 1, "maxLength": SESSION_MAX_CHARS},
    }
    for name, limit in limits.items():
        schema["properties"][name] |= limit
    files = schema["properties"]["files"]
    files["items"], files["maxItems"] = {"type": "string", "format": "binary"}, settings.chat_files_max
    files.pop("default", None)
    return schema
