"""One question to all sources, one answer. Whose library is read is decided by the caller's context alone."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from aggregator.breaker import Breaker
from aggregator.defaults import Dedupe, habits_of, with_habits
from aggregator.fanout import Fanout, Inquiry
from aggregator.filters import choose_sources, read_inquiries
from aggregator.merge import Fairness
from aggregator.paging import Choice, Span, choose, compose_page, examine, is_seen
from aggregator.ranking import Place, Ranking
from aggregator.responses import Explanation, HitExplanation, KnowledgeAnswer, KnowledgeItem, SourceReport
from auth.context import RequestContext
from config.errors import SessionNotFound, StorageError, Unavailable
from config.numbers import clamp
from config.settings import Settings
from sessions.state import SessionHandle, SessionState, SessionStates, handle_for
from sources.items import ResultItem
from sources.query import ParsedQuery, Term
from sources.search.arguments import LIMIT_MAX, OFFSET_MAX, read_query
from sources.source import Source
from sources.storage.contract import Libraries, Library

_encode = msgspec.json.Encoder().encode
_decode_item = msgspec.json.Decoder(KnowledgeItem).decode
DEFAULT_LIMIT = 20
# How far back a running topic goes, and how many words it has: each is looked for in every hit that is shown.
TOPIC_QUERIES_MAX = 3
TOPIC_TERMS_MAX = 6


class KnowledgeSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `knowledge_search`. Numbers out of range are moved to the nearest that is allowed."""

    query: Annotated[str, Meta(description='Words, "phrases", prefix*, AND OR NOT, -word, tag:, after:2026-01-31.')]
    limit: Annotated[int | None, Meta(description="Hits per page, 1..100; default 20, fewer if long.")] = None
    offset: Annotated[int, Meta(description="next_offset of the page before.")] = 0
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000; default 300.")] = None
    sources: Annotated[tuple[str, ...], Meta(description="Default all.")] = ()
    order_by: Annotated[Literal["relevance", "recent"] | None, Meta(description="Default relevance.")] = None
    filters: Annotated[dict[str, dict[str, Any]], Meta(description="By source.")] = {}
    session: Annotated[str | None, Meta(description="session of an earlier answer.")] = None
    dedupe: Annotated[Dedupe | None, Meta(description="Hits this session has seen; default hide.")] = None
    deadline_ms: Annotated[int | None, Meta(description="Sources that take longer are left out.")] = None
    explain: Annotated[bool, Meta(description="Tell why hits stand where they do.")] = False


class _Plan(Struct, frozen=True, kw_only=True):
    """A search as it will be carried out."""

    asked: KnowledgeSearch
    query: ParsedQuery
    topic: tuple[Term, ...]
    context: RequestContext
    state: SessionState
    limit: int
    offset: int
    order: Literal["relevance", "recent"]
    dedupe: Dedupe
    deadline_ms: int
    room_bytes: int

    @property
    def seen(self) -> Mapping[str, int]:
        return {} if self.dedupe == "off" else self.state.seen


async def find_session_state(session_states: SessionStates, context: RequestContext, named: str | None) -> SessionState:
    """The memory of the session a call belongs to: the one it names, else that of its connection, else a new one."""
    owner = context.principal.owner()
    if named is not None:
        return await session_states.get(SessionHandle(named), owner)
    if context.session is not None:
        return await session_states.get_or_create(handle_for(context.session), owner)
    return await session_states.create(owner)


def _topic(queries: Sequence[str], query: ParsedQuery, settings: Settings) -> tuple[Term, ...]:
    """The words of a session's latest queries that this one does not have, the latest first."""
    found: dict[str, Term] = {}
    for text in reversed(queries[-TOPIC_QUERIES_MAX:]):
        for term in read_query(text, settings).terms:
            found.setdefault(term.word.text.casefold(), term)
    for term in query.terms:
        found.pop(term.word.text.casefold(), None)
    return tuple(found.values())[:TOPIC_TERMS_MAX]


