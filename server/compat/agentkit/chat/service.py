"""`POST /chat`: answers a message from the caller's own library and stores both.

With an upstream, a model answers from the passages that were found; without one, the passages are the answer.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from loguru import logger
from msgspec.structs import replace

from auth.context import READ, RequestContext
from config.errors import Conflict, FlorilegiumError, NotFound
from config.settings import Settings
from config.text import replace_unstorable
from config.times import format_time
from server.compat.agentkit.chat.completion_parser import Completion
from server.compat.agentkit.chat.passages import (
    EXTRACTIVE,
    FILES_IGNORED,
    NO_WEB_SEARCH,
    NOT_STORED,
    AttachedText,
    PassageFinder,
    PassageResults,
    citations,
    extractive_completion,
    passages_text,
    summary,
)
from server.compat.agentkit.chat.schemas import (
    ChatAnswer,
    ChatRequest,
    ParsedChatRequest,
    parse_chat_request,
    turn_limits,
)
from server.compat.agentkit.chat.upstream import Upstream, UpstreamPrompt, ask_upstream
from server.rest.forms import FormFile
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Chats, Libraries
from sources.text.chunking import title_from_text

SEARCH_TOOL = "knowledge_search"
_VIA = {"via": "chat"}


class ChatService:
    def __init__(
        self, libraries: Libraries, passages: PassageFinder, upstream: Upstream | None, settings: Settings
    ) -> None:
        self._libraries = libraries
        self._passages = passages
        self._upstream = upstream
        self._settings = settings

    async def answer(self, context: RequestContext, request: ChatRequest) -> ChatAnswer:
        context.principal.require_scope(READ)
        parsed, requested_at = parse_chat_request(request), format_time(datetime.now(UTC))
        # Passages for a model must not contain messages that are hidden from agents.
        reader = context if self._upstream is None else replace(context, is_agent=True)
        results = await self._passages.find(reader, request.message, await self._conversation_id(context, request))
        completion = await self._complete(parsed, results)
        question = MessageDraft(
            role="user",
            content=replace_unstorable(parsed.request.message),
            attachments=[
                _attachment(file, text) for file, text in zip(parsed.request.files, parsed.files, strict=True)
            ],
            metadata=_VIA,
            created_at=requested_at,
        )
        answer = MessageDraft(
            role="assistant",
            content=completion.turn.content,
            model=completion.model,
            tool=SEARCH_TOOL,
            citations=citations(results.passages),
            metadata=completion.metadata | _VIA,
        )
        drafts = question, answer
        conversation_id = await self._store(context, request, drafts)
        passages = passages_text(results.passages) or None
        notices = [
            *([NO_WEB_SEARCH] if parsed.request.search_mode in ("web", "hybrid") else []),
            *([FILES_IGNORED] if parsed.files and completion.model == EXTRACTIVE else []),
            *([NOT_STORED] if conversation_id is None else []),
        ]
        return ChatAnswer(
            answer=completion.turn.content,
            tool_used=SEARCH_TOOL,
            tool_output=passages,
            model=completion.model,
            context="\n\n".join([*([passages] if passages else []), *(file.text for file in parsed.files)]) or None,
            summary=summary(results.passages, results.failed_sources),
            citations=citations(results.passages),
            conversation_id=conversation_id,
            notice=" ".join(notices) or None,
        )

    async def _complete(self, parsed: ParsedChatRequest, results: PassageResults) -> Completion:
        request, settings = parsed.request, self._settings
        if self._upstream is None:
            return extractive_completion(results.passages, request.message)
        prompt = UpstreamPrompt(
            message=request.message,
            model=settings.chat_upstream_model or request.model,
            history=parsed.history,
            passages=results.passages,
            files=parsed.files,
        )
        return await ask_upstream(self._upstream, prompt, turn_limits(settings), settings.fixed.chat_response_max_bytes)

    async def _conversation_id(self, context: RequestContext, request: ChatRequest) -> str | None:
        async with self._libraries.library(context) as library:
            with suppress(NotFound):
                return (await library.chats.get_by_session(request.session_id)).id
        return None

    async def _store(self, context: RequestContext, request: ChatRequest, drafts: Sequence[MessageDraft]) -> str | None:
        """Returns None if the turn cannot be stored: the client receives its answer anyway, with a notice."""
        try:
            async with self._libraries.library(context) as library:
                # Appends to the session's conversation, or creates it. Two first messages may arrive at once.
                draft = ConversationDraft(
                    title=title_from_text(replace_unstorable(request.message)),
                    namespace=request.namespace,
                    session_id=request.session_id,
                    # It begins with the question, and not when the answer is complete.
                    created_at=drafts[0].created_at,
                )
                with suppress(NotFound):
                    return await _append_to_session(library.chats, request.session_id, drafts)
                try:
                    return (await library.chats.create(draft, drafts)).id
                except Conflict:
                    return await _append_to_session(library.chats, request.session_id, drafts)
        except FlorilegiumError as error:
            logger.warning("a chat turn was not stored: {}", type(error).__name__)
            return None


async def _append_to_session(chats: Chats, session_id: str, drafts: Sequence[MessageDraft]) -> str:
    conversation = await chats.get_by_session(session_id)
    await chats.append(conversation.id, drafts)
    return conversation.id


def _attachment(file: FormFile, text: AttachedText) -> dict[str, Any]:
    attachment = {
        "filename": text.name,
        "media_type": replace_unstorable(file.media_type),
        "size_bytes": len(file.content),
    }
    return attachment | ({"is_shortened": True} if text.is_truncated else {})
