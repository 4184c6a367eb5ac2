"""Databases of programs for agents: AgentKit, AgentChatBus and the conversation-memory plugin."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import PureWindowsPath
from typing import Any, ClassVar

from msgspec import UNSET, structs

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, ObservationDraft
from sources.importers.engine import events, values
from sources.importers.engine.chat_messages import conversation_parts, title_of
from sources.importers.engine.events import FailedItem, ImportedObservation, SkippedItem, stable_uuid
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.table_reader import TableReader, TableSpec
from sources.importers.engine.values import Fields
from sources.importers.formats.conversation_archive import require_allowed_id
from sources.importers.formats.session_observations import AgentToolCall, AgentToolResult, AgentTurn, turn_content


class _ConversationDatabase(FileImporter):
    """A database with a table of conversations and one of their messages, which is grouped by `key_column` and sorted
    by `order_column`. Ids are kept."""

    suffixes = (".db", ".sqlite", ".sqlite3")
    conversations: ClassVar[TableSpec]
    messages: ClassVar[TableSpec]
    key_column: ClassVar[str]
    order_column: ClassVar[str]
    noun: ClassVar[str]

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if probe.has_tables(self.conversations, self.messages) else 0.0

    def read_file(self, file: InputFile) -> Events:
        with file.open_database() as reader:
            reader.require((self.conversations, self.messages), f"an {self.title}")
            reader.expect_rows(self.messages)
            # Counted down with each conversation that has messages.
            empty = reader.count(self.conversations)
            for key, rowids in reader.grouped_rowids(self.messages, self.key_column, self.order_column):
                row = next(iter(reader.rows_where(self.conversations, "id", key)), None)
                if row is None:
                    yield from (SkippedItem(f"message of a deleted {self.noun}") for _ in rowids)
                    continue
                empty -= 1
                try:
                    # Some words are paths of the conversations API.
                    require_allowed_id(_text_id(row))
                    draft = self.conversation(row, file.limits)
                except InvalidParams as error:
                    yield FailedItem(f"{self.noun} {values.key_label(key)}", error.message)
                else:
                    yield from conversation_parts(draft, self._read_messages(reader, rowids))
            yield from (SkippedItem(f"{self.noun} without messages") for _ in range(empty))

    def _read_messages(
        self, reader: TableReader, rowids: Iterable[int]
    ) -> Iterator[MessageDraft | SkippedItem | FailedItem]:
        for rowid in rowids:
            try:
                draft = self.message(reader.row(self.messages, rowid), reader.limits)
                if isinstance(draft, MessageDraft):
                    values.require_storable(str(draft.content), reader.limits)
                yield draft
            except InvalidParams as error:
                yield FailedItem(f"{self.messages.name}, row {rowid}", error.message)
            reader.step()

    @abstractmethod
    def conversation(self, row: Fields, limits: ImportLimits) -> ConversationDraft: ...

    @abstractmethod
    def message(self, row: Fields, limits: ImportLimits) -> MessageDraft | SkippedItem: ...


def _text_id(row: Fields) -> str:
    if not isinstance(row["id"], str):
        raise InvalidParams(f"id: expected text, got {values.key_label(row['id'])!r}")
    return row["id"]


# -- AgentKit ----------------------------------------------------------------------------------------------------------
# AgentKit's database, `uploads/conversations.db`. Conversations keep the ids of AgentKit's API, so that they are the
# same whether they are imported from the database or from exported JSON.
#
# AgentKit does not remove the messages of deleted conversations; they are skipped.


class AgentKitImporter(_ConversationDatabase):
    name = "agentkit"
    title = "AgentKit database"
    conversations = TableSpec(
        "conversations", ("id", "title", "namespace", "session_id", "created_at", "updated_at"), ("metadata",)
    )
    messages = TableSpec(
        "messages",
        ("id", "conversation_id", "role", "content", "timestamp"),
        ("model", "tool_used", "attachments", "citations"),
    )
    key_column, order_column, noun = "conversation_id", "timestamp", "conversation"

    def conversation(self, row: Fields, limits: ImportLimits) -> ConversationDraft:
        return ConversationDraft(
            uuid=_text_id(row),
            title=row.line("title"),
            namespace=row.line("namespace") or UNSET,
            session_id=row.line("session_id"),
            metadata=Fields.of(values.json_or_none(row["metadata"], limits)),
            created_at=row.time("created_at") or UNSET,
            last_modified=row.time("updated_at") or UNSET,
        )

    def message(self, row: Fields, limits: ImportLimits) -> MessageDraft:
        return MessageDraft(
            uuid=_text_id(row),
            role=row.line("role"),
            sender=row.line("role"),
            content=row.text("content"),
            model=row.line("model") or None,
            tool=row.line("tool_used") or None,
            attachments=tuple(Fields.each(values.json_or_none(row["attachments"], limits))),
            citations=tuple(Fields.each(values.json_or_none(row["citations"], limits))),
            created_at=row.time("timestamp") or UNSET,
        )


# -- AgentChatBus ------------------------------------------------------------------------------------------------------
# AgentChatBus's database, `bus.db`: its threads become threads of our bus, with the same ids, so that agents find them
# where they left them. Agents, their tokens and events are not read.

# As our bus stores threads: the metadata key of what the bus itself knows, and values that it leaves out.
_BUS_KEY = "_bus"
_DEFAULTS = ("discuss", "normal")


class AgentChatBusImporter(_ConversationDatabase):
    name = "agentchatbus"
    title = "AgentChatBus database (bus.db)"
    conversations = TableSpec(
        "threads",
        ("id", "topic", "status", "created_at"),
        ("summary", "metadata", "system_prompt", "updated_at", "closed_at"),
    )
    messages = TableSpec(
        "messages",
        ("id", "thread_id", "author", "role", "content", "seq", "created_at"),
        ("metadata", "author_id", "author_name", "reply_to_msg_id", "priority", "deleted_at"),
    )
    key_column, order_column, noun = "thread_id", "seq", "thread"

    def conversation(self, row: Fields, limits: ImportLimits) -> ConversationDraft:
        fields = {name: row.line(name) for name in ("summary", "system_prompt") if row.line(name)}
        metadata = {**Fields.of(values.json_or_none(row["metadata"], limits)), **fields}
        return ConversationDraft(
            uuid=_text_id(row),
            title=row.line("topic"),
            namespace="bus",
            metadata=_with_bus_fields(metadata, status=row["status"]),
            created_at=row.time("created_at") or UNSET,
            last_modified=row.time("updated_at", "closed_at") or UNSET,
        )

    def message(self, row: Fields, limits: ImportLimits) -> MessageDraft | SkippedItem:
        if row["deleted_at"]:
            return SkippedItem("deleted message")
        metadata = Fields.of(values.json_or_none(row["metadata"], limits))
        return MessageDraft(
            uuid=_text_id(row),
            role=row.line("role"),
            sender=row.line("author_name", "author"),
            content=row.text("content"),
            parent_id=row.line("reply_to_msg_id") or None,
            metadata=_with_bus_fields(metadata, priority=row["priority"], author_id=row["author_id"]),
            created_at=row.time("created_at") or UNSET,
        )


def _with_bus_fields(metadata: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Adds the fields of the bus that differ from their defaults."""
    lines = {name: values.clean_line(value) for name, value in fields.items()}
    bus_fields = {name: line for name, line in lines.items() if line and line not in _DEFAULTS}
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
# The tables by which a database is recognized.
_MARKS = (_OBSERVATIONS, _OBSERVATIONS_V3, _EXCHANGES)


