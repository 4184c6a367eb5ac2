"""The source `media`: long texts in stored chunks; transcripts have timestamps."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from config.numbers import clamp
from sources import source
from sources.items import Anchor, GetResponse, Loc, ResultItem, local_time, request_defaults, uri_of
from sources.library_source import LibrarySource, ToolText
from sources.reading.cursors import START, Position, read_cursor, write_cursor
from sources.reading.documents import (
    AnchorPosition,
    chunk_passages,
    content_budget,
    item_meta,
    passage_index_at,
    read_passages,
    read_rest,
    read_snippet,
)
from sources.reading.retrieval import ItemPassage, RetrievalPlan, plan_retrieval
from sources.records import Hit, ListPage, MediaChunk, MediaItem, Segment
from sources.search import arguments
from sources.search.snippets import Highlighter, Snippet
from sources.storage.contract import Library, Search
from sources.text.chunking import run_text_work
from sources.text.token_estimates import TokenScale
from sources.text.transcripts import TranscriptFormat, TranscriptPage, render_transcript

_TYPES_URI = "media://types"
# What a user interface can offer before there are items of every type. Any other text is a valid type too.
_SUGGESTED_TYPES = (
    *("video", "audio", "podcast", "transcript", "pdf", "epub", "docx", "pptx"),
    *("html", "markdown", "txt", "image", "article"),
)
# A cut moves to a word boundary nearby, so a little more text than fits is fetched.
_LOOKAHEAD_CHARS = 256
# The smallest page of a transcript, so that it contains at least part of a segment.
_TRANSCRIPT_MIN_CHARS = 128
_LONGEST_CURSOR = "x" * 64


class MediaSearch(arguments.SearchArguments, frozen=True, kw_only=True):
    media_types: Annotated[tuple[str, ...], Meta(description="For example video, audio, pdf; see media://types.")] = ()
    date_from: Annotated[str | None, Meta(description="Created from this date or time on: 2026-11, yesterday, 7d.")] = (
        None
    )
    date_to: Annotated[str | None, Meta(description="Created up to this date (inclusive) or time.")] = None
    order_by: Annotated[Literal["relevance", "recent"] | None, Meta(description="Default relevance.")] = None


class MediaGet(source.SourceGetArguments, frozen=True, kw_only=True):
    media_id: Annotated[int | str | None, Meta(description="id of a hit, or a uuid.")] = None


class MediaTranscript(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    media_id: Annotated[int | str | None, Meta(description="id of a hit, or a uuid.")] = None
    format: Annotated[TranscriptFormat, Meta(description="Default text.")] = "text"
    include_timestamps: Annotated[bool | None, Meta(description="For text and json; default only json.")] = None
    from_seconds: Annotated[float | None, Meta(description="Start of the part to read.")] = None
    to_seconds: Annotated[float | None, Meta(description="End of the part to read.")] = None
    max_tokens: Annotated[int | None, Meta(description="Budget of the response.")] = None
    cursor: Annotated[str | None, Meta(description="next_cursor of a response.")] = None
    uri: source.UriArgument = None


class TranscriptResponse(Struct, frozen=True, kw_only=True):
    content: str | dict[str, Any]
    next_cursor: Annotated[str | None, Meta(description="Pass as cursor to continue.")] = None


class MediaSource(LibrarySource):
    name = "media"
    title = "Media"
    mime_type = "text/plain"
    search_input = MediaSearch
    get_input = MediaGet
    id_argument = "media_id"
    search_tool = ToolText(
        "Search media",
        "Search the texts and transcripts of the user's media; one hit per item, at its best passage, with its "
        'time in a transcript. Example: {"query": "battery chemistry", "media_types": ["video"]}',
    )
    get_tool = ToolText(
        "Read a media item",
        "Read a media item's text: a snippet, the passage at loc or query with its neighbours, or all of "
        'it. Example: {"media_id": 12, "loc": {"chunk_index": 7}, '
        '"retrieval": {"mode": "chunk_with_siblings"}}',
    )

    @property
    def tools(self) -> Sequence[source.SourceTool]:
        return (
            *super().tools,
            source.SourceTool(
                name="media_transcript",
                title="Read a transcript",
                description=(
                    "Read a media item's transcript, or the part between two times, as text, srt, vtt or json. "
                    'Example: {"media_id": 12, "from_seconds": 60, "to_seconds": 120}'
                ),
                input=MediaTranscript,
                output=TranscriptResponse,
            ),
        )

    @property
    def resources(self) -> Sequence[source.SourceResource]:
        return (
            source.SourceResource(
                uri=_TYPES_URI,
                name="media-types",
                title="Media types",
                description="The types of the user's media with their number of items, and types to suggest.",
                mime_type="application/json",
            ),
        )

    async def call_tool(self, context: RequestContext, library: Library, name: str, args: Any) -> Any:
        if isinstance(args, MediaTranscript):
            return await self.read_transcript(context, library, args)
        return await super().call_tool(context, library, name, args)

    async def read_resource(
        self, context: RequestContext, library: Library, uri: str, variables: Mapping[str, str]
    ) -> str:
        if uri != _TYPES_URI:
            raise NotFound("resource", uri)
        types = [{"media_type": name, "count": count} for name, count in (await library.media.types()).items()]
        return msgspec.json.encode({"types": types, "suggested": _SUGGESTED_TYPES}).decode()

    async def search(self, context: RequestContext, library: Library, args: MediaSearch) -> source.SourceHits:
        date_from = date_to = None
        if args.date_from is not None or args.date_to is not None:
            now = local_time(context, self._settings)
            date_from = arguments.parse_time_bound("date_from", args.date_from, now)
            date_to = arguments.parse_time_bound("date_to", args.date_to, now, is_end=True)
        query = arguments.build_query(
            self.name,
            args,
            context,
            self._settings,
            supported_filters=("type",),
            order=args.order_by,
            media_types=args.media_types,
            date_from=date_from,
            date_to=date_to,
        )
        return await self.find_hits(library.collection(self.name), query)

    def snippet_and_loc(self, hit: Hit, query: arguments.SourceQuery, highlighter: Highlighter) -> tuple[Snippet, Loc]:
        snippet = highlighter.snippet(hit.text, query.snippet_chars, hit.passage)
        return snippet, _loc(int(hit.id), hit.chunk_index, hit.chunk_uuid, hit.start_ms)

    def cost_tokens(self, hit: Hit, scale: TokenScale) -> int | UnsetType:
        return UNSET if hit.text_weight is None else scale.tokens_of(hit.text_weight, hit.item_chars)

    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: source.GetArguments
    ) -> GetResponse:
        item = await find_media(library, item_id)
        loc = args.parsed_loc
        plan = plan_retrieval(args.retrieval, request_defaults(context.config), self._settings)
        weight = item.text_weight
        cost_tokens = UNSET if weight is None else plan.scale.tokens_of(weight, item.length_chars)
        fields = {"media_type": item.media_type, "url": item.url or None}
        meta = item_meta(self.name, item, item.id, item.title, cost_tokens, **fields)
        if args.cursor is not None:
            position = read_cursor(args.cursor, meta.uri, item.version)
            # A cursor continues a text, whatever the mode.
            return await _read_from(library, item, meta, structs.replace(plan, mode="full"), position.offset, "cursor")
        if plan.mode == "full":
            return await _read_from(library, item, meta, plan, 0, "beginning")
        return await self._read_passage(library, item, meta, plan, loc, args.query)

    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[source.ItemEntry]:
        return source.entry_page(self.name, await library.media.list(limit, offset), lambda item: item.title)

    async def _read_passage(
        self,
        library: Library,
        item: MediaItem,
        meta: ResultItem,
        plan: RetrievalPlan,
        loc: Loc | None,
        query: str | None,
    ) -> GetResponse:
        highlighter = Highlighter(arguments.read_query(query or "", self._settings).terms)
        chunk, anchor = await self._anchor(library, item, loc, query, highlighter)
        meta = structs.replace(meta, loc=_loc(item.id, chunk.index, chunk.uuid, chunk.start_ms))
        if plan.mode == "snippet":
            in_chunk = structs.replace(anchor, offset=anchor.offset - chunk.start)
            return await run_text_work(len(chunk.text), read_snippet, chunk.text, meta, plan, in_chunk, highlighter)
        if not plan.prefer_prechunked:
            # The text around the anchor is split into chunks of the requested size.
            reach = (plan.window + 2) * plan.chunk_chars
            base = max(0, anchor.offset - reach)
            text = await library.media.content(item.id, base, 2 * reach)

            def read() -> GetResponse:
                passages = chunk_passages(text, plan, base)
                index = passage_index_at(passages, anchor.offset)
                return read_passages(passages, index, item.length_chars, meta, plan, anchor)

            return await run_text_work(len(text), read)
        window = plan.window if plan.mode == "chunk_with_siblings" else 0
        first = max(0, chunk.index - window)
        run = await library.media.chunks(item.id, first, chunk.index - first + window + 1)
        passages = [_passage(chunk, has_attachment=plan.attachments) for chunk in run]
        chars = sum(len(chunk.text) for chunk in run)
        index = chunk.index - first
        return await run_text_work(chars, read_passages, passages, index, item.length_chars, meta, plan, anchor)

    async def _anchor(
        self, library: Library, item: MediaItem, loc: Loc | None, query: str | None, highlighter: Highlighter
    ) -> tuple[MediaChunk, AnchorPosition]:
        """The chunk to read, and the position of interest in the item's text."""
        if loc is not None and (chunk := await _chunk_at_loc(library, item, loc)) is not None:
            offset = loc.approx_offset if loc.approx_offset is not None else chunk.start
            return chunk, AnchorPosition(clamp(offset, chunk.start, item.length_chars), "loc")
        parsed = arguments.read_query(query or "", self._settings)
        if parsed.expression is not None:
            search = Search(query=parsed, limit=1, within=item.id, deadline_ms=self._settings.search_deadline_ms)
            hits = (await library.media.search(search)).hits
            if hits:
                best = await _get_chunk(library, item, hits[0].chunk_index or 0)
                return best, AnchorPosition(best.start + (arguments.locate_match(highlighter, best.text) or 0), "query")
        return await _get_chunk(library, item, 0), AnchorPosition(0, "beginning")

    async def read_transcript(
        self, context: RequestContext, library: Library, args: MediaTranscript
    ) -> TranscriptResponse:
        media_id = source.whole_item_id(self.name, self.id_argument, args.media_id, args.uri)
        item = await find_media(library, media_id)
        if not item.has_transcript:
            raise NotFound("transcript of media", str(media_id))
        from_ms = _milliseconds("from_seconds", args.from_seconds)
        to_ms = _milliseconds("to_seconds", args.to_seconds)
        # A cursor counts the segments between two times, so it is valid only for the same times.
        cursor_uri = f"{uri_of(self.name, item.id)}/transcript?{from_ms}-{to_ms}"
        start = read_cursor(args.cursor, cursor_uri, item.version) if args.cursor is not None else START
        segments = await library.media.segments(item.id, from_ms, to_ms)
        chars = sum(len(segment.text) for segment in segments)
        page = await run_text_work(chars, self._transcript_page, args, segments, start)
        cursor = write_cursor(cursor_uri, item.version, page.next) if page.next is not None else None
        context.record_read(uri_of(self.name, item.id))
        return TranscriptResponse(content=page.content, next_cursor=cursor)

    def _transcript_page(self, args: MediaTranscript, segments: Sequence[Segment], start: Position) -> TranscriptPage:
        """As much as fits the budget. The cost is known only after rendering, so the page is rendered again with less
        room until it fits."""
        limit, scale = self._settings.retrieval_max_tokens, TokenScale()
        budget = scale.budget(limit if args.max_tokens is None else clamp(args.max_tokens, 1, limit))
        # The subtitle formats are nothing without times; of the others, only JSON has them unless they are requested.
        if args.format in ("srt", "vtt") and args.include_timestamps is False:
            raise InvalidParams(f"include_timestamps: expected true or null with {args.format}, got false")
        timestamps = args.format == "json" if args.include_timestamps is None else args.include_timestamps
        room = max(_TRANSCRIPT_MIN_CHARS, scale.max_chars(budget))
        while True:
            page = render_transcript(segments, args.format, timestamps=timestamps, room=room, start=start)
            weight = scale.weigh_json(TranscriptResponse(content=page.content, next_cursor=_LONGEST_CURSOR))
            if weight <= budget or room == _TRANSCRIPT_MIN_CHARS:
                return page
            # At least 3 % less each time, so that it ends even if the weight hardly changes.
            room = max(_TRANSCRIPT_MIN_CHARS, int(room * min(0.97, budget / weight)))


