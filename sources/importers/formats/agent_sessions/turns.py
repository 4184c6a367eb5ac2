"""Turns of an agent session in a form common to all agents: text, tool calls and tool results, and how they are written
as the content of a message.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sources.importers.engine.confined_files import open_file
from sources.importers.engine.files import require_lines, skip_line
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.values import to_json

_UNKNOWN_TOOL = "tool"


class AgentToolCall(Struct, frozen=True):
    """`key` links the call to its result. `text` holds arguments that are not an object."""

    key: str
    name: str
    arguments: Mapping[str, Any] = {}
    text: str = ""


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


def merge_turns(first: AgentTurn, second: AgentTurn) -> AgentTurn:
    return replace(
        first,
        text="\n\n".join(filter(None, (first.text, second.text))),
        calls=(*first.calls, *second.calls),
        results=(*first.results, *second.results),
        metadata={**first.metadata, **second.metadata},
    )


def with_tool_names(turn: AgentTurn, tools: Mapping[str, str]) -> AgentTurn:
    """Adds the names of tools to their results. `tools` has the names by the key of the call."""
    if not turn.results:
        return turn
    results = [replace(result, tool=result.tool or tools.get(result.key, _UNKNOWN_TOOL)) for result in turn.results]
    return replace(turn, results=tuple(results))


def turn_content(turn: AgentTurn) -> str:
    """Returns the content of the message: text, tool calls, tool results."""
    parts = [turn.text]
    for call in turn.calls:
        lines = [f"{name}: {_argument_text(value)}" for name, value in call.arguments.items()]
        parts.append("\n".join((f"[{call.name}]", *lines, *([call.text] if call.text else []))))
    for result in turn.results:
        kind = "error" if result.is_error else "result"
        parts.append(f"[{result.tool or _UNKNOWN_TOOL}: {kind}]\n{result.text}".rstrip())
    return "\n\n".join(part for part in parts if part.strip())


def _argument_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value)
    except (msgspec.MsgspecError, ValueError, UnicodeEncodeError):
        return ""


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