class ConversationMemoryImporter(FileImporter):
    name = "conversation_memory"
    title = "conversation-memory database"
    suffixes = (".db", ".sqlite", ".sqlite3")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.9 if any(probe.has_tables(table) for table in _MARKS) else 0.0

    def read_file(self, file: InputFile) -> Events:
        with file.open_database() as reader:
            if not any(map(reader.has, _MARKS)):
                raise InvalidParams("not a conversation-memory database")
            reader.expect_rows(_OBSERVATIONS, _OBSERVATIONS_V3, _SUMMARIES, _EXCHANGES)
            # The archive of each session, and its lines there, by its exchanges. Subtasks of a session may have files
            # of their own, so the longest one is used.
            archives: dict[str, tuple[str, int, int]] = {}
            if reader.has(_EXCHANGES) and "session_id" in reader.columns(_EXCHANGES.name):
                for row in reader.ranges(_EXCHANGES, ("session_id", "archive_path"), "line_start", "line_end"):
                    session, start, end = row.line("session_id"), row["line_start"], row["line_end"]
                    if session and isinstance(start, int) and isinstance(end, int) and 0 < start <= end:
                        known = archives.get(session)
                        if known is None or end - start > known[2] - known[1]:
                            archives[session] = (str(row["archive_path"]), start, end)

            def read(table: TableSpec, row: Fields) -> Events:
                observation = _observation_draft(table, row, file.limits)
                if not observation.title:
                    yield SkippedItem("summary without text" if table is _SUMMARIES else "observation without a title")
                    return
                if archive := archives.get(str(observation.session_id)):
                    # The lines of the whole session: the database has no more precise ones.
                    path, start, end = archive
                    conversation = events.archived_conversation_id(path)
                    observation = structs.replace(
                        observation, conversation_id=conversation, line_start=start, line_end=end
                    )
                yield ImportedObservation(observation)

            # A database has one of the two tables of observations.
            yield from reader.read_rows((_OBSERVATIONS, _OBSERVATIONS_V3, _SUMMARIES), read)
            if reader.has(_EXCHANGES):
                yield from _read_conversations(reader)