async def find_media(library: Library, item_id: str | int) -> MediaItem:
    number = source.numeric_id(item_id)
    return await (library.media.get(number) if number is not None else library.media.get_by_uuid(str(item_id)))


async def _read_from(
    library: Library, item: MediaItem, meta: ResultItem, plan: RetrievalPlan, offset: int, by: Anchor
) -> GetResponse:
    # Only what the budget can hold is read from the library.
    text = await library.media.content(item.id, offset, content_budget(meta, plan).max_chars + _LOOKAHEAD_CHARS)
    rest = ItemPassage(0, text, offset)
    return await run_text_work(len(text), read_rest, rest, item.length_chars, meta, plan, by)


async def _chunk_at_loc(library: Library, item: MediaItem, loc: Loc) -> MediaChunk | None:
    """The chunk at a loc: by uuid, else by index, offset or time; None if it has none of them."""
    if loc.chunk_uuid is not None:
        return await library.media.chunk_by_uuid(item.id, loc.chunk_uuid)
    if loc.chunk_index is not None:
        return await _get_chunk(library, item, loc.chunk_index)
    if loc.approx_offset is not None:
        return await library.media.chunk_at(item.id, clamp(loc.approx_offset, 0, item.length_chars))
    milliseconds = loc.start_ms if loc.start_ms is not None else _milliseconds("loc.seconds", loc.seconds)
    return await _chunk_at_time(library, item, milliseconds) if milliseconds is not None else None


