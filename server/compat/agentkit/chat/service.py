"""`POST /chat`: answers a message from the caller's own library and stores both.

With an upstream, a model answers from the passages that were found; without one, the passages are the answer.
"""

# About this package: Requests go to the upstream model that the operator configured. Without one, answers are passages
# of the caller's own library. Either way each turn is stored as part of a conversation. `service.py` is `POST /chat`,
# and `routes.py` OpenAI's API: `relay.py` passes a request to the upstream and its response back, `turns.py` reads what
# is stored of both, and `recorder.py` stores it. `passages.py` finds
# what the answers are made of.

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from loguru import logger
from msgspec.structs import replace

from auth.context import READ, RequestContext
from config.errors import Conflict, FlorilegiumError, NotFound
from config.numbers import replace_unstorable
from config.settings import Settings
from config.times import format_time
from server.compat.agentkit.chat import passages
from server.compat.agentkit.chat.relay import Upstream, ask_upstream
from server.compat.agentkit.chat.schemas import ChatAnswer, ChatRequest, parse_chat_request, turn_limits
from server.compat.agentkit.chat.turns import Completion
from sources.drafts import ConversationDraft, MessageDraft
from sources.storage.contract import Chats, Libraries
from sources.text.chunking import title_from_text

# The `tool_used` of all answers.
SEARCH_TOOL = "knowledge_search"
_VIA = {"via": "chat"}


class ChatService:
    def __init__(
        self, libraries: Libraries, finder: passages.PassageFinder, upstream: Upstream | None, settings: Settings
    ) -> None:
        self._libraries = libraries
        self._finder = finder
        self._upstream = upstream
        self._settings = settings

    async def answer(self, context: RequestContext, request: ChatRequest) -> ChatAnswer:
        context.principal.require_scope(READ)
        (history, files), requested_at = parse_chat_request(request), format_time(datetime.now(UTC))
        # Passages for a model must not contain messages that are hidden from agents.
        reader = context if self._upstream is None else replace(context, is_agent=True)
        session_conversation = None
        async with self._libraries.library(context) as library:
            with suppress(NotFound):  # the first message of a session
                session_conversation = (await library.chats.get_by_session(request.session_id)).id
        results = await self._finder.find(reader, request.message, session_conversation)
        completion = await self._complete(request, history, files, results)
        question = MessageDraft(
            role="user",
            content=replace_unstorable(request.message),
            attachments=[
                {
                    "filename": text.name,
                    "media_type": replace_unstorable(file.media_type),
                    "size_bytes": len(file.content),
                    **({"is_shortened": True} if text.is_truncated else {}),
                }
                for file, text in zip(request.files, files, strict=True)
            ],
            metadata=_VIA,
            created_at=requested_at,
        )
        answer = MessageDraft(
            role="assistant",
            content=completion.turn.content,
            model=completion.model,
            tool=SEARCH_TOOL,
            citations=passages.citations(results.passages),
            metadata=completion.metadata | _VIA,
        )
        conversation_id = await self._store(context, request, (question, answer))
        quoted = passages.passages_text(results.passages) or None
        notices = [
            *([passages.NO_WEB_SEARCH] if request.search_mode in ("web", "hybrid") else []),
            *([passages.FILES_IGNORED] if files and completion.model == passages.EXTRACTIVE else []),
            *([passages.NOT_STORED] if conversation_id is None else []),
        ]
        return ChatAnswer(
            answer=completion.turn.content,
            tool_used=SEARCH_TOOL,
            tool_output=quoted,
            model=completion.model,
            context="\n\n".join([*([quoted] if quoted else []), *(file.text for file in files)]) or None,
            summary=passages.summary(results.passages, results.failed_sources),
            citations=passages.citations(results.passages),
            conversation_id=conversation_id,
            notice=" ".join(notices) or None,
        )

    async def _complete(
        self,
        request: ChatRequest,
        history: Sequence[Mapping[str, str]],
        files: Sequence[passages.AttachedText],
        results: passages.PassageResults,
    ) -> Completion:
        settings = self._settings
        if self._upstream is None:
            return passages.extractive_completion(results.passages, request.message)
        messages = [
            {"role": "system", "content": passages.instructions(results.passages, files)},
            *history,
            {"role": "user", "content": request.message},
        ]
        model = settings.chat_upstream_model or request.model
        max_bytes = settings.fixed.chat_response_max_bytes
        return await ask_upstream(self._upstream, model, messages, turn_limits(settings), max_bytes)

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
                    # The other one has created it.
                    return await _append_to_session(library.chats, request.session_id, drafts)
        except FlorilegiumError as error:
            logger.warning("a chat turn was not stored: {}", type(error).__name__)
            return None


async def _append_to_session(chats: Chats, session_id: str, drafts: Sequence[MessageDraft]) -> str:
    conversation = await chats.get_by_session(session_id)
    await chats.append(conversation.id, drafts)
    return conversation.id
