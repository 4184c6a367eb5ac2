"""The text of a media item and the chunks it is searched by, made from what a draft brings. Pure."""

from collections.abc import Iterator, Sequence
from uuid import uuid4

from msgspec import UNSET, Struct
from msgspec.structs import replace

from sources.drafts import MediaDraft
from sources.records import MediaChunk, Segment
from sources.storage.sqlite.write.validation import Limits, is_storable, line_or_none, refusal, text, uuid
from sources.text.chunking import TextChunk, split_into_chunks
from sources.text.cues import CueGroup, group_cues


class Body(Struct, frozen=True):
    """A text with its chunks, of which there is always one at least, and its timed lines, if it was spoken."""

    content: str
    chunks: tuple[MediaChunk, ...]
    segments: tuple[Segment, ...]


def body_of(draft: MediaDraft, limits: Limits) -> Body | None:
    """The body that a draft brings, or nothing when it leaves the text as it is."""
    segments = () if draft.segments is UNSET else tuple(_clean_segment(limits, one) for one in draft.segments)
    given = () if draft.chunks is UNSET else tuple(_clean_chunk(limits, one) for one in draft.chunks)
    if draft.content is UNSET and not segments and not given:
        return None
    if segments:
        content = "\n".join(segment.text for segment in segments)
    elif draft.content is not UNSET:
        content = draft.content
    else:
        content = "\n".join(one.text for one in given)
        given = _placed(given)
    content = text(limits, "content", content)
    chunks = _numbered(given) if given else _cut(content, segments, limits)
    return Body(content, chunks, segments)


def _cut(content: str, segments: Sequence[Segment], limits: Limits) -> tuple[MediaChunk, ...]:
    if segments:
        return _numbered([one for run in group_cues(segments, limits.chunk_size_chars) for one in _spoken(run, limits)])
    spans = [
        (cut.start, cut.end) for cut in split_into_chunks(content, limits.chunk_size_chars, limits.chunk_overlap_chars)
    ]
    return tuple(
        MediaChunk(index=index, uuid=str(uuid4()), text=content[start:end], start=start, end=end)
        for index, (start, end) in enumerate(spans or [(0, 0)])
    )


def _spoken(run: CueGroup, limits: Limits) -> Iterator[MediaChunk]:
    """One chunk; only a line that is longer than one is cut, into pieces that all have its time."""
    text, size = run.text, limits.chunk_size_chars
    cuts = (
        split_into_chunks(text, size, limits.chunk_overlap_chars) if len(text) > size else [TextChunk(0, 0, len(text))]
    )
    for cut in cuts:
        yield MediaChunk(
            index=0,
            uuid=str(uuid4()),
            text=text[cut.start : cut.end],
            start=run.start + cut.start,
            end=run.start + cut.end,
            start_ms=run.start_ms,
            end_ms=run.end_ms,
            speaker=run.speaker,
        )


def _placed(chunks: Sequence[MediaChunk]) -> tuple[MediaChunk, ...]:
    """Chunks that came without their text stand in it one after the other."""
    placed, start = [], 0
    for one in chunks:
        placed.append(replace(one, start=start, end=start + len(one.text)))
        start += len(one.text) + 1
    return tuple(placed)


def _numbered(chunks: Sequence[MediaChunk]) -> tuple[MediaChunk, ...]:
    return tuple(replace(one, index=index) for index, one in enumerate(chunks))


def _clean_chunk(limits: Limits, one: MediaChunk) -> MediaChunk:
    if not 0 <= one.start <= one.end or not is_storable(one.end):
        raise refusal("chunks", f"characters {one.start} to {one.end}", "0 <= start <= end")
    _require_times("chunks", one.start_ms, one.end_ms)
    return replace(
        one,
        uuid=uuid(limits, "chunks", one.uuid) if one.uuid else str(uuid4()),
        text=text(limits, "chunks", one.text),
        speaker=line_or_none(limits, "chunks", one.speaker),
    )


def _clean_segment(limits: Limits, one: Segment) -> Segment:
    _require_times("segments", one.start_ms, one.end_ms)
    return replace(one, text=text(limits, "segments", one.text), speaker=line_or_none(limits, "segments", one.speaker))


def _require_times(field: str, start_ms: int | None, end_ms: int | None) -> None:
    if start_ms is not None and end_ms is not None and not (0 <= start_ms <= end_ms and is_storable(end_ms)):
        raise refusal(field, f"{start_ms} ms to {end_ms} ms", "0 <= start_ms <= end_ms")
