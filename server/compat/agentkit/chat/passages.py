"""The passages of a library that answer a question best, within a budget: what a chat is answered from.

An echo is not an answer. What was said in the same conversation, the question itself where it was asked before, and
answers that were only passages are left out.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from aggregator.responses import KnowledgeItem
from aggregator.retrieval import KnowledgeGet, Retriever
from aggregator.search import Aggregator, KnowledgeSearch
from auth.context import RequestContext
from config.errors import NotFound
from config.settings import Settings
from sources.items import Mode, RetrievalOptions
from sources.storage.contract import Libraries
from sources.text.titles import title_from_text

# The model of an answer that is made of passages alone.
EXTRACTIVE = "extractive"
_CHARS_PER_TOKEN = 4
# What the envelope of a retrieved passage costs; it is not handed on.
_ENVELOPE_TOKENS = 400
# A passage shorter than this says nothing: where less room is left, the last one was the last.
_LEAST_TOKENS = 40
# Of the best hit's score. What is further behind holds only the common words of a question.
_LEAST_SHARE = 0.5
# For each passage wanted, hits that are looked at: some are echoes.
_HITS_PER_PASSAGE = 3


class Passage(Struct, frozen=True, kw_only=True):
    """Words of an item, with the address under which they can be read again."""

    uri: str
    source: str
    title: str
    text: str
    score: float


class Gathered(Struct, frozen=True):
    """Best first. `absent` names the sources that did not answer."""

    passages: tuple[Passage, ...]
    absent: tuple[str, ...] = ()


class Passages:
    def __init__(self, libraries: Libraries, aggregator: Aggregator, retriever: Retriever, settings: Settings) -> None:
        self._libraries = libraries
        self._aggregator = aggregator
        self._retriever = retriever
        self._settings = settings

    async def gather(self, context: RequestContext, question: str, conversation_id: str | None = None) -> Gathered:
        """For a question that is asked in a conversation."""
        wanted = self._settings.chat_passages_max
        asked = question[: self._settings.query_max_chars]
        found = await self._aggregator.search(
            context, KnowledgeSearch(query=asked, limit=wanted * _HITS_PER_PASSAGE, dedupe="off")
        )
        hits = [hit for hit in found.results if not _is_of_conversation(hit, conversation_id, question)]
        echoes = await self._echoes(context, hits, question)
        worthy = _worthy([hit for hit in hits if hit.uri not in echoes])
        passages = await self._read(context, worthy, asked, wanted)
        absent = tuple(name for name, report in found.sources.items() if report.status != "ok")
        return Gathered(passages, absent)

    async def _echoes(self, context: RequestContext, hits: Sequence[KnowledgeItem], question: str) -> frozenset[str]:
        said = {hit.uri: hit.message_id for hit in hits if hit.message_id is not None}
        if not said:
            return frozenset()
        found = set[str]()
        async with self._libraries.library(context) as library:
            for uri, message_id in said.items():
                with suppress(NotFound):
                    message = await library.chats.get_message(message_id)
                    if message.model == EXTRACTIVE or _is_same(message.content, question):
                        found.add(uri)
        return frozenset(found)

    async def _read(
        self, context: RequestContext, hits: Sequence[KnowledgeItem], question: str, wanted: int
    ) -> tuple[Passage, ...]:
        room = self._settings.chat_context_max_tokens
        passages: list[Passage] = []
        for hit in hits:
            if len(passages) == wanted or room < _LEAST_TOKENS:
                break
            with suppress(NotFound):  # deleted since it was found
                text = await self._text(context, hit, question, room)
                room -= len(text) // _CHARS_PER_TOKEN + 1
                title = hit.title or ""
                passages.append(Passage(uri=hit.uri, source=hit.source, title=title, text=text, score=hit.score))
        return tuple(passages)

    async def _text(self, context: RequestContext, hit: KnowledgeItem, question: str, room: int) -> str:
        # A message says little without the one before and the one after it.
        mode: Mode = "chunk" if hit.message_id is None else "chunk_with_siblings"
        options = RetrievalOptions(mode=mode, sibling_window=1, max_tokens=room + _ENVELOPE_TOKENS)
        asked = KnowledgeGet(uri=hit.uri, loc=_place(hit), query=question, retrieval=options)
        text = (await self._retriever.get(context, asked)).content.strip()
        most = room * _CHARS_PER_TOKEN
        return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _worthy(hits: Sequence[KnowledgeItem]) -> list[KnowledgeItem]:
    """Hits that are not far behind the best, the best one of each item."""
    if not hits:
        return []
    least = max(hit.score for hit in hits) * _LEAST_SHARE
    best: dict[tuple[str, str | int], KnowledgeItem] = {}
    for hit in hits:
        if hit.score >= least:
            best.setdefault((hit.source, hit.id), hit)
    return list(best.values())


def _place(hit: KnowledgeItem) -> dict[str, object] | None:
    if hit.loc is None:
        return None
    named: Mapping[str, object] = {name: getattr(hit.loc, name) for name in hit.loc.__struct_fields__}
    return {name: value for name, value in named.items() if value is not None}


def _is_of_conversation(hit: KnowledgeItem, conversation_id: str | None, question: str) -> bool:
    """Whether it was said in that conversation, or is the name of one that the same question began."""
    if hit.conversation_id is None:
        return False
    is_named_so = hit.message_id is None and _is_same(hit.title or "", title_from_text(question))
    return hit.conversation_id == conversation_id or is_named_so


def _is_same(content: str, question: str) -> bool:
    return " ".join(content.split()).casefold() == " ".join(question.split()).casefold()
