"""What a message of Claude.ai says, in pieces: its text, what it thought, the tools it used and what they answered.

A message is one turn of a conversation and may use many tools; each piece is found, and read, by itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sources.importers.engine.threads import line_of
from sources.importers.formats.chatgpt_content import json_text, objects

_LINKS_MAX = 100
# What a block says about the message rather than in it.
_SILENT = frozenset(("token_budget",))


class Piece(Struct, frozen=True):
    """`kind` is empty for what is said; `role` for what is said by whoever sent the message."""

    text: str
    kind: str = ""
    role: str = ""
    tool: str | None = None
    citations: Sequence[Mapping[str, Any]] = ()


def pieces_of(text: Any, content: Any, attachments: Any, files: Any) -> Sequence[Piece]:
    """Blocks count where there are any, else the text. The text of an attachment belongs to what was said."""
    pieces = list(_merged(piece for block in objects(content) for piece in _block(block) if piece.text.strip()))
    if not pieces and isinstance(text, str) and text.strip():
        pieces = [Piece(text)]
    attached = [_attached(one) for one in objects(attachments) if _is_said(one.get("extracted_content"))]
    if not pieces and not attached:
        attached = [f"[file: {name}]" for one in objects(files) if (name := line_of(one.get("file_name")))]
    return _with(pieces, attached)


def attachment_names(attachments: Any, files: Any) -> Sequence[Mapping[str, Any]]:
    named: list[Mapping[str, Any]] = []
    for one in (*objects(attachments), *objects(files)):
        about = {
            "name": line_of(one.get("file_name")),
            "id": line_of(one.get("file_uuid")),
            "mime_type": line_of(one.get("file_type")),
            "size": one.get("file_size") if isinstance(one.get("file_size"), int) else None,
        }
        named.append({name: value for name, value in about.items() if value})
    return [one for one in named if one][:_LINKS_MAX]


def main_piece(pieces: Sequence[Piece]) -> int:
    """The piece that stands for the whole message: the first that says something."""
    return next((place for place, piece in enumerate(pieces) if not piece.kind), 0)


def _block(block: Mapping[str, Any]) -> Iterator[Piece]:
    match block.get("type"):
        case "thinking":
            yield Piece(_text(block.get("thinking")), kind="thinking")
        case "tool_use":
            yield Piece(_input(block.get("input")), kind="tool_use", tool=line_of(block.get("name")) or None)
        case "tool_result":
            answer = _answer(block.get("content"))
            yield Piece(answer, kind="tool_result", role="tool", tool=line_of(block.get("name")) or None)
        case kind if isinstance(block.get("text"), str):
            yield Piece(block["text"], citations=_citations(block.get("citations")))
        case kind if line_of(kind) not in _SILENT:
            rest = {name: value for name, value in block.items() if name != "type" and value}
            yield Piece(json_text(rest) if rest else "", kind=line_of(kind) or "unknown")


def _merged(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Texts that follow one another are one."""
    last: Piece | None = None
    for piece in pieces:
        if last is not None and not last.kind and not piece.kind:
            last = replace(
                last, text=f"{last.text}\n\n{piece.text}", citations=[*last.citations, *piece.citations][:_LINKS_MAX]
            )
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _with(pieces: list[Piece], attached: Sequence[str]) -> Sequence[Piece]:
    if not attached:
        return pieces
    place = main_piece(pieces)
    if not pieces or pieces[place].kind:
        return [Piece("\n\n".join(attached)), *pieces]
    pieces[place] = replace(pieces[place], text="\n\n".join([pieces[place].text, *attached]))
    return pieces


def _attached(one: Mapping[str, Any]) -> str:
    return f"[attachment: {line_of(one.get('file_name')) or 'text'}]\n{one['extracted_content']}"


def _input(value: Any) -> str:
    """What a tool was asked: a field on each line, so that a text in it can be read."""
    if not isinstance(value, dict):
        return _text(value) or (json_text(value) if value else "")
    return "\n".join(f"{name}: {one if isinstance(one, str) else json_text(one)}" for name, one in value.items())


def _answer(value: Any) -> str:
    if not isinstance(value, list):
        return _text(value) or (json_text(value) if value else "")
    return "\n".join(_text(one.get("text")) or f"[{line_of(one.get('type')) or 'data'}]" for one in objects(value))


def _citations(values: Any) -> Sequence[Mapping[str, Any]]:
    """Where the address stands differs between exports."""
    found: list[Mapping[str, Any]] = []
    for one in objects(values):
        details = one.get("details")
        url = line_of(one.get("url")) or line_of(details.get("url") if isinstance(details, dict) else None)
        if url:
            found.append(
                {"title": line_of(one.get("title")), "url": url} if line_of(one.get("title")) else {"url": url}
            )
    return found[:_LINKS_MAX]


def _is_said(value: Any) -> bool:
    return bool(_text(value).strip())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
