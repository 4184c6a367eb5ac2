"""The turns of an agent session, in a form common to all agents, and what is derived from them: the texts of messages,
and observations, which are files read and changed for a request, failed tool calls, commits, and summaries. Their text
is quoted from the session; nothing is judged or rephrased.

The functions are pure: the same session yields the same observations with the same ids, so a session that has grown can
be read again.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec import UNSET, Struct, structs

from sources.drafts import ObservationDraft
from sources.importers.engine.events import observation_id
from sources.importers.engine.values import to_json
from sources.reading.exchanges import LineRange, group_turns
from sources.text.chunking import first_line, first_sentence

_TITLE_MAX_CHARS = 120
# The first lines of an error are quoted; the rest is a stack trace or listing, which the transcript has.
_FACTS_MAX = 5
_FACT_MAX_CHARS = 300
_NARRATIVE_MAX_CHARS = 4_000

# Tools by the argument with the file or command, which differs between agents.
_READ_TOOLS: Mapping[str, str] = {"Read": "file_path", "NotebookRead": "notebook_path", "read_file": "path"}
_WRITE_TOOLS: Mapping[str, str] = {
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "write_file": "path",
    "edit_file": "path",
}
_SHELL_TOOLS: Mapping[str, str] = {"Bash": "command", "shell": "command", "run_shell_command": "command"}
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: ([^\n]*\S)", re.MULTILINE)


# What a result is called whose call is not known.
UNKNOWN_TOOL = "tool"


class AgentToolCall(Struct, frozen=True):
    """`key` links the call to its result. `text` holds arguments that are not an object. `result` is known when the
    exchange has ended."""

    key: str
    name: str
    arguments: Mapping[str, Any] = {}
    text: str = ""
    result: str = ""
    is_error: bool = False


class AgentToolResult(Struct, frozen=True):
    key: str
    text: str
    is_error: bool = False
    tool: str = ""


class AgentTurn(Struct, frozen=True, kw_only=True):
    """`key` is unique in the session. Consecutive turns with the same `merge_key` are parts of one turn. `is_summary`
    marks text that the program wrote; `is_sidechain` a task that ran in parallel to the session."""

    role: str
    key: str
    lines: LineRange = LineRange(0, 0)
    text: str = ""
    time: str | None = None
    model: str = ""
    calls: Sequence[AgentToolCall] = ()
    results: Sequence[AgentToolResult] = ()
    merge_key: str = ""
    is_summary: bool = False
    is_sidechain: bool = False
    metadata: Mapping[str, Any] = {}

    @property
    def starts_exchange(self) -> bool:
        """An exchange starts with a user's text."""
        return self.role == "user" and not self.is_summary and not self.is_sidechain and bool(self.text.strip())


def turn_content(turn: AgentTurn) -> str:
    """Returns the content of the message: text, tool calls, tool results."""
    parts = [turn.text]
    for call in turn.calls:
        lines = [f"{name}: {_argument_text(value)}" for name, value in call.arguments.items()]
        parts.append("\n".join((f"[{call.name}]", *lines, *([call.text] if call.text else []))))
    for result in turn.results:
        kind = "error" if result.is_error else "result"
        parts.append(f"[{result.tool or UNKNOWN_TOOL}: {kind}]\n{result.text}".rstrip())
    return "\n\n".join(part for part in parts if part.strip())


def _argument_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value)
    except (msgspec.MsgspecError, ValueError, UnicodeEncodeError):
        return ""


# -- observations ------------------------------------------------------------------------------------------------------


def derive_observations(
    turns: Sequence[AgentTurn], max_observations: int, *, session_id: str, **fields: Any
) -> list[ObservationDraft]:
    """Returns observations in the order of the session; of several with the same type and title, the first. `fields`
    are those that all of them have."""
    drafts: dict[tuple[str, str], ObservationDraft] = {}
    for draft in _all_observations(turns):
        drafts.setdefault((str(draft.type), str(draft.title)), draft)
    # The line is part of the id: the same text in two exchanges gives two observations, in whichever order they are
    # read.
    return [
        structs.replace(
            draft,
            uuid=observation_id("derived", session_id, kind, title, str(draft.line_start)),
            session_id=session_id,
            **fields,
        )
        for (kind, title), draft in islice(drafts.items(), max_observations)
    ]


