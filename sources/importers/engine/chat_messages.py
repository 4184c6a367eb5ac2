"""Conversations with messages, as most chat exports contain them: an importer says what a message is, and this module
assigns ids, checks texts and keeps branches.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from config.errors import InvalidParams
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.events import FailedItem, ImportedConversation, SkippedItem, stable_uuid
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.values import Fields, clean_line, compact_metadata, require_storable, valid_uuid
from sources.text.chunking import first_sentence

# -- threads -----------------------------------------------------------------------------------------------------------
# Turns branching conversations into the stored form: a list of messages, each with the id of its parent.
#
# The canonical path, which is what a reader of the original conversation sees, comes first. Alternate branches follow
# in the order in which they leave that path.

# A conversation is yielded in parts of this many messages, so that a long one need not be held in memory.
_PART_MESSAGES = 500


class MessageTree:
    """Messages by key, with their parents. An unknown parent counts as none. Cycles, which damaged exports contain, are
    allowed: every message is visited once."""

    def __init__(self, parents: Mapping[str, str | None]) -> None:
        # Exports name parents that they do not contain, as the first message of Claude.ai does.
        self._parents = {key: parent if parent in parents else None for key, parent in parents.items()}
        self._children: dict[str | None, list[str]] = {}
        for key, parent in self._parents.items():
            self._children.setdefault(parent, []).append(key)

    def leaves(self) -> Iterator[str]:
        return (key for key in self._parents if key not in self._children)

    def path_to(self, key: str | None) -> Sequence[str]:
        """Returns the keys from the root to a message; nothing for an unknown key."""
        path: dict[str, None] = {}
        while key is not None and key in self._parents and key not in path:
            path[key] = None
            key = self._parents[key]
        return tuple(reversed(path))

    def walk(self, path: Sequence[str]) -> Iterator[str]:
        """Yields every key once: first the path, then the branches off it, then everything else."""
        seen = set(path)
        yield from path
        branches = (child for key in (None, *path) for child in self._children.get(key, ()))
        # The members of a cycle are below no root, so they are reached only through the list of all keys.
        for start in (*branches, *self._parents):
            pending = [start]
            while pending:
                subtree_key = pending.pop()
                if subtree_key not in seen:
                    seen.add(subtree_key)
                    yield subtree_key
                    pending += reversed(self._children.get(subtree_key, ()))

    def messages(
        self,
        path: Sequence[str],
        drafts: Mapping[str, MessageDraft],
        uuid_of: Callable[[str], str],
        created_at: str | UnsetType,
    ) -> Iterator[MessageDraft]:
        """Yields the drafts in order, with id, parent and time set. `path` is the canonical path.

        A key without a draft was skipped; its children become children of its nearest ancestor with a draft. A message
        without a time gets that of its parent, or else `created_at`, the time of the conversation.
        """
        # The walk yields a parent before its children, so that what a child takes over from it is known.
        canonical = frozenset(path)
        # By key: the nearest ancestor that is imported, the id of a message, and its time.
        nearest: dict[str, str | None] = {}
        uuids: dict[str | None, str | None] = {None: None}
        times: dict[str | None, str | UnsetType] = {None: created_at}
        for key in self.walk(path):
            parent = nearest.get(self._parents[key] or "")
            draft = drafts.get(key)
            nearest[key] = parent if draft is None else key
            if draft is not None:
                times[key] = times[parent] if draft.created_at is UNSET else draft.created_at
                uuid = uuids[key] = uuid_of(key)
                yield structs.replace(
                    draft, uuid=uuid, parent_id=uuids[parent], is_canonical=key in canonical, created_at=times[key]
                )


def conversation_parts(
    draft: ConversationDraft, messages: Iterable[MessageDraft | SkippedItem | FailedItem]
) -> Iterator[ImportedConversation | SkippedItem | FailedItem]:
    """Yields a conversation in parts, and passes reports through. A conversation without messages is skipped."""
    part: list[MessageDraft] = []
    continues = False
    for message in messages:
        if not isinstance(message, MessageDraft):
            yield message
            continue
        part.append(message)
        if len(part) == _PART_MESSAGES:
            yield ImportedConversation(draft, tuple(part), continues)
            continues = True
            part.clear()
    if part:
        yield ImportedConversation(draft, tuple(part), continues)
    elif not continues:
        yield SkippedItem("conversation without messages")


class SkipMessage(Exception):
    """Raised while parsing a message that is not imported; `reason` is a phrase as in `SkippedItem`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


