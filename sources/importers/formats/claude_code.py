"""Sessions of Claude Code: `projects/<folder>/<session>.jsonl`, and those of its subagents. What the model thought,
what the program noted for itself and pictures are left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.importers.engine.files import own_uuid
from sources.importers.engine.imported_items import ImportEvent, ReadPosition
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.json_stream import decode, require_depth
from sources.importers.engine.threads import SkipMessage, line_of
from sources.importers.engine.times import moment_of
from sources.importers.formats.agent_sessions.sessions import Dialect, Opening, read_session, session_name
from sources.importers.formats.agent_sessions.turns import Call, Result, Turn
from sources.importers.formats.chatgpt_content import objects

_NAME = "claude_code"
_NOTE = "a line of the program itself"
_SILENT = "a message without text"
# Each is only found in lines of a session, together with its id.
_MARKS = (b'"parentUuid"', b'"leafUuid"', b'"isSidechain"')


# A command that was typed, and what the program wrote on the screen for it.
_COMMAND = re.compile(r"<command-name>\s*([^<\n]{1,200}?)\s*</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_SCREEN = ("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>")


class _Line(Struct, frozen=True):
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


def _recognizes(probe: FileProbe) -> float:
    head = probe.head.lstrip()
    if probe.is_folder or not head.startswith(b"{") or b'"sessionId"' not in head:
        return 0.0
    return 0.95 if any(mark in head for mark in _MARKS) else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    return read_session(Dialect(_NAME, _turns_in(_is_agent(path)), _identify), path, limits, progress, mark)


# -- whose session it is -----------------------------------------------------------------------------------------------


def _is_agent(path: Path) -> bool:
    return path.stem.startswith("agent-")


def _identify(path: Path, head: Sequence[bytes], limits: ImportLimits) -> Opening:
    """A file goes by its own name: a session that was resumed begins with lines of the older one."""
    lines = [line for data in head if (line := _known(data, limits)) is not None]
    first = next((line for line in lines if line.sessionId), _Line())
    session = own_uuid(path.stem) or session_name(first.sessionId)
    agent = ""
    if session and _is_agent(path):
        # Its own name says nothing outside of the session that it worked for.
        agent = session_name(path.stem)
        session = f"{session}.{agent}" if agent else ""
    return Opening(
        session_id=session,
        folder=next((line.cwd for line in lines if isinstance(line.cwd, str)), ""),
        begun=next(filter(None, (moment_of(line.timestamp) for line in lines)), None),
        about={
            "summary": next((line_of(line.summary) for line in lines if line.type == "summary"), ""),
            "git_branch": next(filter(None, (line_of(line.gitBranch) for line in lines)), ""),
            "version": next(filter(None, (line_of(line.version) for line in lines)), ""),
            "agent": agent,
            "parent_session": session_name(first.sessionId) if agent else "",
        },
    )


def _known(data: bytes, limits: ImportLimits) -> _Line | None:
    try:
        return _decoded(data, limits)
    except InvalidParams:
        return None


def _decoded(data: bytes, limits: ImportLimits) -> _Line:
    require_depth(data, limits)
    return decode(data, _Line)


# -- lines -------------------------------------------------------------------------------------------------------------


def _turns_in(is_agent: bool) -> Any:
    """In the file of a subagent all is beside the session; in the session's own, what a task did in older versions."""

    def turns(data: bytes, number: int, limits: ImportLimits) -> Sequence[Turn]:
        line = _decoded(data, limits)
        return tuple(_turns(line, number, is_aside=bool(line.isSidechain) and not is_agent))

    return turns


def _turns(line: _Line, number: int, *, is_aside: bool) -> Iterator[Turn]:
    key = line_of(line.uuid) or f"line {number}"
    time = moment_of(line.timestamp)
    if line.type == "summary" and line_of(line.summary):
        about = {"kind": "summary"}
        text = str(line.summary)
        key = f"summary {line_of(line.leafUuid) or number}"
        yield Turn(role="system", key=key, text=text, time=time, is_summary=True, about=about)
        return
    if line.type not in ("user", "assistant") or line.isMeta or not isinstance(line.message, Mapping):
        raise SkipMessage(_NOTE)
    found = _Blocks(line.message.get("content"))
    if line.isCompactSummary:
        about = {"kind": "summary"}
        yield Turn(role="system", key=key, text=found.text, time=time, is_summary=True, about=about)
    elif line.type == "assistant":
        yield from _assistant(line.message, found, Turn(role="assistant", key=key, time=time, is_aside=is_aside))
    else:
        yield from _user(found, Turn(role="user", key=key, time=time, is_aside=is_aside))


def _assistant(message: Mapping[str, Any], found: "_Blocks", turn: Turn) -> Iterator[Turn]:
    """One answer may stand on several lines, a block on each."""
    if not found.text.strip() and not found.calls:
        raise SkipMessage(_SILENT)
    yield replace(
        turn,
        text=found.text,
        calls=found.calls,
        model=line_of(message.get("model")),
        joins=line_of(message.get("id")),
    )


def _user(found: "_Blocks", turn: Turn) -> Iterator[Turn]:
    """What tools answered comes as if a user had said it."""
    if not found.text.strip() and not found.results:
        raise SkipMessage(_SILENT)
    if found.text.lstrip().startswith(_SCREEN):
        raise SkipMessage(_NOTE)
    if found.results:
        key = f"{turn.key} results" if found.text.strip() else turn.key
        yield replace(turn, role="tool", key=key, results=found.results)
    if found.text.strip():
        yield replace(turn, text=_typed(found.text))


def _typed(text: str) -> str:
    command = _COMMAND.search(text) if text.lstrip().startswith("<command-") else None
    if command is None:
        return text
    arguments = _COMMAND_ARGUMENTS.search(text)
    return f"{command[1]} {arguments[1].strip() if arguments else ''}".strip()


class _Blocks:
    """What stands in a message: a text, or blocks of several kinds."""

    def __init__(self, content: Any) -> None:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(objects(content))
        self.text = "\n\n".join(filter(None, map(_text, blocks)))
        self.calls = tuple(_call(block) for block in blocks if block.get("type") == "tool_use")
        self.results = tuple(_result(block) for block in blocks if block.get("type") == "tool_result")


def _text(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            text = block.get("text")
            return text if isinstance(text, str) else ""
        case "image" | "document" as kind:
            return f"[{kind}]"
    return ""


def _call(block: Mapping[str, Any]) -> Call:
    given = block.get("input")
    return Call(
        line_of(block.get("id")), line_of(block.get("name")) or "tool", given if isinstance(given, dict) else {}
    )


def _result(block: Mapping[str, Any]) -> Result:
    content = block.get("content")
    text = content if isinstance(content, str) else "\n".join(filter(None, map(_text, objects(content))))
    return Result(line_of(block.get("tool_use_id")), text, bool(block.get("is_error")))


IMPORTER = Importer(
    name=_NAME,
    title="Claude Code sessions (JSONL)",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".jsonl",),
)
