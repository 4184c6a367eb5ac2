"""Finds the items of all sources whose meaning is nearest to that of an item."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from aggregator.fanout import SearchQueue
from aggregator.libraries import LibraryName
from aggregator.retrieval import KnowledgeGet, Retriever
from auth.context import RequestContext
from config.numbers import clamp
from config.settings import Settings
from sources import items
from sources.library_source import LibrarySource
from sources.query import parse_literal
from sources.records import SemanticStatus, combine_statuses
from sources.search.arguments import LIMIT_MAX, OFFSET_MAX, SourceQuery
from sources.source import RankedHit, Source, SourceHits
from sources.storage.contract import Libraries, Library, Search
from sources.storage.shared_part import permitted_sources
from sources.text.chunking import run_text_work, split_into_chunks
from sources.text.token_estimates import TokenScale

# The text of the item that is compared: so many passages, evenly spread over its beginning.
_TEXT_MAX_TOKENS = 20_000
_PASSAGE_CHARS = 900
_PASSAGES_MAX = 8
# Hits of each source that are ranked. The same for every page, so that the order is too.
_DEPTH = 200
# Further hits in chats if the item is a conversation, whose own messages are the nearest.
_OWN_MESSAGES_MAX = 800
_SCORE_TYPE = "cosine"
_NO_MODEL = "no embedding model is configured; set semantic_model"


class ItemsSimilar(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `items_similar`. Numbers out of range are clamped."""

    uri: Annotated[str, Meta(description="uri of a hit.")]
    limit: Annotated[int, Meta(description="Hits per page, 1..100.")] = 10
    offset: Annotated[int, Meta(description="next_offset of the previous page.")] = 0
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000; default 300.")] = None
    library: LibraryName = None


class _SimilarHit(Struct, frozen=True):
    hit: RankedHit
    source: LibrarySource
    query: SourceQuery

    def render(self) -> items.ResultItem:
        return self.source.render_hit(self.hit, self.query, ())


class SimilarItems:
    """Searches the sources whose items are in the library."""

    def __init__(
        self,
        libraries: Libraries,
        sources: Sequence[Source],
        retriever: Retriever,
        settings: Settings,
        queue: SearchQueue,
    ) -> None:
        self._libraries = libraries
        self._sources = [source for source in sources if isinstance(source, LibrarySource)]
        self._retriever = retriever
        self._settings = settings
        self._queue = queue

    async def find(self, context: RequestContext, request: ItemsSimilar) -> items.SearchResponse:
        """Takes turns with the searches of all sources. Raises Overloaded if it would have to wait too long. Finds
        nothing without an embedding model; `semantic` says so."""
        async with self._queue.turn(context.principal.user_id, None):
            # Read as the caller would, so that text which is redacted for an agent does not count.
            retrieval = items.RetrievalOptions(mode="full", max_tokens=_TEXT_MAX_TOKENS)
            # It is not delivered to the caller, so it does not count as read.
            reader = replace(context, read_log=None)
            item = await self._retriever.get(reader, KnowledgeGet(uri=request.uri, retrieval=retrieval))
            passages = await run_text_work(len(item.content), _passages, item)
            ranked: dict[tuple[str, str], _SimilarHit] = {}
            pages: list[SourceHits] = []
            permitted = permitted_sources(context)
            sources = [source for source in self._sources if permitted is None or source.name in permitted]
            async with self._libraries.library(context) as library:
                for passage in passages:
                    defaults = items.request_defaults(context.config)
                    search = Search(
                        # Without terms, so that nothing is highlighted.
                        query=replace(parse_literal(passage), terms=(), read_as=None, prose=passage),
                        limit=_DEPTH,
                        deadline_ms=self._settings.search_deadline_ms,
                        ranking="meaning",
                        is_strict=True,
                    )
                    query = SourceQuery(
                        search=search,
                        terms=(),
                        read_as=None,
                        offset=0,
                        snippet_chars=items.snippet_length(request.snippet_length, defaults, self._settings),
                        scale=TokenScale(items.chars_per_token(None, defaults)),
                        score_type=_SCORE_TYPE,
                    )
                    for source, page in await self._search(library, query, item, sources):
                        pages.append(page)
                        for hit in page.hits:  # the nearest of each item
                            key = _key(hit.source, hit.id)
                            if key not in ranked or hit.score > ranked[key].hit.score:
                                ranked[key] = _SimilarHit(hit, source, page.query)
            ranked.pop(_key(item.meta.source, item.meta.conversation_id or item.meta.id), None)
            is_complete = not any(page.has_more for page in pages)
            hits = list(ranked.values())
            status = _status(pages)
            limit, offset = clamp(request.limit, 1, LIMIT_MAX), clamp(request.offset, 0, OFFSET_MAX)
            hits.sort(key=lambda one: (-one.hit.score, one.hit.uri))
            response_page = hits[offset : offset + limit]
            has_more = len(hits) > offset + limit
            text_chars = sum([one.hit.payload.text_chars for one in response_page])
            results = await run_text_work(text_chars, lambda: tuple([one.render() for one in response_page]))
            return items.SearchResponse(
                results=results,
                has_more=has_more,
                next_offset=offset + limit if has_more else None,
                total_estimated=len(hits) if is_complete else None,
                semantic=status,
            )

    async def _search(
        self, library: Library, query: SourceQuery, item: items.GetResponse, sources: Sequence[LibrarySource]
    ) -> Sequence[tuple[LibrarySource, SourceHits]]:
        async def search(source: LibrarySource) -> SourceHits:
            assert query.search is not None
            is_own_chat = source.name == item.meta.source == "chats"
            limit = _DEPTH + _OWN_MESSAGES_MAX if is_own_chat else _DEPTH
            return await source.find_hits(
                library.collection(source.name), replace(query, search=replace(query.search, limit=limit))
            )

        pages = await asyncio.gather(*(search(source) for source in sources))
        return list(zip(sources, pages, strict=True))


def _passages(item: items.GetResponse) -> list[str]:
    text, title = item.content, (item.meta.title or "").strip()
    chunks = split_into_chunks(text, _PASSAGE_CHARS, 0)
    if len(chunks) > _PASSAGES_MAX:
        chunks = [chunks[number * len(chunks) // _PASSAGES_MAX] for number in range(_PASSAGES_MAX)]
    passages = [f"{title}\n{text[chunk.start : chunk.end]}".strip() for chunk in chunks] or [title]
    return [passage for passage in passages if any(map(str.isalnum, passage))]


def _key(source: str, item_id: str | int) -> tuple[str, str]:
    return source, str(item_id)


def _status(pages: Sequence[SourceHits]) -> SemanticStatus:
    """Says why nothing can be found, if meanings were not compared."""
    status = combine_statuses([(page.semantic, page.texts) for page in pages if page.semantic is not None])
    if status is None:
        return SemanticStatus("not_applicable", reason="the item has no text to compare")
    return replace(status, reason=_NO_MODEL) if status.status == "off" else status