EMPTY_MESSAGE = "empty message"
_TITLE_CHARS = 120
_CITATIONS_MAX = 100
_ROLES = {
    **dict.fromkeys(("user", "human", "prompter", "you", "request"), "user"),
    **dict.fromkeys(("assistant", "gpt", "ai", "bot", "model", "chatgpt", "bing", "bard", "response"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "function_call"), "tool"),
}
# Parts of a message that are not text, by their type.
_PLACEHOLDERS = {
    **dict.fromkeys(("image", "image_url", "input_image", "image_file"), "[image]"),
    **dict.fromkeys(("audio", "input_audio"), "[audio]"),
    **dict.fromkeys(("video", "video_url"), "[video]"),
    **dict.fromkeys(("file", "input_file", "document"), "[file]"),
}

MessageReport = SkippedItem | FailedItem


class ChatMessage(Struct, frozen=True, kw_only=True):
    """A message of an export. `key` is unique in its conversation and stays the same in later exports; `parent` is the
    key of the message that it answers."""

    key: str
    role: str
    text: str
    sender: str = ""
    time: str | None = None
    parent: str | None = None
    model: str = ""
    tool: str = ""
    attachments: Sequence[Mapping[str, Any]] = ()
    citations: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] = {}


def conversation_draft(
    importer: str,
    key: str,
    title: str,
    *,
    created: str | None = None,
    modified: str | None = None,
    tags: Sequence[str] | UnsetType = UNSET,
    **metadata: Any,
) -> ConversationDraft:
    """A key that is a UUID is the id of the conversation; from others it is derived. Metadata that are empty or False
    are left out."""
    present = compact_metadata(**{name: value for name, value in metadata.items() if value is not False})
    return ConversationDraft(
        uuid=valid_uuid(key) or stable_uuid(importer, "conversation", key),
        title=title,
        tags=tags,
        metadata={"imported_from": importer, **present},
        created_at=created or UNSET,
        last_modified=modified or UNSET,
    )


def title_of(text: str) -> str:
    """Returns a title for a conversation that has none: the first sentence of its first message."""
    return clean_line(first_sentence(text, _TITLE_CHARS))


def message_id(importer: str, conversation: str, key: str) -> str:
    """Includes the conversation, because a copied or branched conversation may repeat the keys of the original."""
    return stable_uuid(importer, "message", f"{conversation}\0{key}")


def conversation_in_order(
    importer: str, draft: ConversationDraft, messages: Iterable[ChatMessage | MessageReport], limits: ImportLimits
) -> Iterator[ImportedConversation | MessageReport]:
    """Yields a conversation whose messages are listed in order, one after the other. A message that answers an earlier
    one refers to it. A conversation without a time gets that of its first message."""
    remaining = iter(messages)
    for message in remaining:
        if not isinstance(message, ChatMessage):
            # At once, so that a file in which nothing is a message can be given up.
            yield message
            continue
        created = message.time if draft.created_at is UNSET else None
        draft = structs.replace(draft, created_at=created) if created else draft
        remaining = chain((message,), remaining)
        break
    yield from conversation_parts(draft, _drafts_in_order(importer, draft, remaining, limits))


def conversation_with_branches(
    importer: str,
    draft: ConversationDraft,
    messages: Iterable[ChatMessage],
    limits: ImportLimits,
    current: str | None = None,
) -> Iterator[ImportedConversation | MessageReport]:
    """Yields a conversation whose messages form a tree. The canonical path ends at the message `current` or, without
    one, at the last message."""
    branches = MessageBranches(importer, limits)
    for message in messages:
        yield from branches.add(message)
    yield from branches.conversation(draft, current)


