"""The source `media`: long texts in stored chunks, some of them spoken, with the times of what was said."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from config.numbers import clamp
from sources.items import Anchor, GetResponse, Loc, ResultItem, uri_of
from sources.library_source import LibrarySource, Wording
from sources.preferences import preferences_of
from sources.reading.cursors import START, Position, read_cursor, write_cursor
from sources.reading.documents import Anchored, chunk_passages, passage_at, read_on, read_passages, read_snippet
from sources.reading.responses import content_room, meta_of
from sources.reading.retrieval import Passage, Plan, make_plan
from sources.records import Hit, ListPage, MediaChunk, MediaItem, Segment
from sources.search.arguments import (
    Narrowing,
    Question,
    SearchArguments,
    find_matches,
    locate,
    moment,
    read_query,
    read_question,
    result_item,
)
from sources.search.snippets import Highlighter
from sources.source import Entry, Matches, Reading, SourceResource, SourceTool, entry_page, number_of
from sources.storage.contract import Library, Search
from sources.text.token_estimates import TokenScale
from sources.text.transcripts import TranscriptFormat, TranscriptPage, render_transcript

# Beyond a cut its border is looked for, so a little more than fits is fetched.
_LOOKAHEAD_CHARS = 256
# How much of a text is read to tell what all of it costs.
_SAMPLE_CHARS = 2000
# The least room for a transcript, so that a page has something of a segment.
_TRANSCRIPT_MIN_CHARS = 128
_LONGEST_CURSOR = "x" * 64


class MediaSearch(SearchArguments, frozen=True, kw_only=True):
    media_types: Annotated[tuple[str, ...], Meta(description="Such as video, audio, pdf; see media://types.")] = ()
    date_from: Annotated[str | None, Meta(description="ISO 8601 date or time of creation.")] = None
    date_to: Annotated[str | None, Meta(description="The same; a date includes its whole day.")] = None
    order_by: Annotated[Literal["relevance", "recent"] | None, Meta(description="Default relevance.")] = None


class MediaGet(Reading, frozen=True, kw_only=True):
    media_id: Annotated[int | str, Meta(description="id of a hit, or a uuid.")]


class MediaTranscript(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    media_id: Annotated[int | str, Meta(description="id of a hit, or a uuid.")]
    format: Annotated[TranscriptFormat, Meta(description="Default text.")] = "text"
    include_timestamps: Annotated[bool | None, Meta(description="In text and json; default json only.")] = None
    from_seconds: Annotated[float | None, Meta(description="Where the wanted part begins.")] = None
    to_seconds: Annotated[float | None, Meta(description="Where it ends.")] = None
    max_tokens: Annotated[int | None, Meta(description="Budget of the answer.")] = None
    cursor: Annotated[str | None, Meta(description="next_cursor of an earlier answer.")] = None


class TranscriptResponse(Struct, frozen=True, kw_only=True):
    content: str | dict[str, Any]
    next_cursor: Annotated[str | None, Meta(description="Pass as cursor to read on.")] = None


class MediaSource(LibrarySource):
    name = "media"
    title = "Media"
    mime_type = "text/plain"
    search_input = MediaSearch
    get_input = MediaGet
    names_item = "media_id"
    searching = Wording(
        "Search media",
        "Search the texts and transcripts of the user's media; one hit per item, at its best passage, with "
        'the second it is spoken. Example: {"query": "battery chemistry", "media_types": ["video"]}',
    )
    reading = Wording(
        "Read a media item",
        "Read a media item's text: a snippet, the passage at loc or query with its neighbours, or all of "
        'it. Example: {"media_id": 12, "loc": {"chunk_index": 7}, '
        '"retrieval": {"mode": "chunk_with_siblings"}}',
    )

    @property
    def tools(self) -> Sequence[SourceTool]:
        return (
            *super().tools,
            SourceTool(
                name="media_transcript",
                title="Read a transcript",
                description=(
                    "A media item's transcript, or the part between two seconds, as text, srt, vtt or json. "
                    'Example: {"media_id": 12, "from_seconds": 60, "to_seconds": 120}'
                ),
                input=MediaTranscript,
                output=TranscriptResponse,
                run=self.transcript,
            ),
        )

    @property
    def resources(self) -> Sequence[SourceResource]:
        return (
            SourceResource(
                uri="media://types",
                name="media-types",
                title="Media types",
                description="The types of the user's media, and how many items there are of each.",
                mime_type="application/json",
                read=_read_types,
            ),
        )

    async def search(self, context: RequestContext, library: Library, asked: MediaSearch) -> Matches:
        query = read_query(asked.query, self._settings)
        narrowing = Narrowing(
            obeys=frozenset(["type"]),
            order=asked.order_by,
            media_types=asked.media_types,
            date_from=moment("date_from", asked.date_from),
            date_to=moment("date_to", asked.date_to, is_end=True),
        )
        question = read_question(self.name, asked, query, context, self._settings, narrowing)
        return await find_matches(library.media, question, _uri, _item)

    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse:
        item = await _find(library, identity)
        loc = reading.place
        plan = make_plan(reading.retrieval, preferences_of(context.config), self._settings)
        particular = {"media_type": item.media_type, "url": item.url or None}
        begin = await library.media.content(item.id, 0, _SAMPLE_CHARS)
        cost_tokens = plan.scale.estimate_tokens(begin, item.length_chars)
        meta = meta_of(self.name, item, item.id, item.title, cost_tokens, **particular)
        if reading.cursor is not None:
            position = read_cursor(reading.cursor, meta.uri, item.version)
            return await _read_on(library, item, meta, replace(plan, mode="full"), position.offset, "cursor")
        if plan.mode == "full":
            return await _read_on(library, item, meta, plan, 0, "beginning")
        return await self._read_passage(library, item, meta, plan, loc, reading.query)

    async def _read_passage(
        self,
        library: Library,
        item: MediaItem,
        meta: ResultItem,
        plan: Plan,
        loc: Loc | None,
        query: str | None,
    ) -> GetResponse:
        highlighter = Highlighter(read_query(query or "", self._settings).terms)
        chunk, at = await self._anchor(library, item, loc, query, highlighter)
        meta = replace(meta, loc=_loc(item.id, chunk.index, chunk.uuid, chunk.start_ms))
        if plan.mode == "snippet":
            return read_snippet(chunk.text, meta, plan, replace(at, offset=at.offset - chunk.start), highlighter)
        if not plan.prefer_prechunked:
            return await _read_fresh_chunks(library, item, meta, plan, at)
        window = plan.window if plan.mode == "chunk_with_siblings" else 0
        first = max(0, chunk.index - window)
        run = await library.media.chunks(item.id, first, chunk.index - first + window + 1)
        return read_passages([_passage(c) for c in run], chunk.index - first, item.length_chars, meta, plan, at)

    async def _anchor(
        self, library: Library, item: MediaItem, loc: Loc | None, query: str | None, highlighter: Highlighter
    ) -> tuple[MediaChunk, Anchored]:
        """The chunk to read, and the character in the item's text to read it for."""
        if loc is not None and (chunk := await _chunk_of(library, item, loc)) is not None:
            offset = loc.approx_offset if loc.approx_offset is not None else chunk.start
            return chunk, Anchored(clamp(offset, chunk.start, item.length_chars), "loc")
        if query and (found := await self._best_chunk(library, item, query)) is not None:
            return found, Anchored(found.start + (locate(highlighter, found.text) or 0), "query")
        return await _chunk_number(library, item, 0), Anchored(0, "beginning")

    async def _best_chunk(self, library: Library, item: MediaItem, query: str) -> MediaChunk | None:
        parsed = read_query(query, self._settings)
        if parsed.expression is None:
            return None
        search = Search(query=parsed, limit=1, within=item.id, deadline_ms=self._settings.search_deadline_ms)
        hits = (await library.media.search(search)).hits
        return await _chunk_number(library, item, hits[0].chunk_index or 0) if hits else None

    async def transcript(self, context: RequestContext, library: Library, asked: MediaTranscript) -> TranscriptResponse:
        item = await _find(library, asked.media_id)
        if not item.has_transcript:
            raise NotFound("transcript of media", str(asked.media_id))
        from_ms, to_ms = (
            _milliseconds("from_seconds", asked.from_seconds),
            _milliseconds("to_seconds", asked.to_seconds),
        )
        # A cursor counts the segments of one window, so it is bound to that window.
        place = f"{uri_of(self.name, item.id)}/transcript?{from_ms}-{to_ms}"
        start = read_cursor(asked.cursor, place, item.version) if asked.cursor is not None else START
        segments = await library.media.segments(item.id, from_ms, to_ms)
        page = self._transcript_page(asked, segments, start)
        cursor = write_cursor(place, item.version, page.next) if page.next is not None else None
        return TranscriptResponse(content=page.content, next_cursor=cursor)

    def _transcript_page(self, asked: MediaTranscript, segments: Sequence[Segment], start: Position) -> TranscriptPage:
        """As much as the budget pays for. What characters weigh shows once they are written, so the page is written
        again, with less room each time, until it fits."""
        limit, scale = self._settings.retrieval_max_tokens, TokenScale()
        budget = scale.budget(limit if asked.max_tokens is None else clamp(asked.max_tokens, 1, limit))
        timestamps, room = _has_timestamps(asked), max(_TRANSCRIPT_MIN_CHARS, scale.max_chars(budget))
        while True:
            page = render_transcript(segments, asked.format, timestamps=timestamps, room=room, start=start)
            weight = scale.weigh_json(TranscriptResponse(content=page.content, next_cursor=_LONGEST_CURSOR))
            if weight <= budget or room == _TRANSCRIPT_MIN_CHARS:
                return page
            room = max(_TRANSCRIPT_MIN_CHARS, int(room * min(0.97, budget / weight)))

    async def entries(self, context: RequestContext, library: Library, limit: int, offset: int) -> ListPage[Entry]:
        return entry_page(self.name, await library.media.list(limit, offset), lambda item: item.title)


