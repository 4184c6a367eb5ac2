"""`POST /chat` of the conversations API: a message in, an answer from the caller's own library out, both kept.

With an upstream a model answers from the passages that were found; without one the passages are the answer.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from loguru import logger
from msgspec import Meta, Struct
from msgspec.structs import replace

from auth.context import RequestContext
from auth.principal import READ, WRITE
from config.errors import Conflict, FlorilegiumError, InvalidParams, NotFound
from config.settings import Settings
from config.text import replace_unstorable
from config.times import format_time
from server.compat.agentkit.chat.completion_stream import Completion
from server.compat.agentkit.chat.completions import CHAT_TOOLS, SEARCH_TOOL, passages_of, turn_deadline_ms, turn_limits
from server.compat.agentkit.chat.extractive import extractive_completion
from server.compat.agentkit.chat.passages import EXTRACTIVE, Gathered
from server.compat.agentkit.chat.upstream import Upstream
from server.compat.agentkit.chat.upstream_question import Question, ask_upstream
from server.compat.agentkit.chat.wording import NO_READER, NO_WEB, TextFile, citations, passages_text, summary
from server.compat.agentkit.conversations import conversation_operation
from server.protocol.schema import input_schema
from server.rest.errors import Unprocessable
from server.rest.forms import FormFile, FormSpec
from server.rest.operation import Operation
from server.runtime import Runtime
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import DEFAULT_NAMESPACE, Chats
from sources.text.titles import title_from_text

DEFAULT_SESSION = "default"
_MODEL_MAX_CHARS = 100
_SESSION_MAX_CHARS = 128
_NAMESPACE = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_ROLES = ("user", "assistant", "system")
# Fields of the form, and then some that we do not know.
_FIELDS_MAX = 32
_VIA = {"via": "chat"}
_NOT_KEPT = "This turn was not stored."


class ChatRequest(Struct, frozen=True, kw_only=True):
    message: Annotated[str, Meta(description="What the user says.")]
    model: Annotated[str, Meta(description="The model to ask, where the operator has not set one.")]
    history: Annotated[str, Meta(description='Earlier turns as JSON: [{"role": "user", "content": "…"}].')] = "[]"
    files: Annotated[tuple[FormFile, ...], Meta(description="Text files to answer from, for this turn.")] = ()
    namespace: Annotated[str, Meta(description="Of a conversation that begins with this.")] = DEFAULT_NAMESPACE
    session_id: Annotated[str, Meta(description="One session is one conversation.")] = DEFAULT_SESSION
    search_mode: Annotated[
        Literal["auto", "web", "documents", "hybrid"], Meta(description="The library is searched in each of them.")
    ] = "auto"


class ChatAnswer(Struct, frozen=True, kw_only=True):
    """`model` is `extractive` where passages are the answer. `notice` says what is not as one might expect."""

    answer: str
    tool_used: str | None
    tool_output: str | None
    model: str | None
    context: str | None
    summary: str
    citations: tuple[dict[str, Any], ...]
    conversation_id: str | None
    notice: str | None = None


class _Checked(Struct, frozen=True):
    """A request that was read: its history and the text of its files."""

    given: ChatRequest
    history: Sequence[Mapping[str, str]]
    files: Sequence[TextFile]


def chat_operations(runtime: Runtime) -> list[Operation]:
    settings, chat = runtime.settings, _Chat(runtime)
    return [
        conversation_operation(
            id="chat",
            method="POST",
            path="/chat",
            summary="Chat with the library",
            description=(
                "Answer a message from the user's own library and keep both as turns of the session's conversation. "
                "Where no model is configured the best passages are the answer, word for word."
            ),
            input=ChatRequest,
            response=ChatAnswer,
            handler=chat.answer,
            tools=CHAT_TOOLS,
            scope=WRITE,
            form=FormSpec(frozenset(("files",)), settings.chat_files_max + _FIELDS_MAX),
            schema=_schema(settings),
            deadline_ms=turn_deadline_ms(settings),
            error_statuses=frozenset((502, 504)),
        )
    ]


class _Chat:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self._passages = passages_of(runtime)
        self._upstream = Upstream.of(runtime.settings)

    async def answer(self, context: RequestContext, given: ChatRequest) -> ChatAnswer:
        context.principal.require_scope(READ)
        checked, asked_at = _checked(given, self._settings), format_time(datetime.now(UTC))
        # What a model is to read, an agent reads.
        reader = context if self._upstream is None else replace(context, is_agent=True)
        gathered = await self._passages.gather(reader, given.message, await self._conversation_id(context, given))
        completion = await self._complete(checked, gathered)
        drafts = _drafts(checked, completion, gathered, asked_at)
        conversation_id = await self._keep(context, given, drafts)
        return _told(checked, completion, gathered, conversation_id)

    async def _complete(self, checked: _Checked, gathered: Gathered) -> Completion:
        given, settings = checked.given, self._settings
        if self._upstream is None:
            return extractive_completion(gathered, given.message)
        question = Question(
            message=given.message,
            model=settings.chat_upstream_model or given.model,
            history=checked.history,
            passages=gathered.passages,
            files=checked.files,
        )
        return await ask_upstream(self._upstream, question, turn_limits(settings), settings.chat_answer_max_bytes)

    async def _conversation_id(self, context: RequestContext, given: ChatRequest) -> str | None:
        async with self._runtime.libraries.library(context) as library:
            with suppress(NotFound):
                return (await library.chats.get_by_session(given.session_id)).id
        return None

    async def _keep(self, context: RequestContext, given: ChatRequest, drafts: Sequence[MessageDraft]) -> str | None:
        """An answer reaches its client also where it cannot be stored, and says so."""
        try:
            async with self._runtime.libraries.library(context) as library:
                return await _append(library.chats, given, drafts)
        except FlorilegiumError as error:
            logger.warning("a turn of a chat was not stored: {}", type(error).__name__)
            return None


async def _append(chats: Chats, given: ChatRequest, drafts: Sequence[MessageDraft]) -> str:
    """To the conversation of the session, which its first message begins. Two first ones may come at once."""
    draft = ConversationDraft(
        title=title_from_text(replace_unstorable(given.message)), namespace=given.namespace, session_id=given.session_id
    )
    with suppress(NotFound):
        return await _continue(chats, given.session_id, drafts)
    try:
        return (await chats.create(draft, drafts)).id
    except Conflict:
        return await _continue(chats, given.session_id, drafts)


async def _continue(chats: Chats, session_id: str, drafts: Sequence[MessageDraft]) -> str:
    conversation = await chats.get_by_session(session_id)
    await chats.append(conversation.id, drafts)
    return conversation.id


def _drafts(
    checked: _Checked, completion: Completion, gathered: Gathered, asked_at: str
) -> tuple[MessageDraft, MessageDraft]:
    given = checked.given
    asked = MessageDraft(
        role="user",
        content=replace_unstorable(given.message),
        attachments=[_attachment(file, text) for file, text in zip(given.files, checked.files, strict=True)],
        metadata=_VIA,
        created_at=asked_at,
    )
    answered = MessageDraft(
        role="assistant",
        content=completion.turn.content,
        model=completion.model,
        tool=SEARCH_TOOL,
        citations=citations(gathered.passages),
        metadata=completion.metadata | _VIA,
    )
    return asked, answered


def _attachment(file: FormFile, text: TextFile) -> dict[str, Any]:
    told = {"filename": text.name, "media_type": replace_unstorable(file.media_type), "size_bytes": len(file.content)}
    return told | ({"is_shortened": True} if text.is_shortened else {})


def _told(checked: _Checked, completion: Completion, gathered: Gathered, conversation_id: str | None) -> ChatAnswer:
    found = passages_text(gathered.passages) or None
    notices = [
        *([NO_WEB] if checked.given.search_mode in ("web", "hybrid") else []),
        *([NO_READER] if checked.files and completion.model == EXTRACTIVE else []),
        *([_NOT_KEPT] if conversation_id is None else []),
    ]
    return ChatAnswer(
        answer=completion.turn.content,
        tool_used=SEARCH_TOOL,
        tool_output=found,
        model=completion.model,
        context="\n\n".join([*([found] if found else []), *(file.text for file in checked.files)]) or None,
        summary=summary(gathered.passages, gathered.absent),
        citations=citations(gathered.passages),
        conversation_id=conversation_id,
        notice=" ".join(notices) or None,
    )


# What a request must be


def _checked(given: ChatRequest, settings: Settings) -> _Checked:
    _require_length("message", given.message, settings.chat_message_max_chars)
    _require_length("model", given.model, _MODEL_MAX_CHARS)
    _require_length("session_id", given.session_id, _SESSION_MAX_CHARS)
    if not _NAMESPACE.match(given.namespace):
        raise _unprocessable("namespace", repr(given.namespace[:80]), "1 to 64 letters, digits, underscores, hyphens")
    if len(given.files) > settings.chat_files_max:
        raise _unprocessable("files", f"{len(given.files)} files", f"at most {settings.chat_files_max}")
    return _Checked(
        given, _history(given.history, settings), [_text(file, settings.chat_file_max_chars) for file in given.files]
    )


def _require_length(name: str, value: str, most: int) -> None:
    if not 1 <= len(value) <= most:
        raise _unprocessable(name, f"{len(value)} characters", f"1 to {most}")


def _history(history: str, settings: Settings) -> list[Mapping[str, str]]:
    if len(history) > settings.chat_history_max_chars:
        raise _unprocessable("history", f"{len(history)} characters", f"at most {settings.chat_history_max_chars}")
    try:
        turns = msgspec.json.decode(history or "[]")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _unprocessable("history", "no JSON", "a JSON list") from None
    if not isinstance(turns, list):
        raise _unprocessable("history", "JSON that is no list", "a JSON list")
    return [_earlier(number, turn) for number, turn in enumerate(turns)]


def _earlier(number: int, turn: Any) -> Mapping[str, str]:
    role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
    if role not in _ROLES or not isinstance(content, str):
        raise _unprocessable(
            "history", f"something else at {number}", f"role, one of {', '.join(_ROLES)}, and content, a text"
        )
    return {"role": role, "content": content}


def _text(file: FormFile, max_chars: int) -> TextFile:
    name = replace_unstorable(file.filename)[:200]
    try:
        text = file.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidParams(f"files: got {name!r}, which is no text, expected text files in UTF-8")
    return TextFile(name, text[:max_chars], len(text) > max_chars)


def _unprocessable(name: str, got: str, expected: str) -> Unprocessable:
    return Unprocessable(f"{name}: got {got}, expected {expected}", {"loc": ["body", name]})


def _schema(settings: Settings) -> Mapping[str, Any]:
    """With the limits that apply, and files as OpenAPI writes them."""
    schema = input_schema(ChatRequest)
    limits = {
        "message": {"minLength": 1, "maxLength": settings.chat_message_max_chars},
        "model": {"minLength": 1, "maxLength": _MODEL_MAX_CHARS},
        "history": {"maxLength": settings.chat_history_max_chars},
        "namespace": {"pattern": "^[a-zA-Z0-9_-]{1,64}$"},
        "session_id": {"minLength": 1, "maxLength": _SESSION_MAX_CHARS},
    }
    for name, limit in limits.items():
        schema["properties"][name] |= limit
    files = schema["properties"]["files"]
    files["items"], files["maxItems"] = {"type": "string", "format": "binary"}, settings.chat_files_max
    files.pop("default", None)
    return schema