class MessageBranches:
    """Collects the messages of a tree, for an importer that knows the conversation only after its messages."""

    def __init__(self, importer: str, limits: ImportLimits) -> None:
        self._importer = importer
        self._limits = limits
        self._parents: dict[str, str | None] = {}
        self._drafts: dict[str, MessageDraft] = {}
        self._last: str | None = None

    def add(self, message: ChatMessage) -> Iterator[MessageReport]:
        """Yields a report if the message cannot be imported. Its answers still can."""
        self._last = message.key
        self._parents[message.key] = message.parent
        result = _checked_draft(message, self._limits)
        if isinstance(result, MessageDraft):
            self._drafts[message.key] = result
        else:
            yield result

    def conversation(
        self, draft: ConversationDraft, current: str | None = None
    ) -> Iterator[ImportedConversation | MessageReport]:
        uuid = str(draft.uuid)
        tree = MessageTree(self._parents)
        # A current message that the export does not contain has no path.
        path = tree.path_to(current) or tree.path_to(self._last)

        def own_id(key: str) -> str:
            return message_id(self._importer, uuid, key)

        yield from conversation_parts(draft, tree.messages(path, self._drafts, own_id, draft.created_at))


def _drafts_in_order(
    importer: str, draft: ConversationDraft, messages: Iterable[ChatMessage | MessageReport], limits: ImportLimits
) -> Iterator[MessageDraft | MessageReport]:
    conversation, time = str(draft.uuid), draft.created_at
    seen: set[str] = set()
    for message in messages:
        if not isinstance(message, ChatMessage):
            yield message
            continue
        result = _checked_draft(message, limits)
        if not isinstance(result, MessageDraft):
            yield result
            continue
        # A message without a time gets that of the message before it.
        time = time if result.created_at is UNSET else result.created_at
        yield structs.replace(
            result,
            uuid=message_id(importer, conversation, message.key),
            parent_id=message_id(importer, conversation, message.parent or "") if message.parent in seen else UNSET,
            created_at=time,
        )
        seen.add(message.key)


def _checked_draft(message: ChatMessage, limits: ImportLimits) -> MessageDraft | MessageReport:
    if not message.text.strip():
        return SkippedItem(EMPTY_MESSAGE)
    try:
        require_storable(message.text, limits)
    except InvalidParams as error:
        return FailedItem(f"message {message.key[:40]}", error.message)
    return MessageDraft(
        role=message.role,
        sender=message.sender or message.role,
        content=message.text,
        model=message.model or None,
        tool=message.tool or None,
        attachments=message.attachments,
        citations=message.citations,
        metadata=message.metadata,
        created_at=message.time or UNSET,
    )


# -- values of messages ------------------------------------------------------------------------------------------------


def role_of(value: object) -> str:
    """Maps the names that programs use for the speakers; other speakers are people."""
    return _ROLES.get(clean_line(value).lower(), "user")


def link_citations(results: object) -> tuple[Mapping[str, Any], ...]:
    """Returns the title and address of every search result that has an address."""
    found = ({name: clean_line(result.get(name)) for name in ("title", "url")} for result in Fields.each(results))
    return tuple(islice((citation for citation in found if citation["url"]), _CITATIONS_MAX))


def is_role(value: object) -> bool:
    return isinstance(value, str) and value.lower() in _ROLES


def content_text(content: object) -> str:
    """Returns the text of a message, which is a string or a list of parts. Other media leave a placeholder."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return content_text(content.get("parts")) if "parts" in content else _part_text(content)
    if not isinstance(content, list):
        return ""
    return "\n\n".join(filter(None, map(_part_text, content)))


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    for field in ("text", "content"):
        value = part.get(field)
        if isinstance(value, str):
            return value
        # Some programs put the text into an object.
        if isinstance(value, dict) and isinstance(value.get("value"), str):
            return str(value["value"])
    return _PLACEHOLDERS.get(clean_line(part.get("type")), "")
