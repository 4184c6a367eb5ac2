"""Claude.ai exports: a zip with `conversations.json` and `projects.json`, or one of these files alone.

Conversations become chats, documents of a project become notes, and its instructions a prompt. Account data and the
bytes of uploaded files are not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from msgspec import UNSET, Raw, Struct, structs

from config.errors import InvalidParams
from sources.drafts import MessageDraft, NoteDraft, PromptDraft
from sources.importers.engine.chat_messages import MessageTree, conversation_draft, conversation_parts, message_id
from sources.importers.engine.events import FailedItem, ImportedNote, ImportedPrompt, SkippedItem, stable_uuid
from sources.importers.engine.file_probe import is_json
from sources.importers.engine.importer import Events, ExportImporter, FileProbe, ImportLimits
from sources.importers.engine.input_file import base_name
from sources.importers.engine.json_stream import decode_apart, decode_fields, decode_list, decode_object
from sources.importers.engine.values import Fields, clean_line, clean_tags, require_storable, to_json, valid_uuid

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


def content_blocks(message: Fields) -> Sequence[ContentBlock]:
    """Returns the blocks of `content` or, if there are none, one block with `text`. The extracted text of attachments
    is appended to the main text."""
    parsed = [block for value in message.objects("content") for block in _parse_block(value) if block.text.strip()]
    blocks: list[ContentBlock] = []
    for block in parsed:
        # Consecutive blocks of ordinary text are one: citations split a text into many.
        if blocks and not blocks[-1].kind and not block.kind:
            text_so_far, citations = f"{blocks[-1].text}\n\n{block.text}", [*blocks[-1].citations, *block.citations]
            blocks[-1] = structs.replace(blocks[-1], text=text_so_far, citations=citations[:_LINKS_MAX])
        else:
            blocks.append(block)
    if not blocks and message.text("text").strip():
        blocks = [ContentBlock(message.text("text"))]
    attached = [
        f"[attachment: {value.line('file_name') or 'text'}]\n{extracted}"
        for value in message.objects("attachments")
        if (extracted := value.text("extracted_content")).strip()
    ]
    if not blocks and not attached:
        # A message may consist of an uploaded file only.
        attached = [f"[file: {name}]" for value in message.objects("files") if (name := value.line("file_name"))]
    if not attached:
        return blocks
    index = main_block(blocks)
    if not blocks or blocks[index].kind:
        # The message has no text of its own, so the attachments become its main block.
        return [ContentBlock("\n\n".join(attached)), *blocks]
    blocks[index] = structs.replace(blocks[index], text="\n\n".join([blocks[index].text, *attached]))
    return blocks


def attachment_metadata(message: Fields) -> Sequence[Mapping[str, Any]]:
    """Returns name, id, type and size of the attachments, as far as they are known."""
    result: list[Mapping[str, Any]] = []
    for value in (*message.objects("attachments"), *message.objects("files")):
        fields = {
            "name": value.line("file_name"),
            "id": value.line("file_uuid"),
            "mime_type": value.line("file_type"),
            "size": value.get("file_size") if isinstance(value.get("file_size"), int) else None,
        }
        result.append({name: field for name, field in fields.items() if field})
    return [attachment for attachment in result if attachment][:_LINKS_MAX]


def main_block(blocks: Sequence[ContentBlock]) -> int:
    """Returns the index of the block that represents the whole message: the first ordinary text."""
    return next((index for index, block in enumerate(blocks) if not block.kind), 0)


def _parse_block(block: Fields) -> Iterator[ContentBlock]:
    tool = block.line("name") or None
    match block.get("type"):
        case "thinking":
            yield ContentBlock(block.text("thinking"), kind="thinking")
        case "tool_use":
            value = block.get("input")
            if isinstance(value, dict):
                arguments = (f"{name}: {one if isinstance(one, str) else to_json(one)}" for name, one in value.items())
                yield ContentBlock("\n".join(arguments), kind="tool_use", tool=tool)
            else:
                yield ContentBlock(_text_or_json(value), kind="tool_use", tool=tool)
        case "tool_result":
            value = block.get("content")
            parts = (part.text("text") or f"[{part.line('type') or 'data'}]" for part in Fields.each(value))
            text = "\n".join(parts) if isinstance(value, list) else _text_or_json(value)
            yield ContentBlock(text, kind="tool_result", role="tool", tool=tool)
        case _ if isinstance(block.get("text"), str):
            # The address is in the citation itself or in its details, depending on the age of the export.
            cited = [
                {"title": value.line("title"), "url": value.line("url") or value.nested("details").line("url")}
                for value in block.objects("citations")
            ]
            links = [{name: text for name, text in link.items() if text} for link in cited if link["url"]]
            yield ContentBlock(block["text"], citations=links[:_LINKS_MAX])
        case kind if clean_line(kind) not in _IGNORED_TYPES:
            rest = {name: value for name, value in block.items() if name != "type" and value}
            yield ContentBlock(to_json(rest) if rest else "", kind=clean_line(kind) or "unknown")


def _text_or_json(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value) if value else ""


_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}


class ClaudeAiImporter(ExportImporter):
    name = "claude_ai"
    title = "Claude.ai export"
    noun = "item"
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        names = {base_name(name) for name in probe.names}
        if "conversations.json" in names and "users.json" in names:
            return 0.95
        head = probe.first_bytes(self.is_export_file)
        if is_json(head, b'"chat_messages"'):
            return 0.9
        return 0.8 if is_json(head, b'"prompt_template"', b'"docs"') else 0.0

    def is_export_file(self, name: str) -> bool:
        """Newer exports have a folder `projects` with one file per project."""
        path = PurePosixPath(name.lower())
        is_project = path.parent.name == "projects" and path.suffix == ".json"
        return is_project or path.name in ("conversations.json", "projects.json")

    def read_object(self, data: bytes, location: str, limits: ImportLimits) -> Events:
        # Both kinds are objects of a list; the values are not decoded yet.
        names = decode_object(data, dict[str, Raw]).keys()
        if "chat_messages" in names:
            return _read_conversation(data, location, limits)
        if names & {"docs", "prompt_template"}:
            return _read_project(data, location, limits)
        raise InvalidParams("neither a conversation (chat_messages) nor a project (docs)")


def _read_conversation(data: bytes, location: str, limits: ImportLimits) -> Events:
    conversation, messages = decode_apart(data, "chat_messages")
    # By the key of each message: that of its parent, and the keys of its blocks. The main block has the key of the
    # message itself.
    message_parents: dict[str, str | None] = {}
    block_keys: dict[str, Sequence[str]] = {}
    drafts: dict[str, MessageDraft] = {}
    last: str | None = None
    for number, raw in enumerate(decode_object(messages, list[Raw]), 1):
        try:
            message = decode_fields(raw)
            key = message.line("uuid") or str(number)
            blocks = content_blocks(message)
            main = main_block(blocks)
            block_keys[key] = [key if index == main else f"{key}\0{index}" for index in range(len(blocks))] or [key]
            # The first message names a parent that does not exist; the tree treats it as having none. Older exports
            # name none: the parent is the previous message.
            has_parent = message.get("parent_message_uuid") is not None
            message_parents[key] = message.line("parent_message_uuid") if has_parent else last
            last = key
            if blocks:
                # The main block has the attachments of the message.
                role = _ROLES.get(message.line("sender").lower(), "tool")
                for block in blocks:
                    require_storable(block.text, limits)
                for index, (block_key, block) in enumerate(zip(block_keys[key], blocks, strict=True)):
                    drafts[block_key] = MessageDraft(
                        role=block.role or role,
                        sender=block.tool or block.role if block.role else message.line("sender") or role,
                        content=block.text,
                        tool=block.tool,
                        attachments=attachment_metadata(message) if index == main else UNSET,
                        citations=block.citations,
                        metadata={"content_type": block.kind} if block.kind else {},
                        created_at=message.time("created_at") or UNSET,
                    )
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
    project = conversation.get("project")
    project = Fields(project if isinstance(project, dict) else {"uuid": project})
    draft = conversation_draft(
        "claude_ai",
        conversation.line("uuid") or f"{conversation.get('created_at')}",
        conversation.line("name"),
        created=conversation.time("created_at"),
        modified=conversation.time("updated_at"),
        summary=conversation.line("summary"),
        project=project.line("name"),
        project_id=project.line("uuid"),
    )
    tree = MessageTree(parents)
    leaf = block_keys.get(conversation.line("current_leaf_message_uuid")) or block_keys.get(last or "")
    path = tree.path_to(leaf[-1] if leaf else None)

    def uuid_of(key: str) -> str:
        return valid_uuid(key) or message_id("claude_ai", str(draft.uuid), key)

    yield from conversation_parts(draft, tree.messages(path, drafts, uuid_of, draft.created_at))


def _read_project(data: bytes, location: str, limits: ImportLimits) -> Events:
    project, raw_documents = decode_apart(data, "docs")
    documents = decode_list(raw_documents)
    name = project.line("name")
    key = project.line("uuid") or name
    instructions = project.text("prompt_template")
    if not instructions.strip() and not documents:
        yield SkippedItem("project without documents or instructions")
    if instructions.strip():
        details = project.text("description")
        require_storable(instructions, limits)
        require_storable(details, limits)
        yield ImportedPrompt(
            PromptDraft(
                # A project has one prompt, which can have its id.
                uuid=valid_uuid(key) or stable_uuid("claude_ai", "prompt", key),
                name=name or "Claude project",
                details=details,
                system_prompt=instructions,
                metadata={"imported_from": "claude_ai", "project_id": key},
                created_at=project.time("created_at") or UNSET,
            )
        )
    for number, raw in enumerate(documents, 1):
        try:
            document = decode_fields(raw)
            content = document.text("content")
            if not content.strip():
                yield SkippedItem("empty document")
                continue
            require_storable(content, limits)
        except InvalidParams as error:
            yield FailedItem(f"{location}, document {number}", error.message)
            continue
        draft = NoteDraft(
            uuid=valid_uuid(document.get("uuid")) or stable_uuid("claude_ai", "document", f"{key}\0{number}"),
            title=document.line("filename"),
            content=content,
            tags=clean_tags([name]),
            metadata={"imported_from": "claude_ai", "project": name},
            created_at=document.time("created_at") or UNSET,
        )
        yield ImportedNote(draft)
