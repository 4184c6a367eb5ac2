"""Sessions of coding agents: Claude Code and Codex. `agent_sessions.py` has what their files have in common."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sources.importers.engine.chat_messages import SkipMessage
from sources.importers.engine.file_probe import HEAD_BYTES
from sources.importers.engine.importer import FileProbe, ImportLimits
from sources.importers.engine.values import Fields, json_or_none, valid_uuid
from sources.importers.formats import agent_sessions
from sources.importers.formats.session_observations import AgentToolCall, AgentToolResult, AgentTurn

# -- Claude Code -------------------------------------------------------------------------------------------------------
# Sessions of Claude Code and its subagents: `projects/<folder>/<session>.jsonl`. Thinking, internal records and images
# are left out.

# Fields that occur only in session lines, together with the session id.
_SESSION_FIELDS = (b'"parentUuid"', b'"leafUuid"', b'"isSidechain"')
# A slash command, and the output that the program printed for it.
_COMMAND = re.compile(r"<command-name>\s*+([^<\n]{1,200}+)\s*+</command-name>")
_COMMAND_OUTPUT = ("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>")


class ClaudeCodeImporter(agent_sessions.SessionImporter):
    name = "claude_code"
    title = "Claude Code sessions (JSONL)"

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder or not probe.head.lstrip().startswith(b"{"):
            return 0.0
        if _is_session(probe.head):
            return 0.95
        # A large prompt or snapshot may fill the first bytes; the marks then follow it.
        is_longer = len(probe.head) == HEAD_BYTES
        return 0.95 if is_longer and any(map(_is_session, agent_sessions.first_lines(probe.path))) else 0.0

    def read_header(self, path: Path, lines: Sequence[Fields]) -> agent_sessions.SessionHeader:
        """The file name takes precedence over the session id in the lines: a resumed session starts with lines of the
        older one."""
        first = next((line for line in lines if line.get("sessionId")), Fields())
        session = valid_uuid(path.stem) or agent_sessions.valid_session_id(first.get("sessionId"))
        agent = ""
        if session and _is_subagent(path):
            # The name of a subagent is unique only within its session.
            agent = agent_sessions.valid_session_id(path.stem)
            session = f"{session}.{agent}" if agent else ""
        return agent_sessions.SessionHeader(
            session_id=session,
            working_dir=next((line["cwd"] for line in lines if isinstance(line.get("cwd"), str)), ""),
            started_at=next(filter(None, (line.time("timestamp") for line in lines)), None),
            metadata={
                "summary": next((line.line("summary") for line in lines if line.get("type") == "summary"), ""),
                "git_branch": next(filter(None, (line.line("gitBranch") for line in lines)), ""),
                "version": next(filter(None, (line.line("version") for line in lines)), ""),
                "agent": agent,
                "parent_session": agent_sessions.valid_session_id(first.get("sessionId")) if agent else "",
            },
        )

    def parse_line(self, path: Path, line: Fields, number: int, limits: ImportLimits) -> Sequence[AgentTurn]:
        # In the file of a subagent every line is marked as a sidechain; only in a session's own file does the mark mean
        # a separate task.
        is_sidechain = bool(line.get("isSidechain")) and not _is_subagent(path)
        return tuple(_turns(line, number, is_sidechain=is_sidechain))


def _is_session(data: bytes) -> bool:
    return b'"sessionId"' in data and any(field in data for field in _SESSION_FIELDS)


def _is_subagent(path: Path) -> bool:
    return path.stem.startswith("agent-")


def _turns(line: Fields, number: int, *, is_sidechain: bool) -> Iterator[AgentTurn]:
    key = line.line("uuid") or f"line {number}"
    kind, time, message = line.get("type"), line.time("timestamp"), line.nested("message")
    if kind == "summary" and line.line("summary"):
        yield _summary_turn(f"summary {line.line('leafUuid') or number}", line["summary"], time)
        return
    # Internal records of the program, such as snapshots.
    if kind not in ("user", "assistant") or line.get("isMeta") or not isinstance(line.get("message"), dict):
        raise SkipMessage(agent_sessions.PROGRAM_LINE)
    # The content of a message is a text or a list of blocks.
    blocks = list(message.objects("content"))
    text = message.text("content") or "\n\n".join(filter(None, map(_block_text, blocks)))
    if line.get("isCompactSummary"):
        yield _summary_turn(key, text, time)
        return
    has_text = bool(text.strip())
    turn = AgentTurn(role=kind, key=key, time=time, is_sidechain=is_sidechain)
    if kind == "assistant":
        calls = [
            AgentToolCall(block.line("id"), block.line("name") or "tool", block.nested("input"))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
        if not has_text and not calls:
            raise SkipMessage(agent_sessions.MESSAGE_WITHOUT_TEXT)
        # An answer may be spread over several lines, one block on each; the message id joins them.
        yield replace(turn, text=text, calls=calls, model=message.line("model"), merge_key=message.line("id"))
        return
    results = []
    for block in blocks:
        if block.get("type") == "tool_result":
            result = block.text("content") or "\n".join(filter(None, map(_block_text, block.objects("content"))))
            results.append(AgentToolResult(block.line("tool_use_id"), result, bool(block.get("is_error"))))
    if not has_text and not results:
        raise SkipMessage(agent_sessions.MESSAGE_WITHOUT_TEXT)
    if text.lstrip().startswith(_COMMAND_OUTPUT):
        raise SkipMessage(agent_sessions.PROGRAM_LINE)
    # Tool results are recorded as messages of the user.
    if results:
        yield replace(turn, role="tool", key=f"{key} results" if has_text else key, results=results)
    if has_text:
        # A slash command as the user typed it.
        if command := _COMMAND.search(text) if text.lstrip().startswith("<command-") else None:
            arguments, closing, _ = text.partition("<command-args>")[2].partition("</command-args>")
            text = f"{command[1].rstrip()} {arguments.strip() if closing else ''}".strip()
        yield replace(turn, text=text)


def _summary_turn(key: str, text: str, time: str | None) -> AgentTurn:
    return AgentTurn(role="system", key=key, text=text, time=time, is_summary=True, metadata={"kind": "summary"})


def _block_text(block: Fields) -> str:
    match block.get("type"):
        case "text":
            return block.text("text")
        case "image" | "document" as kind:
            return f"[{kind}]"
    return ""


# -- Codex -------------------------------------------------------------------------------------------------------------
# Sessions of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl`. Reasoning, context that the program
# adds in the user's name, and events that repeat other lines are left out.

# What the program tells the model in the user's name.
_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<INSTRUCTIONS>")
# Tools that run a command, with the argument that holds it; it differs between versions.
_SHELL_TOOLS = {"shell": "command", "local_shell": "command", "container.exec": "command", "exec_command": "cmd"}
_EXIT_CODE = re.compile(r"^(?:Exit code:|Process exited with code) (\d++)[^\S\n]*+$", re.MULTILINE)


class CodexImporter(agent_sessions.SessionImporter):
    name = "codex"
    title = "Codex sessions (JSONL)"

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.head.lstrip()
        if probe.is_folder or not head.startswith(b"{") or b'"payload"' not in head:
            return 0.0
        return 0.95 if b'"session_meta"' in head else 0.0

    def read_header(self, path: Path, lines: Sequence[Fields]) -> agent_sessions.SessionHeader:
        lines = [line for line in lines if isinstance(line.get("payload"), dict)]
        meta = next((line.nested("payload") for line in lines if line.get("type") == "session_meta"), Fields())
        first_time = next((line.time("timestamp") for line in lines), None)
        return agent_sessions.SessionHeader(
            session_id=agent_sessions.valid_session_id(meta.get("id")),
            working_dir=meta.line("cwd"),
            started_at=meta.time("timestamp") or first_time,
            metadata={"git_branch": meta.nested("git").line("branch"), "version": meta.line("cli_version")},
        )

    def parse_line(self, path: Path, line: Fields, number: int, limits: ImportLimits) -> Sequence[AgentTurn]:
        if not isinstance(line.get("payload"), dict):
            raise SkipMessage(agent_sessions.PROGRAM_LINE)
        key, time, payload = f"line {number}", line.time("timestamp"), line.nested("payload")
        # The summary that replaces older messages when the context of the model is full.
        if line.get("type") == "compacted" and payload.line("message"):
            return [_summary_turn(key, payload["message"], time)]
        if line.get("type") != "response_item":
            raise SkipMessage(agent_sessions.PROGRAM_LINE)
        kind = payload.get("type")
        if kind == "message":
            role = payload.get("role")
            parts = (
                part.get("text") or ("[image]" if part.get("type") == "input_image" else "")
                for part in payload.objects("content")
            )
            text = "\n\n".join(part for part in parts if isinstance(part, str) and part)
            if role not in ("user", "assistant") or text.lstrip().startswith(_CONTEXT):
                raise SkipMessage(agent_sessions.PROGRAM_LINE)
            if not text.strip():
                raise SkipMessage(agent_sessions.MESSAGE_WITHOUT_TEXT)
            return [AgentTurn(role=str(role), key=key, time=time, text=text)]
        if kind in ("function_call", "custom_tool_call", "local_shell_call"):
            return [AgentTurn(role="assistant", key=key, time=time, calls=(_tool_call(payload, limits),))]
        if kind in ("function_call_output", "custom_tool_call_output"):
            return [AgentTurn(role="tool", key=key, time=time, results=(_tool_result(payload, limits),))]
        raise SkipMessage(agent_sessions.PROGRAM_LINE)


def _tool_call(payload: Fields, limits: ImportLimits) -> AgentToolCall:
    key = payload.line("call_id", "id")
    if payload.get("type") == "custom_tool_call":
        arguments: Any = {"input": payload.get("input")}
    elif payload.get("type") == "local_shell_call":
        arguments = payload.get("action")
    else:
        arguments = json_or_none(payload.get("arguments"), limits)
    name = payload.line("name") or "local_shell"
    if not isinstance(arguments, Mapping):
        return AgentToolCall(key, name, text=payload.line("arguments"))
    # Commands get one tool name in all versions; a patch passed to a shell is the tool apply_patch.
    command = arguments.get(_SHELL_TOOLS.get(name, ""))
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    if isinstance(command, str):
        script = command
    else:
        # The words of `bash -lc "…"`: the script is the last one.
        script = words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else shlex.join(words)
    if not script:
        return AgentToolCall(key, name, arguments)
    if script.lstrip().startswith("apply_patch"):
        return AgentToolCall(key, "apply_patch", {"input": script})
    return AgentToolCall(key, "shell", {"command": script})


def _tool_result(payload: Fields, limits: ImportLimits) -> AgentToolResult:
    """The output is a text, an object that contains one, or the JSON of such an object."""
    output = payload.get("output")
    is_json = isinstance(output, str) and output.lstrip().startswith("{")
    value = json_or_none(output, limits) if is_json else output
    fields = Fields.of(value)
    text = next((fields[name] for name in ("output", "content") if isinstance(fields.get(name), str)), output)
    if not isinstance(text, str):
        text = "\n".join(part["text"] for part in Fields.each(output) if isinstance(part.get("text"), str))
    # A failure is marked in the output or, by programs that print the exit code, in its first lines.
    code = fields.nested("metadata").get("exit_code")
    printed = _EXIT_CODE.search(text[:1_000])
    is_error = fields.get("success") is False or bool(code) or (printed is not None and int(printed[1]) != 0)
    return AgentToolResult(payload.line("call_id"), text, is_error=is_error)