class Aggregator:
    """Searches all sources. It keeps which of them fail, and nothing else of a call."""

    def __init__(
        self,
        libraries: Libraries,
        sources: Sequence[Source],
        session_states: SessionStates,
        settings: Settings,
        breaker: Breaker | None = None,
    ) -> None:
        self._libraries = libraries
        self._sources = {source.name: source for source in sources}
        self._session_states = session_states
        self._settings = settings
        self._breaker = breaker or Breaker(settings)

    async def search(self, context: RequestContext, asked: KnowledgeSearch) -> KnowledgeAnswer:
        plan = await self._plan(context, asked)
        chosen, read_as = self._chosen(asked.sources, plan.query)
        inquiries = {
            name: replace(inquiry, asked=replace(inquiry.asked, snippet_length=asked.snippet_length))
            for name, inquiry in read_inquiries(chosen, self._sources, asked.query, asked.filters).items()
        }
        async with self._libraries.library(plan.context) as library:
            answer = await self._answer(plan, library, inquiries, read_as)
        await self._remember(plan, answer)
        return answer

    async def _answer(
        self, plan: _Plan, library: Library, inquiries: Mapping[str, Inquiry], read_as: str | None
    ) -> KnowledgeAnswer:
        settings, depth = self._settings, self._settings.fanout_depth
        fanout = Fanout(plan.context, library, inquiries, self._breaker, depth=depth, deadline_ms=plan.deadline_ms)
        fairness = Fairness(settings.fanout_document_max, settings.fanout_source_max)
        ranking = Ranking(fanout.ask, list(inquiries), plan.order, depth, fairness)
        await ranking.skip_to(plan.offset)
        span = await examine(ranking, plan.seen, plan.limit, settings.fanout_scan_max)
        choice = choose(span, plan.dedupe, offset=plan.offset, limit=plan.limit)
        told = await _tell(choice, fanout, plan)
        # Its numbers at their widest, to know what room they leave to the hits.
        envelope = KnowledgeAnswer(
            results=(),
            has_more=True,
            next_offset=OFFSET_MAX,
            total_estimated=ranking.total,
            read_as=read_as or UNSET,
            session=plan.state.handle,
            sources=_without_common_reading(fanout.reports, plan.query),
            suppressed=settings.fanout_scan_max,
            explain=await self._explain(plan, library) if plan.asked.explain else UNSET,
        )
        return _fill(envelope, span, choice, told, plan)

    async def _plan(self, context: RequestContext, asked: KnowledgeSearch) -> _Plan:
        state = await find_session_state(self._session_states, context, asked.session)
        context = with_habits(context, state.defaults)
        habits, settings = habits_of(context), self._settings
        order = asked.order_by or habits.order_by or "relevance"
        sizes = (asked.limit, asked.snippet_length, habits.snippet_length)
        is_default = all(size is None for size in sizes) and not asked.explain
        most = settings.search_response_max_bytes
        deadline_ms = settings.fanout_deadline_ms if asked.deadline_ms is None else asked.deadline_ms
        query = read_query(asked.query, settings)
        if query.is_filter_only:  # without words, all hits are equally relevant
            order = "recent"
        return _Plan(
            asked=asked,
            query=query,
            topic=_topic(state.queries, query, settings),
            # Sources without an argument for it take the order from here.
            context=replace(context, config={**context.config, "order_by": order}),
            state=state,
            limit=clamp(DEFAULT_LIMIT if asked.limit is None else asked.limit, 1, LIMIT_MAX),
            offset=clamp(asked.offset, 0, OFFSET_MAX),
            order=order,
            dedupe=asked.dedupe or habits.dedupe or settings.dedupe,
            deadline_ms=clamp(deadline_ms, 1, settings.fanout_deadline_ms),
            room_bytes=min(settings.search_response_default_bytes, most) if is_default else most,
        )

    def _chosen(self, named: Sequence[str], query: ParsedQuery) -> tuple[dict[str, Source], str | None]:
        """The sources to ask: those the call names and the query's `source:` allows."""
        chosen = choose_sources(self._sources, named)
        wanted = {name.lower() for name in query.filters.sources}
        if not wanted:
            return chosen, query.read_as
        allowed = {name: source for name, source in chosen.items() if name in wanted}
        if allowed:
            return allowed, query.read_as
        return (
            {},
            f"nothing: the query asks for source:{query.filters.sources[0]}, and searched are {', '.join(chosen)}",
        )

    async def _remember(self, plan: _Plan, answer: KnowledgeAnswer) -> None:
        """Marks what is delivered. A memory that ended meanwhile has nothing to keep; the answer stands."""
        delivered: dict[str, int] = {}
        for item in answer.results:
            delivered[item.uri] = item.version or 0
            delivered |= dict.fromkeys(item.also_in or (), item.version or 0)
        query = plan.asked.query[: self._settings.query_max_chars]
        with suppress(SessionNotFound):
            await self._session_states.record(plan.state.handle, plan.context.principal.owner(), query, delivered)

    async def _explain(self, plan: _Plan, library: Library) -> Explanation:
        rows: int | None = None
        frequencies: dict[str, int] | None = None
        if plan.query.expression is not None and self._settings.search_scoring == "comparable":
            with suppress(StorageError, Unavailable, TimeoutError):
                async with asyncio.timeout(plan.deadline_ms / 1000):
                    corpus = await library.corpus(plan.query, plan.deadline_ms)
                words = (" ".join(term.word.alternatives[0].tokens) for term in plan.query.terms)
                rows, frequencies = corpus.rows, dict(zip(words, corpus.frequencies, strict=True))
        return Explanation(
            order_by=plan.order,
            fusion="rounds of each source's best, ordered together" if plan.order == "relevance" else "one merge",
            ties="last_modified, then uri",
            topic=tuple(term.word.text for term in plan.topic),
            scoring=self._settings.search_scoring,
            rows=rows,
            rows_with_term=frequencies,
            hits_per_source=self._settings.fanout_depth,
        )


