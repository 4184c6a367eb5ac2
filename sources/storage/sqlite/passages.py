"""The text of a media item and the chunks it is searched by, made from what a draft brings. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from uuid import uuid4

from msgspec import UNSET, Struct
from msgspec.structs import replace

from sources.chunking import chunk
from sources.drafts import MediaDraft
from sources.records import Chunk, Segment
from sources.storage.sqlite.cleaning import Limits, is_storable, line_or_none, refusal, text, uuid


class Body(Struct, frozen=True):
    """A text with its chunks, of which there is always one at least, and its timed lines, if it was spoken."""

    content: str
    chunks: tuple[Chunk, ...]
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


def _cut(content: str, segments: Sequence[Segment], limits: Limits) -> tuple[Chunk, ...]:
    spans = [(cut.start, cut.end) for cut in chunk(content, limits.chunk_size_chars, limits.chunk_overlap_chars)]
    chunks = [
        Chunk(index=index, uuid=str(uuid4()), text=content[start:end], start=start, end=end)
        for index, (start, end) in enumerate(spans or [(0, 0)])
    ]
    return tuple(_timed(chunks, segments)) if segments else tuple(chunks)


def _timed(chunks: Sequence[Chunk], segments: Sequence[Segment]) -> list[Chunk]:
    """Each chunk from the first line it touches to the last, with the speaker if it is one and the same."""
    starts = [0]
    for segment in segments[:-1]:
        starts.append(starts[-1] + len(segment.text) + 1)
    timed = []
    for one in chunks:
        first = bisect_right(starts, one.start) - 1
        last = max(bisect_right(starts, max(one.end - 1, one.start)) - 1, first)
        lines = segments[first : last + 1]
        speakers = {line.speaker for line in lines}
        speaker = speakers.pop() if len(speakers) == 1 else None
        start_ms, end_ms = lines[0].start_ms, max(line.end_ms for line in lines)
        timed.append(replace(one, start_ms=start_ms, end_ms=end_ms, speaker=speaker))
    return timed


def _placed(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Chunks that came without their text stand in it one after the other."""
    placed, start = [], 0
    for one in chunks:
        placed.append(replace(one, start=start, end=start + len(one.text)))
        start += len(one.text) + 1
    return tuple(placed)


def _numbered(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    return tuple(replace(one, index=index) for index, one in enumerate(chunks))


def _clean_chunk(limits: Limits, one: Chunk) -> Chunk:
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
