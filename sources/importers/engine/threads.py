"""Turns branching conversations into the stored form: a list of messages, each with the id of its parent.

The canonical path, which is what a reader of the original conversation sees, comes first. Alternate branches follow in
the order in which they leave that path.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.imported_items import FailedItem, ImportedConversation, SkippedItem

# A conversation is yielded in parts of this many messages, so that a long one need not be held in memory.
_PART_MESSAGES = 500


class MessageTree:
    """Messages by key, with their parents. An unknown parent counts as none. Cycles, which damaged exports contain, are
    allowed: every message is visited once."""

    def __init__(self, parents: Mapping[str, str | None]) -> None:
        self._parents = {key: parent if parent in parents else None for key, parent in parents.items()}
        self._children: dict[str | None, list[str]] = {}
        for key, parent in self._parents.items():
            self._children.setdefault(parent, []).append(key)

    def parent(self, key: str) -> str | None:
        return self._parents[key]

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
            yield from self._subtree(start, seen)

    def _subtree(self, start: str, seen: set[str]) -> Iterator[str]:
        pending = [start]
        while pending:
            key = pending.pop()
            if key not in seen:
                seen.add(key)
                yield key
                pending += reversed(self._children.get(key, ()))


def thread_messages(
    tree: MessageTree,
    path: Sequence[str],
    drafts: Mapping[str, MessageDraft],
    uuid_of: Callable[[str], str],
    created_at: str | UnsetType,
) -> Iterator[MessageDraft]:
    """Yields the drafts in order, with id, parent and time set. `path` is the canonical path.

    A key without a draft was skipped; its children become children of its nearest ancestor with a draft. A message
    without a time gets that of its parent, or else `created_at`, the time of the conversation.
    """
    canonical = frozenset(path)
    nearest: dict[str, str | None] = {}
    uuids: dict[str | None, str | None] = {None: None}
    times: dict[str | None, str | UnsetType] = {None: created_at}
    for key in tree.walk(path):
        parent = nearest.get(tree.parent(key) or "")
        draft = drafts.get(key)
        nearest[key] = parent if draft is None else key
        if draft is not None:
            times[key] = times[parent] if draft.created_at is UNSET else draft.created_at
            uuid = uuids[key] = uuid_of(key)
            yield replace(
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
