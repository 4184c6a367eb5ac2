"""Databases of programs for agents: AgentKit, AgentChatBus and the conversation-memory plugin."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path, PureWindowsPath
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, ObservationDraft
from sources.importers.engine.chat_messages import conversation_parts
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
from sources.importers.engine.importer import Events, FileProbe, Importer, ImportLimits, ProgressCallback, StartPosition
from sources.importers.engine.table_reader import (
    RowProgress,
    TableReader,
    TableRow,
    TableSpec,
    has_tables,
    key_label,
    open_database,
)
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    json_or_none,
    objects,
    require_storable,
    stored_time,
    text_or_empty,
    texts,
)
from sources.importers.formats.agent_sessions import AgentToolCall, AgentToolResult, AgentTurn, turn_content
from sources.importers.formats.conversation_archive import require_allowed_id
from sources.text.chunking import first_sentence

# -- AgentKit ----------------------------------------------------------------------------------------------------------
# AgentKit's database, `uploads/conversations.db`. Conversations keep the ids of AgentKit's API, so that they are the
# same whether they are imported from the database or from exported JSON.
#
# AgentKit does not remove the messages of deleted conversations; they are skipped.

_CONVERSATIONS = TableSpec(
    "conversations", ("id", "title", "namespace", "session_id", "created_at", "updated_at"), ("metadata",)
)
_AGENTKIT_MESSAGES = TableSpec(
    "messages",
    ("id", "conversation_id", "role", "content", "timestamp"),
    ("model", "tool_used", "attachments", "citations"),
)
_AGENTKIT_TABLES = (_CONVERSATIONS, _AGENTKIT_MESSAGES)


class AgentKitImporter(Importer):
    name = "agentkit"
    title = "AgentKit database"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if has_tables(probe, _AGENTKIT_TABLES) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            if not all(map(reader.has, _AGENTKIT_TABLES)):
                raise InvalidParams("not an AgentKit database")
            row_progress = RowProgress(progress, file_size(path), reader.count(_AGENTKIT_MESSAGES))
            # Counted down with each conversation that has messages.
            empty = reader.count(_CONVERSATIONS)
            for conversation_id, rowids in reader.grouped_rowids(_AGENTKIT_MESSAGES, "conversation_id", "timestamp"):
                conversation = next(iter(reader.rows_where(_CONVERSATIONS, "id", conversation_id)), None)
                if conversation is None:
                    for _ in rowids:
                        yield SkippedItem("message of a deleted conversation")
                        row_progress.step()
                else:
                    empty -= 1
                    yield from _read_conversation(reader, conversation, rowids, row_progress)
            yield from (SkippedItem("conversation without messages") for _ in range(empty))
            row_progress.finish()


def _read_conversation(reader: TableReader, row: TableRow, rowids: Iterable[int], progress: RowProgress) -> Events:
    key = row["id"]
    try:
        if not isinstance(key, str):
            raise InvalidParams(f"id: expected text, got {key_label(key)!r}")
        # Ids are kept, and some words are paths of the conversations API.
        require_allowed_id(key)
    except InvalidParams as error:
        yield FailedItem(f"conversation {key_label(key)}", error.message)
        return
    metadata = json_or_none(row["metadata"], reader.limits)
    draft = ConversationDraft(
        uuid=key,
        title=clean_line(row["title"]),
        namespace=clean_line(row["namespace"]) or UNSET,
        session_id=clean_line(row["session_id"]),
        metadata=metadata if isinstance(metadata, dict) else {},
        created_at=stored_time(row["created_at"]) or UNSET,
        last_modified=stored_time(row["updated_at"]) or UNSET,
    )
    yield from conversation_parts(draft, _read_agentkit_messages(reader, rowids, progress))


def _read_agentkit_messages(
    reader: TableReader, rowids: Iterable[int], progress: RowProgress
) -> Iterator[MessageDraft | FailedItem]:
    for rowid in rowids:
        try:
            row = reader.row(_AGENTKIT_MESSAGES, rowid)
            if not isinstance(row["id"], str):
                raise InvalidParams(f"id: expected text, got {key_label(row['id'])!r}")
            content, role = text_or_empty(row["content"]), clean_line(row["role"])
            require_storable(content, reader.limits)
            yield MessageDraft(
                uuid=row["id"],
                role=role,
                sender=role,
                content=content,
                model=clean_line(row["model"]) or None,
                tool=clean_line(row["tool_used"]) or None,
                attachments=tuple(objects(json_or_none(row["attachments"], reader.limits))),
                citations=tuple(objects(json_or_none(row["citations"], reader.limits))),
                created_at=stored_time(row["timestamp"]) or UNSET,
            )
        except InvalidParams as error:
            yield FailedItem(f"{_AGENTKIT_MESSAGES.name}, row {rowid}", error.message)
        progress.step()


# -- AgentChatBus ------------------------------------------------------------------------------------------------------
# AgentChatBus's database, `bus.db`: its threads become threads of our bus, with the same ids, so that agents find them
# where they left them. Agents, their tokens and events are not read.

_THREADS = TableSpec(
    "threads",
    ("id", "topic", "status", "created_at"),
    ("summary", "metadata", "system_prompt", "updated_at", "closed_at"),
)
_BUS_MESSAGES = TableSpec(
    "messages",
    ("id", "thread_id", "author", "role", "content", "seq", "created_at"),
    ("metadata", "author_id", "author_name", "reply_to_msg_id", "priority", "deleted_at"),
)
_BUS_TABLES = (_THREADS, _BUS_MESSAGES)
# As our bus stores threads: their namespace, and the metadata key of what the bus itself knows.
_NAMESPACE = "bus"
_BUS_KEY = "_bus"
_DEFAULTS = ("discuss", "normal")


class AgentChatBusImporter(Importer):
    name = "agentchatbus"
    title = "AgentChatBus database (bus.db)"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if has_tables(probe, _BUS_TABLES) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            if not all(map(reader.has, _BUS_TABLES)):
                raise InvalidParams("not a database of AgentChatBus")
            row_progress = RowProgress(progress, file_size(path), reader.count(_BUS_MESSAGES))
            empty = reader.count(_THREADS)
            for thread_id, rowids in reader.grouped_rowids(_BUS_MESSAGES, "thread_id", "seq"):
                thread = next(iter(reader.rows_where(_THREADS, "id", thread_id)), None)
                # What is left are threads that no message belongs to.
                empty -= thread is not None
                yield from _read_thread(reader, thread, rowids, row_progress)
            yield from (SkippedItem("thread without messages") for _ in range(empty))
            row_progress.finish()


def _read_thread(reader: TableReader, thread: TableRow | None, rowids: Iterable[int], progress: RowProgress) -> Events:
    if thread is None:
        yield from (SkippedItem("message of a deleted thread") for _ in rowids)
        return
    try:
        if not isinstance(thread["id"], str):
            raise InvalidParams(f"id: expected text, got {key_label(thread['id'])!r}")
        # The id stays the same, and is part of paths of the API.
        require_allowed_id(thread["id"])
        own = json_or_none(thread["metadata"], reader.limits)
        fields = {name: clean_line(thread[name]) for name in ("summary", "system_prompt") if clean_line(thread[name])}
        draft = ConversationDraft(
            uuid=thread["id"],
            title=clean_line(thread["topic"]),
            namespace=_NAMESPACE,
            metadata=_with_bus_fields({**(own if isinstance(own, dict) else {}), **fields}, status=thread["status"]),
            created_at=stored_time(thread["created_at"]) or UNSET,
            last_modified=stored_time(thread["updated_at"]) or stored_time(thread["closed_at"]) or UNSET,
        )
    except InvalidParams as error:
        yield FailedItem(f"thread {key_label(thread['id'])}", error.message)
        return
    yield from conversation_parts(draft, _read_bus_messages(reader, rowids, progress))


def _read_bus_messages(
    reader: TableReader, rowids: Iterable[int], progress: RowProgress
) -> Iterator[MessageDraft | SkippedItem | FailedItem]:
    for rowid in rowids:
        try:
            row = reader.row(_BUS_MESSAGES, rowid)
            yield SkippedItem("deleted message") if row["deleted_at"] else _message_draft(row, reader.limits)
        except InvalidParams as error:
            yield FailedItem(f"{_BUS_MESSAGES.name}, row {rowid}", error.message)
        progress.step()


def _message_draft(row: TableRow, limits: ImportLimits) -> MessageDraft:
    if not isinstance(row["id"], str):
        raise InvalidParams(f"id: expected text, got {key_label(row['id'])!r}")
    content = text_or_empty(row["content"])
    require_storable(content, limits)
    own = json_or_none(row["metadata"], limits)
    metadata = own if isinstance(own, dict) else {}
    return MessageDraft(
        uuid=row["id"],
        role=clean_line(row["role"]),
        sender=clean_line(row["author_name"]) or clean_line(row["author"]),
        content=content,
        parent_id=clean_line(row["reply_to_msg_id"]) or None,
        metadata=_with_bus_fields(metadata, priority=row["priority"], author_id=row["author_id"]),
        created_at=stored_time(row["created_at"]) or UNSET,
    )


def _with_bus_fields(metadata: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Adds the fields of the bus that differ from their defaults."""
    values = {name: clean_line(value) for name, value in fields.items()}
    bus_fields = {name: value for name, value in values.items() if value and value not in _DEFAULTS}
    # The key is ours: metadata of the file must not set what only the bus may.
    own = {name: value for name, value in metadata.items() if name != _BUS_KEY}
    return {**own, _BUS_KEY: bus_fields} if bus_fields else own


