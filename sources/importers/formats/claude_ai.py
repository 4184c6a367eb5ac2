"""Claude.ai exports: a zip with `conversations.json` and `projects.json`, or such a file alone. Conversations become
chats, a project's documents notes and its instructions a prompt. Accounts and uploaded files' bytes are not read.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft, NoteDraft, PromptDraft
from sources.importers.engine.exports import base_name, beginning, export_elements, is_json, place_of, stands_in
from sources.importers.engine.files import few_tags, own_uuid
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedNote,
    ImportedPrompt,
    ImportEvent,
    ReadPosition,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.json_stream import Element, decode
from sources.importers.engine.threads import Tree, arrivals_of, line_of, require_text, threaded
from sources.importers.engine.times import moment_of
from sources.importers.formats.claude_content import Piece, attachment_names, main_piece, pieces_of

_NAME = "claude_ai"
_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "system": "system"}
_PROJECT_MARKS = (b'"prompt_template"', b'"docs"')


class _Message(Struct, frozen=True):
    uuid: Any = None
    sender: Any = None
    text: Any = None
    content: Any = None
    created_at: Any = None
    attachments: Any = None
    files: Any = None
    # Older exports have none: a message answers the one before it.
    parent_message_uuid: Any = UNSET


class _Conversation(Struct, frozen=True):
    chat_messages: list[Raw]
    uuid: Any = None
    name: Any = None
    summary: Any = None
    created_at: Any = None
    updated_at: Any = None
    project: Any = None
    current_leaf_message_uuid: Any = None


class _Document(Struct, frozen=True):
    uuid: Any = None
    filename: Any = None
    content: Any = None
    created_at: Any = None


class _Project(Struct, frozen=True):
    docs: list[Raw] | None = None
    prompt_template: Any = None
    uuid: Any = None
    name: Any = None
    description: Any = None
    created_at: Any = None


class _Kind(Struct, frozen=True):
    """What an object of an export is, by the fields that it has."""

    chat_messages: Raw | UnsetType = UNSET
    docs: Raw | UnsetType = UNSET
    prompt_template: Raw | UnsetType = UNSET


def _recognizes(probe: FileProbe) -> float:
    names = {base_name(name) for name in probe.names}
    if "conversations.json" in names and "users.json" in names:
        return 0.95
    if probe.is_folder:
        return 0.0
    head = beginning(probe, _is_wanted)
    if not is_json(head):
        return 0.0
    if b'"chat_messages"' in head:
        return 0.9
    return 0.8 if all(mark in head for mark in _PROJECT_MARKS) else 0.0


def _is_wanted(name: str) -> bool:
    """Newer exports have a folder of projects, with a file for each."""
    path = PurePosixPath(name.lower())
    return path.name in ("conversations.json", "projects.json") or (
        path.parent.name == "projects" and path.suffix == ".json"
    )


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    for file, element in export_elements(path, limits, progress, _is_wanted):
        place = place_of(file, f"item {element.number}")
        try:
            yield from _arrivals(element, place, limits)
        except InvalidParams as error:
            yield FailedItem(place, error.message)


def _arrivals(element: Element, place: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    if element.problem:
        raise InvalidParams(element.problem)
    kind = decode(element.data, _Kind)
    if kind.chat_messages is not UNSET:
        yield from _conversation(decode(element.data, _Conversation), place, limits)
    elif kind.docs is not UNSET or kind.prompt_template is not UNSET:
        yield from _project(decode(element.data, _Project), place, limits)
    else:
        raise InvalidParams("got neither chat_messages nor docs, expected a conversation or a project")


# -- conversations -----------------------------------------------------------------------------------------------------


class _Turn(Struct, frozen=True):
    """A message, what it answers, and the keys of its pieces."""

    message: _Message
    parent: str | None
    pieces: Sequence[Piece]
    keys: Sequence[str]


def _conversation(found: _Conversation, place: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    turns: dict[str, _Turn] = {}
    drafts: dict[str, MessageDraft] = {}
    last: str | None = None
    for number, raw in enumerate(found.chat_messages, 1):
        try:
            key, turn = _turn(decode(raw, _Message), number, last)
            turns[key] = turn
            last = key
            drafts |= _drafts(turn, limits)
        except InvalidParams as error:
            yield FailedItem(f"{place}, message {number}", error.message)
            continue
        if not turn.pieces:
            yield SkippedItem("an empty message")
    created_at = moment_of(found.created_at) or UNSET
    uuid = own_uuid(found.uuid) or stable_uuid(_NAME, "conversation", line_of(found.uuid) or f"{found.created_at}")
    tree = Tree(_parents(turns))
    leaf = turns.get(line_of(found.current_leaf_message_uuid)) or turns.get(last or "")
    path = tree.path_to(leaf.keys[-1] if leaf else None)
    said = threaded(tree, path, drafts, lambda key: _message_uuid(uuid, key), created_at)
    yield from arrivals_of(_conversation_draft(found, uuid, created_at), said)


def _turn(message: _Message, number: int, before: str | None) -> tuple[str, _Turn]:
    key = line_of(message.uuid) or str(number)
    given = message.parent_message_uuid
    pieces = pieces_of(message.text, message.content, message.attachments, message.files)
    main = main_piece(pieces)
    keys = [key if place == main else f"{key}\0{place}" for place in range(len(pieces))] or [key]
    # The first message names a parent that is not there: the tree knows it for none.
    return key, _Turn(message, before if given in (UNSET, None) else line_of(given), pieces, keys)


def _parents(turns: Mapping[str, _Turn]) -> Mapping[str, str | None]:
    """Piece after piece: the first of a message answers the last of the message it answers."""
    parents: dict[str, str | None] = {}
    for turn in turns.values():
        answered = turns.get(turn.parent or "")
        above = answered.keys[-1] if answered else None
        for key in turn.keys:
            parents[key], above = above, key
    return parents


def _drafts(turn: _Turn, limits: ImportLimits) -> Mapping[str, MessageDraft]:
    role = _ROLES.get(line_of(turn.message.sender).lower(), "tool")
    drafts = {key: _draft(piece, role, turn.message) for key, piece in zip(turn.keys, turn.pieces, strict=False)}
    for piece in turn.pieces:
        require_text(piece.text, limits)
    if drafts:
        main = turn.keys[main_piece(turn.pieces)]
        named = attachment_names(turn.message.attachments, turn.message.files)
        drafts[main] = replace(drafts[main], attachments=named)
    return drafts


def _draft(piece: Piece, role: str, message: _Message) -> MessageDraft:
    return MessageDraft(
        role=piece.role or role,
        sender=piece.tool or piece.role if piece.role else line_of(message.sender) or role,
        content=piece.text,
        tool=piece.tool,
        citations=piece.citations,
        metadata={"content_type": piece.kind} if piece.kind else {},
        created_at=moment_of(message.created_at) or UNSET,
    )


def _message_uuid(conversation: str, key: str) -> str:
    return own_uuid(key) or stable_uuid(_NAME, "message", f"{conversation}\0{key}")


def _conversation_draft(found: _Conversation, uuid: str, created_at: str | UnsetType) -> ConversationDraft:
    project = found.project if isinstance(found.project, dict) else {"uuid": found.project}
    about = {
        "summary": line_of(found.summary),
        "project": line_of(project.get("name")),
        "project_id": line_of(project.get("uuid")),
    }
    return ConversationDraft(
        uuid=uuid,
        title=line_of(found.name),
        metadata={"imported_from": _NAME} | {name: value for name, value in about.items() if value},
        created_at=created_at,
        last_modified=moment_of(found.updated_at) or UNSET,
    )


# -- projects ----------------------------------------------------------------------------------------------------------


def _project(found: _Project, place: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    name = line_of(found.name)
    key = line_of(found.uuid) or name
    instructions = found.prompt_template if isinstance(found.prompt_template, str) else ""
    if not instructions.strip() and not found.docs:
        yield SkippedItem("a project without documents and instructions")
    if instructions.strip():
        yield _instructions(found, name, key, limits)
    for number, raw in enumerate(found.docs or (), 1):
        try:
            yield _document(decode(raw, _Document), name, f"{key}\0{number}", limits)
        except InvalidParams as error:
            yield FailedItem(f"{place}, document {number}", error.message)


def _instructions(found: _Project, name: str, key: str, limits: ImportLimits) -> ImportedPrompt:
    details = found.description if isinstance(found.description, str) else ""
    require_text(found.prompt_template, limits)
    require_text(details, limits)
    return ImportedPrompt(
        PromptDraft(
            uuid=own_uuid(key) or stable_uuid(_NAME, "prompt", key),
            name=name or "Claude project",
            details=details,
            system_prompt=found.prompt_template,
            metadata={"imported_from": _NAME, "project_id": key},
            created_at=moment_of(found.created_at) or UNSET,
        )
    )


def _document(found: _Document, project: str, key: str, limits: ImportLimits) -> ImportEvent:
    content = found.content if isinstance(found.content, str) else ""
    if not content.strip():
        return SkippedItem("an empty document")
    require_text(content, limits)
    return ImportedNote(
        NoteDraft(
            uuid=own_uuid(found.uuid) or stable_uuid(_NAME, "document", key),
            title=line_of(found.filename),
            content=content,
            tags=few_tags([project]),
            metadata={"imported_from": _NAME, "project": project},
            created_at=moment_of(found.created_at) or UNSET,
        )
    )


IMPORTER = Importer(
    name=_NAME,
    title="Claude.ai export",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".zip", ".json"),
    reads_of_folder=lambda name: stands_in(name, _is_wanted),
    edition=1,
)
