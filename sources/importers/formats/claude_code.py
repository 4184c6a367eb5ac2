"""Sessions of Claude Code and its subagents: `projects/<folder>/<session>.jsonl`. Thinking, internal records and images
are left out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import SkipMessage
from sources.importers.engine.file_probe import HEAD_BYTES, FileProbe
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import decode_object, require_depth
from sources.importers.engine.values import clean_line, objects, stored_time, text_or_empty, valid_uuid
from sources.importers.formats.agent_sessions.sessions import (
    MESSAGE_WITHOUT_TEXT,
    PROGRAM_LINE,
    SessionFormat,
    SessionHeader,
    read_session,
    valid_session_id,
)
from sources.importers.formats.agent_sessions.turns import AgentToolCall, AgentToolResult, AgentTurn, first_lines

_NAME = "claude_code"
# Fields that occur only in session lines, together with the session id.
_SESSION_FIELDS = (b'"parentUuid"', b'"leafUuid"', b'"isSidechain"')
# A slash command, and the output that the program printed for it.
_COMMAND = re.compile(r"<command-name>\s*+([^<\n]{1,200}+)\s*+</command-name>")
_COMMAND_OUTPUT = ("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>")


class ClaudeCodeImporter(Importer):
    name = _NAME
    title = "Claude Code sessions (JSONL)"
    suffixes = (".jsonl",)

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder or not probe.head.lstrip().startswith(b"{"):
            return 0.0
        if _is_session(probe.head):
            return 0.95
        # A large prompt or snapshot may fill the first bytes; the marks then follow it.
        is_longer = len(probe.head) == HEAD_BYTES
        return 0.95 if is_longer and any(map(_is_session, first_lines(probe.path))) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        return read_session(ClaudeCodeFormat(is_subagent=_is_subagent(path)), path, limits, progress, position)


IMPORTER = ClaudeCodeImporter()


def _is_session(data: bytes) -> bool:
    return b'"sessionId"' in data and any(field in data for field in _SESSION_FIELDS)


class _ClaudeCodeLine(Struct, frozen=True):
    type: Any = None
    uuid: Any = None
    sessionId: Any = None  # noqa: N815 - the format's own name
    agentId: Any = None  # noqa: N815
    timestamp: Any = None
    cwd: Any = None
    gitBranch: Any = None  # noqa: N815
    version: Any = None
    isSidechain: Any = None  # noqa: N815
    isMeta: Any = None  # noqa: N815
    isCompactSummary: Any = None  # noqa: N815
    message: Any = None
    summary: Any = None
    leafUuid: Any = None  # noqa: N815


class ClaudeCodeFormat(SessionFormat):
    """In the file of a subagent every line is marked as a sidechain; only in a session's own file does the mark mean a
    separate task."""

    name = _NAME

    def __init__(self, *, is_subagent: bool) -> None:
        self._is_subagent = is_subagent

    def read_header(self, path: Path, head: Sequence[bytes], limits: ImportLimits) -> SessionHeader:
        """The file name takes precedence over the session id in the lines: a resumed session starts with lines of the
        older one."""
        lines = []
        for data in head:
            with suppress(InvalidParams):
                lines.append(_decode_line(data, limits))
        first = next((line for line in lines if line.sessionId), _ClaudeCodeLine())
        session = valid_uuid(path.stem) or valid_session_id(first.sessionId)
        agent = ""
        if session and self._is_subagent:
            # The name of a subagent is unique only within its session.
            agent = valid_session_id(path.stem)
            session = f"{session}.{agent}" if agent else ""
        return SessionHeader(
            session_id=session,
            working_dir=next((line.cwd for line in lines if isinstance(line.cwd, str)), ""),
            started_at=next(filter(None, (stored_time(line.timestamp) for line in lines)), None),
            metadata={
                "summary": next((clean_line(line.summary) for line in lines if line.type == "summary"), ""),
                "git_branch": next(filter(None, (clean_line(line.gitBranch) for line in lines)), ""),
                "version": next(filter(None, (clean_line(line.version) for line in lines)), ""),
                "agent": agent,
                "parent_session": valid_session_id(first.sessionId) if agent else "",
            },
        )

    def parse_line(self, data: bytes, number: int, limits: ImportLimits) -> Sequence[AgentTurn]:
        line = _decode_line(data, limits)
        return tuple(_turns(line, number, is_sidechain=bool(line.isSidechain) and not self._is_subagent))


def _is_subagent(path: Path) -> bool:
    return path.stem.startswith("agent-")


def _decode_line(data: bytes, limits: ImportLimits) -> _ClaudeCodeLine:
    require_depth(data, limits)
    return decode_object(data, _ClaudeCodeLine)


def _turns(line: _ClaudeCodeLine, number: int, *, is_sidechain: bool) -> Iterator[AgentTurn]:
    key = clean_line(line.uuid) or f"line {number}"
    time = stored_time(line.timestamp)
    if line.type == "summary" and clean_line(line.summary):
        yield _summary_turn(f"summary {clean_line(line.leafUuid) or number}", str(line.summary), time)
        return
    # Internal records of the program, such as snapshots.
    if line.type not in ("user", "assistant") or line.isMeta or not isinstance(line.message, Mapping):
        raise SkipMessage(PROGRAM_LINE)
    blocks = _MessageBlocks(line.message.get("content"))
    if line.isCompactSummary:
        yield _summary_turn(key, blocks.text, time)
        return
    has_text = bool(blocks.text.strip())
    turn = AgentTurn(role=line.type, key=key, time=time, is_sidechain=is_sidechain)
    if line.type == "assistant":
        if not has_text and not blocks.calls:
            raise SkipMessage(MESSAGE_WITHOUT_TEXT)
        # An answer may be spread over several lines, one block on each; the message id joins them.
        model, merge_key = clean_line(line.message.get("model")), clean_line(line.message.get("id"))
        yield replace(turn, text=blocks.text, calls=blocks.calls, model=model, merge_key=merge_key)
        return
    if not has_text and not blocks.results:
        raise SkipMessage(MESSAGE_WITHOUT_TEXT)
    if blocks.text.lstrip().startswith(_COMMAND_OUTPUT):
        raise SkipMessage(PROGRAM_LINE)
    # Tool results are recorded as messages of the user.
    if blocks.results:
        yield replace(turn, role="tool", key=f"{key} results" if has_text else key, results=blocks.results)
    if has_text:
        yield replace(turn, text=_unwrap_command(blocks.text))


def _summary_turn(key: str, text: str, time: str | None) -> AgentTurn:
    return AgentTurn(role="system", key=key, text=text, time=time, is_summary=True, metadata={"kind": "summary"})


def _unwrap_command(text: str) -> str:
    """Returns a slash command as the user typed it."""
    command = _COMMAND.search(text) if text.lstrip().startswith("<command-") else None
    if command is None:
        return text
    arguments, closing, _ = text.partition("<command-args>")[2].partition("</command-args>")
    return f"{command[1].rstrip()} {arguments.strip() if closing else ''}".strip()


class _MessageBlocks:
    """The content of a message, which is a text or a list of blocks."""

    def __init__(self, content: Any) -> None:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(objects(content))
        self.text = "\n\n".join(filter(None, map(_block_text, blocks)))
        self.calls: list[AgentToolCall] = []
        self.results: list[AgentToolResult] = []
        for block in blocks:
            if block.get("type") == "tool_use":
                key, name, arguments = clean_line(block.get("id")), clean_line(block.get("name")), block.get("input")
                self.calls.append(AgentToolCall(key, name or "tool", arguments if isinstance(arguments, dict) else {}))
            elif block.get("type") == "tool_result":
                result = block.get("content")
                text = result if isinstance(result, str) else "\n".join(filter(None, map(_block_text, objects(result))))
                is_error = bool(block.get("is_error"))
                self.results.append(AgentToolResult(clean_line(block.get("tool_use_id")), text, is_error))


def _block_text(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return text_or_empty(block.get("text"))
        case "image" | "document" as kind:
            return f"[{kind}]"
    return ""
