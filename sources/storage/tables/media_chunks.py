"""Builds the text of a media item and its chunks from a draft. Pure functions."""

from collections.abc import Iterator, Sequence
from uuid import uuid4

from msgspec import UNSET, Struct
from msgspec.structs import replace

from sources.drafts import MediaDraft
from sources.records import MediaChunk, Segment
from sources.storage.tables import validation
from sources.storage.tables.validation import FieldLimits, invalid_field, is_storable
from sources.text.chunking import TextChunk, split_into_chunks
from sources.text.cues import CueGroup, group_cues


class MediaBody(Struct, frozen=True):
    """A text, its chunks (at least one), and its segments if it is a transcript."""

    content: str
    chunks: tuple[MediaChunk, ...]
    segments: tuple[Segment, ...]


def body_of(draft: MediaDraft, limits: FieldLimits) -> MediaBody | None:
    """Returns None if the draft does not set the text."""
    segments = () if draft.segments is UNSET else tuple(_valid_segment(limits, segment) for segment in draft.segments)
    chunks = () if draft.chunks is UNSET else tuple(_valid_chunk(limits, chunk) for chunk in draft.chunks)
    if draft.content is UNSET and not segments and not chunks:
        return None
    if segments:
        content = "\n".join(segment.text for segment in segments)
    elif draft.content is not UNSET:
        content = draft.content
    else:
        content = "\n".join(chunk.text for chunk in chunks)
        chunks = _with_offsets(chunks)
    content = validation.long_text(limits, "content", content)
    return MediaBody(content, _numbered(chunks) if chunks else _split(content, segments, limits), segments)


def _split(content: str, segments: Sequence[Segment], limits: FieldLimits) -> tuple[MediaChunk, ...]:
    if segments:
        groups = group_cues(segments, limits.chunk_size_chars)
        return _numbered([chunk for group in groups for chunk in _transcript_chunks(group, limits)])
    spans = [
        (span.start, span.end)
        for span in split_into_chunks(content, limits.chunk_size_chars, limits.chunk_overlap_chars)
    ]
    return tuple(
        MediaChunk(index=index, uuid=str(uuid4()), text=content[start:end], start=start, end=end)
        for index, (start, end) in enumerate(spans or [(0, 0)])
    )


def _transcript_chunks(group: CueGroup, limits: FieldLimits) -> Iterator[MediaChunk]:
    """Yields one chunk, or several with the same times if a single line is longer than a chunk."""
    text, size = group.text, limits.chunk_size_chars
    spans = [TextChunk(0, 0, len(text))]
    if len(text) > size:
        spans = split_into_chunks(text, size, limits.chunk_overlap_chars)
    for span in spans:
        yield MediaChunk(
            index=0,
            uuid=str(uuid4()),
            text=text[span.start : span.end],
            start=group.start + span.start,
            end=group.start + span.end,
            start_ms=group.start_ms,
            end_ms=group.end_ms,
            speaker=group.speaker,
        )


def _with_offsets(chunks: Sequence[MediaChunk]) -> tuple[MediaChunk, ...]:
    """Sets the offsets of chunks whose text was joined with line breaks."""
    placed, start = [], 0
    for chunk in chunks:
        placed.append(replace(chunk, start=start, end=start + len(chunk.text)))
        start += len(chunk.text) + 1
    return tuple(placed)


def _numbered(chunks: Sequence[MediaChunk]) -> tuple[MediaChunk, ...]:
    return tuple(replace(chunk, index=index) for index, chunk in enumerate(chunks))


def _valid_chunk(limits: FieldLimits, chunk: MediaChunk) -> MediaChunk:
    if not 0 <= chunk.start <= chunk.end or not is_storable(chunk.end):
        raise invalid_field("chunks", expected="0 <= start <= end", got=f"characters {chunk.start} to {chunk.end}")
    _require_times("chunks", chunk.start_ms, chunk.end_ms)
    return replace(
        chunk,
        uuid=validation.uuid(limits, "chunks", chunk.uuid) if chunk.uuid else str(uuid4()),
        text=validation.long_text(limits, "chunks", chunk.text),
        speaker=validation.optional_short_text(limits, "chunks", chunk.speaker),
    )


def _valid_segment(limits: FieldLimits, segment: Segment) -> Segment:
    _require_times("segments", segment.start_ms, segment.end_ms)
    return replace(
        segment,
        text=validation.long_text(limits, "segments", segment.text),
        speaker=validation.optional_short_text(limits, "segments", segment.speaker),
    )


def _require_times(field: str, start_ms: int | None, end_ms: int | None) -> None:
    if start_ms is not None and end_ms is not None and not (0 <= start_ms <= end_ms and is_storable(end_ms)):
        raise invalid_field(field, expected="0 <= start_ms <= end_ms", got=f"{start_ms} ms to {end_ms} ms")
