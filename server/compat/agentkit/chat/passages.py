"""Finds the passages of a library that best answer a question, within a token budget.

Echoes of the question are left out: messages of the same conversation, earlier messages with the same text, and answers
that consisted of passages only.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from aggregator.responses import KnowledgeItem
from aggregator.retrieval import KnowledgeGet, Retriever
from aggregator.search import Aggregator, KnowledgeSearch
from auth.context import RequestContext
from config.errors import NotFound, SearchFailed
from config.settings import Settings
from sources.items import Mode, RetrievalOptions
from sources.storage.contract import Libraries
from sources.text.titles import title_from_text

# The model name of answers that consist of passages only.
EXTRACTIVE = "extractive"
_CHARS_PER_TOKEN = 4
# The cost of a retrieved passage's envelope, which is not passed on.
_ENVELOPE_TOKENS = 400
# A shorter passage says nothing: with less than this left, no further passage is read.
_PASSAGE_MIN_TOKENS = 40
# Relative to the best hit's score. Hits below it match only the common words of a question.
_SCORE_MIN_SHARE = 0.5
# Blanks by which a message may be longer than the question that it repeats.
_BLANKS_MAX_CHARS = 1_000
# Search for more hits than passages are wanted, because some are echoes.
_HITS_PER_PASSAGE = 3


class ChatPassage(Struct, frozen=True, kw_only=True):
    """An excerpt of an item, with the URI to read it again. `is_human_only` says that an agent would read another
    text."""

    uri: str
    source: str
    title: str
    text: str
    score: float
    is_human_only: bool = False


class PassageResults(Struct, frozen=True):
    """Passages, best first. `failed_sources` names the sources that returned an error or timed out."""

    passages: tuple[ChatPassage, ...]
    failed_sources: tuple[str, ...] = ()


class PassageFinder:
    def __init__(self, libraries: Libraries, aggregator: Aggregator, retriever: Retriever, settings: Settings) -> None:
        self._libraries = libraries
        self._aggregator = aggregator
        self._retriever = retriever
        self._settings = settings

    async def find(self, context: RequestContext, question: str, conversation_id: str | None = None) -> PassageResults:
        """`conversation_id` is the conversation in which the question is asked."""
        limit = self._settings.chat_passages_max
        query = question[: self._settings.query_max_chars]
        request = KnowledgeSearch(query=query, limit=limit * _HITS_PER_PASSAGE, dedupe="off")
        try:
            response = await self._aggregator.search(context, request)
        except SearchFailed as error:
            return PassageResults((), tuple(error.reports))
        hits = [hit for hit in response.results if not _is_of_conversation(hit, conversation_id, question)]
        echoes = await self._echoes(context, hits, question)
        best = _best_of_each_item([hit for hit in hits if hit.uri not in echoes])
        passages = await self._read(context, best, query, limit)
        failed_sources = tuple(name for name, report in response.sources.items() if report.status != "ok")
        return PassageResults(passages, failed_sources)

    async def _echoes(self, context: RequestContext, hits: Sequence[KnowledgeItem], question: str) -> frozenset[str]:
        """Returns the URIs of messages that repeat the question or an answer made of passages."""
        message_ids = {hit.uri: hit.message_id for hit in hits if hit.message_id is not None}
        if not message_ids:
            return frozenset()
        echoes = set[str]()
        async with self._libraries.library(context) as library:
            for uri, message_id in message_ids.items():
                with suppress(NotFound):
                    message = await library.chats.get_message(message_id)
                    if message.model == EXTRACTIVE or _is_same_text(message.content, question):
                        echoes.add(uri)
        return frozenset(echoes)

    async def _read(
        self, context: RequestContext, hits: Sequence[KnowledgeItem], query: str, limit: int
    ) -> tuple[ChatPassage, ...]:
        remaining_tokens = self._settings.chat_context_max_tokens
        passages: list[ChatPassage] = []
        for hit in hits:
            if len(passages) == limit or remaining_tokens < _PASSAGE_MIN_TOKENS:
                break
            with suppress(NotFound):  # deleted since the search
                passage = await self._passage(context, hit, query, remaining_tokens)
                remaining_tokens -= len(passage.text) // _CHARS_PER_TOKEN + 1
                passages.append(passage)
        return tuple(passages)

    async def _passage(self, context: RequestContext, hit: KnowledgeItem, query: str, max_tokens: int) -> ChatPassage:
        text = await self._text(context, hit, query, max_tokens)
        is_human_only = False
        if hit.conversation_id is not None and not context.is_agent:
            # The passage may contain neighbours of the message that matched.
            is_human_only = text != await self._text(replace(context, is_agent=True), hit, query, max_tokens)
        return ChatPassage(
            uri=hit.uri,
            source=hit.source,
            title=hit.title or "",
            text=text,
            score=hit.score,
            is_human_only=is_human_only,
        )

    async def _text(self, context: RequestContext, hit: KnowledgeItem, query: str, max_tokens: int) -> str:
        # A message says little without its neighbours.
        mode: Mode = "chunk" if hit.message_id is None else "chunk_with_siblings"
        options = RetrievalOptions(mode=mode, sibling_window=1, max_tokens=max_tokens + _ENVELOPE_TOKENS)
        request = KnowledgeGet(uri=hit.uri, loc=_location(hit), query=query, retrieval=options)
        text = (await self._retriever.get(context, request)).content.strip()
        max_chars = max_tokens * _CHARS_PER_TOKEN
        return text if len(text) <= max_chars else text[: max_chars - 1].rstrip() + "…"


def _best_of_each_item(hits: Sequence[KnowledgeItem]) -> list[KnowledgeItem]:
    """Returns the best hit of each item, without hits that score far below the best one."""
    if not hits:
        return []
    min_score = max(hit.score for hit in hits) * _SCORE_MIN_SHARE
    best: dict[tuple[str, str | int], KnowledgeItem] = {}
    for hit in hits:
        if hit.score >= min_score:
            best.setdefault((hit.source, hit.id), hit)
    return list(best.values())


def _location(hit: KnowledgeItem) -> dict[str, object] | None:
    if hit.loc is None:
        return None
    fields: Mapping[str, object] = {name: getattr(hit.loc, name) for name in hit.loc.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not None}


def _is_of_conversation(hit: KnowledgeItem, conversation_id: str | None, question: str) -> bool:
    """Whether the hit is part of that conversation, or is the title of one that began with the same question."""
    if hit.conversation_id is None:
        return False
    is_question_title = hit.message_id is None and _is_same_text(hit.title or "", title_from_text(question))
    return hit.conversation_id == conversation_id or is_question_title


def _is_same_text(content: str, question: str) -> bool:
    """Compares the words. Of a longer text, only as many words are read as the question has."""
    words = question.casefold().split()
    return content[: 2 * len(question) + _BLANKS_MAX_CHARS].casefold().split(None, len(words)) == words
