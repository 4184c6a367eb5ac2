"""Searches all sources and returns one response. The request context alone decides whose library is searched."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from aggregator import contract
from aggregator.contract import (
    Dedupe,
    FacetedSearch,
    KnowledgeSearch,
    SearchDefaults,
    Shape,
    build_arguments,
    choose_sources,
    permitted_sources,
    search_defaults,
    set_filters,
    with_session_defaults,
)
from aggregator.facets import FacetedResponse, Facets, count_facets
from aggregator.fanout import LONGER_PASSAGE, Breaker, Fanout, SearchQueue
from aggregator.libraries import choose_libraries, split_library
from aggregator.ranking import (
    MergedRanking,
    PageSelection,
    Ranking,
    RenderedResult,
    RerankedRanking,
    content_of,
    encode,
    fill_page,
    select_page,
)
from auth.context import LibraryAccess, Principal, RequestContext
from config.errors import InvalidParams, Overloaded, SearchFailed, StorageError, Unavailable
from config.numbers import clamp
from config.settings import Settings
from sessions.state import NOTHING_SEEN, SessionHandle, SessionState, SessionStates, handle_for
from sources.installed import ITEM_KINDS
from sources.items import Loc, ResultItem, local_time
from sources.library_source import LongerSnippet
from sources.query import ParsedQuery, Term, parse_literal
from sources.records import SemanticStatus, combine_statuses
from sources.search.arguments import (
    LIMIT_MAX,
    OFFSET_MAX,
    OWN_LIBRARY,
    SEVERAL_SOURCES,
    WITHOUT_TOTALS,
    matches_nothing,
    read_query,
    resolve_times,
)
from sources.search.scoring import QueryBoosts
from sources.semantic.endpoint import Reranker
from sources.semantic.named_models import NO_MODEL
from sources.semantic.service import configured_model
from sources.source import RankedHit, Source
from sources.storage.contract import ItemFilter, Libraries, Library, QueueState, Search

_decode_item = msgspec.json.Decoder(contract.KnowledgeItem).decode
# `error`: the caller's mistake, such as an unknown session, a cancelled call, or an unexpected exception.
SearchOutcome = Literal["complete", "partial", "refused", "failed", "error"]
# A page that a model gets without asking for a size: a handful of results that each show a passage. More results would
# cost more than a second page, which is rarely read.
DEFAULT_LIMIT = 8
# tldw's default, for clients that read every field of its results.
COMPLETE_LIMIT = 20
# How many passages of an item a result shows in addition to the best one, unless they score far below it.
FURTHER_PASSAGES = 2
_FURTHER_SCORE_SHARE = 1 / 3
# Libraries that one search covers. Each is as much work as a search of its own.
LIBRARIES_MAX = 20
OWN_LIBRARY_ONLY = (None,)
# The topic comes from this many earlier queries and has at most this many terms; each is searched in every hit shown.
TOPIC_QUERIES_MAX = 3
TOPIC_TERMS_MAX = 6
# Of a search without results, so many tags are looked up.
TAGS_CHECKED_MAX = 3
_PART_DIGITS = 4


class SearchResult(Struct, frozen=True):
    """A response with every field of its results, the same as clients get it, and the defaults of the session and the
    request that applied. Clients that read every field get the first one."""

    response: contract.KnowledgeResponse
    short_response: contract.KnowledgeResponse
    defaults: SearchDefaults


class SearchPlan(Struct, frozen=True, kw_only=True):
    """A search with all defaults applied. Of the libraries, None is the caller's own. `read_as` says how the query was
    read, unless the sources say it."""

    request: KnowledgeSearch
    query: ParsedQuery
    topic: tuple[Term, ...]
    context: RequestContext
    state: SessionState
    sources: Mapping[str, Source]
    arguments: Mapping[str, Any]
    libraries: Sequence[LibraryAccess | None]
    read_as: str | None
    limit: int
    offset: int
    order: Literal["relevance", "recent"]
    dedupe: Dedupe
    deadline_ms: int
    max_bytes: int
    defaults: SearchDefaults
    has_default_size: bool
    has_all_fields: bool


async def find_session_state(
    session_states: SessionStates, context: RequestContext, session: str | None
) -> SessionState:
    """The state of the session that a call names, else of its connection, else a new one."""
    owner = context.principal.owner()
    if session is not None:
        return await session_states.get(SessionHandle(session), owner)
    if context.session is not None:
        return await session_states.get_or_create(handle_for(context.session), owner)
    return await session_states.create(owner)


async def _unknown_filter(library: Library, plan: SearchPlan) -> str:
    """Says which tag, type or sender of a query without results no item has, or returns an empty text."""
    filters = plan.query.filters
    named = {name.lower() for name in filters.sources}
    sources = [name for name in plan.sources if not named or name in named]
    if not sources:  # `read_as` says so
        return ""
    no_item = f"no item in {', '.join(sources)} has the"
    with suppress(StorageError, Unavailable, TimeoutError):  # the reports of the sources say what failed
        for tag in filters.tags[:TAGS_CHECKED_MAX]:
            where = ItemFilter(tags=(tag,))
            collections = [library.collection(name) for name in sources if name in ITEM_KINDS]
            if not any([await collection.matching_ids(where, 0, 1) for collection in collections]):
                return f"{no_item} tag {tag}"
        if filters.types:
            known = await library.media.types() if "media" in sources else {}
            if not {name.casefold() for name in known}.intersection(map(str.casefold, filters.types)):
                return f"{no_item} type {' or '.join(filters.types)}"
        if filters.senders:
            query = parse_literal("")
            search = Search(query=query, senders=filters.senders, limit=1, deadline_ms=plan.deadline_ms)
            if "chats" not in sources or not (await library.chats.search(search)).matches:
                return f"{no_item} sender {' or '.join(filters.senders)}"
    return ""


class Aggregator:
    """Searches all sources. Between calls it keeps only which sources are failing, and how many searches ended how."""

    def __init__(
        self,
        libraries: Libraries,
        sources: Sequence[Source],
        session_states: SessionStates,
        settings: Settings,
        breaker: Breaker | None = None,
        queue: SearchQueue | None = None,
    ) -> None:
        self._libraries = libraries
        self._sources = {source.name: source for source in sources}
        self._session_states = session_states
        self._settings = settings
        self._breaker = breaker or Breaker(settings)
        self._queue = queue or SearchQueue(settings)
        self._reranker = Reranker(settings) if settings.reranker_url else None
        self.outcomes: Counter[SearchOutcome] = Counter()

    @property
    def queue(self) -> QueueState:
        """The searches that wait for their turn, and those that are running."""
        return self._queue.state()

    @property
    def open_circuits(self) -> Mapping[str, int]:
        """For how many users each failing source is skipped at the moment."""
        return self._breaker.open_circuits()

    def status_of(self, source: str, principal: Principal) -> Literal["healthy", "unhealthy"]:
        """Returns "unhealthy" while the source is skipped for this user after repeated failures."""
        return "unhealthy" if self._breaker.wait_s(principal.user_id, source) > 0 else "healthy"

    async def search(self, context: RequestContext, request: KnowledgeSearch) -> contract.KnowledgeResponse:
        """Searches, as `search_with_defaults` does. The response has every field of its results."""
        return (await self.search_with_defaults(context, request)).response

    async def search_with_defaults(
        self,
        context: RequestContext,
        request: KnowledgeSearch,
        shape: Shape | UnsetType = UNSET,
        compact_extra_bytes: int = 0,
    ) -> SearchResult:
        """Counts how the search ended. Raises Overloaded if the search would have to wait too long, and SearchFailed if
        no source could be searched. In the compact shape, which `shape` or else the defaults ask for, the caller adds
        about `compact_extra_bytes` to each hit of a page, whose size is limited."""
        try:
            async with (
                self._queue.turn(context.user_id, request.deadline_ms),
                self._libraries.library(context) as library,
            ):
                state = await find_session_state(self._session_states, context, request.session)
                plan = self._plan(context, request, state, shape, compact_extra_bytes)
                # First only as typed: whether the query is relaxed depends on all sources.
                is_strict = plan.query.relaxed is not None
                while True:
                    fanout = self._fanout(plan, library, is_strict=is_strict)
                    response, short_response, shown = await self._search(plan, fanout, library)
                    if not fanout.has_answer and fanout.reports:
                        # An empty result would mean that nothing matches.
                        raise fanout.failure()
                    if not is_strict or plan.defaults.strict or fanout.has_hits:
                        break
                    is_strict = False
                note = ""
                if len(plan.libraries) > LIBRARIES_MAX:
                    note = f"searched {LIBRARIES_MAX} of {len(plan.libraries)} libraries; name others with library:"
                elif not shown and not plan.offset and plan.libraries == OWN_LIBRARY_ONLY:
                    note = await _unknown_filter(library, plan)
                if note:
                    read_as = f"{response.read_as}; {note}" if response.read_as else note
                    response, short_response = (
                        replace(response, read_as=read_as),
                        replace(short_response, read_as=read_as),
                    )
                # Marks the hits that were shown and their duplicates as seen, each with its own version.
                seen: dict[str, int] = {}
                for hit in shown:
                    seen[hit.uri] = hit.version or 0
                    seen.update(hit.duplicates)
                query = request.query[: self._settings.fixed.query_max_chars]
                owner = plan.context.principal.owner()
                await self._session_states.record(state.handle, owner, query, seen, plan.defaults.seen_max)
        except Overloaded:
            self.outcomes["refused"] += 1
            raise
        except SearchFailed:
            self.outcomes["failed"] += 1
            raise
        except BaseException:
            self.outcomes["error"] += 1
            raise
        self.outcomes["partial" if contract.failed_reports(response) else "complete"] += 1
        return SearchResult(response, short_response, plan.defaults)

    def _fanout(self, plan: SearchPlan, library: Library, *, is_strict: bool) -> Fanout:
        """With `is_strict` a source reads the query only as typed."""
        context, filters, libraries = plan.context, plan.request.filters, plan.libraries
        # Sources without an `order_by` argument read the order from here.
        config: dict[str, Any] = {**context.config, "order_by": plan.order}
        if is_strict:
            config["strict"] = True
        if is_one_of_several := len(plan.sources) > 1 or len(libraries) > 1:
            config[SEVERAL_SOURCES] = True
        if not plan.request.explain:
            config[WITHOUT_TOTALS] = True
        context = replace(context, config=config)
        others: Sequence[RequestContext] = ()
        if libraries != OWN_LIBRARY_ONLY:
            others = [context.within(access) for access in libraries[:LIBRARIES_MAX] if access is not None]
        return Fanout(
            context,
            library,
            plan.sources,
            plan.arguments,
            self._breaker,
            filtered=[name for name in filters if set_filters(filters, name)] if filters else (),
            depth=self._settings.fixed.fanout_depth * (1 if is_one_of_several else 2),
            deadline_ms=plan.deadline_ms,
            is_own_deadline=plan.deadline_ms < self._settings.fanout_deadline_ms,
            others=others,
            libraries=self._libraries,
            has_own=None in libraries,
        )

    async def _search(
        self, plan: SearchPlan, fanout: Fanout, library: Library
    ) -> tuple[contract.KnowledgeResponse, contract.KnowledgeResponse, list[RankedHit]]:
        """Returns the response with every field, the one that clients get, and the hits that they show."""
        ranking: Ranking
        ranking = merged = MergedRanking(fanout, plan.order, self._settings.fixed.fanout_source_max)
        # A reranker reads prose, so it is not used for queries with operators, or sorted by date.
        if self._reranker is not None and plan.order == "relevance" and plan.query.prose:
            ranking = RerankedRanking(merged, self._reranker, fanout, plan.query.prose, plan.topic)
        # Results have to be merged to be counted, so how far a client can page is limited.
        examined_max = self._settings.fixed.fanout_scan_max
        if plan.offset or ranking is not merged:  # a reranker reads the first hits in any case
            await ranking.skip_to(min(plan.offset, examined_max))
        if plan.offset > examined_max and not ranking.is_finished:
            raise InvalidParams(f"offset: expected at most {examined_max}, got {plan.offset}; narrow the query instead")
        seen = NOTHING_SEEN if plan.dedupe == "off" else plan.state.seen
        selection = await select_page(ranking, seen, plan.dedupe, limit=plan.limit, examined_max=examined_max)
        rendered, score_type = await _render(selection, fanout, plan)
        facets: Facets | None = None
        if isinstance(plan.request, FacetedSearch) and plan.request.facets:
            time_zone = local_time(plan.context, self._settings).tzinfo
            facets = await count_facets(merged, fanout, library, time_zone or UTC)
        # That of all sources with hits, or of all sources if none has any, if they read the query in the same way.
        readings = fanout.readings or {report.read_as or None for report in fanout.reports.values()}
        read_as = (next(iter(readings)) if len(readings) == 1 else None) or plan.read_as
        totals = ranking.source_totals if plan.request.explain else {}
        reports: dict[str, contract.SourceReport] = {}
        libraries: dict[str, dict[str, contract.SourceReport]] = {}
        for name, report in fanout.reports.items():
            by_source, source = reports, name
            if (other := fanout.library_of(name) if fanout.others else None) is not None:
                by_source, source = libraries.setdefault(other.name, {}), split_library(name)[0]
                if source in by_source:  # two libraries have the same name
                    by_source = libraries.setdefault(f"{other.name} ({other.handle})", {})
            # Omits a source's `read_as` if it equals that of the whole response.
            source_reading = UNSET if report.read_as == read_as else report.read_as
            if totals or source_reading is not report.read_as:
                by_source[source] = replace(report, read_as=source_reading, total=totals.get(name, UNSET))
            else:
                by_source[source] = report
        semantic = combine_statuses(fanout.semantic) or UNSET
        # A search that found nothing, and would also have compared meanings, says how to get a model.
        if not rendered and semantic and semantic.status == "off" and self._settings.semantic_model == "auto":
            semantic = SemanticStatus("off", reason=NO_MODEL)
        # With its numbers at their widest, to know how much room is left for the results.
        envelope = contract.KnowledgeResponse(
            results=(),
            has_more=True,
            next_offset=OFFSET_MAX,
            total_estimated=ranking.total,
            read_as=read_as or UNSET,
            semantic=semantic,
            not_reranked=(isinstance(ranking, RerankedRanking) and ranking.problem) or UNSET,
            score_type=score_type,
            session=plan.state.handle,
            session_error=plan.state.error or UNSET,
            sources=reports,
            libraries=libraries,
            suppressed=examined_max,
            exhausted=False,
            cut=True,
            explain=await self._explain(plan, library, ranking, fanout) if plan.request.explain else UNSET,
        )
        if facets is not None:
            envelope = FacetedResponse(**asdict(envelope), facets=facets)
        short_envelope = envelope if plan.has_all_fields else contract.without_repetition(envelope)
        room_bytes = plan.max_bytes - len(encode(short_envelope))
        return fill_page((envelope, short_envelope), selection, rendered, room_bytes, ranking.sort)

    def _plan(
        self,
        context: RequestContext,
        request: KnowledgeSearch,
        state: SessionState,
        shape: Shape | UnsetType,
        compact_extra_bytes: int,
    ) -> SearchPlan:
        if state.defaults:
            context = with_session_defaults(context, state.defaults)
        defaults, settings = search_defaults(context), self._settings
        order = request.order_by or defaults.order_by or "relevance"
        sizes = (request.limit, request.snippet_length, defaults.snippet_length)
        has_all_fields = defaults.hit_fields == "all"
        has_default_size = sizes == (None, None, None) and not request.explain and not has_all_fields
        max_bytes = settings.search_response_max_bytes
        if has_default_size:
            max_bytes = min(settings.fixed.search_response_default_bytes, max_bytes)
        default_limit = COMPLETE_LIMIT if has_all_fields else DEFAULT_LIMIT
        limit = clamp(default_limit if request.limit is None else request.limit, 1, LIMIT_MAX)
        deadline_ms = settings.fanout_deadline_ms if request.deadline_ms is None else request.deadline_ms
        # Even if the query mentions no time, this rejects an unknown time zone once, instead of in every source.
        now, query = local_time(context, settings), read_query(request.query, settings)
        if query.mentions:
            query = resolve_times(query, now)
        if query.expression is None and query.filters.restricts_items:  # without words, all hits are equally relevant
            order = "recent"
        # The terms of the session's latest queries that this query does not have, latest first.
        terms: dict[str, Term] = {}
        for text in reversed(state.queries[-TOPIC_QUERIES_MAX:]):
            for term in read_query(text, settings).terms:
                terms.setdefault(term.word.text.casefold(), term)
        for term in query.terms:
            terms.pop(term.word.text.casefold(), None)
        permitted = permitted_sources(self._sources, context.principal)
        sources, read_as = choose_sources(permitted, request.sources, query)
        libraries: Sequence[LibraryAccess | None] = OWN_LIBRARY_ONLY
        if context.principal.libraries or request.libraries or query.filters.libraries:
            libraries = choose_libraries(context.principal, request.libraries, query.filters.libraries)
            if query.filters.libraries and not libraries:
                known = ", ".join([OWN_LIBRARY, *(access.name for access in context.principal.libraries)])
                read_as = matches_nothing(f"library:{query.filters.libraries[0]}", f"this searches {known}")
        return SearchPlan(
            request=request,
            query=query,
            topic=tuple(terms.values())[:TOPIC_TERMS_MAX],
            context=context,
            state=state,
            sources=sources,
            arguments=build_arguments(request, sources, permitted),
            libraries=libraries,
            read_as=read_as,
            limit=limit,
            offset=clamp(request.offset, 0, OFFSET_MAX),
            order=order,
            dedupe=request.dedupe or defaults.dedupe or settings.dedupe,
            deadline_ms=clamp(deadline_ms, 1, settings.fanout_deadline_ms),
            defaults=defaults,
            has_default_size=has_default_size,
            has_all_fields=has_all_fields,
            max_bytes=max_bytes - (limit * compact_extra_bytes if (shape or defaults.shape) == "compact" else 0),
        )

    async def _explain(
        self, plan: SearchPlan, library: Library, ranking: Ranking, fanout: Fanout
    ) -> contract.Explanation:
        rows: int | None = None
        frequencies: dict[str, int] | None = None
        is_own = len(fanout.others) < len(fanout.sources)
        if is_own and plan.query.expression is not None and self._settings.search_scoring == "comparable":
            with suppress(StorageError, Unavailable, TimeoutError):
                async with asyncio.timeout(plan.deadline_ms / 1000):
                    corpus = await library.corpus(plan.query, plan.deadline_ms)
                words = (" ".join(term.word.alternatives[0].tokens) for term in plan.query.terms)
                rows, frequencies = corpus.rows, dict(zip(words, corpus.frequencies, strict=True))
        model = configured_model(self._settings)
        by_relevance = (
            "rounds of the best hits of each source; diversity decides which of them make a page, and a page is sorted "
            "by score"
        )
        if isinstance(ranking, RerankedRanking):
            by_relevance += f"; {ranking.description}"
        return contract.Explanation(
            order_by=plan.order,
            fusion=by_relevance if plan.order == "relevance" else "one list sorted by last_modified",
            ties="last_modified, then uri",
            topic=tuple(term.word.text for term in plan.topic),
            scoring=self._settings.search_scoring,
            rows=rows,
            rows_with_term=frequencies,
            hits_per_source=fanout.depth,
            semantic_weight=model.weight_for(len(plan.query.terms)) if model is not None else None,
            semantic_floors={
                name: round(floor, _PART_DIGITS) for name, floor in fanout.floors.items() if name not in fanout.others
            }
            or UNSET,
        )


async def _render(
    selection: PageSelection, fanout: Fanout, plan: SearchPlan
) -> tuple[dict[int, RenderedResult], str | UnsetType]:
    """The candidates' results by position, and the score type if they have the same."""
    leads = selection.candidates
    count = FURTHER_PASSAGES * (LONGER_PASSAGE if plan.has_default_size else 1)
    further: dict[int, list[RankedHit]] = {}
    parts: list[RankedHit] = []
    for lead in leads:
        if not lead.parts:
            continue
        # The best other hits of the item. A message that repeats another says nothing new.
        contents = {content_of(lead)}
        own: list[RankedHit] = []
        for hit in lead.parts:
            is_good = hit.score >= lead.score * _FURTHER_SCORE_SHARE and len(own) < count
            if is_good and (content := content_of(hit)) not in contents:
                contents.add(content)
                own.append(hit)
        further[lead.position] = own
        parts += own
    longer: dict[str, LongerSnippet] = {}
    items = await fanout.render(leads, plan.topic, parts, longer if plan.has_default_size else None)
    if len(fanout.own) < len(fanout.sources):
        items = _checked_items([*leads, *parts], items, fanout)
    rendered: dict[int, RenderedResult] = {}
    score_types: set[str | UnsetType] = set()
    for lead in leads:
        if (item := items.get(lead.uri)) is not None:
            others = further.get(lead.position, ())
            access = fanout.library_of(lead.stream) if lead.stream else None
            rendered[lead.position] = _result(item, lead, others, items, access, longer.get(lead.uri), plan)
            score_types.add(item.score_type)
    return rendered, score_types.pop() if len(score_types) == 1 else UNSET