async def _find(library: Library, identity: str | int) -> MediaItem:
    number = number_of(identity)
    return await (library.media.get(number) if number is not None else library.media.get_by_uuid(str(identity)))


async def _read_on(
    library: Library, item: MediaItem, meta: ResultItem, plan: Plan, offset: int, by: Anchor
) -> GetResponse:
    text = await library.media.content(item.id, offset, content_room(meta, plan).most_chars + _LOOKAHEAD_CHARS)
    return read_on(Passage(0, text, offset), item.length_chars, meta, plan, by)


async def _read_fresh_chunks(
    library: Library, item: MediaItem, meta: ResultItem, plan: Plan, at: Anchored
) -> GetResponse:
    """Chunks of the asked size, cut from as much of the text around the anchor as they can reach."""
    reach = (plan.window + 2) * plan.chunk_chars
    base = max(0, at.offset - reach)
    passages = chunk_passages(await library.media.content(item.id, base, 2 * reach), plan, base)
    return read_passages(passages, passage_at(passages, at.offset), item.length_chars, meta, plan, at)


async def _chunk_of(library: Library, item: MediaItem, loc: Loc) -> MediaChunk | None:
    """The chunk that a loc means: by uuid, index, offset or time, whichever it names first."""
    if loc.chunk_uuid is not None:
        return await library.media.chunk_by_uuid(item.id, loc.chunk_uuid)
    if loc.chunk_index is not None:
        return await _chunk_number(library, item, loc.chunk_index)
    if loc.approx_offset is not None:
        return await library.media.chunk_at(item.id, clamp(loc.approx_offset, 0, item.length_chars))
    milliseconds = loc.start_ms if loc.start_ms is not None else _milliseconds("loc.seconds", loc.seconds)
    return await _chunk_at_time(library, item, milliseconds) if milliseconds is not None else None


