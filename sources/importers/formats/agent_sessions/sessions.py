"""Sessions of coding agents, which are files of lines that grow at their end: messages with the lines they stand on,
and the observations that they prove. What an agent's lines mean is its own file's to say.

A session is read exchange by exchange. The last one may go on, so it is where the next reading begins: what is read in
several pieces comes out as if it had been read at once.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, ObservationDraft
from sources.importers.engine.files import own_uuid, short_title
from sources.importers.engine.ids import observation_id
from sources.importers.engine.imported_items import (
    Checkpoint,
    FailedItem,
    ImportedConversation,
    ImportedObservation,
    ImportEvent,
    PreviouslyImported,
    ReadPosition,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.importer import ImportLimits, ProgressCallback
from sources.importers.engine.threads import SkipMessage, line_of, require_text
from sources.importers.formats.agent_sessions.lines import Line, lines_of
from sources.importers.formats.agent_sessions.observations import AgentSession, SessionTurn, ToolCall, derive
from sources.importers.formats.agent_sessions.turns import Call, Result, Turn, content_of, merged, named
from sources.reading.exchanges import LineRange
from sources.text.excerpts import first_sentence

# Enough of a session to know whose it is and what it is about.
_OPENING_LINES = 200
_OPENING_BYTES = 1 << 20
_TITLE_CHARS = 120
# Messages of one arrival, and observations of one exchange.
_ARRIVAL_MESSAGES = 200
_OBSERVATIONS_MAX = 50
# Of an exchange that lasts for days, observations are drawn from its first turns.
_EXCHANGE_TURNS_MAX = 20_000
# An answer has a block on each of its lines, and not more than some dozens of them.
_JOINED_LINES_MAX = 500
# Of what a tool was given and gave: a command or a path is shorter, and of an error the first lines are quoted.
_ARGUMENT_CHARS = 8_000
_RESULT_CHARS = 2_000
_MARK_BYTES = 4096
# What has a meaning of its own in the name of a conversation.
_NOT_IN_NAMES = str.maketrans(dict.fromkeys("/\\~:`", "-"))


class Opening(Struct, frozen=True, kw_only=True):
    """What the first lines of a session say of it."""

    session_id: str = ""
    folder: str = ""
    title: str = ""
    begun: str | None = None
    about: Mapping[str, Any] = {}


class Dialect(Struct, frozen=True):
    """An agent's way to write. `turns` reads a line, and raises LeftOut for one that is no message; `identify` says
    which session a file holds, from its first lines."""

    name: str
    turns: Callable[[bytes, int, ImportLimits], Sequence[Turn]]
    identify: Callable[[Path, Sequence[bytes], ImportLimits], Opening]


def read_session(
    dialect: Dialect, path: Path, limits: ImportLimits, progress: ProgressCallback, mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    with path.open("rb") as file:
        opening = _opening(dialect, path, file, limits)
        begin = _begin(file, mark)
        if begin.before:
            yield PreviouslyImported(begin.before)
        reading = _Reading(dialect, opening, limits, begin)
        for line in lines_of(file, begin.offset, begin.line, limits):
            yield from reading.take(line, file)
            progress(line.end)
        yield from reading.finish(file)


def _opening(dialect: Dialect, path: Path, file: IO[bytes], limits: ImportLimits) -> Opening:
    head = file.read(_OPENING_BYTES).splitlines()[:_OPENING_LINES]
    opening = dialect.identify(path, head, limits)
    if not opening.session_id:
        raise InvalidParams(f"{path.name}: got no line with the id of a session, expected one among the first")
    title = opening.title or next(filter(None, (_asked(dialect, line, limits) for line in head)), "")
    return replace(opening, title=title)


def _asked(dialect: Dialect, line: bytes, limits: ImportLimits) -> str:
    """The first sentence of what a user says on a line."""
    try:
        turns = dialect.turns(line, 0, limits)
    except (SkipMessage, InvalidParams):
        return ""
    return next((line_of(first_sentence(turn.text, _TITLE_CHARS)) for turn in turns if turn.begins), "")


# -- where the last reading ended --------------------------------------------------------------------------------------


def _begin(file: IO[bytes], mark: ReadPosition | None) -> ReadPosition:
    """Of a file that is another one now, its beginning."""
    if mark is None or mark.offset < 0 or _digest(file, mark.offset) != mark.digest:
        return ReadPosition("", 0, 1)
    return mark


def _digest(file: IO[bytes], offset: int) -> str:
    """Of how the file begins, and of what stands before the offset: one that was cut or written anew has another."""
    place = file.tell()
    file.seek(0)
    first = file.read(min(offset, _MARK_BYTES))
    file.seek(max(0, offset - _MARK_BYTES))
    last = file.read(min(offset, _MARK_BYTES))
    file.seek(place)
    return sha256(b"%d\0%s%s" % (offset, first, last)).hexdigest()


# -- exchange by exchange ----------------------------------------------------------------------------------------------


class _Placed(Struct, frozen=True):
    turn: Turn
    lines: LineRange


class _Reading:
    """One session as it is read from a mark, or from its beginning."""

    def __init__(self, dialect: Dialect, opening: Opening, limits: ImportLimits, begin: ReadPosition) -> None:
        self._limits = limits
        self._name = dialect.name
        self._turns = dialect.turns
        self._conversation = _conversation(dialect.name, opening)
        self._project = _project(opening.folder)
        self._is_new = begin.offset == 0
        self._count = Counter(begin.before)
        self._last_line = 0
        self._begun = self._time = opening.begun
        self._last: _Placed | None = None
        self._exchange: list[_Placed] = []
        self._tools: dict[str, str] = {}
        self._messages: list[MessageDraft] = []
        self._observations: list[ObservationDraft] = []
        self._mark_at: ReadPosition | None = None
        self._has_messages = False

    def take(self, line: Line, file: IO[bytes]) -> Iterator[ImportEvent]:
        place = f"line {line.number}"
        if line.problem:
            yield FailedItem(place, line.problem)
            return
        try:
            turns = self._turns(line.data, line.number, self._limits)
        except SkipMessage as left_out:
            yield SkippedItem(left_out.reason)
            return
        except InvalidParams as error:
            # The program is still writing: the line is whole the next time.
            if not line.is_last:
                yield FailedItem(place, error.message)
            return
        for turn in turns:
            try:
                require_text(content_of(turn), self._limits)
            except InvalidParams as error:
                yield FailedItem(place, error.message)
                continue
            yield from self._add(turn, line, file)

    def finish(self, file: IO[bytes]) -> Iterator[ImportEvent]:
        self._settle()
        self._end_exchange()
        yield from self._emit(file)
        if self._is_new and not self._has_messages:
            yield SkippedItem("a session without messages")

    def _add(self, turn: Turn, line: Line, file: IO[bytes]) -> Iterator[ImportEvent]:
        if turn.begins:
            self._settle()
            self._end_exchange()
            self._mark_at = self._mark(line)
            if len(self._messages) >= _ARRIVAL_MESSAGES:
                yield from self._emit(file)
            self._time = self._begun
        turn = self._dated(turn)
        if self._last is not None and _are_one(self._last, turn, line.number):
            self._last = _Placed(merged(self._last.turn, turn), LineRange(self._last.lines.start, line.number))
            return
        self._settle()
        self._last = _Placed(turn, LineRange(line.number, line.number))
        if len(self._messages) >= 2 * _ARRIVAL_MESSAGES:
            yield from self._emit_messages()

    def _mark(self, line: Line) -> ReadPosition:
        """At the beginning of a line, whose first message, if it has several, will be read again."""
        again = Counter(messages=int(self._last_line == line.number))
        return ReadPosition("", line.start, line.number, self._count - again)

    def _dated(self, turn: Turn) -> Turn:
        """What has no time, as a summary, has that of the turn before it in its exchange, or of the session's begin.
        Nothing from before the exchange counts: a later reading may begin there."""
        self._time = turn.time or self._time
        return replace(turn, time=self._time)

    def _settle(self) -> None:
        """The last turn is whole: nothing joins it any more."""
        placed, self._last = self._last, None
        if placed is None:
            return
        turn = named(placed.turn, self._tools)
        self._tools |= {call.key: call.name for call in turn.calls}
        self._messages.append(self._message(turn, placed.lines))
        self._count["messages"] += 1
        self._last_line = placed.lines.end
        if len(self._exchange) < _EXCHANGE_TURNS_MAX and not turn.is_aside:
            self._exchange.append(_Placed(_short(turn), placed.lines))

    def _end_exchange(self) -> None:
        # Lines are part of the ids: what is said twice is two observations, whichever of them is read first.
        session = AgentSession(
            session_id=str(self._conversation.session_id),
            project=self._project,
            turns=list(_session_turns(self._exchange)),
            conversation_id=str(self._conversation.uuid),
        )
        for draft in derive(session, _OBSERVATIONS_MAX):
            seeds = (session.session_id, str(draft.type), str(draft.title), str(draft.line_start))
            self._observations.append(replace(draft, uuid=observation_id("derived", *seeds)))
            self._count["observations"] += 1
        self._exchange.clear()
        self._tools.clear()

    def _emit(self, file: IO[bytes]) -> Iterator[ImportEvent]:
        yield from self._emit_messages()
        yield from map(ImportedObservation, self._observations)
        self._observations.clear()
        if self._mark_at is not None:
            yield Checkpoint(replace(self._mark_at, digest=_digest(file, self._mark_at.offset)))

    def _emit_messages(self) -> Iterator[ImportEvent]:
        if self._messages:
            yield ImportedConversation(self._conversation, tuple(self._messages), continues=self._has_messages)
            self._has_messages = True
            self._messages.clear()

    def _message(self, turn: Turn, lines: LineRange) -> MessageDraft:
        return MessageDraft(
            uuid=stable_uuid(self._name, "messages", f"{self._conversation.uuid}/{turn.key}"),
            role=turn.role,
            sender=turn.role,
            content=content_of(turn),
            model=turn.model or UNSET,
            tool=_only_tool(turn) or UNSET,
            metadata={"line_start": lines.start, "line_end": lines.end, **turn.about},
            is_canonical=not turn.is_aside,
            created_at=turn.time or UNSET,
        )


def _are_one(last: _Placed, turn: Turn, number: int) -> bool:
    return bool(turn.joins) and turn.joins == last.turn.joins and number - last.lines.start < _JOINED_LINES_MAX


def _conversation(importer: str, opening: Opening) -> ConversationDraft:
    session, project = opening.session_id, _project(opening.folder)
    # A name in the archive and never a path: where the session lies on a disk is nobody's to know.
    path = f"{project or 'sessions'}/{session}.jsonl"
    about = {"imported_from": importer, "path": path, "project": project, **opening.about}
    return ConversationDraft(
        uuid=own_uuid(session) or stable_uuid(importer, "chats", session),
        session_id=session,
        title=short_title(opening.title),
        metadata={name: value for name, value in about.items() if value},
        created_at=opening.begun or UNSET,
    )


def _project(folder: str) -> str:
    """By the last part of the folder in which the agent worked, on whichever system."""
    name = line_of(folder.replace("\\", "/").rstrip("/").rpartition("/")[2]).translate(_NOT_IN_NAMES)[:120].strip()
    return name if name.strip(".") and name.isprintable() else ""


def session_name(text: Any) -> str:
    """An id as a conversation may have it; nothing where it is none."""
    name = line_of(text)
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return name if plain.isascii() and plain.isalnum() and len(name) <= 120 and name[0].isalnum() else ""


def _only_tool(turn: Turn) -> str:
    names = {call.name for call in turn.calls} | {result.tool for result in turn.results}
    return names.pop() if len(names) == 1 else ""


def _short(turn: Turn) -> Turn:
    """As far as observations are drawn from it: an exchange may be long, and is held until it ends."""
    calls = [replace(call, arguments=_short_values(call.arguments)) for call in turn.calls]
    results = [replace(result, text=result.text[:_RESULT_CHARS]) for result in turn.results]
    return replace(turn, text=turn.text[:_ARGUMENT_CHARS], calls=tuple(calls), results=tuple(results))


def _short_values(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value[:_ARGUMENT_CHARS] for name, value in arguments.items() if isinstance(value, str)}


def _session_turns(exchange: Sequence[_Placed]) -> Iterator[SessionTurn]:
    """Calls with what came back, which stands on later lines. One that nothing came back from proves nothing."""
    results = {result.key: result for placed in exchange for result in placed.turn.results}
    for placed in exchange:
        turn = placed.turn
        yield SessionTurn(
            role=turn.role,
            lines=placed.lines,
            text=turn.text,
            time=turn.time,
            calls=tuple(_finished(call, results[call.key]) for call in turn.calls if call.key in results),
            is_summary=turn.is_summary,
        )


def _finished(call: Call, result: Result) -> ToolCall:
    return ToolCall(name=call.name, arguments=call.arguments, result=result.text, is_error=result.is_error)
