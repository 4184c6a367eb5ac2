"""Splits the content of a Claude.ai message into blocks: text, thinking, tool calls and tool results.

One message may use many tools. Each block becomes a message of its own, so that it can be found and read separately.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sources.importers.engine.values import clean_line, objects, text_or_empty, to_json

_LINKS_MAX = 100
# Block types that describe the message instead of being part of it.
_IGNORED_TYPES = frozenset(("token_budget",))


class ContentBlock(Struct, frozen=True):
    """`kind` is empty for ordinary text; `role` is empty unless it differs from the sender of the message."""

    text: str
    kind: str = ""
    role: str = ""
    tool: str | None = None
    citations: Sequence[Mapping[str, Any]] = ()


def content_blocks(text: Any, content: Any, attachments: Any, files: Any) -> Sequence[ContentBlock]:
    """Returns the blocks of `content` or, if there are none, one block with `text`. The extracted text of attachments
    is appended to the main text."""
    if not (text or content or attachments or files):
        return ()
    parsed = [block for value in objects(content) for block in _parse_block(value) if block.text.strip()]
    blocks: list[ContentBlock] = []
    for block in parsed:
        # Consecutive blocks of ordinary text are one: citations split a text into many.
        if blocks and not blocks[-1].kind and not block.kind:
            text_so_far, citations = f"{blocks[-1].text}\n\n{block.text}", [*blocks[-1].citations, *block.citations]
            blocks[-1] = replace(blocks[-1], text=text_so_far, citations=citations[:_LINKS_MAX])
        else:
            blocks.append(block)
    if not blocks and isinstance(text, str) and text.strip():
        blocks = [ContentBlock(text)]
    attached = [
        f"[attachment: {clean_line(value.get('file_name')) or 'text'}]\n{extracted}"
        for value in objects(attachments)
        if (extracted := text_or_empty(value.get("extracted_content"))).strip()
    ]
    if not blocks and not attached:
        # A message may consist of an uploaded file only.
        attached = [f"[file: {name}]" for value in objects(files) if (name := clean_line(value.get("file_name")))]
    if not attached:
        return blocks
    index = main_block(blocks)
    if not blocks or blocks[index].kind:
        # The message has no text of its own, so the attachments become its main block.
        return [ContentBlock("\n\n".join(attached)), *blocks]
    blocks[index] = replace(blocks[index], text="\n\n".join([blocks[index].text, *attached]))
    return blocks


def attachment_metadata(attachments: Any, files: Any) -> Sequence[Mapping[str, Any]]:
    """Returns name, id, type and size of the attachments, as far as they are known."""
    result: list[Mapping[str, Any]] = []
    for value in (*objects(attachments), *objects(files)):
        fields = {
            "name": clean_line(value.get("file_name")),
            "id": clean_line(value.get("file_uuid")),
            "mime_type": clean_line(value.get("file_type")),
            "size": value.get("file_size") if isinstance(value.get("file_size"), int) else None,
        }
        result.append({name: field for name, field in fields.items() if field})
    return [attachment for attachment in result if attachment][:_LINKS_MAX]


def main_block(blocks: Sequence[ContentBlock]) -> int:
    """Returns the index of the block that represents the whole message: the first ordinary text."""
    return next((index for index, block in enumerate(blocks) if not block.kind), 0)


def _parse_block(block: Mapping[str, Any]) -> Iterator[ContentBlock]:
    tool = clean_line(block.get("name")) or None
    match block.get("type"):
        case "thinking":
            yield ContentBlock(text_or_empty(block.get("thinking")), kind="thinking")
        case "tool_use":
            value = block.get("input")
            if isinstance(value, dict):
                arguments = (f"{name}: {one if isinstance(one, str) else to_json(one)}" for name, one in value.items())
                yield ContentBlock("\n".join(arguments), kind="tool_use", tool=tool)
            else:
                yield ContentBlock(_text_or_json(value), kind="tool_use", tool=tool)
        case "tool_result":
            value = block.get("content")
            parts = (
                text_or_empty(part.get("text")) or f"[{clean_line(part.get('type')) or 'data'}]"
                for part in objects(value)
            )
            text = "\n".join(parts) if isinstance(value, list) else _text_or_json(value)
            yield ContentBlock(text, kind="tool_result", role="tool", tool=tool)
        case _ if isinstance(block.get("text"), str):
            yield ContentBlock(block["text"], citations=_citations(block.get("citations")))
        case kind if clean_line(kind) not in _IGNORED_TYPES:
            rest = {name: value for name, value in block.items() if name != "type" and value}
            yield ContentBlock(to_json(rest) if rest else "", kind=clean_line(kind) or "unknown")


def _text_or_json(value: Any) -> str:
    return text_or_empty(value) or (to_json(value) if value else "")


def _citations(values: Any) -> Sequence[Mapping[str, Any]]:
    """The URL is in the citation itself or in its details, depending on the age of the export."""
    citations: list[Mapping[str, Any]] = []
    for value in objects(values):
        details = value.get("details")
        url = clean_line(value.get("url")) or clean_line(details.get("url") if isinstance(details, dict) else None)
        title = clean_line(value.get("title"))
        if url:
            citations.append({"title": title, "url": url} if title else {"url": url})
    return citations[:_LINKS_MAX]