async def _chunk_number(library: Library, item: MediaItem, index: int) -> MediaChunk:
    found = await library.media.chunks(item.id, index, 1) if index >= 0 else ()
    if not found:
        raise InvalidParams(f"loc.chunk_index: got {index}, expected 0 to {item.chunk_count - 1}")
    return found[0]


async def _chunk_at_time(library: Library, item: MediaItem, milliseconds: int) -> MediaChunk:
    """The last chunk that begins by then. Chunks of a transcript are in the order of their times, so a dozen looks
    find one among thousands."""
    if not item.has_transcript:
        raise InvalidParams("loc.seconds: got a time, expected another loc: this item has no transcript")
    low, high = 0, item.chunk_count - 1
    while low < high:
        middle = (low + high + 1) // 2
        chunk = await _chunk_number(library, item, middle)
        low, high = (middle, high) if (chunk.start_ms or 0) <= milliseconds else (low, middle - 1)
    return await _chunk_number(library, item, low)


def _passage(chunk: MediaChunk) -> Passage:
    """An importer's chunk need not be a piece of the text; then it stands alone."""
    about: dict[str, Any] = {"chunk_index": chunk.index}
    if chunk.start_ms is not None:
        about |= {"start_ms": chunk.start_ms, "end_ms": chunk.end_ms}
    if chunk.speaker:
        about["speaker"] = chunk.speaker
    is_piece = chunk.end - chunk.start == len(chunk.text)
    return Passage(chunk.index, chunk.text, chunk.start if is_piece else None, about)


def _uri(hit: Hit) -> str:
    return uri_of("media", hit.id)


def _item(hit: Hit, question: Question, highlighter: Highlighter) -> ResultItem:
    snippet = highlighter.snippet(hit.text, question.snippet_chars)
    loc = _loc(int(hit.id), hit.chunk_index, hit.chunk_uuid, hit.start_ms)
    return result_item("media", hit, question, _uri(hit), snippet, loc)


def _loc(media_id: int, index: int | None, uuid: str | None, start_ms: int | None) -> Loc:
    seconds = start_ms / 1000 if start_ms is not None else None
    return Loc(media_id=media_id, chunk_index=index, chunk_uuid=uuid, start_ms=start_ms, seconds=seconds)


def _milliseconds(argument: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not 0 <= seconds < math.inf:
        raise InvalidParams(f"{argument}: got {seconds}, expected seconds from the beginning, 0 or more")
    return int(seconds * 1000)


def _has_timestamps(asked: MediaTranscript) -> bool:
    if asked.format in ("srt", "vtt") and asked.include_timestamps is False:
        raise InvalidParams(f"include_timestamps: got false, expected true or none: {asked.format} consists of them")
    return asked.format == "json" if asked.include_timestamps is None else asked.include_timestamps


async def _read_types(context: RequestContext, library: Library, variables: Mapping[str, str]) -> str:
    types = [{"media_type": name, "count": count} for name, count in (await library.media.types()).items()]
    return msgspec.json.encode({"types": types}).decode()
