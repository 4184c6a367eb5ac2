"""A library equals a dictionary after any sequence of operations by two users, and after reopening it."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, rule

from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.query import parse
from sources.storage.contract import ExactSearch, Library, MessageSearch, Search
from tests.sources.storage.library_fixture import Clock, LibraryFixture, OpenLibraries, open_sqlite
from tests.sources.storage.sqlite.file_checks import check_files
from tests.tiers import examples

pytestmark = pytest.mark.slow("is a long run against a model")

T = TypeVar("T")

# Words of several scripts. None is a prefix or the stem of another.
WORDS = ("tea", "C++", "naïve", "東京", "Straße", "🎉", "getUserName", "день")
# Not a word for the exact search.
WITHOUT_LETTERS = "🎉"
OWNERS = ("ada", "ben")
# Each word occurs at most once, so that a text is a set of words.
texts = st.lists(st.sampled_from(WORDS), unique=True, max_size=4).map(tuple)
owners = st.sampled_from(OWNERS)
KINDS = ("notes", "media", "characters", "prompts")
DRAFTS: dict[str, Any] = {
    "notes": lambda title, text: NoteDraft(title=title, content=text),
    "media": lambda title, text: MediaDraft(title=title, content=text),
    "characters": lambda title, text: CharacterDraft(name=f"N {title}", description=text),
    "prompts": lambda title, text: PromptDraft(name=f"N {title}", details=text),
}


class Model(dict[tuple[str, str], dict[Any, tuple[str, ...]]]):
    """The words of each item by owner and kind, then by id."""

    def __missing__(self, key: tuple[str, str]) -> dict[Any, tuple[str, ...]]:
        self[key] = {}
        return self[key]


class LibraryMachine(RuleBasedStateMachine):
    """The operations and their effects on the dictionary. A subclass for an engine adds how to open and check it."""

    open_engine: OpenLibraries
    check_files: Callable[[Path], None]
    items = Bundle("items")
    conversations = Bundle("conversations")

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.model = Model()
        # By owner and conversation: the words of its title, and the id and words of each message.
        self.chats: dict[tuple[str, str], tuple[tuple[str, ...], list[tuple[str, tuple[str, ...]]]]] = {}
        self._open()

    def _open(self) -> None:
        self.context = self.open_engine(Path(self.folder.name), self.clock)
        self.libraries: LibraryFixture = self.run(self.context.__aenter__())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def do(self, owner: str, work: Any) -> Any:
        async def visit() -> Any:
            async with self.libraries.library(owner) as library:
                return await work(library)

        return self.run(visit())

    @rule()
    def reopen(self) -> None:
        self.run(self.context.__aexit__(None, None, None))
        self._open()

    # Items

    @rule(target=items, owner=owners, kind=st.sampled_from(KINDS), title=texts, text=texts, count=st.integers(1, 3))
    def create(self, owner: str, kind: str, title: tuple[str, ...], text: tuple[str, ...], count: int) -> Any:
        drafts = [DRAFTS[kind](" ".join(title), " ".join(text))] * count
        created = self.do(owner, lambda library: getattr(library, kind).create_many(drafts))
        self.model[owner, kind].update({item.id: (*title, *text) for item in created})
        return multiple(*((owner, kind, item.id) for item in created))

    @rule(item=items, title=texts, text=texts)
    def update(self, item: tuple[str, str, Any], title: tuple[str, ...], text: tuple[str, ...]) -> None:
        owner, kind, key = item
        draft = DRAFTS[kind](" ".join(title), " ".join(text))
        self.do(owner, lambda library: getattr(library, kind).update(key, draft))
        self.model[owner, kind][key] = (*title, *text)

    @rule(item=consumes(items), is_purged=st.booleans())
    def remove(self, item: tuple[str, str, Any], is_purged: bool) -> None:
        owner, kind, key = item
        verb = "purge" if is_purged else "delete"
        self.do(owner, lambda library: getattr(getattr(library, kind), verb)(key))
        del self.model[owner, kind][key]

    # Conversations

    @rule(target=conversations, owner=owners, title=texts, messages=st.lists(texts, max_size=4))
    def create_conversation(
        self, owner: str, title: tuple[str, ...], messages: list[tuple[str, ...]]
    ) -> tuple[str, str]:
        async def work(library: Library) -> tuple[str, list[tuple[str, tuple[str, ...]]]]:
            drafts = [MessageDraft(content=" ".join(words)) for words in messages]
            created = await library.chats.create(ConversationDraft(title=" ".join(title)), drafts)
            rows = (await library.chats.messages(created.id, 100, 0)).rows
            return created.id, [(row.id, words) for row, words in zip(rows, messages, strict=True)]

        key, rows = self.do(owner, work)
        self.chats[owner, key] = (title, rows)
        return owner, key

    @rule(conversation=conversations, words=texts)
    def append(self, conversation: tuple[str, str], words: tuple[str, ...]) -> None:
        draft = MessageDraft(content=" ".join(words))
        [created] = self.do(conversation[0], lambda library: library.chats.append(conversation[1], [draft]))
        self.chats[conversation][1].append((created.id, words))

    @rule(conversation=conversations, at=st.integers(0, 9), words=texts)
    def update_message(self, conversation: tuple[str, str], at: int, words: tuple[str, ...]) -> None:
        messages = self.chats[conversation][1]
        if at < len(messages):
            draft = MessageDraft(content=" ".join(words))
            self.do(conversation[0], lambda library: library.chats.update_message(messages[at][0], draft))
            messages[at] = (messages[at][0], words)

    @rule(conversation=conversations, at=st.integers(0, 9))
    def delete_message(self, conversation: tuple[str, str], at: int) -> None:
        messages = self.chats[conversation][1]
        if at < len(messages):
            self.do(conversation[0], lambda library: library.chats.delete_message(messages.pop(at)[0]))

    @rule(conversation=conversations, title=texts)
    def rename(self, conversation: tuple[str, str], title: tuple[str, ...]) -> None:
        self.do(
            conversation[0],
            lambda library: library.chats.update(conversation[1], ConversationDraft(title=" ".join(title))),
        )
        self.chats[conversation] = (title, self.chats[conversation][1])

    @rule(conversation=consumes(conversations), is_purged=st.booleans())
    def remove_conversation(self, conversation: tuple[str, str], is_purged: bool) -> None:
        verb = "purge" if is_purged else "delete"
        self.do(conversation[0], lambda library: getattr(library.chats, verb)(conversation[1]))
        del self.chats[conversation]

    # Comparison

    @rule(owner=owners)
    def compare(self, owner: str) -> None:
        async def work(library: Library) -> None:
            for kind in KINDS:
                listed = await getattr(library, kind).list(1_000, 0)
                assert {row.id for row in listed.rows} == set(self.model[owner, kind])
                assert listed.total == len(self.model[owner, kind])
            for word in WORDS:
                await self._compare(library, owner, word)

        self.do(owner, work)

    async def _compare(self, library: Library, owner: str, word: str) -> None:
        query = Search(query=parse(word), limit=1_000, deadline_ms=10_000)
        for kind in KINDS:
            expected = self.model[owner, kind]
            page = await getattr(library, kind).search(query)
            assert {hit.id for hit in page.hits} == {key for key, words in expected.items() if word in words}
        hits = {(hit.id, hit.message_id) for hit in (await library.chats.search(query)).hits}
        assert hits == {
            hit
            for (user, key), conversation in self.chats.items()
            if user == owner
            for hit in _expected_hits(key, conversation, word)
        }
        await self._compare_messages(library, owner, word)

    async def _compare_messages(self, library: Library, owner: str, word: str) -> None:
        """Compares the substring search, including titles, and the exact search."""
        conversations = [conversation for (user, _), conversation in self.chats.items() if user == owner]
        expected = {message for _, messages in conversations for message, words in messages if word in words}
        in_titles = {message for title, messages in conversations if word in title for message, _ in messages}
        search = MessageSearch(text=word.upper(), limit=1_000, deadline_ms=10_000)
        while not (page := await library.chats.find_messages(search)).is_complete:
            pass
        assert {hit.message.id for hit in page.hits} == expected | in_titles
        exact = await library.chats.match_messages(ExactSearch(expression=f'"{word}"', limit=1_000, deadline_ms=10_000))
        assert {hit.message.id for hit in exact.hits} == (expected if word != WITHOUT_LETTERS else set())

    def teardown(self) -> None:
        if not hasattr(self, "context"):
            return
        for owner in OWNERS:
            self.compare(owner)
        self.run(self.context.__aexit__(None, None, None))
        self.check_files(Path(self.folder.name))
        self.folder.cleanup()
        self.loop.close()


def _expected_hits(key: str, conversation: Any, word: str) -> list[tuple[str, str | None]]:
    """Returns the expected hits of a word in a conversation: its title, and messages that contain it or follow one that
    does within two messages."""
    title, messages = conversation
    hits: list[tuple[str, str | None]] = [(key, None)] if word in title else []
    for at, (message, _) in enumerate(messages):
        if any(word in words for _, words in messages[max(0, at - 2) : at + 1]):
            hits.append((key, message))
    return hits


class SqliteMachine(LibraryMachine):
    # Small, so that the substring index is built as soon as there are some messages.
    open_engine = staticmethod(partial(open_sqlite, message_scan_max_rows=10))
    check_files = staticmethod(check_files)


# Without shrinking: each example opens real files, which takes minutes and adds little to the failing steps.
SqliteMachine.TestCase.settings = settings(
    max_examples=examples(20),
    stateful_step_count=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestSqliteLibraryEqualsDictionary = SqliteMachine.TestCase
