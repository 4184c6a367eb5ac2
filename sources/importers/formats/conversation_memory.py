"""The database of the conversation-memory plugin: observations, session summaries, and indexed exchanges, which become
chats. Vectors and events waiting for a model are not read."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path, PureWindowsPath
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, ObservationDraft
from sources.importers.engine.chat_messages import conversation_parts
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import (
    FailedItem,
    ImportedObservation,
    SkippedItem,
    archived_conversation_id,
    file_size,
    imported_observation_id,
    observation_id,
    stable_uuid,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import (
    RowProgress,
    TableReader,
    TableRow,
    TableSpec,
    has_tables,
    open_database,
)
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    json_or_none,
    require_storable,
    stored_time,
    text_or_empty,
    texts,
)
from sources.importers.formats.agent_sessions.turns import AgentToolCall, AgentToolResult, AgentTurn, turn_content
from sources.text.chunking import first_sentence

_NAME = "conversation_memory"
_OBSERVATIONS = TableSpec(
    "observations",
    (
        *("id", "session_id", "project", "timestamp", "type", "title", "subtitle", "narrative", "facts", "concepts"),
        *("files_read", "files_modified"),
    ),
    ("tool_name", "prompt_number"),
)
# The third version, which was continued as memmem: one text for each observation, and numbers as ids.
_OBSERVATIONS_V3 = TableSpec(
    "observations", ("id", "title", "content", "project", "session_id", "timestamp", "created_at")
)
_EXCHANGES = TableSpec(
    "exchanges",
    ("id", "project", "timestamp", "user_message", "assistant_message", "archive_path", "line_start", "line_end"),
    ("session_id", "git_branch", "is_sidechain", "compressed_tool_summary"),
)
_SUMMARY_PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_SUMMARIES = TableSpec("session_summaries", ("id", "session_id", "project", "created_at", *_SUMMARY_PARTS))
_TOOL_CALLS = TableSpec(
    "tool_calls", ("id", "exchange_id", "tool_name", "tool_input", "tool_result", "is_error", "timestamp")
)
_TABLES = (_OBSERVATIONS, _OBSERVATIONS_V3, _SUMMARIES, _EXCHANGES)
# The tables by which a database is recognized.
_MARKS = (_OBSERVATIONS, _OBSERVATIONS_V3, _EXCHANGES)
_TITLE_CHARS = 120


class ConversationMemoryImporter(Importer):
    name = _NAME
    title = "conversation-memory database"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if any(has_tables(probe, (table,)) for table in _MARKS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            if not any(map(reader.has, _MARKS)):
                raise InvalidParams("not a conversation-memory database")
            rows_total = sum(reader.count(table) for table in _TABLES if reader.has(table))
            row_progress = RowProgress(progress, file_size(path), rows_total)
            archives = _session_archives(reader)
            # A database has one of the two tables of observations; a missing table has no rows.
            yield from _read_observations(reader, _OBSERVATIONS, archives, row_progress)
            yield from _read_observations(reader, _OBSERVATIONS_V3, archives, row_progress)
            yield from _read_observations(reader, _SUMMARIES, archives, row_progress)
            if reader.has(_EXCHANGES):
                yield from _read_conversations(reader, row_progress)
            row_progress.finish()


IMPORTER = ConversationMemoryImporter()


# -- observations ------------------------------------------------------------------------------------------------------


class _SessionArchive(Struct, frozen=True):
    """The file in which a session was archived, and its lines there."""

    path: str
    line_start: int
    line_end: int


def _session_archives(reader: TableReader) -> Mapping[Any, _SessionArchive]:
    """Finds the archive of each session by its exchanges. Subtasks of a session may have files of their own, so the
    longest one is used."""
    if not reader.has(_EXCHANGES) or "session_id" not in reader.columns(_EXCHANGES.name):
        return {}
    archives: dict[Any, _SessionArchive] = {}
    for row in reader.ranges(_EXCHANGES, ("session_id", "archive_path"), "line_start", "line_end"):
        session, start, end = clean_line(row["session_id"]), row["line_start"], row["line_end"]
        if session and isinstance(start, int) and isinstance(end, int) and 0 < start <= end:
            archive, known = _SessionArchive(str(row["archive_path"]), start, end), archives.get(session)
            if known is None or end - start > known.line_end - known.line_start:
                archives[session] = archive
    return archives


def _read_observations(
    reader: TableReader, table: TableSpec, archives: Mapping[Any, _SessionArchive], progress: RowProgress
) -> Iterator[ImportEvent]:
    read = _OBSERVATION_READERS[table]
    for rowid in reader.rowids(table) if reader.has(table) else ():
        try:
            event = read(reader, rowid)
            archive = archives.get(event.draft.session_id) if isinstance(event, ImportedObservation) else None
            if isinstance(event, ImportedObservation) and archive is not None:
                # The lines of the whole session: the database has no more precise ones.
                conversation, start, end = archived_conversation_id(archive.path), archive.line_start, archive.line_end
                event = ImportedObservation(
                    replace(event.draft, conversation_id=conversation, line_start=start, line_end=end)
                )
            yield event
        except InvalidParams as error:
            yield FailedItem(f"{table.name}, row {rowid}", error.message)
        progress.step()


def _read_observation(reader: TableReader, rowid: int) -> ImportedObservation | SkippedItem:
    row = reader.row(_OBSERVATIONS, rowid)
    title = clean_line(row["title"])
    if not title:
        return SkippedItem("observation without a title")
    narrative = text_or_empty(row["narrative"])
    require_storable(narrative, reader.limits)
    tool = clean_line(row["tool_name"])
    return ImportedObservation(
        ObservationDraft(
            uuid=imported_observation_id(str(row["id"])),
            type=clean_line(row["type"]) or "general",
            title=title,
            subtitle=clean_line(row["subtitle"]),
            narrative=narrative,
            facts=_json_texts(reader, row["facts"]),
            concepts=clean_tags(_json_texts(reader, row["concepts"])),
            files_read=_json_texts(reader, row["files_read"]),
            files_modified=_json_texts(reader, row["files_modified"]),
            project=clean_line(row["project"]),
            session_id=clean_line(row["session_id"]),
            origin="imported",
            metadata={"imported_from": _NAME, **({"tool": tool} if tool else {})},
            created_at=stored_time(row["timestamp"]) or UNSET,
        )
    )


def _read_summary(reader: TableReader, rowid: int) -> ImportedObservation | SkippedItem:
    """Joins the parts of a session summary, each after its name."""
    row = reader.row(_SUMMARIES, rowid)
    parts = {part: text for part in _SUMMARY_PARTS if (text := text_or_empty(row[part]).strip())}
    if not parts:
        return SkippedItem("summary without text")
    narrative = "\n\n".join(f"{part.replace('_', ' ')}: {text}" for part, text in parts.items())
    require_storable(narrative, reader.limits)
    return ImportedObservation(
        ObservationDraft(
            uuid=observation_id("imported", "summary", str(row["id"])),
            type="summary",
            title=clean_line(first_sentence(next(iter(parts.values())), _TITLE_CHARS)),
            narrative=narrative,
            project=clean_line(row["project"]),
            session_id=clean_line(row["session_id"]),
            origin="imported",
            metadata={"imported_from": _NAME},
            created_at=stored_time(row["created_at"]) or UNSET,
        )
    )


def _read_observation_v3(reader: TableReader, rowid: int) -> ImportedObservation | SkippedItem:
    """The number of an observation is unique in its database only, so its time is part of the id."""
    row = reader.row(_OBSERVATIONS_V3, rowid)
    title = clean_line(row["title"])
    if not title:
        return SkippedItem("observation without a title")
    narrative = text_or_empty(row["content"])
    require_storable(narrative, reader.limits)
    return ImportedObservation(
        ObservationDraft(
            uuid=observation_id("imported", "v3", str(row["id"]), str(row["created_at"])),
            type="general",
            title=title,
            narrative=narrative,
            project=clean_line(row["project"]),
            session_id=clean_line(row["session_id"]),
            origin="imported",
            metadata={"imported_from": _NAME},
            created_at=stored_time(row["timestamp"]) or UNSET,
        )
    )


_OBSERVATION_READERS: Mapping[TableSpec, Callable[[TableReader, int], ImportedObservation | SkippedItem]] = {
    _OBSERVATIONS: _read_observation,
    _OBSERVATIONS_V3: _read_observation_v3,
    _SUMMARIES: _read_summary,
}


def _json_texts(reader: TableReader, value: Any) -> tuple[str, ...]:
    return tuple(text for text in texts(json_or_none(value, reader.limits)) if "\0" not in text)


# -- exchanges ---------------------------------------------------------------------------------------------------------


def _read_conversations(reader: TableReader, progress: RowProgress) -> Iterator[ImportEvent]:
    """The exchanges of one archived file form one conversation."""
    for group, rowids in reader.grouped_rowids(_EXCHANGES, "archive_path", "line_start"):
        failures: list[FailedItem] = []
        rows = _read_exchanges(reader, rowids, failures, progress)
        first, path = next(rows, None), str(group)
        if first is not None:
            # Without its folders, which reveal where files are on the user's disk.
            file_name = clean_line(PureWindowsPath(path).stem)
            metadata = {
                "imported_from": _NAME,
                "project": clean_line(first["project"]),
                "session": clean_line(first["session_id"]) or file_name,
                "git_branch": clean_line(first["git_branch"]),
            }
            # Without a session id, because the conversation imported from the session's own file has it.
            draft = ConversationDraft(
                uuid=archived_conversation_id(path),
                title=clean_line(first_sentence(text_or_empty(first["user_message"]), _TITLE_CHARS)),
                metadata={name: value for name, value in metadata.items() if value},
                created_at=stored_time(first["timestamp"]) or UNSET,
            )
            messages = (message for row in chain((first,), rows) for message in _messages(reader, row, failures))
            yield from conversation_parts(draft, messages)
        yield from failures


def _read_exchanges(
    reader: TableReader, rowids: Iterable[int], failures: list[FailedItem], progress: RowProgress
) -> Iterator[TableRow]:
    for rowid in rowids:
        try:
            yield reader.row(_EXCHANGES, rowid)
        except InvalidParams as error:
            failures.append(FailedItem(f"{_EXCHANGES.name}, row {rowid}", error.message))
        progress.step()


def _messages(reader: TableReader, row: TableRow, failures: list[FailedItem]) -> Iterator[MessageDraft | SkippedItem]:
    is_empty = True
    lines = {name: row[name] for name in ("line_start", "line_end") if isinstance(row[name], int) and row[name] > 0}
    try:
        for turn in _turns(reader, row):
            content = turn_content(turn)
            require_storable(content, reader.limits)
            if content:
                is_empty = False
                yield MessageDraft(
                    uuid=stable_uuid(_NAME, "messages", f"{row['archive_path']}/{row['id']}/{turn.key}"),
                    role=turn.role,
                    sender=turn.role,
                    content=content,
                    tool=turn.calls[0].name if turn.calls else UNSET,
                    metadata=lines,
                    # The work of subtasks is searchable, but not part of the conversation.
                    is_canonical=not row["is_sidechain"],
                    created_at=turn.time or stored_time(row["timestamp"]) or UNSET,
                )
        if is_empty:
            yield SkippedItem("exchange without text")
    except InvalidParams as error:
        failures.append(FailedItem(f"exchange {clean_line(str(row['id']))[:60]}", error.message))


def _turns(reader: TableReader, row: TableRow) -> Iterator[AgentTurn]:
    """Yields the user's message, the tool calls or else their summary, and the answer."""
    yield AgentTurn(role="user", key="user", text=text_or_empty(row["user_message"]))
    calls = reader.rows_where(_TOOL_CALLS, "exchange_id", row["id"])
    yield from (_tool_turn(reader, call) for call in calls)
    if not calls:
        yield AgentTurn(role="tool", key="tools", text=text_or_empty(row["compressed_tool_summary"]))
    yield AgentTurn(role="assistant", key="assistant", text=text_or_empty(row["assistant_message"]))


def _tool_turn(reader: TableReader, row: TableRow) -> AgentTurn:
    key, name = clean_line(row["id"]), clean_line(row["tool_name"]) or "tool"
    arguments = json_or_none(row["tool_input"], reader.limits)
    if isinstance(arguments, dict):
        call = AgentToolCall(key, name, arguments)
    else:
        call = AgentToolCall(key, name, text=text_or_empty(row["tool_input"]))
    result = text_or_empty(row["tool_result"])
    results = (AgentToolResult(key, result, bool(row["is_error"]), name),) if result else ()
    time = stored_time(row["timestamp"])
    return AgentTurn(role="tool", key=f"tool {key}", time=time, calls=(call,), results=results)
