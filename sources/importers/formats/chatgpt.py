"""ChatGPT exports: a zip with `conversations.json`, or with its shards, or such a file alone. Every node that says
something is a message; edits and regenerations stay as branches, and the path that the export calls current is
canonical. Media stay in the zip: messages name them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.exports import base_name, beginning, export_elements, is_json, place_of, stands_in
from sources.importers.engine.files import own_uuid
from sources.importers.engine.imported_items import FailedItem, ImportEvent, ReadPosition, SkippedItem, stable_uuid
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.json_stream import Element, decode
from sources.importers.engine.threads import SkipMessage, Tree, arrivals_of, line_of, require_text, threaded
from sources.importers.engine.times import moment_of
from sources.importers.formats.chatgpt_content import content_text, objects, texts

_NAME = "chatgpt"
_ROLES = frozenset(("user", "assistant", "system", "tool"))
# Files that stand beside the conversations in an export of ChatGPT, and in no other.
_COMPANIONS = frozenset(("chat.html", "user.json", "export_manifest.json", "message_feedback.json"))
# Of one message; what is longer is a list of sources that nobody reads.
_LINKS_MAX = 100
_LINK_CHARS = 2_000
_NOTHING = Raw(b"null")

EMPTY, HIDDEN, SYSTEM = "an empty message", "a hidden message", "a system message"


class _Author(Struct, frozen=True):
    role: Any = None
    name: Any = None


class _About(Struct, frozen=True):
    """A message's metadata, as far as it is kept."""

    model_slug: Any = None
    attachments: Any = None
    citations: Any = None
    content_references: Any = None
    is_visually_hidden_from_conversation: Any = None
    is_user_system_message: Any = None


class _Message(Struct, frozen=True):
    author: _Author | None = None
    create_time: Any = None
    content: Any = None
    weight: Any = None
    recipient: Any = None
    channel: Any = None
    metadata: _About | None = None


class _Node(Struct, frozen=True):
    """The message is read on its own, so that a broken one still has its place."""

    parent: Any = None
    children: Any = None
    message: Raw = _NOTHING


class _Conversation(Struct, frozen=True):
    mapping: dict[str, Raw]
    id: Any = None
    conversation_id: Any = None
    title: Any = None
    create_time: Any = None
    update_time: Any = None
    current_node: Any = None
    default_model_slug: Any = None
    gizmo_id: Any = None
    conversation_template_id: Any = None
    is_archived: Any = None
    is_starred: Any = None


def message_uuid(conversation: str, key: str) -> str:
    """Of both ids: a conversation that was branched off another one may repeat the ids of its messages."""
    return stable_uuid(_NAME, "message", f"{conversation}\0{key}")


def conversation_uuid(key: str) -> str:
    return own_uuid(key) or stable_uuid(_NAME, "conversation", key)


def _recognizes(probe: FileProbe) -> float:
    names = {base_name(name) for name in probe.names}
    if any(map(_is_wanted, names)) and names & _COMPANIONS:
        return 0.95
    if probe.is_folder:
        return 0.0
    head = beginning(probe, _is_wanted)
    return 0.9 if is_json(head) and b'"mapping"' in head and b'"chat_messages"' not in head else 0.0


def _is_wanted(name: str) -> bool:
    return fnmatchcase(base_name(name), "conversations*.json")


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    for file, element in export_elements(path, limits, progress, _is_wanted):
        place = place_of(file, f"chat {element.number}")
        try:
            yield from _conversation(_decoded(element), place, limits)
        except InvalidParams as error:
            yield FailedItem(place, error.message)


def _decoded(element: Element) -> _Conversation:
    if element.problem:
        raise InvalidParams(element.problem)
    return decode(element.data, _Conversation)


def _conversation(found: _Conversation, place: str, limits: ImportLimits) -> Iterator[ImportEvent]:
    nodes: dict[str, _Node] = {}
    messages: dict[str, _Message] = {}
    drafts: dict[str, MessageDraft] = {}
    for key, raw in found.mapping.items():
        try:
            nodes[key] = _Node() if _is_null(raw) else decode(raw, _Node)
            if not _is_null(nodes[key].message):
                messages[key] = decode(nodes[key].message, _Message)
                drafts[key] = _draft(messages[key], found.default_model_slug, limits)
        except SkipMessage as left_out:
            yield SkippedItem(left_out.reason)
        except InvalidParams as error:
            yield FailedItem(f"{place}, message {key[:40]}", error.message)
            nodes.setdefault(key, _Node())
    tree = Tree(_parents(nodes))
    created_at = moment_of(found.create_time) or UNSET
    uuid = conversation_uuid(_key(found, nodes))
    path = _path(tree, found.current_node, messages, drafts)
    said = threaded(tree, path, drafts, lambda key: message_uuid(uuid, key), created_at)
    yield from arrivals_of(_conversation_draft(found, uuid, created_at), said)


def _is_null(raw: Raw) -> bool:
    return bytes(raw) == b"null"


def _key(found: _Conversation, nodes: Mapping[str, _Node]) -> str:
    """Its id; where it has none, when it was begun and the node it was begun with."""
    for given in (found.conversation_id, found.id):
        if isinstance(given, str) and given:
            return given
    root = next((key for key, node in nodes.items() if node.parent is None), "")
    return f"{found.create_time}\0{root}"


