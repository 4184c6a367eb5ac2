"""The media of tldw: texts with the chunks they were cut into, and the transcripts of what was spoken.

What lies in the trash stays there. Of several versions of a document the media row holds the current one.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct

from sources.drafts import MediaDraft
from sources.importers.engine.database_rows import Links, Row, Rows, Table, address_of, json_of, known_uuid, text_of
from sources.importers.engine.imported_items import ImportedMedia, ImportEvent, SkippedItem, stable_uuid
from sources.importers.engine.threads import line_of, require_text
from sources.importers.engine.times import moment_of
from sources.importers.formats.chatgpt_content import objects
from sources.importers.formats.tldw_rows import NAME, about, is_live
from sources.records import MediaChunk, Segment

MEDIA = Table(
    "Media",
    (
        *("id", "uuid", "url", "title", "type", "content", "author", "ingestion_date", "transcription_model"),
        *("is_trash", "deleted"),
    ),
    ("latest_transcription_run_id",),
)
_CHUNKS = Table(
    "UnvectorizedMediaChunks",
    ("media_id", "uuid", "chunk_text", "chunk_index", "start_char", "end_char", "chunk_type", "deleted"),
)
_TRANSCRIPTS = Table(
    "Transcripts",
    ("media_id", "transcription", "whisper_model", "created_at", "deleted"),
    ("transcription_run_id",),
)
_VERSIONS = Table("DocumentVersions", ("media_id", "version_number", "prompt", "analysis_content", "deleted"))
_KEYWORDS = Links("MediaKeywords", "media_id", "Keywords")

# How much of a text has to be spoken in a transcript for the two to be the same: tldw writes times, and a line about
# the model, between the words. `2.5s` is a time, and no word.
_SAME_SHARE = 0.9
_WORD = re.compile(r"[^\W\d_]{2,}")
_TEXT_NAMES = ("text", "Text", "transcription", "transcript")
_SECONDS, _MS = 1000, 1
_TIME_NAMES = (("start", "end", _SECONDS), ("start_seconds", "end_seconds", _SECONDS), ("start_ms", "end_ms", _MS))
_CLOCK_NAMES = ("start_time", "end_time")
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2}(?:[.,]\d{1,6})?)\Z")
# A thousand hours: nothing that is spoken is longer, and nothing that counts in other units is shorter.
_TIME_MAX_MS = 3_600_000_000


class _Transcript(Struct, frozen=True):
    text: str
    segments: Sequence[Segment] = ()


def media(rows: Rows, place: int) -> Iterator[ImportEvent]:
    row = rows.at(MEDIA, place)
    if not is_live(row):
        yield SkippedItem("a deleted media item")
        return
    if row["is_trash"]:
        yield SkippedItem("a media item in the trash")
        return
    content = text_of(row["content"])
    transcript = _transcript(rows, row)
    draft = _draft(rows, row)
    if not transcript.text.strip():
        yield _with_text(rows, row, draft, content)
    elif _is_said(content, transcript.text):
        yield _with_transcript(rows, draft, transcript)
    else:
        yield _with_text(rows, row, draft, content)
        yield _with_transcript(rows, _beside(draft), transcript)


def _draft(rows: Rows, row: Row) -> MediaDraft:
    versions = [version for version in rows.where(_VERSIONS, "media_id", row["id"]) if is_live(version)]
    current: Row = max(versions, key=lambda version: _number(version["version_number"]), default={})
    return MediaDraft(
        uuid=_uuid(row),
        title=line_of(row["title"]),
        media_type=line_of(row["type"]) or "text",
        url=address_of(row["url"]),
        author=line_of(row["author"]),
        tags=rows.keywords(_KEYWORDS, row["id"]),
        metadata=about(
            transcription_model=line_of(row["transcription_model"]),
            analysis=text_of(current.get("analysis_content")),
            analysis_prompt=text_of(current.get("prompt")),
        ),
        created_at=moment_of(row["ingestion_date"]) or UNSET,
    )


def _beside(draft: MediaDraft) -> MediaDraft:
    """A transcript that says something else than the text it belongs to is an item of its own: both can be found."""
    return MediaDraft(
        uuid=stable_uuid(NAME, "transcripts", str(draft.uuid)),
        title=draft.title,
        media_type="transcript",
        url=draft.url,
        author=draft.author,
        tags=draft.tags,
        metadata=about(transcript_of=draft.uuid),
        created_at=draft.created_at,
    )


def _with_text(rows: Rows, row: Row, draft: MediaDraft, content: str) -> ImportedMedia:
    require_text(content, rows.limits)
    chunks = _chunks(rows, row, content)
    return ImportedMedia(_filled(draft, content=content, chunks=chunks) if chunks else _filled(draft, content=content))


def _with_transcript(rows: Rows, draft: MediaDraft, transcript: _Transcript) -> ImportedMedia:
    require_text(transcript.text, rows.limits)
    if transcript.segments:
        return ImportedMedia(_filled(draft, segments=transcript.segments))
    return ImportedMedia(_filled(draft, content=transcript.text))


def _filled(draft: MediaDraft, **body: Any) -> MediaDraft:
    return MediaDraft(**{name: getattr(draft, name) for name in MediaDraft.__struct_fields__} | body)


def _uuid(row: Row) -> str:
    return known_uuid(row["uuid"], stable_uuid(NAME, "media", f"{row['id']}/{row['ingestion_date']}"))


def _is_said(content: str, spoken: str) -> bool:
    words = _WORD.findall(content.lower())
    known = set(_WORD.findall(spoken.lower()))
    return sum(word in known for word in words) >= _SAME_SHARE * len(words)


# -- chunks ------------------------------------------------------------------------------------------------------------


def _chunks(rows: Rows, row: Row, content: str) -> Sequence[MediaChunk]:
    """Those that were stored, where together they are the whole text as it is now; a text may have been cut in several
    ways. Else none, and it is cut anew."""
    found = [chunk for chunk in rows.where(_CHUNKS, "media_id", row["id"]) if is_live(chunk)]
    ways: dict[str, list[Row]] = {}
    for chunk in sorted(found, key=lambda chunk: _number(chunk["chunk_index"])):
        ways.setdefault(text_of(chunk["chunk_type"]), []).append(chunk)
    placed = (list(_placed(way, content, _uuid(row))) for way in ways.values())
    return next((chunks for chunks in placed if chunks and _is_whole(chunks, content)), ())


def _placed(way: Sequence[Row], content: str, media_uuid: str) -> Iterator[MediaChunk]:
    """What does not stand in the text where it says, or anywhere after the one before, is left out."""
    after = 0
    for index, chunk in enumerate(way):
        text = text_of(chunk["chunk_text"])
        start = _number(chunk["start_char"])
        if content[start : start + len(text)] != text:
            start = content.find(text, after)
        if text.strip() and start >= 0:
            after = start + 1
            uuid = known_uuid(chunk["uuid"], stable_uuid(NAME, "chunks", f"{media_uuid}/{index}"))
            yield MediaChunk(index=index, uuid=uuid, text=text, start=start, end=start + len(text))


def _is_whole(chunks: Sequence[MediaChunk], content: str) -> bool:
    """Nothing but white space stands between them: what is in no chunk would never be found."""
    end = 0
    for chunk in chunks:
        if content[end : chunk.start].strip():
            return False
        end = max(end, chunk.end)
    return not content[end:].strip()


# -- transcripts -------------------------------------------------------------------------------------------------------


def _transcript(rows: Rows, row: Row) -> _Transcript:
    """The current one: of the run that the item names, or else the newest."""
    found = [one for one in rows.where(_TRANSCRIPTS, "media_id", row["id"]) if is_live(one)]
    run = row["latest_transcription_run_id"]
    named = [one for one in found if run is not None and one["transcription_run_id"] == run]
    current: Row = max(named or found, key=lambda one: moment_of(one["created_at"]) or "", default={})
    return _read_transcript(text_of(current.get("transcription")), rows)


def _read_transcript(stored: str, rows: Rows) -> _Transcript:
    """Plain text, or JSON of several makers."""
    if stored.lstrip()[:1] not in ("{", "["):
        return _Transcript(stored)
    value = json_of(stored, rows.limits)
    if value is None:
        return _Transcript(stored)
    lines = value if isinstance(value, list) else _first(value, ("segments", "Segments"))
    segments = [segment for line in objects(lines) if (segment := _segment(line)) is not None]
    whole = _first(value, ("text", "transcription")) if isinstance(value, dict) else None
    if segments:
        return _Transcript("\n".join(segment.text for segment in segments), segments)
    return _Transcript(whole if isinstance(whole, str) else "\n".join(map(_line_text, objects(lines))))


def _segment(line: Mapping[str, Any]) -> Segment | None:
    text, times = _line_text(line), _times(line)
    if not text or times is None:
        return None
    return Segment(start_ms=times[0], end_ms=max(times), text=text, speaker=line_of(line.get("speaker")) or None)


def _line_text(line: Mapping[str, Any]) -> str:
    return " ".join(text_of(_first(line, _TEXT_NAMES)).split())


def _times(line: Mapping[str, Any]) -> tuple[int, int] | None:
    for first, last, factor in _TIME_NAMES:
        start = _scaled(line.get(first), factor)
        if start is not None:
            end = _scaled(line.get(last), factor)
            return start, start if end is None else end
    start, end = (_on_clock(line.get(name)) for name in _CLOCK_NAMES)
    return None if start is None else (start, start if end is None else end)


def _on_clock(value: Any) -> int | None:
    """Seconds, or hours, minutes and seconds."""
    found = _CLOCK.match(value.strip()) if isinstance(value, str) else None
    if found is None:
        return _scaled(value, _SECONDS)
    hours, minutes, seconds = found.groups(default="0")
    return _scaled((int(hours) * 60 + int(minutes)) * 60 + float(seconds.replace(",", ".")), _SECONDS)


def _scaled(value: Any, factor: int) -> int | None:
    """In milliseconds."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, bool) or not math.isfinite(number) or not 0 <= number * factor <= _TIME_MAX_MS:
        return None
    return round(number * factor)


def _first(value: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((value[name] for name in names if value.get(name)), None)


def _number(value: Any) -> int:
    """A place in a list or text; the first where it says none."""
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0