def _checked_items(hits: Sequence[RankedHit], items: Mapping[str, ResultItem], fanout: Fanout) -> dict[str, ResultItem]:
    """What the sources rendered, by URI. That of a third-party source is decoded from its JSON, which checks the types:
    constructing a Struct does not."""
    checked: dict[str, ResultItem] = {}
    for hit in hits:
        item = items.get(hit.uri)
        if item is None:
            continue
        if (hit.stream or hit.source) in fanout.own:
            checked[hit.uri] = item
            continue
        try:
            decoded = _decode_item(encode(item))
            if decoded.source != hit.source:
                raise ValueError(f"source: expected {hit.source!r}, got {decoded.source!r}")
            checked[hit.uri] = decoded
        except (TypeError, ValueError, AttributeError) as error:
            fanout.reject(hit.source, str(error))
    return checked


def _result(
    item: ResultItem,
    lead: RankedHit,
    others: Sequence[RankedHit],
    items: Mapping[str, ResultItem],
    access: LibraryAccess | None,
    longer: LongerSnippet | None,
    plan: SearchPlan,
) -> RenderedResult:
    """The result of an item: its best hit, and some of the others as further passages in the order of the item. With a
    longer snippet of the best hit, also the result that shows it and all of the others."""
    more = len(lead.parts) + (item.more_in_item or 0)
    # The places of the passages, their order by score, and the passages.
    placed: list[tuple[tuple[int, int], int, contract.FurtherPassage]] = []
    shown = [lead]
    for hit in others:
        if (part := items.get(hit.uri)) is not None:
            place, passage = _passage(part)
            placed.append((place, len(placed), passage))
            shown.append(hit)
    passages: tuple[contract.FurtherPassage, ...] | UnsetType = UNSET
    all_passages: tuple[contract.FurtherPassage, ...] | UnsetType = UNSET
    count = min(len(placed), FURTHER_PASSAGES)
    if placed:
        placed.sort()
        all_passages = tuple([passage for *_, passage in placed])
        passages = tuple([passage for _, number, passage in placed if number < count])
    fields = asdict(item)
    fields.update(
        # If nothing but the title matches, there may be no other text.
        snippet=item.snippet or item.title or item.uri,
        via="meaning" if lead.cosine is not None and not lead.lexical else item.via,
        highlights=UNSET,
        passages=passages,
        more_in_item=more - count or UNSET,
        also_in=tuple(lead.duplicates) or UNSET,
        explain=_explain_hit(item, lead, plan) if plan.request.explain else UNSET,
    )
    if access is not None:
        fields["library"] = access.name
    full = contract.KnowledgeItem(**fields)
    short = full if plan.has_all_fields else contract.item_without_repetition(full)
    result = RenderedResult(full, short, tuple(shown[: count + 1]), len(encode(short)) + 1)
    # Without more text or more passages, the longer form is the same.
    if longer is None or (longer == (item.snippet, item.loc) and len(placed) == count):
        return result
    snippet, loc = longer
    changes = {
        "snippet": snippet or item.title or item.uri,
        "passages": all_passages,
        "more_in_item": more - len(placed) or UNSET,
    }
    full = replace(full, loc=loc, **changes)
    short = replace(short, loc=contract.position_in(item.uri, loc), **changes)
    return replace(result, longer=RenderedResult(full, short, tuple(shown), len(encode(short)) + 1))


