"""Session files of coding agents, as conversations and observations. `coding_agents.py` interprets their lines."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from msgspec import UNSET, Struct, structs

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, ObservationDraft
from sources.importers.engine import events
from sources.importers.engine.chat_messages import SkipMessage, title_of
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.files import require_lines, skip_line
from sources.importers.engine.importer import Events, FileImporter, ImportLimits, InputFile
from sources.importers.engine.json_stream import decode_line
from sources.importers.engine.values import Fields, clean_line, require_storable, short_title, valid_uuid
from sources.importers.formats import session_observations
from sources.importers.formats.session_observations import UNKNOWN_TOOL, AgentTurn
from sources.reading.exchanges import LineRange

# -- lines -------------------------------------------------------------------------------------------------------------
# Reads the lines of a file that another program may still be writing to, each limited in length.

# A session is identified, and has a title, within its first lines.
HEADER_LINES = 200
# The largest prompts contain images.
_RECOGNITION_BYTES = 32 << 20


class SessionLine(Struct, frozen=True):
    """`start` and `end` are byte offsets; `number` counts from 1. `is_last`: the line has no newline yet and may be
    incomplete."""

    data: bytes
    number: int
    start: int
    end: int
    is_last: bool = False
    problem: str = ""


def read_lines(file: IO[bytes], offset: int, number: int, limits: ImportLimits) -> Iterator[SessionLine]:
    """Yields the lines from an offset, at which the line with that number starts. Empty lines are counted, but not
    yielded. Raises InvalidParams after too many lines."""
    file.seek(offset)
    while data := file.readline(limits.line_max_bytes + 1):
        require_lines(number, limits)
        end, problem = offset + len(data), ""
        if len(data) > limits.line_max_bytes and not data.endswith(b"\n"):
            end += skip_line(file)
            problem = f"expected at most {limits.line_max_bytes} bytes, got {end - offset}"
            data = b""
        if problem or data.strip():
            is_last = not problem and not data.endswith(b"\n")
            yield SessionLine(data, number, offset, end, is_last=is_last, problem=problem)
        offset, number = end, number + 1


def first_lines(path: Path) -> Iterator[bytes]:
    """Yields the first lines of a file, as far as they are needed to recognize it."""
    with open_file(path) as file:
        yield from lines_within(file, _RECOGNITION_BYTES)


def lines_within(file: IO[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yields lines from the current position, at most `HEADER_LINES` with at most this many bytes together."""
    for _ in range(HEADER_LINES):
        line = file.readline(max_bytes)
        max_bytes -= len(line)
        if not line.strip():
            continue
        if not line.endswith(b"\n") and max_bytes <= 0:
            return
        yield line


# -- sessions ----------------------------------------------------------------------------------------------------------
# Reads session files of coding agents: files of lines that grow at their end. Yields messages with the lines they are
# on, and observations derived from them. A subclass of `SessionImporter` interprets the lines of one agent.
#
# A session is read exchange by exchange. The last exchange may still continue, so the next import starts there; a
# session read in several steps gives the same result as one read at once.

PROGRAM_LINE = "line without a message"
MESSAGE_WITHOUT_TEXT = "message without text"
_HEADER_BYTES = 1 << 20
# The most messages yielded at once, and the most observations of one exchange.
_PART_MESSAGES = 200
_OBSERVATIONS_MAX = 50
# The observations of a very long exchange are derived from its first turns.
_EXCHANGE_TURNS_MAX = 20_000
# A turn is written with one block per line; more than a few dozen are unusual.
_MERGED_LINES_MAX = 500
# What observations need of arguments and results: commands and paths are shorter, and only the first lines of an error
# are quoted.
_ARGUMENT_CHARS = 8_000
_RESULT_CHARS = 2_000
_DIGEST_BYTES = 4096
# Characters that have a special meaning in conversation names.
_NOT_IN_NAMES = str.maketrans(dict.fromkeys("/\\~:`", "-"))


class SessionHeader(Struct, frozen=True, kw_only=True):
    """What the first lines of a file say about the session."""

    session_id: str = ""
    working_dir: str = ""
    title: str = ""
    started_at: str | None = None
    metadata: Mapping[str, Any] = {}


