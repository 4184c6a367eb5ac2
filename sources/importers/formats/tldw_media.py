"""Media of tldw: texts with their stored chunks, and transcripts. The trash is not imported. If a document has several
versions, the media row holds the current one.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from sources.drafts import MediaDraft
from sources.importers.engine.files import DeletedItem, ImportedMedia, SkippedItem, stable_uuid
from sources.importers.engine.importer import Events
from sources.importers.engine.table_reader import KeywordLinks, TableReader, TableSpec
from sources.importers.engine.values import (
    Fields,
    compact_metadata,
    json_or_none,
    objects,
    require_storable,
    text_or_empty,
    url_or_empty,
    valid_uuid,
)
from sources.records import MediaChunk, Segment

# -- rows --------------------------------------------------------------------------------------------------------------
# What the rows of all tldw tables have in common.

NAME = "tldw"


def is_live(row: Fields) -> bool:
    """tldw marks rows as deleted instead of removing them."""
    return not row["deleted"]


def import_metadata(**values: Any) -> dict[str, Any]:
    return {"imported_from": NAME, **compact_metadata(**values)}


def item_uuid(value: object, kind: str, key: str) -> str:
    """Returns a row's own UUID, or one derived from `key` if it has none."""
    return valid_uuid(value) or stable_uuid(NAME, kind, key)


def item_number(row: Fields) -> int | UnsetType:
    """Returns the id by which tldw's clients know the row."""
    number = row["id"]
    return number if isinstance(number, int) else UNSET


MEDIA = TableSpec(
    "Media",
    (
        *("id", "uuid", "url", "title", "type", "content", "author", "ingestion_date", "transcription_model"),
        *("is_trash", "deleted"),
    ),
    ("latest_transcription_run_id",),
)
CHUNKS = TableSpec(
    "UnvectorizedMediaChunks",
    ("media_id", "uuid", "chunk_text", "chunk_index", "start_char", "end_char", "chunk_type", "deleted"),
)
TRANSCRIPTS = TableSpec(
    "Transcripts", ("media_id", "transcription", "whisper_model", "created_at", "deleted"), ("transcription_run_id",)
)
VERSIONS = TableSpec("DocumentVersions", ("media_id", "version_number", "prompt", "analysis_content", "deleted"))
MEDIA_KEYWORDS = KeywordLinks("MediaKeywords", "media_id", "Keywords")

_TRANSCRIPT_ID_OFFSET = 1_000_000_000

# The share of a text's words that must occur in a transcript for the two to be the same. tldw writes times and a line
# about the model between the words; `2.5s` is a time and not a word.
_SAME_SHARE = 0.9
_WORD = re.compile(r"[^\W\d_]{2,}")
_TEXT_FIELDS = ("text", "Text", "transcription", "transcript")
_SECONDS, _MILLISECONDS = 1000, 1
_TIME_FIELDS = (
    ("start", "end", _SECONDS),
    ("start_seconds", "end_seconds", _SECONDS),
    ("start_ms", "end_ms", _MILLISECONDS),
)
_CLOCK_FIELDS = ("start_time", "end_time")
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2}(?:[.,]\d{1,6})?)\Z")
# A thousand hours. Larger numbers are in another unit.
_TIME_MAX_MS = 3_600_000_000


def read_media(reader: TableReader, row: Fields) -> Events:
    if not is_live(row) or row["is_trash"]:
        yield SkippedItem("media item in the trash" if is_live(row) else "deleted media item")
        yield DeletedItem("media", _media_uuid(row))
        yield DeletedItem("media", _transcript_uuid(_media_uuid(row)))
        return
    uuid, content = _media_uuid(row), row.text("content")
    transcript, segments = _current_transcript(reader, row)
    versions = [version for version in reader.rows_where(VERSIONS, "media_id", row["id"]) if is_live(version)]
    current: Fields = max(versions, key=lambda version: _number(version["version_number"]), default=Fields())
    draft = MediaDraft(
        uuid=uuid,
        preferred_id=item_number(row),
        title=row.line("title"),
        media_type=row.line("type") or "text",
        url=url_or_empty(row["url"]),
        author=row.line("author"),
        tags=reader.keywords(MEDIA_KEYWORDS, row["id"]),
        metadata=import_metadata(
            transcription_model=row.line("transcription_model"),
            analysis=current.text("analysis_content"),
            analysis_prompt=current.text("prompt"),
        ),
        created_at=row.time("ingestion_date") or UNSET,
    )
    words, transcript_words = _WORD.findall(content.lower()), set(_WORD.findall(transcript.lower()))
    is_same = sum(word in transcript_words for word in words) >= _SAME_SHARE * len(words)
    transcript_draft = draft
    if not transcript.strip() or not is_same:
        require_storable(content, reader.limits)
        yield ImportedMedia(replace(draft, content=content, chunks=_stored_chunks(reader, row, content) or UNSET))
        # A transcript that differs from the item's text is an item of its own, so that both can be found. Its id leaves
        # the next numbers to tldw's own items.
        transcript_draft = MediaDraft(
            preferred_id=UNSET if draft.preferred_id is UNSET else _TRANSCRIPT_ID_OFFSET + draft.preferred_id,
            uuid=_transcript_uuid(uuid),
            title=draft.title,
            media_type="transcript",
            url=draft.url,
            author=draft.author,
            tags=draft.tags,
            metadata=import_metadata(transcript_of=draft.uuid),
            created_at=draft.created_at,
        )
    if transcript.strip():
        require_storable(transcript, reader.limits)
        texts = {"segments": segments} if segments else {"content": transcript}
        yield ImportedMedia(replace(transcript_draft, **texts))
    if not transcript.strip() or is_same:
        yield DeletedItem("media", _transcript_uuid(uuid))


