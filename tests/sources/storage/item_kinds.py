"""The five kinds of items, for tests that apply to all of them."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, NoteDraft, PromptDraft
from sources.kinds import Record
from sources.storage.contract import Library


class ItemKind(Struct, frozen=True):
    """`draft` makes a draft with a title and, except for conversations, a text. `title_field` is the field of the
    title."""

    name: str
    draft: Callable[..., Any]
    title_field: str

    def collection(self, library: Library) -> Any:
        return getattr(library, self.name)

    def title_of(self, item: Record) -> str:
        title: str = getattr(item, self.title_field)
        return title


def _note(title: str, text: str = "", **fields: Any) -> NoteDraft:
    return NoteDraft(title=title, content=text, **fields)


def _media(title: str, text: str = "", **fields: Any) -> MediaDraft:
    return MediaDraft(title=title, content=text, **fields)


def _conversation(title: str, _text: str = "", **fields: Any) -> ConversationDraft:
    return ConversationDraft(title=title, **fields)


def _character(title: str, text: str = "", **fields: Any) -> CharacterDraft:
    return CharacterDraft(name=title, description=text, **fields)


def _prompt(title: str, text: str = "", **fields: Any) -> PromptDraft:
    return PromptDraft(name=title, details=text, **fields)


ITEM_KINDS = (
    ItemKind("notes", _note, "title"),
    ItemKind("media", _media, "title"),
    ItemKind("chats", _conversation, "title"),
    ItemKind("characters", _character, "name"),
    ItemKind("prompts", _prompt, "name"),
)
