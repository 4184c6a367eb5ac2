"""Answers a question: finds passages, chooses or writes sentences that cite them, and keeps both as a conversation.

Without a language model the answer is extractive: the sentences of the best passages that answer the question, word
for word (`sources.search.answers`).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from loguru import logger
from msgspec import Meta, Struct
from msgspec.structs import asdict

from auth.context import WRITE, RequestContext
from config.errors import FlorilegiumError, NotFound
from config.numbers import replace_unstorable
from config.times import format_time
from server.asking.cited_text import AnswerSentence, Citation, answer_text
from server.asking.evidence import ASK_NAMESPACE, Evidence, extract_answer, find_evidence
from server.compat.agentkit.chat.passages import EXTRACTIVE
from server.console.markdown import without_markup
from server.services import Services
from server.tools.research import Permalinks
from sources.drafts import ConversationDraft, MessageDraft
from sources.records import Message
from sources.text.chunking import title_from_text

QUESTION_MAX_CHARS = 2_000
# Messages of a conversation that a further question is understood by.
_HISTORY_MAX_MESSAGES = 8
NOTHING_FOUND = "Nothing in your library answers this question."
NOT_KEPT = "The answer was not kept."
_VIA = {"via": "ask"}


class AskRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    question: Annotated[str, Meta(min_length=1, max_length=QUESTION_MAX_CHARS, description="A question.")]
    conversation_id: Annotated[
        str | None, Meta(description="conversation_id of an earlier answer, which this question follows.")
    ] = None


class FoundCitations(Struct, frozen=True, kw_only=True):
    """The passages that the answer may cite."""

    citations: tuple[Citation, ...]


class AnswerEnd(Struct, frozen=True, kw_only=True):
    """`model` is `extractive` if no language model was used. `conversation_id` is missing if the answer was not kept.
    `notices` say what could not be done."""

    model: str
    conversation_id: str | None = None
    notices: tuple[str, ...] = ()


AnswerEvent = FoundCitations | AnswerSentence | AnswerEnd


class Answer(AnswerEnd, frozen=True, kw_only=True):
    """`answer` is the whole answer as text. `citations` are the passages that it cites."""

    answer: str
    sentences: tuple[AnswerSentence, ...]
    citations: tuple[Citation, ...]


async def answer_question(
    context: RequestContext, services: Services, request: AskRequest
) -> AsyncIterator[AnswerEvent]:
    """Yields the passages that may be cited, the sentences of the answer, and its end. Keeps the question and its
    answer if the caller may write."""
    requested_at = format_time(datetime.now(UTC))
    earlier = await _read_conversation(context, services, request.conversation_id)
    previous = next((one.content for one in reversed(earlier) if one.role == "user"), "")
    found = await find_evidence(services, context, request.question, previous)
    cited = await extract_answer(request.question, found)
    evidence = [found.evidence[one.passage] for one in cited]
    citations = cite(evidence, services.settings.base_url)
    yield FoundCitations(citations=citations)
    sentences = tuple(
        AnswerSentence(text=without_markup(one.text), citations=(number,), starts_paragraph=True)
        for number, one in enumerate(cited, 1)
    )
    for sentence in sentences:
        yield sentence
    notices = [f"{name} could not be searched" for name in found.failed_sources]
    if not sentences:
        notices.append(NOTHING_FOUND)
    conversation_id = None
    if context.principal.has_scope(WRITE):
        answer = MessageDraft(
            role="assistant",
            content=replace_unstorable(answer_text(sentences, citations)) or NOTHING_FOUND,
            model=EXTRACTIVE,
            citations=_stored_citations(citations),
            metadata=_VIA | ({"human_only": True} if any(one.is_human_only for one in evidence) else {}),
        )
        conversation_id = await _store(context, services, request, answer, requested_at)
        if conversation_id is None:
            notices.append(NOT_KEPT)
    yield AnswerEnd(model=EXTRACTIVE, conversation_id=conversation_id, notices=tuple(notices))


async def collect_answer(events: AsyncIterator[AnswerEvent]) -> Answer:
    """Returns the whole answer."""
    citations: tuple[Citation, ...] = ()
    sentences: list[AnswerSentence] = []
    end: Mapping[str, Any] = {}
    async for event in events:
        match event:
            case FoundCitations():
                citations = event.citations
            case AnswerSentence():
                sentences.append(event)
            case AnswerEnd():
                end = asdict(event)
    numbers = {number for sentence in sentences for number in sentence.citations}
    cited = tuple(one for one in citations if one.number in numbers)
    return Answer(answer=answer_text(sentences, cited), sentences=tuple(sentences), citations=cited, **end)


def cite(evidence: Sequence[Evidence], base_url: str) -> tuple[Citation, ...]:
    links = Permalinks(base_url)
    return tuple(
        Citation(
            number=number,
            uri=one.uri,
            source=one.source,
            title=one.title,
            url=links.of(one.uri, one.loc),
            text=one.text,
        )
        for number, one in enumerate(evidence, 1)
    )


# -- conversations -----------------------------------------------------------------------------------------------------


async def _read_conversation(
    context: RequestContext, services: Services, conversation_id: str | None
) -> Sequence[Message]:
    """Returns the last messages of a conversation with Ask."""
    if conversation_id is None:
        return ()
    async with services.libraries.library(context) as library:
        conversation = await library.chats.get(conversation_id)
        if conversation.namespace != ASK_NAMESPACE:
            raise NotFound("conversation", conversation_id[:60])
        skipped = max(0, conversation.message_count - _HISTORY_MAX_MESSAGES)
        return (await library.chats.messages(conversation_id, _HISTORY_MAX_MESSAGES, skipped)).rows


def _stored_citations(citations: Sequence[Citation]) -> list[Mapping[str, Any]]:
    """Without the texts, which are in the library, and with addresses that outlive a change of the server's name."""
    return [
        {"number": one.number, "uri": one.uri, "source": one.source, "title": one.title, "url": _path(one.url)}
        for one in citations
    ]


def _path(url: str) -> str:
    return f"/items/{url.partition('/items/')[2]}"


async def _store(
    context: RequestContext, services: Services, request: AskRequest, answer: MessageDraft, requested_at: str
) -> str | None:
    """Returns the id of the conversation, or None if the turn cannot be stored: an answer must reach its reader."""
    text = replace_unstorable(request.question)
    drafts = (MessageDraft(role="user", content=text, metadata=_VIA, created_at=requested_at), answer)
    try:
        async with services.libraries.library(context) as library:
            if request.conversation_id is not None:
                await library.chats.append(request.conversation_id, drafts)
                return request.conversation_id
            draft = ConversationDraft(title=title_from_text(text), namespace=ASK_NAMESPACE, created_at=requested_at)
            return (await library.chats.create(draft, drafts)).id
    except FlorilegiumError as error:
        logger.warning("an answer was not kept: {}", type(error).__name__)
        return None