class _Told(Struct, frozen=True):
    """A hit as it will be delivered, and its size in bytes."""

    item: KnowledgeItem
    size: int


async def _tell(choice: Choice, fanout: Fanout, plan: _Plan) -> dict[int, _Told]:
    """The wanted hits by position. What a source made of one of its hits is looked at: it may be somebody else's."""
    shown = await fanout.show([place.entry.candidate for place in choice.wanted], plan.topic)
    told: dict[int, _Told] = {}
    for place in choice.wanted:
        item = shown.get(place.entry.match.uri)
        if item is None:
            continue
        try:
            made = _told(item, place, plan)
            if made.item.source != place.entry.candidate.source:
                raise ValueError(f"a result of {made.item.source}")
        except (TypeError, ValueError, AttributeError) as error:
            fanout.refuse(place.entry.candidate.source, str(error))
        else:
            told[place.position] = made
    return told


def _fill(
    envelope: KnowledgeAnswer, span: Span, choice: Choice, told: Mapping[int, _Told], plan: _Plan
) -> KnowledgeAnswer:
    """The answer with as many hits as there is room for."""
    room = plan.room_bytes - len(_encode(envelope))
    sizes = {position: one.size for position, one in told.items()}
    page = compose_page(span, choice, sizes=sizes, room=room)
    return replace(
        envelope,
        results=tuple(told[place.position].item for place in page.places),
        has_more=page.next_offset is not None,
        next_offset=page.next_offset,
        suppressed=page.suppressed,
        exhausted=page.exhausted,
        cut=page.cut,
    )


def _told(item: ResultItem, place: Place, plan: _Plan) -> _Told:
    """Read from its JSON, which finds out what is not of its kind: a Struct is not checked when it is made. Ranges to
    highlight are for programs; they get them from a source's own search."""
    encoded = _encode(replace(item, highlights=UNSET))
    read = _decode_item(encoded)
    if place.entry.also_in or plan.asked.explain:
        explain = _explain_hit(item, place, plan) if plan.asked.explain else UNSET
        read = replace(read, also_in=place.entry.also_in or UNSET, explain=explain)
        encoded = _encode(read)
    return _Told(read, len(encoded) + 1)


def _explain_hit(item: ResultItem, place: Place, plan: _Plan) -> HitExplanation:
    ranges = item.highlights if item.highlights is not UNSET else ()
    text = item.snippet or ""
    return HitExplanation(
        position=place.position,
        rank_in_source=place.entry.candidate.rank,
        bm25=place.entry.match.bm25,
        terms=tuple(dict.fromkeys(text[start:end].casefold() for start, end in ranges)),
        seen_before=is_seen(place, plan.state.seen),
    )


def _without_common_reading(reports: Mapping[str, SourceReport], query: ParsedQuery) -> dict[str, SourceReport]:
    """How the query was read is told once; a source adds what it alone has to say."""
    return {
        name: replace(report, read_as=UNSET) if report.read_as == query.read_as else report
        for name, report in reports.items()
    }
