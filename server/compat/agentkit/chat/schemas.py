"""Inputs and results of the chat operations."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from config.errors import FlorilegiumError, InvalidParams
from config.numbers import replace_unstorable
from server.compat.agentkit.chat.passages import AttachedText
from server.error_responses import ErrorFormat
from server.protocol.schema import input_schema
from server.rest.errors import Unprocessable
from server.rest.forms import FormFile
from sources.storage.contract import DEFAULT_NAMESPACE

# Text of an attached file that the model gets; the response says if more was left out.
FILE_MAX_CHARS = 20_000

# Files of one message. Their text goes into the prompt of a model.
CHAT_FILES_MAX = 10

# `history` is a form field with JSON: the text of a long conversation.
_CHAT_HISTORY_MAX_CHARS = 500_000

# A message that a person types or pastes; longer texts are files.
_CHAT_MESSAGE_MAX_CHARS = 10_000

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


def chat_schema() -> Mapping[str, Any]:
    """Returns the schema of `ChatRequest` with its limits, and files in OpenAPI's notation."""
    schema = input_schema(ChatRequest)
    limits = {
        "message": {"minLength": 1, "maxLength": _CHAT_MESSAGE_MAX_CHARS},
        "model": {"minLength": 1, "maxLength": MODEL_MAX_CHARS},
        "history": {"maxLength": _CHAT_HISTORY_MAX_CHARS},
        "namespace": {"pattern": NAMESPACE_PATTERN},
        "session_id": {"minLength": 1, "maxLength": SESSION_MAX_CHARS},
    }
    for name, limit in limits.items():
        schema["properties"][name] |= limit
    files = schema["properties"]["files"]
    files["items"], files["maxItems"] = {"type": "string", "format": "binary"}, CHAT_FILES_MAX
    files.pop("default", None)
    return schema


# -- errors ------------------------------------------------------------------------------------------------------------
# Errors in the format of OpenAI's API, as a response body and as the last event of a stream.

# OpenAI's names. Other statuses are an invalid request, or from 500 on an error of the API.
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class CompletionError(Struct, frozen=True):
    """`code` is the name of the HTTP status in lower case."""

    message: str
    type: str
    param: str | None
    code: str


class CompletionErrorBody(Struct, frozen=True):
    """The body of an error response."""

    error: CompletionError


def completion_error_body(error: FlorilegiumError, _path: str = "") -> dict[str, Any]:
    status = error.status
    kind = _TYPES.get(status) or ("invalid_request_error" if status < 500 else "api_error")
    detail = CompletionError(error.message, kind, None, HTTPStatus(status).name.lower())
    body: dict[str, Any] = msgspec.to_builtins(CompletionErrorBody(detail))
    return body


def completion_error_event(error: FlorilegiumError) -> bytes:
    """Replaces `[DONE]`, so that a client does not mistake a partial answer for a complete one.

    It begins with a blank line because the bytes before it may end inside an event.
    """
    return b"\n\ndata: " + msgspec.json.encode(completion_error_body(error)) + b"\n\n"


COMPLETION_ERRORS: Any = {
    "error_format": ErrorFormat(CompletionErrorBody, completion_error_body),
    "input_error": InvalidParams,
}


# In Python, `$` also matches before a line break at the end.
_NAMESPACE = re.compile(NAMESPACE_PATTERN.removesuffix("$") + r"\Z")
_ROLES = ("user", "assistant", "system")
_FILENAME_MAX_CHARS = 200


def parse_chat_request(request: ChatRequest) -> tuple[list[Mapping[str, str]], list[AttachedText]]:
    """Returns the history and the texts of the files of a valid request."""
    for name, value, max_chars in (
        ("message", request.message, _CHAT_MESSAGE_MAX_CHARS),
        ("model", request.model, MODEL_MAX_CHARS),
        ("session_id", request.session_id, SESSION_MAX_CHARS),
    ):
        if not 1 <= len(value) <= max_chars:
            raise _invalid(name, f"1 to {max_chars} characters", str(len(value)))
    if not _NAMESPACE.match(request.namespace):
        raise _invalid("namespace", "1 to 64 letters, digits, underscores or hyphens", repr(request.namespace[:80]))
    if len(request.files) > CHAT_FILES_MAX:
        raise _invalid("files", f"at most {CHAT_FILES_MAX} files", str(len(request.files)))
    if len(request.history) > _CHAT_HISTORY_MAX_CHARS:
        raise _invalid("history", f"at most {_CHAT_HISTORY_MAX_CHARS} characters", str(len(request.history)))
    try:
        turns = msgspec.json.decode(request.history or "[]")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _invalid("history", "a JSON array", "invalid JSON") from None
    if not isinstance(turns, list):
        raise _invalid("history", "a JSON array", "another JSON value")
    history: list[Mapping[str, str]] = []
    for index, turn in enumerate(turns):
        role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
        if role not in _ROLES or not isinstance(content, str):
            expected = f"objects with a role ({', '.join(_ROLES)}) and a string content"
            raise _invalid("history", expected, f"another value at index {index}")
        history.append({"role": role, "content": content})
    files = []
    for file in request.files:
        name = replace_unstorable(file.filename)[:_FILENAME_MAX_CHARS]
        try:
            text = file.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:  # as in most files that are not text
            raise InvalidParams(f"files: expected text files in UTF-8, got {name!r}")
        files.append(AttachedText(name, text[:FILE_MAX_CHARS], len(text) > FILE_MAX_CHARS))
    return history, files


def _invalid(name: str, expected: str, got: str) -> Unprocessable:
    return Unprocessable(f"{name}: expected {expected}, got {got}", {"loc": ["body", name]})