def _conversation_draft(found: _Conversation, uuid: str, created_at: str | UnsetType) -> ConversationDraft:
    about = {
        "model": line_of(found.default_model_slug),
        "gizmo_id": line_of(found.gizmo_id),
        "project_id": line_of(found.conversation_template_id),
        "is_archived": found.is_archived is True,
        "is_starred": found.is_starred is True,
    }
    return ConversationDraft(
        uuid=uuid,
        title=line_of(found.title),
        metadata={"imported_from": _NAME} | {name: value for name, value in about.items() if value},
        created_at=created_at,
        last_modified=moment_of(found.update_time) or UNSET,
    )


# -- branches ----------------------------------------------------------------------------------------------------------


def _parents(nodes: Mapping[str, _Node]) -> Mapping[str, str | None]:
    """What a node says of its parent counts; of one that says nothing, what the others say. Siblings stand in the
    order in which their parent lists them."""
    listed = {child: key for key, node in nodes.items() for child in texts(node.children) if child in nodes}
    parents: dict[str, str | None] = {}
    for key in (*listed, *nodes):
        own = nodes[key].parent
        parents[key] = own if isinstance(own, str) and own in nodes else listed.get(key)
    return parents


def _path(
    tree: Tree, current: Any, messages: Mapping[str, _Message], drafts: Mapping[str, MessageDraft]
) -> tuple[str, ...]:
    """Up from the current node; where it is missing, or nothing is said on the way, from the leaf that counts most and
    is newest."""
    path = tuple(tree.path_to(current)) if isinstance(current, str) else ()
    if any(key in drafts for key in path):
        return path
    newest = max((key for key in tree.leaves() if key in messages), key=lambda key: _rank(messages[key]), default=None)
    return tuple(tree.path_to(newest))


def _rank(message: _Message) -> tuple[float, str]:
    weight = message.weight if isinstance(message.weight, int | float) else 1.0
    return weight, moment_of(message.create_time) or ""


# -- messages ----------------------------------------------------------------------------------------------------------


def _draft(message: _Message, default_model: Any, limits: ImportLimits) -> MessageDraft:
    author, about = message.author or _Author(), message.metadata or _About()
    content = message.content if isinstance(message.content, dict) else {"parts": [message.content]}
    kind = line_of(content.get("content_type")) or "text"
    role = line_of(author.role)
    role = role if role in _ROLES else "tool"
    reason = _hidden(role, kind, about)
    if reason:
        raise SkipMessage(reason)
    text = content_text(content)
    if not text.strip():
        raise SkipMessage(EMPTY)
    require_text(text, limits)
    return MessageDraft(
        role=role,
        sender=line_of(author.name) or role,
        content=text,
        model=line_of(about.model_slug) or (line_of(default_model) if role == "assistant" else "") or None,
        tool=_tool(role, author, message.recipient),
        attachments=[*_attachments(about), *_assets(content)][:_LINKS_MAX],
        citations=_citations(about),
        metadata=_metadata(message, kind),
        created_at=moment_of(message.create_time) or UNSET,
    )


def _hidden(role: str, kind: str, about: _About) -> str | None:
    """What a person told the model about themselves is hidden in every conversation, and kept."""
    if about.is_user_system_message is True or kind == "user_editable_context":
        return None
    if about.is_visually_hidden_from_conversation is True:
        return HIDDEN
    return SYSTEM if role == "system" else None


def _tool(role: str, author: _Author, recipient: Any) -> str | None:
    """The tool that speaks, or the one that is spoken to."""
    if role == "tool":
        return line_of(author.name) or None
    return line_of(recipient) or None if recipient != "all" else None


def _metadata(message: _Message, kind: str) -> Mapping[str, Any]:
    about: dict[str, Any] = {} if kind == "text" else {"content_type": kind}
    if channel := line_of(message.channel):
        about["channel"] = channel
    if message.weight == 0:
        about["weight"] = 0
    return about


def _attachments(about: _About) -> Iterator[Mapping[str, Any]]:
    for one in objects(about.attachments):
        yield _short(one, ("id", "name", "size", "mime_type"))


def _assets(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in objects(content.get("parts")):
        if "asset_pointer" in part:
            yield _short(part, ("content_type", "asset_pointer", "width", "height", "size_bytes"))


def _citations(about: _About) -> Sequence[Mapping[str, Any]]:
    found = [one.get("metadata") for one in objects(about.citations)]
    for one in objects(about.content_references):
        found += [one, *objects(one.get("items"))]
    links = [_short(one, ("title", "url")) for one in objects(found)]
    return list({link["url"]: link for link in links if link.get("url")}.values())[:_LINKS_MAX]


def _short(value: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name in names:
        one = value.get(name)
        if isinstance(one, int | float):
            kept[name] = one
        elif isinstance(one, str) and one:
            kept[name] = line_of(one)[:_LINK_CHARS]
    return kept


IMPORTER = Importer(
    name=_NAME,
    title="ChatGPT export",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".zip", ".json"),
    reads_of_folder=lambda name: stands_in(name, _is_wanted),
    edition=1,
)
