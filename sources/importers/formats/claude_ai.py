"""Claude.ai exports: a zip with `conversations.json` and `projects.json`, or one of these files alone.

Conversations become chats, documents of a project become notes, and its instructions a prompt. Account data and the
bytes of uploaded files are not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import MessageDraft, NoteDraft, PromptDraft
from sources.importers.engine.chat_messages import MessageTree, conversation_draft, conversation_parts, thread_messages
from sources.importers.engine.export_files import base_name, first_bytes, is_in_unpacked_export, is_json, read_export
from sources.importers.engine.files import FailedItem, ImportedNote, ImportedPrompt, SkippedItem, stable_uuid
from sources.importers.engine.importer import Events, FileProbe, Importer, ImportLimits, ProgressCallback, StartPosition
from sources.importers.engine.json_stream import decode_object
from sources.importers.engine.values import (
    clean_line,
    clean_tags,
    objects,
    require_storable,
    stored_time,
    text_or_empty,
    to_json,
    valid_uuid,
)

# -- content -----------------------------------------------------------------------------------------------------------
# Splits the content of a Claude.ai message into blocks: text, thinking, tool calls and tool results.
#
# One message may use many tools. Each block becomes a message of its own, so that it can be found and read separately.

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


_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_PROJECT_FIELDS = (b'"prompt_template"', b'"docs"')


class ClaudeAiImporter(Importer):
    name = "claude_ai"
    title = "Claude.ai export"
    suffixes = (".zip", ".json")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        names = {base_name(name) for name in probe.names}
        if "conversations.json" in names and "users.json" in names:
            return 0.95
        if probe.is_folder:
            return 0.0
        head = first_bytes(probe, _is_export_file)
        if not is_json(head):
            return 0.0
        if b'"chat_messages"' in head:
            return 0.9
        return 0.8 if all(field in head for field in _PROJECT_FIELDS) else 0.0

    def read(self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: StartPosition) -> Events:
        read = partial(_read_item, limits=limits)
        yield from read_export(path, limits, progress, _is_export_file, "item", read)

    def reads_from_folder(self, name: str) -> bool:
        return is_in_unpacked_export(name, _is_export_file)


class _ClaudeMessage(Struct, frozen=True):
    uuid: Any = None
    sender: Any = None
    text: Any = None
    content: Any = None
    created_at: Any = None
    attachments: Any = None
    files: Any = None
    # Missing in older exports, where the parent is the previous message.
    parent_message_uuid: Any = UNSET


class _ClaudeConversation(Struct, frozen=True):
    chat_messages: list[Raw]
    uuid: Any = None
    name: Any = None
    summary: Any = None
    created_at: Any = None
    updated_at: Any = None
    project: Any = None
    current_leaf_message_uuid: Any = None


class _ClaudeDocument(Struct, frozen=True):
    uuid: Any = None
    filename: Any = None
    content: Any = None
    created_at: Any = None


class _ClaudeProject(Struct, frozen=True):
    docs: list[Raw] | None = None
    prompt_template: Any = None
    uuid: Any = None
    name: Any = None
    description: Any = None
    created_at: Any = None


class _ClaudeFields(Struct, frozen=True):
    """The fields that tell conversations and projects apart."""

    chat_messages: Raw | UnsetType = UNSET
    docs: Raw | UnsetType = UNSET
    prompt_template: Raw | UnsetType = UNSET


def _is_export_file(name: str) -> bool:
    """Newer exports have a folder `projects` with one file per project."""
    path = PurePosixPath(name.lower())
    return path.name in ("conversations.json", "projects.json") or (
        path.parent.name == "projects" and path.suffix == ".json"
    )


def _read_item(data: bytes, location: str, limits: ImportLimits) -> Events:
    # Both kinds are objects of a list; the values are not decoded yet.
    fields = decode_object(data, _ClaudeFields)
    if fields.chat_messages is not UNSET:
        yield from _read_conversation(decode_object(data, _ClaudeConversation), location, limits)
    elif fields.docs is not UNSET or fields.prompt_template is not UNSET:
        yield from _read_project(decode_object(data, _ClaudeProject), location, limits)
    else:
        raise InvalidParams("neither a conversation (chat_messages) nor a project (docs)")


def _read_conversation(conversation: _ClaudeConversation, location: str, limits: ImportLimits) -> Events:
    # By the key of each message: that of its parent, and the keys of its blocks. The main block has the key of the
    # message itself.
    message_parents: dict[str, str | None] = {}
    block_keys: dict[str, Sequence[str]] = {}
    drafts: dict[str, MessageDraft] = {}
    last: str | None = None
    for number, raw in enumerate(conversation.chat_messages, 1):
        try:
            message = decode_object(raw, _ClaudeMessage)
            key = clean_line(message.uuid) or str(number)
            blocks = content_blocks(message.text, message.content, message.attachments, message.files)
            main = main_block(blocks)
            block_keys[key] = [key if index == main else f"{key}\0{index}" for index in range(len(blocks))] or [key]
            # The first message names a parent that does not exist; the tree treats it as having none.
            named = message.parent_message_uuid
            message_parents[key] = last if named in (UNSET, None) else clean_line(named)
            last = key
            if blocks:
                drafts |= zip(block_keys[key], _message_drafts(message, blocks, limits), strict=True)
            else:
                yield SkippedItem("empty message")
        except InvalidParams as error:
            yield FailedItem(f"{location}, message {number}", error.message)
    # Chains the blocks of a message; its first block follows the last block of its parent.
    parents: dict[str, str | None] = {}
    for message_key, keys in block_keys.items():
        parent = block_keys.get(message_parents[message_key] or "", [None])[-1]
        for key in keys:
            parents[key], parent = parent, key
    conversation_key = clean_line(conversation.uuid) or f"{conversation.created_at}"
    uuid = valid_uuid(conversation.uuid) or stable_uuid("claude_ai", "conversation", conversation_key)
    project = conversation.project if isinstance(conversation.project, dict) else {"uuid": conversation.project}
    draft = conversation_draft(
        "claude_ai",
        uuid,
        clean_line(conversation.name),
        created=stored_time(conversation.created_at),
        modified=stored_time(conversation.updated_at),
        summary=clean_line(conversation.summary),
        project=clean_line(project.get("name")),
        project_id=clean_line(project.get("uuid")),
    )
    tree = MessageTree(parents)
    leaf = block_keys.get(clean_line(conversation.current_leaf_message_uuid)) or block_keys.get(last or "")
    threaded = thread_messages(
        tree,
        tree.path_to(leaf[-1] if leaf else None),
        drafts,
        lambda key: valid_uuid(key) or stable_uuid("claude_ai", "message", f"{uuid}\0{key}"),
        draft.created_at,
    )
    yield from conversation_parts(draft, threaded)


def _message_drafts(
    message: _ClaudeMessage, blocks: Sequence[ContentBlock], limits: ImportLimits
) -> Sequence[MessageDraft]:
    """Returns a draft for each block. The main one has the attachments of the message."""
    role = _ROLES.get(clean_line(message.sender).lower(), "tool")
    for block in blocks:
        require_storable(block.text, limits)
    drafts = [
        MessageDraft(
            role=block.role or role,
            sender=block.tool or block.role if block.role else clean_line(message.sender) or role,
            content=block.text,
            tool=block.tool,
            citations=block.citations,
            metadata={"content_type": block.kind} if block.kind else {},
            created_at=stored_time(message.created_at) or UNSET,
        )
        for block in blocks
    ]
    main = main_block(blocks)
    drafts[main] = replace(drafts[main], attachments=attachment_metadata(message.attachments, message.files))
    return drafts


def _read_project(project: _ClaudeProject, location: str, limits: ImportLimits) -> Events:
    name = clean_line(project.name)
    key = clean_line(project.uuid) or name
    has_instructions = bool(text_or_empty(project.prompt_template).strip())
    if not has_instructions and not project.docs:
        yield SkippedItem("project without documents or instructions")
    if has_instructions:
        details = text_or_empty(project.description)
        require_storable(project.prompt_template, limits)
        require_storable(details, limits)
        yield ImportedPrompt(
            PromptDraft(
                # A project has one prompt, which can have its id.
                uuid=valid_uuid(key) or stable_uuid("claude_ai", "prompt", key),
                name=name or "Claude project",
                details=details,
                system_prompt=project.prompt_template,
                metadata={"imported_from": "claude_ai", "project_id": key},
                created_at=stored_time(project.created_at) or UNSET,
            )
        )
    for number, raw in enumerate(project.docs or (), 1):
        try:
            yield _document(decode_object(raw, _ClaudeDocument), name, f"{key}\0{number}", limits)
        except InvalidParams as error:
            yield FailedItem(f"{location}, document {number}", error.message)


def _document(document: _ClaudeDocument, project: str, key: str, limits: ImportLimits) -> ImportedNote | SkippedItem:
    content = text_or_empty(document.content)
    if not content.strip():
        return SkippedItem("empty document")
    require_storable(content, limits)
    return ImportedNote(
        NoteDraft(
            uuid=valid_uuid(document.uuid) or stable_uuid("claude_ai", "document", key),
            title=clean_line(document.filename),
            content=content,
            tags=clean_tags([project]),
            metadata={"imported_from": "claude_ai", "project": project},
            created_at=stored_time(document.created_at) or UNSET,
        )
    )