def _passage(item: ResultItem) -> tuple[tuple[int, int], contract.FurtherPassage]:
    """The place of a further passage in its item, and the passage. The index of a message is a shorter way to name it
    than its URI."""
    loc = item.loc or Loc()
    part = loc.message_index if loc.message_index is not None else loc.chunk_index
    if loc.message_index is not None:
        shown_loc: Loc | None = Loc(message_index=loc.message_index, approx_offset=loc.approx_offset)
    else:
        shown_loc = contract.position_in(item.uri, item.loc)
    created_at = contract.to_minute(item.created_at or None)
    passage = contract.FurtherPassage(
        snippet=item.snippet or "", loc=shown_loc, sender=item.sender, created_at=created_at
    )
    return (part or 0, loc.approx_offset or 0), passage


def _explain_hit(item: ResultItem, hit: RankedHit, plan: SearchPlan) -> contract.HitExplanation:
    ranges = item.highlights if item.highlights is not UNSET else ()
    text = item.snippet or ""
    boosts = QueryBoosts(plan.query.times, plan.query.own_terms)
    moment = item.created_at or ""
    if item.sender:
        moment = boosts.time.moment(moment, text)
    return contract.HitExplanation(
        position=hit.position,
        rank_in_source=hit.rank,
        bm25=hit.bm25,
        terms=tuple(dict.fromkeys(text[start:end].casefold() for start, end in ranges)),
        seen_before=plan.state.seen.has(hit.uri, hit.version or 0),
        time_boost=boosts.time.factor(moment) if plan.query.times else UNSET,
        sender_boost=by_sender if (by_sender := boosts.sender.factor(item.sender or "")) > 1 else UNSET,
        message_boosts={name: round(factor, _PART_DIGITS) for name, factor in hit.boosts.items()} or UNSET,
        lexical=UNSET if hit.lexical is None else round(hit.lexical, _PART_DIGITS),
        semantic=UNSET if hit.cosine is None else round(max(0.0, hit.cosine), _PART_DIGITS),
    )
