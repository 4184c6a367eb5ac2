"""The chat operations: AgentKit's `POST /chat` and OpenAI's chat completions."""

from auth.context import READ, WRITE
from config.settings import Settings
from server.compat.agentkit.chat import schemas
from server.compat.agentkit.chat.completions import EVENTS, JSON, CompletionService
from server.compat.agentkit.chat.service import ChatService
from server.compat.agentkit.responses import agentkit_operation
from server.rest.forms import FormSpec
from server.rest.operation import Operation, Upload

# No MCP tool chats, so a key that is restricted to a profile may not.
CHAT_TOOLS = ("chat",)
# The form's own fields, and some unknown ones.
_FORM_FIELDS_MAX = 32
# Bad gateway, gateway timeout: see `UpstreamError` and `UpstreamTimeout`.
_UPSTREAM_FAILURES = frozenset((502, 504))


def chat_operations(chat: ChatService, completions: CompletionService, settings: Settings) -> list[Operation]:
    return [
        agentkit_operation(
            id="chat",
            method="POST",
            path="/chat",
            summary="Chat with the library",
            description=(
                "Answers a message from the user's own library and stores both in the session's conversation. If no "
                "model is configured, the answer is the best passages, word for word."
            ),
            input=schemas.ChatRequest,
            response=schemas.ChatAnswer,
            handler=chat.answer,
            tools=CHAT_TOOLS,
            scope=WRITE,
            form=FormSpec(frozenset(("files",)), schemas.CHAT_FILES_MAX + _FORM_FIELDS_MAX),
            schema=schemas.chat_schema(),
            deadline_ms=schemas.turn_deadline_ms(settings),
            error_statuses=_UPSTREAM_FAILURES,
        ),
        agentkit_operation(
            id="list_available_models",
            method="GET",
            path="/models",
            summary="List the models for chats",
            description="The models that `chat` can use, and the default one. Without an upstream, only `extractive`.",
            input=schemas.ModelsRequest,
            response=schemas.AvailableModels,
            handler=completions.available_models,
            tools=CHAT_TOOLS,
            scope=READ,
            error_statuses=_UPSTREAM_FAILURES,
        ),
        Operation(
            id="create_chat_completion",
            method="POST",
            path="/v1/chat/completions",
            summary="Complete a chat",
            description=(
                "OpenAI's chat completions: relayed to the upstream that the operator configured, and stored as a turn "
                "of a conversation. Without an upstream, the answer is passages of the user's own library."
            ),
            input=schemas.CompletionHeaders,
            response=(JSON, EVENTS),
            handler=completions.complete,
            tools=CHAT_TOOLS,
            scope=WRITE,
            source="chats",
            headers={
                "conversation_id": "X-Conversation-Id",
                "session_id": "X-Session-Id",
                "idempotency_key": "Idempotency-Key",
            },
            upload=Upload(JSON, settings.body_max_bytes, schemas.COMPLETION_SCHEMA),
            deadline_ms=schemas.turn_deadline_ms(settings),
            error_statuses=_UPSTREAM_FAILURES,
            error_format=schemas.COMPLETION_ERROR_FORMAT,
        ),
        Operation(
            id="list_models",
            method="GET",
            path="/v1/models",
            summary="List models",
            description="The models of the upstream. Without an upstream, only the model `extractive`.",
            input=schemas.ModelsRequest,
            response=JSON,
            handler=completions.models,
            tools=CHAT_TOOLS,
            scope=READ,
            source="chats",
            error_statuses=_UPSTREAM_FAILURES,
            error_format=schemas.COMPLETION_ERROR_FORMAT,
        ),
    ]