class SessionImporter(FileImporter):
    """Reads the sessions of one agent."""

    suffixes = (".jsonl",)

    @abstractmethod
    def read_header(self, path: Path, lines: Sequence[Fields]) -> SessionHeader:
        """Identifies the session in a file from its first lines."""

    @abstractmethod
    def parse_line(self, path: Path, line: Fields, number: int, limits: ImportLimits) -> Sequence[AgentTurn]:
        """Returns the turns on a line. Raises SkipMessage for a line without a message."""

    def read_file(self, file: InputFile) -> Events:
        path, limits, position = file.path, file.limits, file.position
        with open_file(path) as opened:
            header = SessionHeader()
            # Most sessions are identified by a small part of the file; in some, large lines come first.
            for max_bytes in (_HEADER_BYTES, limits.line_max_bytes):
                opened.seek(0)
                lines: list[Fields] = []
                for data in lines_within(opened, max_bytes):
                    with suppress(InvalidParams):
                        lines.append(decode_line(data, limits))
                header = self.read_header(path, lines)
                title = header.title
                for line in lines:
                    if title:
                        break
                    # The first sentence of the first text that the user wrote.
                    with suppress(SkipMessage, InvalidParams):
                        turns = self.parse_line(path, line, 0, limits)
                        requests = (turn.text for turn in turns if turn.starts_exchange)
                        title = title_of(next(requests, ""))
                header = structs.replace(header, title=title)
                if header.session_id and header.title and header.started_at:
                    break
            if not header.session_id:
                raise InvalidParams(f"{path.name}: no session id in the first {HEADER_LINES} lines")
            start = events.ReadPosition("", 0, 1)
            # The whole file is read again if its content before the saved position has changed.
            if position is not None and position.offset >= 0 and _digest(opened, position.offset) == position.digest:
                start = position
            if start.counts:
                yield events.PreviouslyImported(start.counts)
            reader = _SessionReader(self, path, header, limits, start)
            for session_line in read_lines(opened, start.offset, start.line, limits):
                yield from reader.read_line(session_line, opened)
                file.progress(session_line.end)
            yield from reader.finish(opened)


def _digest(file: IO[bytes], offset: int) -> str:
    """Hashes the start of the file and the bytes before the offset, which change if the file is truncated or
    rewritten."""
    current = file.tell()
    file.seek(0)
    first = file.read(min(offset, _DIGEST_BYTES))
    file.seek(max(0, offset - _DIGEST_BYTES))
    last = file.read(min(offset, _DIGEST_BYTES))
    file.seek(current)
    return sha256(b"%d\0%s%s" % (offset, first, last)).hexdigest()


