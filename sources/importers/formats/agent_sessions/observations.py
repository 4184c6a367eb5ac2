"""Observations that a session of an agent proves by itself: which files it touched for what was asked, what failed,
what was committed, and the summaries it holds. Everything in them is quoted; nothing is judged or put into other words.

Pure and deterministic: the same session has the same observations with the same ids, so that a session which grew can
be read again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import UNSET, Struct

from sources.drafts import ObservationDraft
from sources.importers.engine.ids import observation_id
from sources.importers.formats.agent_sessions.commits import commit_messages
from sources.reading.exchanges import LineRange, group_turns
from sources.text.excerpts import first_line, first_sentence

_TITLE_MAX_CHARS = 120
# Of an error, its beginning: what follows is a trace or a listing, which the transcript has.
_FACTS_MAX = 5
_FACT_MAX_CHARS = 300
_NARRATIVE_MAX_CHARS = 4_000

# The argument with the file, by the name of a tool; agents of different makers write them differently.
_READERS: Mapping[str, str] = {"Read": "file_path", "NotebookRead": "notebook_path", "read_file": "path"}
_WRITERS: Mapping[str, str] = {
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "write_file": "path",
    "edit_file": "path",
}
_SHELLS: Mapping[str, str] = {"Bash": "command", "shell": "command", "run_shell_command": "command"}
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+?)\s*$", re.MULTILINE)


class ToolCall(Struct, frozen=True, kw_only=True):
    """A tool as it was called in a session, and what came back."""

    name: str
    arguments: Mapping[str, Any] = {}
    result: str = ""
    is_error: bool = False


class SessionTurn(Struct, frozen=True, kw_only=True):
    """One turn of a session: what was said in it, and the tools that were called. `is_summary`: its text is a summary
    that the session's own program wrote."""

    role: str
    lines: LineRange
    text: str = ""
    time: str | None = None
    calls: tuple[ToolCall, ...] = ()
    is_summary: bool = False


class AgentSession(Struct, frozen=True, kw_only=True):
    session_id: str
    project: str
    turns: Sequence[SessionTurn]
    conversation_id: str | None = None


def derive(session: AgentSession, max_observations: int) -> Sequence[ObservationDraft]:
    """In the order of the session; of several that say the same, the first."""
    found: dict[tuple[str, str], ObservationDraft] = {}
    for draft in _all_of(session):
        found.setdefault((str(draft.type), str(draft.title)), draft)
    return tuple(islice(found.values(), max_observations))


def _all_of(session: AgentSession) -> Iterator[ObservationDraft]:
    summaries = [turn for turn in session.turns if turn.is_summary]
    said = [turn for turn in session.turns if not turn.is_summary]
    for summary in summaries:
        yield from _summary(session, summary)
    for exchange in group_turns(said, _begins):
        yield from _touched(session, exchange)
        for turn in exchange:
            for call in turn.calls:
                yield from _failure(session, turn, call) if call.is_error else _commits(session, turn, call)


def _begins(turn: SessionTurn) -> bool:
    return turn.role == "user" and bool(turn.text.strip())


def _touched(session: AgentSession, exchange: Sequence[SessionTurn]) -> Iterator[ObservationDraft]:
    """What was asked, and the files that were read and changed for it."""
    calls = [call for turn in exchange for call in turn.calls if not call.is_error]
    modified = tuple(dict.fromkeys(path for call in calls for path in _modified(call)))
    read = tuple(dict.fromkeys(path for call in calls if (path := _text(call, _READERS))))
    title = first_sentence(exchange[0].text, _TITLE_MAX_CHARS)
    if title and _begins(exchange[0]) and (modified or read):
        lines = LineRange(exchange[0].lines.start, exchange[-1].lines.end)
        yield _draft(session, "general", title, lines, exchange[0].time, files_read=read, files_modified=modified)


def _failure(session: AgentSession, turn: SessionTurn, call: ToolCall) -> Iterator[ObservationDraft]:
    lines = [first_line(line, _FACT_MAX_CHARS) for line in call.result.splitlines() if line.strip()]
    if lines:
        title = first_line(f"{call.name}: {lines[0]}", _TITLE_MAX_CHARS)
        yield _draft(session, "error", title, turn.lines, turn.time, facts=lines[:_FACTS_MAX])


def _commits(session: AgentSession, turn: SessionTurn, call: ToolCall) -> Iterator[ObservationDraft]:
    for message in commit_messages(_text(call, _SHELLS)):
        subject, _, body = message.partition("\n")
        title = first_line(subject, _TITLE_MAX_CHARS)
        yield _draft(session, "commit", title, turn.lines, turn.time, narrative=body.strip()[:_NARRATIVE_MAX_CHARS])


def _summary(session: AgentSession, turn: SessionTurn) -> Iterator[ObservationDraft]:
    title = first_sentence(turn.text, _TITLE_MAX_CHARS)
    if title:
        text = turn.text.strip()
        narrative = "" if text == title else text[:_NARRATIVE_MAX_CHARS]
        yield _draft(session, "summary", title, turn.lines, turn.time, narrative=narrative)


def _draft(
    session: AgentSession, kind: str, title: str, lines: LineRange, time: str | None, **more: Any
) -> ObservationDraft:
    return ObservationDraft(
        uuid=observation_id("derived", session.session_id, kind, title),
        type=kind,
        title=title,
        project=session.project,
        session_id=session.session_id,
        origin="derived",
        conversation_id=session.conversation_id,
        line_start=lines.start,
        line_end=lines.end,
        created_at=time or UNSET,
        **more,
    )


def _modified(call: ToolCall) -> Sequence[str]:
    path = _text(call, _WRITERS)
    if path:
        return (path,)
    if call.name != "apply_patch":
        return ()
    patch = call.arguments.get("input") or call.arguments.get("patch")
    return _PATCHED.findall(patch) if isinstance(patch, str) else ()


def _text(call: ToolCall, arguments: Mapping[str, str]) -> str:
    value = call.arguments.get(arguments.get(call.name, ""))
    return value if isinstance(value, str) else ""
