"""The database of the conversation-memory plugin: its observations and summaries of sessions, and the exchanges that it
indexed, as chats. Vectors and events that wait for a model are left where they are.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, ObservationDraft
from sources.importers.engine.database_rows import Pace, Row, Rows, Table, json_of, text_of
from sources.importers.engine.databases import columns_in, is_database, open_database
from sources.importers.engine.files import few_tags, size_of
from sources.importers.engine.ids import archived_id, observation_id
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedObservation,
    ImportEvent,
    ReadPosition,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.threads import arrivals_of, line_of, require_text
from sources.importers.engine.times import moment_of
from sources.importers.formats.agent_sessions.turns import Call, Result, Turn, content_of
from sources.importers.formats.chatgpt_content import texts
from sources.text.excerpts import first_sentence

_NAME = "conversation_memory"
_OBSERVATIONS = Table(
    "observations",
    (
        *("id", "session_id", "project", "timestamp", "type", "title", "subtitle", "narrative", "facts", "concepts"),
        *("files_read", "files_modified"),
    ),
    ("tool_name", "prompt_number"),
)
_EXCHANGES = Table(
    "exchanges",
    ("id", "project", "timestamp", "user_message", "assistant_message", "archive_path", "line_start", "line_end"),
    ("session_id", "git_branch", "is_sidechain"),
)
_PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_SUMMARIES = Table("session_summaries", ("id", "session_id", "project", "created_at", *_PARTS))
_CALLS = Table("tool_calls", ("id", "exchange_id", "tool_name", "tool_input", "tool_result", "is_error", "timestamp"))
_TABLES = (_OBSERVATIONS, _SUMMARIES, _EXCHANGES)
_TITLE_CHARS = 120


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder or not is_database(probe):
        return 0.0
    found = columns_in(probe.path, _OBSERVATIONS.name, _EXCHANGES.name)
    return 0.9 if any(found[table.name] >= set(table.needed) for table in (_OBSERVATIONS, _EXCHANGES)) else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    with open_database(path, limits) as connection:
        rows = Rows(connection, limits)
        if not (rows.has(_OBSERVATIONS) or rows.has(_EXCHANGES)):
            raise InvalidParams("the database: got other tables, expected those of conversation-memory")
        pace = Pace(progress, size_of(path), sum(rows.count(table) for table in _TABLES if rows.has(table)))
        files = _files_of_sessions(rows)
        yield from _each(rows, _OBSERVATIONS, files, pace)
        yield from _each(rows, _SUMMARIES, files, pace)
        if rows.has(_EXCHANGES):
            yield from _conversations(rows, pace)
        pace.finish()


# -- observations ------------------------------------------------------------------------------------------------------


class _Archived(Struct, frozen=True):
    """The file that a session was archived in, and the lines of it that are the session's."""

    path: str
    line_start: int
    line_end: int


def _files_of_sessions(rows: Rows) -> Mapping[Any, _Archived]:
    """Where the exchanges of each session stand; those of its tasks may have other files, so the longest counts."""
    if not rows.has(_EXCHANGES) or "session_id" not in rows.columns(_EXCHANGES.name):
        return {}
    found: dict[Any, _Archived] = {}
    for key, *place in rows.extents(_EXCHANGES, ("session_id", "archive_path"), "line_start", "line_end"):
        session, archived = line_of(key), _archived(*place)
        if session and archived is not None:
            found[session] = max(found.get(session, archived), archived, key=lambda one: one.line_end - one.line_start)
    return found


def _archived(path: Any, start: Any, end: Any) -> _Archived | None:
    are_lines = isinstance(start, int) and isinstance(end, int) and 0 < start <= end
    return _Archived(str(path), start, end) if are_lines else None


def _each(rows: Rows, table: Table, files: Mapping[Any, _Archived], pace: Pace) -> Iterator[ImportEvent]:
    read = _observation if table is _OBSERVATIONS else _summary
    for place in rows.places(table) if rows.has(table) else ():
        try:
            arrival = read(rows, place)
            yield _placed(arrival, files) if isinstance(arrival, ImportedObservation) else arrival
        except InvalidParams as error:
            yield FailedItem(f"{table.name}, row {place}", error.message)
        pace.step()


def _placed(arrival: ImportedObservation, files: Mapping[Any, _Archived]) -> ImportedObservation:
    """With the conversation it was learned in. The database says in which session, and no more closely."""
    archived = files.get(arrival.draft.session_id)
    if archived is None:
        return arrival
    place = {"line_start": archived.line_start, "line_end": archived.line_end}
    return ImportedObservation(replace(arrival.draft, conversation_id=archived_id(archived.path), **place))


def _observation(rows: Rows, place: int) -> ImportEvent:
    row = rows.at(_OBSERVATIONS, place)
    title = line_of(row["title"])
    if not title:
        return SkippedItem("an observation without a title")
    require_text(text_of(row["narrative"]), rows.limits)
    return ImportedObservation(
        ObservationDraft(
            uuid=observation_id("imported", str(row["id"])),
            type=line_of(row["type"]) or "general",
            title=title,
            subtitle=line_of(row["subtitle"]),
            narrative=text_of(row["narrative"]),
            facts=_list(rows, row["facts"]),
            concepts=few_tags(_list(rows, row["concepts"])),
            files_read=_list(rows, row["files_read"]),
            files_modified=_list(rows, row["files_modified"]),
            project=line_of(row["project"]),
            session_id=line_of(row["session_id"]),
            origin="imported",
            metadata={"imported_from": _NAME, **({"tool": tool} if (tool := line_of(row["tool_name"])) else {})},
            created_at=moment_of(row["timestamp"]) or UNSET,
        )
    )


