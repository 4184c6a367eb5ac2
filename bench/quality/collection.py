"""Reads the collection from its files and rejects misspelt fields, duplicate names and inconsistent judgements."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

FOLDER = Path(__file__).parent

Kind = Literal["topic", "title", "rare", "one source", "two sources", "none"]
KINDS: tuple[Kind, ...] = ("topic", "title", "rare", "one source", "two sources", "none")
GRADE_MAX = 3
# An item with at least this grade answers the query; below it, the item is only related.
ANSWERS = 2


class InvalidCollection(Exception):
    """The files are not a valid collection."""


class _Item(Struct, frozen=True, forbid_unknown_fields=True):
    """`key` identifies an item within its source."""

    key: str


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
        yield from _names("notes", self.notes)
        yield from _names("media", self.media)
        yield from _names("chats", self.chats)
        yield from _names("characters", self.characters)
        yield from _names("prompts", self.prompts)


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


def _names(source: str, items: Sequence[_Keyed]) -> Iterator[str]:
    return (f"{source}/{item.key}" for item in items)


T = TypeVar("T")


def read_collection(folder: Path = FOLDER) -> Collection:
    collection = Collection(
        notes=_read(folder / "notes.toml", "note", Note),
        media=_read(folder / "media.toml", "media", Media),
        chats=_read(folder / "chats.toml", "chat", Chat),
        characters=_read(folder / "characters.toml", "character", Character),
        prompts=_read(folder / "prompts.toml", "prompt", Prompt),
        queries=_read(folder / "queries.toml", "query", Query),
    )
    _check(collection)
    return collection


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
    known = set(collection.names)
    for query in collection.queries:
        _check_query(query, known)
    for chat in collection.chats:
        if not all(sender and text for sender, text in chat.messages):
            raise InvalidCollection(f"chats/{chat.key}: expected lines of the form `sender: text`")


def _check_query(query: Query, known: set[str]) -> None:
    for name, grade in query.grades.items():
        if name not in known:
            raise InvalidCollection(f"query {query.text!r}: unknown item {name!r}")
        if not 0 <= grade <= GRADE_MAX:
            raise InvalidCollection(f"query {query.text!r}: grade of {name}: expected 0..{GRADE_MAX}, got {grade}")
    is_answered = max(query.grades.values(), default=0) >= ANSWERS
    if is_answered == (query.kind == "none"):
        expected = "no grades" if query.kind == "none" else f"an item with a grade of at least {ANSWERS}"
        raise InvalidCollection(f"query {query.text!r} of kind {query.kind!r}: expected {expected}")