def _observation_draft(table: TableSpec, row: Fields, limits: ImportLimits) -> ObservationDraft:
    title, narrative, tool = row.line("title"), row.text("narrative", "content"), row.line("tool_name")
    fields: dict[str, Any] = {"type": row.line("type") or "general"}
    if table is _SUMMARIES:
        # The parts of a session summary, each after its name.
        parts = {part: text for part in _SUMMARY_PARTS if (text := row.text(part).strip())}
        narrative = "\n\n".join(f"{part.replace('_', ' ')}: {text}" for part, text in parts.items())
        title = title_of(next(iter(parts.values()), ""))
        uuid = events.observation_id("imported", "summary", str(row["id"]))
        fields["type"] = "summary"
    elif table is _OBSERVATIONS_V3:
        # The number of an observation is unique in its database only, so its time is part of the id.
        uuid = events.observation_id("imported", "v3", str(row["id"]), str(row["created_at"]))
    else:
        uuid = events.imported_observation_id(str(row["id"]))
        lists = {
            name: tuple(text for text in values.texts(values.json_or_none(row[name], limits)) if "\0" not in text)
            for name in ("facts", "concepts", "files_read", "files_modified")
        }
        fields |= {**lists, "concepts": values.clean_tags(lists["concepts"]), "subtitle": row.line("subtitle")}
    values.require_storable(narrative, limits)
    return ObservationDraft(
        uuid=uuid,
        title=title,
        narrative=narrative,
        project=row.line("project"),
        session_id=row.line("session_id"),
        origin="imported",
        metadata={"imported_from": "conversation_memory", **({"tool": tool} if tool else {})},
        created_at=row.time("timestamp", "created_at") or UNSET,
        **fields,
    )


# -- exchanges ---------------------------------------------------------------------------------------------------------


def _read_conversations(reader: TableReader) -> Events:
    """The exchanges of one archived file form one conversation."""
    for group, rowids in reader.grouped_rowids(_EXCHANGES, "archive_path", "line_start"):
        failures: list[FailedItem] = []
        rows = _read_exchanges(reader, rowids, failures)
        first, path = next(rows, None), str(group)
        if first is not None:
            # Without its folders, which reveal where files are on the user's disk.
            file_name = values.clean_line(PureWindowsPath(path).stem)
            metadata = {
                "imported_from": "conversation_memory",
                "project": first.line("project"),
                "session": first.line("session_id") or file_name,
                "git_branch": first.line("git_branch"),
            }
            # Without a session id, because the conversation imported from the session's own file has it.
            draft = ConversationDraft(
                uuid=events.archived_conversation_id(path),
                title=title_of(first.text("user_message")),
                metadata={name: value for name, value in metadata.items() if value},
                created_at=first.time("timestamp") or UNSET,
            )
            messages = (message for row in chain((first,), rows) for message in _messages(reader, row, failures))
            yield from conversation_parts(draft, messages)
        yield from failures


def _read_exchanges(reader: TableReader, rowids: Iterable[int], failures: list[FailedItem]) -> Iterator[Fields]:
    for rowid in rowids:
        try:
            yield reader.row(_EXCHANGES, rowid)
        except InvalidParams as error:
            failures.append(FailedItem(f"{_EXCHANGES.name}, row {rowid}", error.message))
        reader.step()


def _messages(reader: TableReader, row: Fields, failures: list[FailedItem]) -> Iterator[MessageDraft | SkippedItem]:
    is_empty = True
    lines = {name: row[name] for name in ("line_start", "line_end") if isinstance(row[name], int) and row[name] > 0}
    try:
        for turn in _turns(reader, row):
            content = turn_content(turn)
            values.require_storable(content, reader.limits)
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
                    created_at=turn.time or row.time("timestamp") or UNSET,
                )
        if is_empty:
            yield SkippedItem("exchange without text")
    except InvalidParams as error:
        failures.append(FailedItem(f"exchange {values.clean_line(str(row['id']))[:60]}", error.message))


def _turns(reader: TableReader, row: Fields) -> Iterator[AgentTurn]:
    """Yields the user's message, the tool calls or else their summary, and the answer."""
    yield AgentTurn(role="user", key="user", text=row.text("user_message"))
    calls = reader.rows_where(_TOOL_CALLS, "exchange_id", row["id"])
    for call in calls:
        key, name, result = call.line("id"), call.line("tool_name") or "tool", call.text("tool_result")
        arguments = values.json_or_none(call["tool_input"], reader.limits)
        # Arguments that are not an object are kept as text.
        is_object = isinstance(arguments, dict)
        yield AgentTurn(
            role="tool",
            key=f"tool {key}",
            time=call.time("timestamp"),
            calls=(
                AgentToolCall(key, name, arguments if is_object else {}, "" if is_object else call.text("tool_input")),
            ),
            results=(AgentToolResult(key, result, bool(call["is_error"]), name),) if result else (),
        )
    if not calls:
        yield AgentTurn(role="tool", key="tools", text=row.text("compressed_tool_summary"))
    yield AgentTurn(role="assistant", key="assistant", text=row.text("assistant_message"))
