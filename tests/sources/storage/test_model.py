"""A library equals a dictionary: after any sequence of operations, by two owners, and after it is opened again."""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import Phase, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, rule

from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.query import parse
from sources.storage.contract import ExactSearch, Library, MessageSearch, Search
from tests.sources.storage.library_fixture import Clock, LibraryFixture, OpenLibraries, open_sqlite
from tests.sources.storage.sqlite.files import check_files

T = TypeVar("T")

# Words of several scripts, of which none is the beginning or the stem of another.
WORDS = ("tea", "C++", "naïve", "東京", "Straße", "🎉", "getUserName", "день")
# No word to those who take words as they stand.
WITHOUT_LETTERS = "🎉"
OWNERS = ("ada", "ben")
# A place for each word, so that a text is a set of words.
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
    """By owner and kind: the words of each item, by its id."""

    def __missing__(self, key: tuple[str, str]) -> dict[Any, tuple[str, ...]]:
        self[key] = {}
        return self[key]


class LibraryMachine(RuleBasedStateMachine):
    """The operations and what they do to the dictionary; an engine adds how it is opened and looked at from outside."""

    open_engine: OpenLibraries
    check_files: Callable[[Path], None]
    items = Bundle("items")
    talks = Bundle("talks")

    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.model = Model()
        # By owner and conversation: its title and its messages, each an id and words, or nothing where deleted.
        self.chats: dict[tuple[str, str], tuple[tuple[str, ...], list[tuple[str, tuple[str, ...]]]]] = {}
        self._open()

    def _open(self) -> None:
        self.opened = self.open_engine(Path(self.folder.name), self.clock)
        self.libraries: LibraryFixture = self.run(self.opened.__aenter__())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def do(self, owner: str, work: Any) -> Any:
        async def visit() -> Any:
            async with self.libraries.library(owner) as library:
                return await work(library)

        return self.run(visit())

    @rule()
    def reopen(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self._open()

    # Items

    @rule(target=items, owner=owners, kind=st.sampled_from(KINDS), title=texts, text=texts, count=st.integers(1, 3))
    def create(self, owner: str, kind: str, title: tuple[str, ...], text: tuple[str, ...], count: int) -> Any:
        drafts = [DRAFTS[kind](" ".join(title), " ".join(text))] * count
        made = self.do(owner, lambda library: getattr(library, kind).create_many(drafts))
        self.model[owner, kind].update({item.id: (*title, *text) for item in made})
        return multiple(*((owner, kind, item.id) for item in made))

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

    @rule(target=talks, owner=owners, title=texts, messages=st.lists(texts, max_size=4))
    def talk(self, owner: str, title: tuple[str, ...], messages: list[tuple[str, ...]]) -> tuple[str, str]:
        async def work(library: Library) -> tuple[str, list[tuple[str, tuple[str, ...]]]]:
            drafts = [MessageDraft(content=" ".join(words)) for words in messages]
            made = await library.chats.create(ConversationDraft(title=" ".join(title)), drafts)
            rows = (await library.chats.messages(made.id, 100, 0)).rows
            return made.id, [(row.id, words) for row, words in zip(rows, messages, strict=True)]

        key, rows = self.do(owner, work)
        self.chats[owner, key] = (title, rows)
        return owner, key

    @rule(talk=talks, words=texts)
    def append(self, talk: tuple[str, str], words: tuple[str, ...]) -> None:
        draft = MessageDraft(content=" ".join(words))
        [made] = self.do(talk[0], lambda library: library.chats.append(talk[1], [draft]))
        self.chats[talk][1].append((made.id, words))

    @rule(talk=talks, at=st.integers(0, 9), words=texts)
    def edit(self, talk: tuple[str, str], at: int, words: tuple[str, ...]) -> None:
        messages = self.chats[talk][1]
        if at < len(messages):
            draft = MessageDraft(content=" ".join(words))
            self.do(talk[0], lambda library: library.chats.update_message(messages[at][0], draft))
            messages[at] = (messages[at][0], words)

    @rule(talk=talks, at=st.integers(0, 9))
    def take_back(self, talk: tuple[str, str], at: int) -> None:
        messages = self.chats[talk][1]
        if at < len(messages):
            self.do(talk[0], lambda library: library.chats.delete_message(messages.pop(at)[0]))

    @rule(talk=talks, title=texts)
    def rename(self, talk: tuple[str, str], title: tuple[str, ...]) -> None:
        self.do(talk[0], lambda library: library.chats.update(talk[1], ConversationDraft(title=" ".join(title))))
        self.chats[talk] = (title, self.chats[talk][1])

    @rule(talk=consumes(talks), is_purged=st.booleans())
    def end(self, talk: tuple[str, str], is_purged: bool) -> None:
        verb = "purge" if is_purged else "delete"
        self.do(talk[0], lambda library: getattr(library.chats, verb)(talk[1]))
        del self.chats[talk]

    # Looking

    @rule(owner=owners)
    def look(self, owner: str) -> None:
        async def work(library: Library) -> None:
            for word in WORDS:
                await self._compare(library, owner, word)

        self.do(owner, work)

    async def _compare(self, library: Library, owner: str, word: str) -> None:
        query = Search(query=parse(word), limit=1_000, deadline_ms=10_000)
        for kind in KINDS:
            held = self.model[owner, kind]
            collection = getattr(library, kind)
            found = await collection.search(query)
            assert {hit.id for hit in found.hits} == {key for key, words in held.items() if word in words}
            listed = await collection.list(1_000, 0)
            assert {row.id for row in listed.rows} == set(held)
            assert listed.total == len(held)
        hits = {(hit.id, hit.message_id) for hit in (await library.chats.search(query)).hits}
        assert hits == {
            place for (who, key), talk in self.chats.items() if who == owner for place in _told(key, talk, word)
        }
        await self._compare_messages(library, owner, word)

    async def _compare_messages(self, library: Library, owner: str, word: str) -> None:
        """By the text itself, in titles as well, and by words as they stand."""
        talks = [talk for (who, _), talk in self.chats.items() if who == owner]
        held = {message for _, messages in talks for message, words in messages if word in words}
        titled = {message for title, messages in talks if word in title for message, _ in messages}
        search = MessageSearch(text=word.upper(), limit=1_000, deadline_ms=10_000)
        while not (found := await library.chats.find_messages(search)).is_complete:
            pass
        assert {hit.message.id for hit in found.hits} == held | titled
        exact = await library.chats.match_messages(ExactSearch(expression=f'"{word}"', limit=1_000, deadline_ms=10_000))
        assert {hit.message.id for hit in exact.hits} == (held if word != WITHOUT_LETTERS else set())

    def teardown(self) -> None:
        if not hasattr(self, "opened"):
            return
        for owner in OWNERS:
            self.look(owner)
        self.run(self.opened.__aexit__(None, None, None))
        self.check_files(Path(self.folder.name))
        self.folder.cleanup()
        self.loop.close()


def _told(key: str, talk: Any, word: str) -> list[tuple[str, str | None]]:
    """Where a word is found in a conversation: in its title, in a message, or in one of the two before it."""
    title, messages = talk
    found: list[tuple[str, str | None]] = [(key, None)] if word in title else []
    for at, (message, _) in enumerate(messages):
        if any(word in words for _, words in messages[max(0, at - 2) : at + 1]):
            found.append((key, message))
    return found


class SqliteMachine(LibraryMachine):
    # So that an index for parts of words is made as soon as there are some messages.
    open_engine = staticmethod(partial(open_sqlite, message_scan_max_rows=10))
    check_files = staticmethod(check_files)


# Without shrinking: each example opens real files, and minutes of that tell no more than the failing steps do.
SqliteMachine.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TestSqliteLibraryEqualsDictionary = SqliteMachine.TestCase
