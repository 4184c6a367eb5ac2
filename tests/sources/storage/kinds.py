"""The five kinds of item, so that what holds for all of them is said once."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, NoteDraft, PromptDraft
from sources.records import Record
from sources.storage.contract import Library


class Kind(Struct, frozen=True):
    """`titled` makes a draft of an item with a title and, where it can have one, a text."""

    name: str
    titled: Callable[..., Any]
    title: str

    def collection(self, library: Library) -> Any:
        return getattr(library, self.name)

    def title_of(self, item: Record) -> str:
        title: str = getattr(item, self.title)
        return title


def _conversation(title: str, _text: str = "", **more: Any) -> ConversationDraft:
    return ConversationDraft(title=title, **more)


KINDS = (
    Kind("notes", lambda title, text="", **more: NoteDraft(title=title, content=text, **more), "title"),
    Kind("media", lambda title, text="", **more: MediaDraft(title=title, content=text, **more), "title"),
    Kind("chats", _conversation, "title"),
    Kind("characters", lambda title, text="", **more: CharacterDraft(name=title, description=text, **more), "name"),
    Kind("prompts", lambda title, text="", **more: PromptDraft(name=title, details=text, **more), "name"),
)
