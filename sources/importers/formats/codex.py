"""Sessions of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl`. Reasoning, context that the
program adds in the user's name, and events that repeat other lines are left out."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import SkipMessage
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import decode_object, require_depth
from sources.importers.engine.values import clean_line, json_or_none, object_or_empty, objects, stored_time
from sources.importers.formats.agent_sessions.sessions import (
    MESSAGE_WITHOUT_TEXT,
    PROGRAM_LINE,
    SessionFormat,
    SessionHeader,
    read_session,
    valid_session_id,
)
from sources.importers.formats.agent_sessions.turns import AgentToolCall, AgentToolResult, AgentTurn

_NAME = "codex"
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
    name = _NAME
    title = "Codex sessions (JSONL)"
    suffixes = (".jsonl",)

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.head.lstrip()
        if probe.is_folder or not head.startswith(b"{") or b'"payload"' not in head:
            return 0.0
        return 0.95 if b'"session_meta"' in head else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        return read_session(CodexFormat(), path, limits, progress, position)


IMPORTER = CodexImporter()


class _CodexLine(Struct, frozen=True):
    type: Any = None
    timestamp: Any = None
    payload: Any = None


class CodexFormat(SessionFormat):
    name = _NAME

    def read_header(self, path: Path, head: Sequence[bytes], limits: ImportLimits) -> SessionHeader:
        lines = []
        for data in head:
            with suppress(InvalidParams, SkipMessage):
                lines.append(_decode_line(data, limits))
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
        line = _decode_line(data, limits)
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


def _decode_line(data: bytes, limits: ImportLimits) -> _CodexLine:
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
