"""Conversations that branch, as a library keeps them: one message after the other, each with the one it answers.

First comes the path that its reader sees, then what was said beside it, in the order in which it leaves the path.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from config.errors import InvalidParams
from config.text import UNSTORABLE, replace_unstorable
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.imported_items import FailedItem, ImportedConversation, SkippedItem
from sources.importers.engine.importer import ImportLimits

# Messages of one arrival: a conversation may be longer than what is written at once.
_ARRIVAL_MESSAGES = 500
_TITLE_CHARS = 1_000


class Tree:
    """Which message answers which. A parent that is not there is none, and messages may stand in a circle: each is
    gone to once."""

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
        """From the root; nothing where there is no such message."""
        path: dict[str, None] = {}
        while key is not None and key in self._parents and key not in path:
            path[key] = None
            key = self._parents[key]
        return tuple(reversed(path))

    def in_order(self, path: Sequence[str]) -> Iterator[str]:
        seen = set(path)
        yield from path
        starts = (child for key in (None, *path) for child in self._children.get(key, ()))
        # A circle hangs on nothing, so that it is only found by its members.
        for start in (*starts, *self._parents):
            yield from self._below(start, seen)

    def _below(self, start: str, seen: set[str]) -> Iterator[str]:
        waiting = [start]
        while waiting:
            key = waiting.pop()
            if key not in seen:
                seen.add(key)
                yield key
                waiting += reversed(self._children.get(key, ()))


def threaded(
    tree: Tree,
    path: Sequence[str],
    drafts: Mapping[str, MessageDraft],
    uuid_of: Callable[[str], str],
    created_at: str | UnsetType,
) -> Iterator[MessageDraft]:
    """The messages in their order, with ids. What has no draft was left out: what answers it answers the message
    before it. One without a time has that of the message it answers, or else of the conversation."""
    canonical = frozenset(path)
    nearest: dict[str, str | None] = {}
    uuids: dict[str | None, str | None] = {None: None}
    times: dict[str | None, str | UnsetType] = {None: created_at}
    for key in tree.in_order(path):
        before = nearest.get(tree.parent(key) or "")
        draft = drafts.get(key)
        nearest[key] = before if draft is None else key
        if draft is not None:
            times[key] = times[before] if draft.created_at is UNSET else draft.created_at
            uuid = uuids[key] = uuid_of(key)
            yield replace(
                draft, uuid=uuid, parent_id=uuids[before], is_canonical=key in canonical, created_at=times[key]
            )


def arrivals_of(
    draft: ConversationDraft, stream: Iterable[MessageDraft | SkippedItem | FailedItem]
) -> Iterator[ImportedConversation | SkippedItem | FailedItem]:
    """A conversation with its messages, some at a time, and what is told in between. One of no messages is left out."""
    said: list[MessageDraft] = []
    continues = False
    for one in stream:
        if not isinstance(one, MessageDraft):
            yield one
            continue
        said.append(one)
        if len(said) == _ARRIVAL_MESSAGES:
            yield ImportedConversation(draft, tuple(said), continues)
            continues = True
            said.clear()
    if said:
        yield ImportedConversation(draft, tuple(said), continues)
    elif not continues:
        yield SkippedItem("a conversation without messages")


class SkipMessage(Exception):
    """A message that says nothing to anyone; `reason` is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def require_text(text: str, limits: ImportLimits) -> None:
    """InvalidParams where a text cannot be kept."""
    if len(text) > limits.item_max_chars:
        raise InvalidParams(f"got {len(text)} characters, expected at most {limits.item_max_chars}")
    found = None if _is_plain(text) else UNSTORABLE.search(text)
    if found:
        raise InvalidParams(f"got a NUL or half of a surrogate pair at character {found.start()}, expected text")


def line_of(value: object) -> str:
    """A title, or a name: what is no text is none, and what cannot be kept is shown as what it is. No conversation is
    lost for a character in its title."""
    if not isinstance(value, str):
        return ""
    line = value[:_TITLE_CHARS].strip()
    return line if _is_plain(line) else replace_unstorable(line)


def _is_plain(text: str) -> bool:
    """Whether there is nothing in it that cannot be kept: to encode a text is faster than to search it."""
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