def _media_uuid(row: Fields) -> str:
    return item_uuid(row["uuid"], "media", f"{row['id']}/{row['ingestion_date']}")


def _transcript_uuid(media_uuid: str) -> str:
    return stable_uuid(NAME, "transcripts", media_uuid)


# -- chunks ------------------------------------------------------------------------------------------------------------


def _stored_chunks(reader: TableReader, row: Fields, content: str) -> Sequence[MediaChunk]:
    """Returns the stored chunks if together they cover the current text; otherwise none, and the text is chunked again.
    A text may have been chunked in several ways, which differ in `chunk_type`."""
    rows = [chunk for chunk in reader.rows_where(CHUNKS, "media_id", row["id"]) if is_live(chunk)]
    by_type: dict[str, list[Fields]] = {}
    for chunk in sorted(rows, key=lambda chunk: _number(chunk["chunk_index"])):
        by_type.setdefault(chunk.text("chunk_type"), []).append(chunk)
    candidates = (list(_locate_chunks(chunks, content, _media_uuid(row))) for chunks in by_type.values())
    return next((chunks for chunks in candidates if chunks and _cover_text(chunks, content)), ())


def _locate_chunks(rows: Sequence[Fields], content: str, media_uuid: str) -> Iterator[MediaChunk]:
    """Yields the chunks whose text is at the stored offset, or anywhere after the previous chunk."""
    after = 0
    for index, row in enumerate(rows):
        text = row.text("chunk_text")
        start = _number(row["start_char"])
        if content[start : start + len(text)] != text:
            start = content.find(text, after)
        if text.strip() and start >= 0:
            after = start + 1
            uuid = item_uuid(row["uuid"], "chunks", f"{media_uuid}/{index}")
            yield MediaChunk(index=index, uuid=uuid, text=text, start=start, end=start + len(text))


def _cover_text(chunks: Sequence[MediaChunk], content: str) -> bool:
    """Returns whether only white space is outside the chunks: other text would never be found."""
    end = 0
    for chunk in chunks:
        if content[end : chunk.start].strip():
            return False
        end = max(end, chunk.end)
    return not content[end:].strip()


# -- transcripts -------------------------------------------------------------------------------------------------------


def _current_transcript(reader: TableReader, row: Fields) -> tuple[str, Sequence[Segment]]:
    """Returns the text and the segments of the run that the item names, or else of the newest."""
    transcripts = [other for other in reader.rows_where(TRANSCRIPTS, "media_id", row["id"]) if is_live(other)]
    run = row["latest_transcription_run_id"]
    of_run = [other for other in transcripts if run is not None and other["transcription_run_id"] == run]
    current = max(of_run or transcripts, key=lambda other: other.time("created_at") or "", default=Fields())
    # Parses plain text, or the JSON of several transcription programs.
    stored = current.text("transcription")
    value = json_or_none(stored, reader.limits) if stored.lstrip()[:1] in ("{", "[") else None
    if value is None:
        return stored, ()
    lines = value if isinstance(value, list) else _first_field(value, ("segments", "Segments"))
    segments = []
    for line in objects(lines):
        line_text, times = _line_text(line), _times(line)
        if line_text and times is not None:
            speaker = line.line("speaker") or None
            segments.append(Segment(start_ms=times[0], end_ms=max(times), text=line_text, speaker=speaker))
    if segments:
        return "\n".join(segment.text for segment in segments), segments
    text = _first_field(value, ("text", "transcription")) if isinstance(value, dict) else None
    return text if isinstance(text, str) else "\n".join(map(_line_text, objects(lines))), ()


def _line_text(line: Mapping[str, Any]) -> str:
    return " ".join(text_or_empty(_first_field(line, _TEXT_FIELDS)).split())


def _times(line: Mapping[str, Any]) -> tuple[int, int] | None:
    for start_field, end_field, factor in _TIME_FIELDS:
        start = _milliseconds(line.get(start_field), factor)
        if start is not None:
            end = _milliseconds(line.get(end_field), factor)
            return start, start if end is None else end
    times = []
    for field in _CLOCK_FIELDS:
        # Seconds, or hours, minutes and seconds.
        value = line.get(field)
        clock = _CLOCK.match(value.strip()) if isinstance(value, str) else None
        if clock is not None:
            hours, minutes, seconds = clock.groups(default="0")
            value = (int(hours) * 60 + int(minutes)) * 60 + float(seconds.replace(",", "."))
        times.append(_milliseconds(value, _SECONDS))
    start, end = times
    return None if start is None else (start, start if end is None else end)


def _milliseconds(value: Any, factor: int) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, bool) or not math.isfinite(number) or not 0 <= number * factor <= _TIME_MAX_MS:
        return None
    return round(number * factor)


def _first_field(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name)), None)


def _number(value: Any) -> int:
    """Returns an index or offset; 0 if it is invalid."""
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0