def _all_observations(turns: Sequence[AgentTurn]) -> Iterator[ObservationDraft]:
    for turn in turns:
        if turn.is_summary and (summary_title := first_sentence(turn.text, _TITLE_MAX_CHARS)):
            text = turn.text.strip()
            narrative = "" if text == summary_title else text[:_NARRATIVE_MAX_CHARS]
            yield _draft("summary", summary_title, turn.lines, turn.time, narrative=narrative)
    others = [turn for turn in turns if not turn.is_summary]
    for exchange in group_turns(others, lambda turn: turn.starts_exchange):
        # The request of an exchange, with the files that were read and changed for it.
        calls = [call for turn in exchange for call in turn.calls if not call.is_error]
        modified = tuple(dict.fromkeys(path for call in calls for path in _modified_files(call)))
        read = tuple(dict.fromkeys(path for call in calls if (path := _argument(call, _READ_TOOLS))))
        title = first_sentence(exchange[0].text, _TITLE_MAX_CHARS)
        if title and exchange[0].starts_exchange and (modified or read):
            lines = LineRange(exchange[0].lines.start, exchange[-1].lines.end)
            yield _draft("general", title, lines, exchange[0].time, files_read=read, files_modified=modified)
        # The errors of failed calls, and the commits that shell commands made.
        for turn in exchange:
            for call in turn.calls:
                if call.is_error:
                    facts = [first_line(line, _FACT_MAX_CHARS) for line in call.result.splitlines() if line.strip()]
                    if facts:
                        title = first_line(f"{call.name}: {facts[0]}", _TITLE_MAX_CHARS)
                        yield _draft("error", title, turn.lines, turn.time, facts=facts[:_FACTS_MAX])
                    continue
                for message in commit_messages(_argument(call, _SHELL_TOOLS)):
                    subject, _, body = message.partition("\n")
                    title = first_line(subject, _TITLE_MAX_CHARS)
                    narrative = body.strip()[:_NARRATIVE_MAX_CHARS]
                    yield _draft("commit", title, turn.lines, turn.time, narrative=narrative)


def _draft(kind: str, title: str, lines: LineRange, time: str | None, **fields: Any) -> ObservationDraft:
    return ObservationDraft(
        type=kind,
        title=title,
        origin="derived",
        line_start=lines.start,
        line_end=lines.end,
        created_at=time or UNSET,
        **fields,
    )


def _modified_files(call: AgentToolCall) -> Sequence[str]:
    path = _argument(call, _WRITE_TOOLS)
    if path:
        return (path,)
    if call.name != "apply_patch":
        return ()
    patch = call.arguments.get("input") or call.arguments.get("patch")
    return _PATCHED_FILE.findall(patch) if isinstance(patch, str) else ()


def _argument(call: AgentToolCall, arguments: Mapping[str, str]) -> str:
    value = call.arguments.get(arguments.get(call.name, ""))
    return value if isinstance(value, str) else ""


# -- commits -----------------------------------------------------------------------------------------------------------
# Extracts commit messages from the shell commands that created the commits. Messages that a shell would have to
# evaluate first, such as variables or command output, are left out.

# How agents write messages of several lines.
_HERE_DOCUMENT = re.compile(r"\$\(cat <<-?\s*+(['\"])(\w+)\1\n(?P<text>.*)\n[^\S\n]*+\2\s*+\)\Z", re.DOTALL)
_ASSIGNMENT = re.compile(r"\w+=")
_SHORT_MESSAGE_FLAG = re.compile(r"-[a-ln-zA-Z]*m\Z")
# Options of git itself that are followed by a value.
_OPTIONS_WITH_VALUE = frozenset(("-C", "-c", "--git-dir", "--work-tree"))
_SEPARATORS = frozenset("();<>|&\n")


def commit_messages(command: str) -> tuple[str, ...]:
    """Returns the message of each `git commit` in a command line."""
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
        # A line end separates commands, so it is punctuation and not white space. `#` occurs in messages.
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words = list(lexer)
    except ValueError:  # an unterminated quotation
        return ()
    # Split into simple commands at operators and line ends.
    commands: list[list[str]] = [[]]
    for word in words:
        if word and set(word) <= _SEPARATORS:
            commands.append([])
        else:
            commands[-1].append(word)
    return tuple(message for simple in commands if (message := _commit_message(simple)))


def _commit_message(words: Sequence[str]) -> str | None:
    """Joins the paragraphs, one for each `-m`. Returns None for another command, or if a shell would have to evaluate
    the message first."""
    at = next((n for n, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    if words[at : at + 1] != ["git"]:
        return None
    at += 1
    # Options of git itself come before the name of the command.
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _OPTIONS_WITH_VALUE else 1
    if words[at : at + 1] != ["commit"]:
        return None
    arguments, values = words[at + 1 :], list[str]()
    for index, word in enumerate(arguments):
        if word == "--message" or _SHORT_MESSAGE_FLAG.match(word):
            values += arguments[index + 1 : index + 2]
        elif word.startswith("--message="):
            values.append(word.removeprefix("--message="))
    paragraphs = []
    for value in values:
        document = _HERE_DOCUMENT.match(value)
        if document is None and ("$" in value or "`" in value):
            return None
        paragraphs.append((document["text"] if document else value).strip())
    return "\n\n".join(filter(None, paragraphs)).strip() or None
