"""Finds the passages of a library that may answer a question, and those of their sentences that do."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from msgspec import UNSET, Struct, structs

from aggregator.contract import KnowledgeItem, KnowledgeResponse, KnowledgeSearch
from aggregator.libraries import own_only
from auth.context import RequestContext
from config.errors import NotFound, SearchFailed
from server.compat.agentkit.chat.passages import EXTRACTIVE, ChatPassage, is_same_text, read_passage
from server.services import Services
from sources.items import Loc
from sources.query import Term
from sources.search.answers import CitedSentence, FoundPassage, answer_sentences
from sources.search.arguments import read_query
from sources.search.scoring import TermStatistics, term_weights
from sources.text.chunking import run_text_work

# The namespace of conversations with Ask. Its messages are no evidence: an answer would soon cite earlier answers.
ASK_NAMESPACE = "ask"
# Passages that answers are made of, their size together, and what is read at most for one of them.
PASSAGES_MAX = 10
_PASSAGES_MAX_TOKENS = 4_000
_PASSAGE_MAX_TOKENS = 600
# An estimate: the tokenizer of the model is not known here.
CHARS_PER_TOKEN = 4
# A message says little without its neighbours, and questions are often answered two messages later.
_NEIGHBOURS = 2
# Earlier conversations with Ask are among the hits, so that more pages are read until there are enough others.
_PAGE_HITS = 20
_PAGES_MAX = 4


class Evidence(ChatPassage, frozen=True, kw_only=True):
    """A passage that was found for a question, and where it is."""

    loc: Loc | None


class FoundEvidence(Struct, frozen=True, kw_only=True):
    """`weights` are those of the terms of the question, by their rarity in the library."""

    evidence: tuple[Evidence, ...] = ()
    terms: tuple[Term, ...] = ()
    weights: tuple[float, ...] = ()
    failed_sources: tuple[str, ...] = ()


async def find_evidence(
    services: Services, context: RequestContext, question: str, previous: str = ""
) -> FoundEvidence:
    """Finds the passages that may answer a question. `previous` is the question before it in the same conversation,
    which often names what this one is about."""
    # What others share is neither sent to a model of this user, nor kept in this user's conversation.
    context = own_only(context)
    query = f"{question} {previous}".strip()[: services.settings.fixed.query_max_chars]
    hits: list[KnowledgeItem] = []
    failed: tuple[str, ...] = ()
    first: KnowledgeResponse | None = None
    offset = 0
    for _ in range(_PAGES_MAX):
        request = KnowledgeSearch(query=query, limit=_PAGE_HITS, offset=offset, dedupe="off", explain=offset == 0)
        try:
            response = await services.knowledge.aggregator.search(context, request)
        except SearchFailed as error:
            return FoundEvidence(failed_sources=tuple(error.reports))
        first = first or response
        failed = tuple(name for name, report in response.sources.items() if report.status != "ok")
        hits += await _without_echoes(services, context, response.results, question)
        if len(hits) >= PASSAGES_MAX or not response.has_more or response.next_offset is None:
            break
        offset = response.next_offset
    terms = read_query(query, services.settings).terms
    return FoundEvidence(
        evidence=await _read(services, context, hits, query),
        terms=terms,
        weights=_weights(terms, first),
        failed_sources=failed,
    )


def _weights(terms: Sequence[Term], response: KnowledgeResponse | None) -> tuple[float, ...]:
    explanation = response.explain if response is not None else UNSET
    if explanation is UNSET or explanation.rows is None or explanation.rows_with_term is None:
        return (1.0,) * len(terms)
    counts = explanation.rows_with_term
    words = [" ".join(term.word.alternatives[0].tokens) for term in terms]
    statistics = [TermStatistics(counts.get(word, 0), term.count) for word, term in zip(words, terms, strict=True)]
    return tuple(term_weights(explanation.rows, statistics))


async def _without_echoes(
    services: Services, context: RequestContext, hits: Sequence[KnowledgeItem], question: str
) -> list[KnowledgeItem]:
    """Leaves out conversations with Ask, messages that repeat the question, and answers made of passages."""
    kept: list[KnowledgeItem] = []
    async with services.libraries.library(context) as library:
        for hit in hits:
            if hit.conversation_id is not None:
                with suppress(NotFound):  # deleted since the search
                    if (await library.chats.get(hit.conversation_id)).namespace == ASK_NAMESPACE:
                        continue
                    if hit.message_id is None:
                        if is_same_text(hit.title or "", question):
                            continue
                    else:
                        message = await library.chats.get_message(hit.message_id)
                        if message.model == EXTRACTIVE or is_same_text(message.content, question):
                            continue
            kept.append(hit)
    return kept


# What is about the question is not always what answers it, which may be in another field or paragraph of a short item.
_read_passage = partial(read_passage, neighbours=_NEIGHBOURS, whole_max_tokens=_PASSAGE_MAX_TOKENS)


async def _read(
    services: Services, context: RequestContext, hits: Sequence[KnowledgeItem], query: str
) -> tuple[Evidence, ...]:
    """Reads the passages of the hits: the best one of each, and then the further ones of the same items."""
    places = [(hit, hit.loc) for hit in hits]
    places += [(hit, one.loc) for hit in hits for one in hit.passages or () if one.loc is not None]
    remaining_tokens = _PASSAGES_MAX_TOKENS
    found: dict[str, Evidence] = {}
    for hit, loc in places:
        budget = min(remaining_tokens, _PASSAGE_MAX_TOKENS)
        if len(found) == PASSAGES_MAX or budget <= 0:
            break
        with suppress(NotFound):
            text = await _read_passage(services, context, hit, query, budget, loc=loc)
            if not text or text in found:
                continue
            is_human_only = False
            if hit.conversation_id is not None and not context.is_agent:
                agent = structs.replace(context, is_agent=True)
                is_human_only = text != await _read_passage(services, agent, hit, query, budget, loc=loc)
            found[text] = Evidence(
                uri=hit.uri,
                source=hit.source,
                title=hit.title or "",
                text=text,
                loc=loc,
                score=hit.score,
                is_human_only=is_human_only,
            )
            remaining_tokens -= len(text) // CHARS_PER_TOKEN + 1
    return tuple(found.values())


async def extract_answer(question: str, found: FoundEvidence) -> list[CitedSentence]:
    """Returns the sentences that answer a question. `passage` of each is the index of its evidence."""
    passages = [FoundPassage(one.title, one.text, one.score) for one in found.evidence]
    chars = sum(len(one.text) for one in found.evidence)
    return await run_text_work(chars, answer_sentences, question, found.terms, found.weights, passages)