async def _get_chunk(library: Library, item: MediaItem, index: int) -> MediaChunk:
    chunks = await library.media.chunks(item.id, index, 1) if index >= 0 else ()
    if not chunks:
        raise InvalidParams(f"loc.chunk_index: expected 0 to {item.chunk_count - 1}, got {index}")
    return chunks[0]


async def _chunk_at_time(library: Library, item: MediaItem, milliseconds: int) -> MediaChunk:
    """The last chunk that starts at or before a time. Chunks of a transcript are ordered by time, so a binary search
    reads only about a dozen of thousands."""
    if not item.has_transcript:
        raise InvalidParams("loc.seconds: expected a position other than a time, because this item has no transcript")
    low, high = 0, item.chunk_count - 1
    while low < high:
        middle = (low + high + 1) // 2
        chunk = await _get_chunk(library, item, middle)
        low, high = (middle, high) if (chunk.start_ms or 0) <= milliseconds else (low, middle - 1)
    return await _get_chunk(library, item, low)


def _passage(chunk: MediaChunk, *, has_attachment: bool) -> ItemPassage:
    # Chunks of importers are not always part of the item's text; then the passage has no offset.
    is_part = chunk.end - chunk.start == len(chunk.text)
    attachment: dict[str, Any] = {"chunk_index": chunk.index}
    if chunk.start_ms is not None:
        attachment |= {"start_ms": chunk.start_ms, "end_ms": chunk.end_ms}
    if chunk.speaker:
        attachment["speaker"] = chunk.speaker
    start = chunk.start if is_part else None
    return ItemPassage(chunk.index, chunk.text, start, attachment if has_attachment else None)


def _loc(media_id: int, index: int | None, uuid: str | None, start_ms: int | None) -> Loc:
    seconds = start_ms / 1000 if start_ms is not None else None
    return Loc(media_id=media_id, chunk_index=index, chunk_uuid=uuid, start_ms=start_ms, seconds=seconds)


def _milliseconds(argument: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not 0 <= seconds * 1000 < math.inf:
        raise InvalidParams(f"{argument}: expected seconds from the start, 0 or more, got {seconds}")
    return int(seconds * 1000)
