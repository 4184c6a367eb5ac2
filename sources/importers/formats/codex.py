"""Sessions of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<session>.jsonl`. What the model thought, what the
program put before a user's words, and events that repeat what other lines say are left out.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from config.errors import InvalidParams
from sources.importers.engine.files import json_value
from sources.importers.engine.imported_items import ImportEvent, ReadPosition
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.json_stream import decode, require_depth
from sources.importers.engine.threads import SkipMessage, line_of
from sources.importers.engine.times import moment_of
from sources.importers.formats.agent_sessions.sessions import Dialect, Opening, read_session, session_name
from sources.importers.formats.agent_sessions.turns import Call, Result, Turn
from sources.importers.formats.chatgpt_content import objects

_NAME = "codex"
_NOTE = "a line of the program itself"
_SILENT = "a message without text"
_ROLES = ("user", "assistant")
# What the program tells the model in a user's name.
_CONTEXT = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<INSTRUCTIONS>")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
# Tools that run a command, by the argument that holds it: newer versions have other ones.
_SHELLS = {"shell": "command", "local_shell": "command", "container.exec": "command", "exec_command": "cmd"}
_EXIT = re.compile(r"^(?:Exit code:|Process exited with code) (\d+)\s*$", re.MULTILINE)
_SCRIPT_FLAGS = ("-c", "-lc")


class _Line(Struct, frozen=True):
    type: Any = None
    timestamp: Any = None
    payload: Any = None


def _recognizes(probe: FileProbe) -> float:
    head = probe.head.lstrip()
    if probe.is_folder or not head.startswith(b"{") or b'"payload"' not in head:
        return 0.0
    return 0.95 if b'"session_meta"' in head else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    return read_session(Dialect(_NAME, _turns, _identify), path, limits, progress, mark)


# -- whose session it is -----------------------------------------------------------------------------------------------


def _identify(_path: Path, head: Sequence[bytes], limits: ImportLimits) -> Opening:
    lines = [line for data in head if (line := _known(data, limits)) is not None]
    meta: Mapping[str, Any] = next((line.payload for line in lines if line.type == "session_meta"), {})
    git = next(objects([meta.get("git")]), {})
    return Opening(
        session_id=session_name(meta.get("id")),
        folder=line_of(meta.get("cwd")),
        begun=moment_of(meta.get("timestamp")) or next((moment_of(line.timestamp) for line in lines), None),
        about={"git_branch": line_of(git.get("branch")), "version": line_of(meta.get("cli_version"))},
    )


def _known(data: bytes, limits: ImportLimits) -> _Line | None:
    try:
        return _decoded(data, limits)
    except (InvalidParams, SkipMessage):
        return None


def _decoded(data: bytes, limits: ImportLimits) -> _Line:
    require_depth(data, limits)
    line = decode(data, _Line)
    if not isinstance(line.payload, Mapping):
        raise SkipMessage(_NOTE)
    return line


# -- lines -------------------------------------------------------------------------------------------------------------


def _turns(data: bytes, number: int, limits: ImportLimits) -> Sequence[Turn]:
    line = _decoded(data, limits)
    key, time, payload = f"line {number}", moment_of(line.timestamp), line.payload
    if line.type == "compacted" and line_of(payload.get("message")):
        about = {"kind": "summary"}
        return [Turn(role="system", key=key, time=time, text=payload["message"], is_summary=True, about=about)]
    if line.type != "response_item":
        raise SkipMessage(_NOTE)
    kind = payload.get("type")
    if kind == "message":
        return [_message(payload, key, time)]
    if kind in _CALLS:
        return [Turn(role="assistant", key=key, time=time, calls=(_call(payload, limits),))]
    if kind in _RESULTS:
        return [Turn(role="tool", key=key, time=time, results=(_result(payload, limits),))]
    raise SkipMessage(_NOTE)


def _message(payload: Mapping[str, Any], key: str, time: str | None) -> Turn:
    role = payload.get("role")
    parts = [part.get("text") or _placeholder(part) for part in objects(payload.get("content"))]
    text = "\n\n".join(part for part in parts if isinstance(part, str) and part)
    if role not in _ROLES or text.lstrip().startswith(_CONTEXT):
        raise SkipMessage(_NOTE)
    if not text.strip():
        raise SkipMessage(_SILENT)
    return Turn(role=str(role), key=key, time=time, text=text)


def _placeholder(part: Mapping[str, Any]) -> str:
    return "[image]" if part.get("type") == "input_image" else ""


def _call(payload: Mapping[str, Any], limits: ImportLimits) -> Call:
    key = line_of(payload.get("call_id")) or line_of(payload.get("id"))
    if payload.get("type") == "custom_tool_call":
        given: Any = {"input": payload.get("input")}
    elif payload.get("type") == "local_shell_call":
        given = payload.get("action")
    else:
        given = _json(payload.get("arguments"), limits)
    name = line_of(payload.get("name")) or "local_shell"
    if not isinstance(given, Mapping):
        return Call(key, name, text=line_of(payload.get("arguments")))
    return _command(key, name, given) or Call(key, name, given)


def _command(key: str, name: str, given: Mapping[str, Any]) -> Call | None:
    """A command by the one name that it has for whoever reads it; a patch is one whichever way it is given."""
    script = _script(given.get(_SHELLS.get(name, "")))
    if not script:
        return None
    if script.lstrip().startswith("apply_patch"):
        return Call(key, "apply_patch", {"input": script})
    return Call(key, "shell", {"command": script})


def _script(command: Any) -> str:
    if isinstance(command, str):
        return command
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    return words[2] if len(words) == 3 and words[1] in _SCRIPT_FLAGS else shlex.join(words)


def _result(payload: Mapping[str, Any], limits: ImportLimits) -> Result:
    """A text, or an object with one, which may be JSON of both."""
    output = payload.get("output")
    inner = _json(output, limits) if isinstance(output, str) and output.lstrip().startswith("{") else output
    about = inner if isinstance(inner, Mapping) else {}
    text = next((about[name] for name in ("output", "content") if isinstance(about.get(name), str)), output)
    if not isinstance(text, str):
        text = "\n".join(part["text"] for part in objects(output) if isinstance(part.get("text"), str))
    return Result(line_of(payload.get("call_id")), text, is_error=_is_error(about, text))


def _is_error(about: Mapping[str, Any], text: str) -> bool:
    metadata = about.get("metadata")
    code = metadata.get("exit_code") if isinstance(metadata, Mapping) else None
    written = _EXIT.search(text[:1_000])
    return about.get("success") is False or bool(code) or (written is not None and int(written[1]) != 0)


def _json(value: Any, limits: ImportLimits) -> Any:
    try:
        return json_value(value.encode("utf-8", "replace"), limits.depth_max) if isinstance(value, str) else None
    except InvalidParams:
        return None


IMPORTER = Importer(
    name=_NAME,
    title="Codex sessions (JSONL)",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".jsonl",),
)
