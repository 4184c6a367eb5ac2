"""Sessions of coding agents: Claude Code and Codex. `agent_sessions.py` has what their files have in common."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import SkipMessage
from sources.importers.engine.file_probe import HEAD_BYTES
from sources.importers.engine.importer import Events, FileProbe, Importer, ImportLimits, ProgressCallback, StartPosition
from sources.importers.engine.json_stream import decode_object, require_depth
from sources.importers.engine.values import (
    clean_line,
    json_or_none,
    object_or_empty,
    objects,
    stored_time,
    text_or_empty,
    valid_uuid,
)
from sources.importers.formats.agent_sessions import (
    MESSAGE_WITHOUT_TEXT,
    PROGRAM_LINE,
    AgentToolCall,
    AgentToolResult,
    AgentTurn,
    SessionFormat,
    SessionHeader,
    first_lines,
    read_session,
    valid_session_id,
)

# -- Claude Code -------------------------------------------------------------------------------------------------------
# Sessions of Claude Code and its subagents: `projects/<folder>/<session>.jsonl`. Thinking, internal records and images
# are left out.

# Fields that occur only in session lines, together with the session id.
_SESSION_FIELDS = (b'"parentUuid"', b'"leafUuid"', b'"isSidechain"')
# A slash command, and the output that the program printed for it.
_COMMAND = re.compile(r"<command-name>\s*+([^<\n]{1,200}+)\s*+</command-name>")
_COMMAND_OUTPUT = ("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>")


class ClaudeCodeImporter(Importer):
    name = "claude_code"
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

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        return read_session(ClaudeCodeFormat(is_subagent=_is_subagent(path)), path, limits, progress, position)


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

    name = "claude_code"

    def __init__(self, *, is_subagent: bool) -> None:
        self._is_subagent = is_subagent

    def read_header(self, path: Path, head: Sequence[bytes], limits: ImportLimits) -> SessionHeader:
        """The file name takes precedence over the session id in the lines: a resumed session starts with lines of the
        older one."""
        lines = []
        for data in head:
            with suppress(InvalidParams):
                lines.append(_claude_decode_line(data, limits))
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
        line = _claude_decode_line(data, limits)
        return tuple(_turns(line, number, is_sidechain=bool(line.isSidechain) and not self._is_subagent))


def _is_subagent(path: Path) -> bool:
    return path.stem.startswith("agent-")


def _claude_decode_line(data: bytes, limits: ImportLimits) -> _ClaudeCodeLine:
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


# -- Codex -------------------------------------------------------------------------------------------------------------
# Sessions of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl`. Reasoning, context that the program
# adds in the user's name, and events that repeat other lines are left out.

_ROLES = ("user", "assistant")
# What the program tells the model in the user's name.
_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<INSTRUCTIONS>")
_CALL_TYPES = ("function_call", "custom_tool_call", "local_shell_call")
_RESULT_TYPES = ("function_call_output", "custom_tool_call_output")
# Tools that run a command, with the argument that holds it; it differs between versions.
_SHELL_TOOLS = {"shell": "command", "local_shell": "command", "container.exec": "command", "exec_command": "cmd"}
_EXIT_CODE = re.compile(r"^(?:Exit code:|Process exited with code) (\d++)[^\S\n]*+$", re.MULTILINE)
_SCRIPT_FLAGS = ("-c", "-lc")


class CodexImporter(Importer):
    name = "codex"
    title = "Codex sessions (JSONL)"
    suffixes = (".jsonl",)

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.head.lstrip()
        if probe.is_folder or not head.startswith(b"{") or b'"payload"' not in head:
            return 0.0
        return 0.95 if b'"session_meta"' in head else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        return read_session(CodexFormat(), path, limits, progress, position)


class _CodexLine(Struct, frozen=True):
    type: Any = None
    timestamp: Any = None
    payload: Any = None


class CodexFormat(SessionFormat):
    name = "codex"

    def read_header(self, path: Path, head: Sequence[bytes], limits: ImportLimits) -> SessionHeader:
        lines = []
        for data in head:
            with suppress(InvalidParams, SkipMessage):
                lines.append(_codex_decode_line(data, limits))
        meta: Mapping[str, Any] = next((line.payload for line in lines if line.type == "session_meta"), {})
        git = next(objects([meta.get("git")]), {})
        first_time = next((stored_time(line.timestamp) for line in lines), None)
        return SessionHeader(
            session_id=valid_session_id(meta.get("id")),
            working_dir=clean_line(meta.get("cwd")),
            started_at=stored_time(meta.get("timestamp")) or first_time,
            metadata={"git_branch": clean_line(git.get("branch")), "version": clean_line(meta.get("cli_version"))},
        )

    def parse_line(self, data: bytes, number: int, limits: ImportLimits) -> Sequence[AgentTurn]:
        line = _codex_decode_line(data, limits)
        key, time, payload = f"line {number}", stored_time(line.timestamp), line.payload
        # The summary that replaces older messages when the context of the model is full.
        if line.type == "compacted" and clean_line(payload.get("message")):
            text, metadata = payload["message"], {"kind": "summary"}
            return [AgentTurn(role="system", key=key, time=time, text=text, is_summary=True, metadata=metadata)]
        if line.type != "response_item":
            raise SkipMessage(PROGRAM_LINE)
        kind = payload.get("type")
        if kind == "message":
            role = payload.get("role")
            parts = (
                part.get("text") or ("[image]" if part.get("type") == "input_image" else "")
                for part in objects(payload.get("content"))
            )
            text = "\n\n".join(part for part in parts if isinstance(part, str) and part)
            if role not in _ROLES or text.lstrip().startswith(_CONTEXT):
                raise SkipMessage(PROGRAM_LINE)
            if not text.strip():
                raise SkipMessage(MESSAGE_WITHOUT_TEXT)
            return [AgentTurn(role=str(role), key=key, time=time, text=text)]
        if kind in _CALL_TYPES:
            return [AgentTurn(role="assistant", key=key, time=time, calls=(_tool_call(payload, limits),))]
        if kind in _RESULT_TYPES:
            return [AgentTurn(role="tool", key=key, time=time, results=(_tool_result(payload, limits),))]
        raise SkipMessage(PROGRAM_LINE)


def _codex_decode_line(data: bytes, limits: ImportLimits) -> _CodexLine:
    require_depth(data, limits)
    line = decode_object(data, _CodexLine)
    if not isinstance(line.payload, Mapping):
        raise SkipMessage(PROGRAM_LINE)
    return line


def _tool_call(payload: Mapping[str, Any], limits: ImportLimits) -> AgentToolCall:
    key = clean_line(payload.get("call_id")) or clean_line(payload.get("id"))
    if payload.get("type") == "custom_tool_call":
        arguments: Any = {"input": payload.get("input")}
    elif payload.get("type") == "local_shell_call":
        arguments = payload.get("action")
    else:
        arguments = json_or_none(payload.get("arguments"), limits)
    name = clean_line(payload.get("name")) or "local_shell"
    if not isinstance(arguments, Mapping):
        return AgentToolCall(key, name, text=clean_line(payload.get("arguments")))
    # Commands get one tool name in all versions; a patch passed to a shell is the tool apply_patch.
    command = arguments.get(_SHELL_TOOLS.get(name, ""))
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    if isinstance(command, str):
        script = command
    else:
        # The words of `bash -lc "…"`: the script is the last one.
        script = words[2] if len(words) == 3 and words[1] in _SCRIPT_FLAGS else shlex.join(words)
    if not script:
        return AgentToolCall(key, name, arguments)
    if script.lstrip().startswith("apply_patch"):
        return AgentToolCall(key, "apply_patch", {"input": script})
    return AgentToolCall(key, "shell", {"command": script})


def _tool_result(payload: Mapping[str, Any], limits: ImportLimits) -> AgentToolResult:
    """The output is a text, an object that contains one, or the JSON of such an object."""
    output = payload.get("output")
    is_json = isinstance(output, str) and output.lstrip().startswith("{")
    value = json_or_none(output, limits) if is_json else output
    fields = object_or_empty(value)
    text = next((fields[name] for name in ("output", "content") if isinstance(fields.get(name), str)), output)
    if not isinstance(text, str):
        text = "\n".join(part["text"] for part in objects(output) if isinstance(part.get("text"), str))
    # A failure is marked in the output or, by programs that print the exit code, in its first lines.
    code = object_or_empty(fields.get("metadata")).get("exit_code")
    printed = _EXIT_CODE.search(text[:1_000])
    is_error = fields.get("success") is False or bool(code) or (printed is not None and int(printed[1]) != 0)
    return AgentToolResult(clean_line(payload.get("call_id")), text, is_error=is_error)