def _summary(rows: Rows, place: int) -> ImportEvent:
    """Its parts under their own names, word for word."""
    row = rows.at(_SUMMARIES, place)
    said = {part: text for part in _PARTS if (text := text_of(row[part]).strip())}
    if not said:
        return SkippedItem("a summary without text")
    narrative = "\n\n".join(f"{part.replace('_', ' ')}: {text}" for part, text in said.items())
    require_text(narrative, rows.limits)
    return ImportedObservation(
        ObservationDraft(
            uuid=observation_id("imported", "summary", str(row["id"])),
            type="summary",
            title=line_of(first_sentence(next(iter(said.values())), _TITLE_CHARS)),
            narrative=narrative,
            project=line_of(row["project"]),
            session_id=line_of(row["session_id"]),
            origin="imported",
            metadata={"imported_from": _NAME},
            created_at=moment_of(row["created_at"]) or UNSET,
        )
    )


def _list(rows: Rows, value: Any) -> tuple[str, ...]:
    return tuple(text for text in texts(json_of(value, rows.limits)) if "\0" not in text)


# -- exchanges ---------------------------------------------------------------------------------------------------------


def _conversations(rows: Rows, pace: Pace) -> Iterator[ImportEvent]:
    """Exchanges of one file were one conversation."""
    for key, found in groupby(rows.grouped(_EXCHANGES, ("archive_path", "line_start")), key=lambda one: one[0]):
        problems: list[FailedItem] = []
        exchanges = _exchanges(rows, (place for _, place in found), problems, pace)
        first = next(exchanges, None)
        if first is not None:
            said = (message for row in chain((first,), exchanges) for message in _messages(rows, row, problems))
            yield from arrivals_of(_conversation(str(key), first), said)
        yield from problems


def _exchanges(rows: Rows, places: Iterable[int], problems: list[FailedItem], pace: Pace) -> Iterator[Row]:
    for place in places:
        try:
            yield rows.at(_EXCHANGES, place)
        except InvalidParams as error:
            problems.append(FailedItem(f"{_EXCHANGES.name}, row {place}", error.message))
        pace.step()


def _conversation(key: str, first: Row) -> ConversationDraft:
    """Without the id of the session: the conversation that its own file is read into has it."""
    about = {
        "imported_from": _NAME,
        "project": line_of(first["project"]),
        "session": line_of(first["session_id"]),
        "git_branch": line_of(first["git_branch"]),
    }
    return ConversationDraft(
        uuid=archived_id(key),
        title=line_of(first_sentence(text_of(first["user_message"]), _TITLE_CHARS)),
        metadata={name: value for name, value in about.items() if value},
        created_at=moment_of(first["timestamp"]) or UNSET,
    )


def _messages(rows: Rows, row: Row, problems: list[FailedItem]) -> Iterator[MessageDraft]:
    """What was asked, the tools that were called, and what was answered."""
    try:
        for turn in _turns(rows, row):
            content = content_of(turn)
            require_text(content, rows.limits)
            if content:
                yield _message(row, turn, content)
    except InvalidParams as error:
        problems.append(FailedItem(f"exchange {line_of(str(row['id']))[:60]}", error.message))


def _turns(rows: Rows, row: Row) -> Iterator[Turn]:
    yield Turn(role="user", key="user", text=text_of(row["user_message"]))
    for call in rows.where(_CALLS, "exchange_id", row["id"]):
        yield _call(rows, call)
    yield Turn(role="assistant", key="assistant", text=text_of(row["assistant_message"]))


def _message(row: Row, turn: Turn, content: str) -> MessageDraft:
    return MessageDraft(
        uuid=stable_uuid(_NAME, "messages", f"{row['archive_path']}/{row['id']}/{turn.key}"),
        role=turn.role,
        sender=turn.role,
        content=content,
        tool=turn.calls[0].name if turn.calls else UNSET,
        metadata=_lines(row),
        is_canonical=not row["is_sidechain"],
        created_at=turn.time or moment_of(row["timestamp"]) or UNSET,
    )


def _call(rows: Rows, call: Row) -> Turn:
    key, name = line_of(call["id"]), line_of(call["tool_name"]) or "tool"
    given = json_of(call["tool_input"], rows.limits)
    asked = Call(key, name, given) if isinstance(given, dict) else Call(key, name, text=text_of(call["tool_input"]))
    answer = text_of(call["tool_result"])
    results = (Result(key, answer, bool(call["is_error"]), name),) if answer else ()
    return Turn(role="tool", key=f"tool {key}", time=moment_of(call["timestamp"]), calls=(asked,), results=results)


def _lines(row: Row) -> dict[str, int]:
    return {name: row[name] for name in ("line_start", "line_end") if isinstance(row[name], int) and row[name] > 0}


IMPORTER = Importer(
    name=_NAME,
    title="conversation-memory database",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".db", ".sqlite", ".sqlite3"),
)