# -- conversation-memory -----------------------------------------------------------------------------------------------
# The database of the conversation-memory plugin: observations, session summaries, and indexed exchanges, which become
# chats. Vectors and events waiting for a model are not read.

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
_MEMORY_TABLES = (_OBSERVATIONS, _OBSERVATIONS_V3, _SUMMARIES, _EXCHANGES)
# The tables by which a database is recognized.
_MARKS = (_OBSERVATIONS, _OBSERVATIONS_V3, _EXCHANGES)
_TITLE_CHARS = 120


class ConversationMemoryImporter(Importer):
    name = "conversation_memory"
    title = "conversation-memory database"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if any(has_tables(probe, (table,)) for table in _MARKS) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            if not any(map(reader.has, _MARKS)):
                raise InvalidParams("not a conversation-memory database")
            rows_total = sum(reader.count(table) for table in _MEMORY_TABLES if reader.has(table))
            row_progress = RowProgress(progress, file_size(path), rows_total)
            archives = _session_archives(reader)
            # A database has one of the two tables of observations; a missing table has no rows.
            yield from _read_observations(reader, _OBSERVATIONS, archives, row_progress)
            yield from _read_observations(reader, _OBSERVATIONS_V3, archives, row_progress)
            yield from _read_observations(reader, _SUMMARIES, archives, row_progress)
            if reader.has(_EXCHANGES):
                yield from _read_conversations(reader, row_progress)
            row_progress.finish()


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
) -> Events:
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
            metadata={"imported_from": "conversation_memory", **({"tool": tool} if tool else {})},
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
            metadata={"imported_from": "conversation_memory"},
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
            metadata={"imported_from": "conversation_memory"},
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


def _read_conversations(reader: TableReader, progress: RowProgress) -> Events:
    """The exchanges of one archived file form one conversation."""
    for group, rowids in reader.grouped_rowids(_EXCHANGES, "archive_path", "line_start"):
        failures: list[FailedItem] = []
        rows = _read_exchanges(reader, rowids, failures, progress)
        first, path = next(rows, None), str(group)
        if first is not None:
            # Without its folders, which reveal where files are on the user's disk.
            file_name = clean_line(PureWindowsPath(path).stem)
            metadata = {
                "imported_from": "conversation_memory",
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
                    uuid=stable_uuid(
                        "conversation_memory", "messages", f"{row['archive_path']}/{row['id']}/{turn.key}"
                    ),
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
