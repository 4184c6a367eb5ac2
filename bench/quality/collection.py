"""Reads the collection from its files and rejects misspelt fields, duplicate names and inconsistent judgements."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from sources.text.segmentation import STOPWORDS, stem, tokenize

FOLDER = Path(__file__).parent
QUERY_FILES = ("queries.toml", "meaning.toml", "dates.toml")

Kind = Literal["topic", "title", "rare", "one source", "two sources", "none", "meaning", "dates"]
KINDS: tuple[Kind, ...] = ("topic", "title", "rare", "one source", "two sources", "none")
# Kinds that were added later. They are reported apart, so that the mean over the others stays comparable over time.
SEPARATE_KINDS: tuple[Kind, ...] = ("meaning", "dates")
GRADE_MAX = 3
# An item with at least this grade answers the query; below it, the item is only related.
ANSWERS = 2


class InvalidCollection(Exception):
    """The files are not a valid collection."""


class _Item(Struct, frozen=True, forbid_unknown_fields=True):
    """`key` identifies an item within its source."""

    key: str

    @property
    def words(self) -> frozenset[str]:
        """The content words of all fields that are stored."""
        fields = msgspec.structs.asdict(self)
        del fields["key"]
        return content_words(" ".join(map(str, fields.values())))


def content_words(text: str) -> frozenset[str]:
    """Returns the stems of the words of a text without stop words and single letters, which are mostly remains of
    contractions."""
    return frozenset(stem(token) for token in tokenize(text) if token not in STOPWORDS and len(token) > 1)


class Note(_Item, frozen=True, kw_only=True):
    title: str
    on: date
    tags: tuple[str, ...] = ()
    text: str


class Media(_Item, frozen=True, kw_only=True):
    title: str
    type: str
    author: str
    on: date
    tags: tuple[str, ...] = ()
    text: str


class Chat(_Item, frozen=True, kw_only=True):
    """`text` has one message per line: the sender, a colon and the message."""

    title: str
    on: date
    text: str

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (sender.strip(), text.strip()) for sender, _, text in (line.partition(":") for line in self._lines)
        )

    @property
    def _lines(self) -> Sequence[str]:
        return self.text.strip().splitlines()


class Character(_Item, frozen=True, kw_only=True):
    name: str
    on: date
    description: str
    personality: str
    first_message: str


class Prompt(_Item, frozen=True, kw_only=True):
    name: str
    on: date
    details: str
    system: str
    user: str


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`grades` maps items (`source/key`) to how well they answer: 3 fully, 2 well, 1 in passing."""

    kind: Kind
    text: str
    grades: Mapping[str, int] = {}


class Collection(Struct, frozen=True, kw_only=True):
    notes: tuple[Note, ...]
    media: tuple[Media, ...]
    chats: tuple[Chat, ...]
    characters: tuple[Character, ...]
    prompts: tuple[Prompt, ...]
    queries: tuple[Query, ...]

    @property
    def names(self) -> Iterator[str]:
        """Yields every item as `source/key`."""
        return (name for name, _ in self.items)

    @property
    def items(self) -> Iterator[tuple[str, _Item]]:
        """Yields every item with its name, `source/key`."""
        yield from _named("notes", self.notes)
        yield from _named("media", self.media)
        yield from _named("chats", self.chats)
        yield from _named("characters", self.characters)
        yield from _named("prompts", self.prompts)


def _named(source: str, items: Sequence[_Item]) -> Iterator[tuple[str, _Item]]:
    return ((f"{source}/{item.key}", item) for item in items)


T = TypeVar("T")


def read_collection(folder: Path = FOLDER) -> Collection:
    collection = Collection(
        notes=_read(folder / "notes.toml", "note", Note),
        media=_read(folder / "media.toml", "media", Media),
        chats=_read(folder / "chats.toml", "chat", Chat),
        characters=_read(folder / "characters.toml", "character", Character),
        prompts=_read(folder / "prompts.toml", "prompt", Prompt),
        queries=tuple(query for name in QUERY_FILES for query in _read(folder / name, "query", Query)),
    )
    _check(collection)
    return collection


def read_off_topic_queries(folder: Path = FOLDER) -> list[str]:
    """Returns queries about which neither this collection nor the demo library has anything."""
    return msgspec.toml.decode((folder / "off_topic.toml").read_text(), type=dict[str, list[str]])["queries"]


def _read(path: Path, table: str, kind: type[T]) -> tuple[T, ...]:
    try:
        tables = msgspec.toml.decode(path.read_bytes(), type=dict[str, tuple[kind, ...]])  # type: ignore[valid-type]  # a run-time type
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidCollection(f"{path.name}: {error}") from error
    if set(tables) != {table}:
        raise InvalidCollection(f"{path.name}: expected only [[{table}]], got tables {sorted(tables)}")
    return tables[table]


def _check(collection: Collection) -> None:
    for name, count in (
        *Counter(collection.names).items(),
        *Counter(query.text for query in collection.queries).items(),
    ):
        if count > 1:
            raise InvalidCollection(f"{name!r}: expected once, got {count} times")
    items = dict(collection.items)
    for query in collection.queries:
        _check_query(query, items)
        if query.kind == "meaning":
            _check_wording(query, items)
    for chat in collection.chats:
        if not all(sender and text for sender, text in chat.messages):
            raise InvalidCollection(f"chats/{chat.key}: expected lines of the form `sender: text`")


def _check_query(query: Query, items: Mapping[str, _Item]) -> None:
    for name, grade in query.grades.items():
        if name not in items:
            raise InvalidCollection(f"query {query.text!r}: unknown item {name!r}")
        if not 0 <= grade <= GRADE_MAX:
            raise InvalidCollection(f"query {query.text!r}: grade of {name}: expected 0..{GRADE_MAX}, got {grade}")
    is_answered = max(query.grades.values(), default=0) >= ANSWERS
    if is_answered == (query.kind == "none"):
        expected = "no grades" if query.kind == "none" else f"an item with a grade of at least {ANSWERS}"
        raise InvalidCollection(f"query {query.text!r} of kind {query.kind!r}: expected {expected}")


def _check_wording(query: Query, items: Mapping[str, _Item]) -> None:
    """Only the meaning of the query may lead to its answers; items that are merely related may share words."""
    for name, grade in query.grades.items():
        if grade >= ANSWERS and (shared := content_words(query.text) & items[name].words):
            raise InvalidCollection(f"query {query.text!r}: expected no word of {name}, got {sorted(shared)}")