class _SessionReader:
    """Reads one session from a position."""

    def __init__(
        self,
        importer: SessionImporter,
        path: Path,
        header: SessionHeader,
        limits: ImportLimits,
        start: events.ReadPosition,
    ) -> None:
        self._limits = limits
        self._importer = importer
        self._file = path
        session = header.session_id
        # The last part of the working directory, with either path separator.
        last_part = header.working_dir.replace("\\", "/").rstrip("/").rpartition("/")[2]
        project = clean_line(last_part).translate(_NOT_IN_NAMES)[:120].strip()
        self._project = project if project.strip(".") and project.isprintable() else ""
        # A name for the archive. The path on the user's disk is not stored.
        archived = f"{self._project or 'sessions'}/{session}.jsonl"
        metadata = {"imported_from": importer.name, "path": archived, "project": self._project, **header.metadata}
        self._conversation = ConversationDraft(
            uuid=valid_uuid(session) or events.stable_uuid(importer.name, "chats", session),
            session_id=session,
            title=short_title(header.title),
            metadata={name: value for name, value in metadata.items() if value},
            created_at=header.started_at or UNSET,
        )
        self._starts_at_zero = start.offset == 0
        self._counts = Counter(start.counts)
        self._last_line = 0
        self._started_at = self._time = header.started_at
        self._pending: AgentTurn | None = None
        self._exchange: list[AgentTurn] = []
        self._tool_names: dict[str, str] = {}
        self._messages: list[MessageDraft] = []
        self._observations: list[ObservationDraft] = []
        self._exchange_start: events.ReadPosition | None = None
        self._has_messages = False

    def read_line(self, line: SessionLine, file: IO[bytes]) -> Events:
        location = f"line {line.number}"
        if line.problem:
            yield events.FailedItem(location, line.problem)
            return
        try:
            fields = decode_line(line.data, self._limits)
            turns = self._importer.parse_line(self._file, fields, line.number, self._limits)
        except SkipMessage as skip:
            yield events.SkippedItem(skip.reason)
            return
        except InvalidParams as error:
            # The agent may still be writing the last line; the next import reads it.
            if not line.is_last:
                yield events.FailedItem(location, error.message)
            return
        for turn in turns:
            try:
                require_storable(session_observations.turn_content(turn), self._limits)
            except InvalidParams as error:
                yield events.FailedItem(location, error.message)
                continue
            yield from self._add_turn(turn, line, file)

    def finish(self, file: IO[bytes]) -> Events:
        self._finish_turn()
        self._finish_exchange()
        yield from self._emit(file)
        # A session that is read on may have nothing new, which is not worth a report.
        if self._starts_at_zero and not self._has_messages:
            yield events.SkippedItem("session without messages")

    def _add_turn(self, turn: AgentTurn, line: SessionLine, file: IO[bytes]) -> Events:
        if turn.starts_exchange:
            self._finish_turn()
            self._finish_exchange()
            # The position at the start of a line. If a message of this line is already counted, it is subtracted,
            # because the whole line will be read again.
            repeated = Counter(messages=int(self._last_line == line.number))
            self._exchange_start = events.ReadPosition("", line.start, line.number, self._counts - repeated)
            if len(self._messages) >= _PART_MESSAGES:
                yield from self._emit(file)
            self._time = self._started_at
        # Gives a turn without a time, such as a summary, that of the previous turn in its exchange, or of the session's
        # start. Earlier exchanges do not count, because a later import may start at this one.
        self._time = turn.time or self._time
        turn = structs.replace(turn, time=self._time, lines=LineRange(line.number, line.number))
        pending, is_continuation = self._pending, False
        if pending is not None:
            is_same = bool(turn.merge_key) and turn.merge_key == pending.merge_key
            is_continuation = is_same and line.number - pending.lines.start < _MERGED_LINES_MAX
        if pending is not None and is_continuation:
            self._pending = structs.replace(
                pending,
                text="\n\n".join(filter(None, (pending.text, turn.text))),
                calls=(*pending.calls, *turn.calls),
                results=(*pending.results, *turn.results),
                metadata={**pending.metadata, **turn.metadata},
                lines=LineRange(pending.lines.start, line.number),
            )
            return
        self._finish_turn()
        self._pending = turn
        if len(self._messages) >= 2 * _PART_MESSAGES:
            yield from self._emit_messages()

    def _finish_turn(self) -> None:
        """Turns the pending turn, which nothing can be merged into any more, into a message."""
        turn, self._pending = self._pending, None
        if turn is None:
            return
        # A result names its tool by the key of the call.
        results = [
            structs.replace(result, tool=result.tool or self._tool_names.get(result.key, UNKNOWN_TOOL))
            for result in turn.results
        ]
        turn = structs.replace(turn, results=results)
        self._tool_names |= {call.key: call.name for call in turn.calls}
        tools = {call.name for call in turn.calls} | {result.tool for result in turn.results}
        message_draft = MessageDraft(
            uuid=events.stable_uuid(self._importer.name, "messages", f"{self._conversation.uuid}/{turn.key}"),
            role=turn.role,
            sender=turn.role,
            content=session_observations.turn_content(turn),
            model=turn.model or UNSET,
            tool=(tools.pop() if len(tools) == 1 else "") or UNSET,
            metadata={"line_start": turn.lines.start, "line_end": turn.lines.end, **turn.metadata},
            is_canonical=not turn.is_sidechain,
            created_at=turn.time or UNSET,
        )
        self._messages.append(message_draft)
        self._counts["messages"] += 1
        self._last_line = turn.lines.end
        if len(self._exchange) < _EXCHANGE_TURNS_MAX and not turn.is_sidechain:
            # Keeps only what observations need, because a long exchange is held in memory until it ends.
            calls = []
            for call in turn.calls:
                texts = {name: value for name, value in call.arguments.items() if isinstance(value, str)}
                shorter = {name: text[:_ARGUMENT_CHARS] for name, text in texts.items()}
                calls.append(structs.replace(call, arguments=shorter))
            results = [structs.replace(result, text=result.text[:_RESULT_CHARS]) for result in turn.results]
            self._exchange.append(structs.replace(turn, text=turn.text[:_ARGUMENT_CHARS], calls=calls, results=results))

    def _finish_exchange(self) -> None:
        # Calls are combined with their results, which are on later lines. Calls without a result are left out: they
        # prove nothing.
        results = {result.key: result for turn in self._exchange for result in turn.results}
        turns = []
        for turn in self._exchange:
            completed = [(call, results[call.key]) for call in turn.calls if call.key in results]
            calls = [structs.replace(call, result=result.text, is_error=result.is_error) for call, result in completed]
            turns.append(structs.replace(turn, calls=calls))
        observations = session_observations.derive_observations(
            turns,
            _OBSERVATIONS_MAX,
            session_id=str(self._conversation.session_id),
            project=self._project,
            conversation_id=str(self._conversation.uuid),
        )
        self._observations += observations
        self._counts["observations"] += len(observations)
        self._exchange.clear()
        self._tool_names.clear()

    def _emit(self, file: IO[bytes]) -> Events:
        yield from self._emit_messages()
        yield from map(events.ImportedObservation, self._observations)
        self._observations.clear()
        if self._exchange_start is not None:
            # The last exchange is not before the checkpoint: the next import reads it again, with what was added to it.
            digest = _digest(file, self._exchange_start.offset)
            yield events.Checkpoint(structs.replace(self._exchange_start, digest=digest))

    def _emit_messages(self) -> Events:
        if self._messages:
            yield events.ImportedConversation(self._conversation, tuple(self._messages), continues=self._has_messages)
            # All later parts continue the conversation.
            self._has_messages = True
            self._messages.clear()


def valid_session_id(value: Any) -> str:
    """Returns the value if it can be the session id of a conversation, otherwise ""."""
    name = clean_line(value)
    letters = name.replace("-", "").replace("_", "").replace(".", "")
    return name if letters.isascii() and letters.isalnum() and len(name) <= 120 and name[0].isalnum() else ""
