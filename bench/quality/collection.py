"""The collection as its files say it. What is misspelt, named twice or judged without sense is refused here, since a
figure made from it would mean nothing."""

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
# From here on an item answers a question; below it only speaks of the same matter.
ANSWERS = 2


class BadCollection(Exception):
    """The files do not make a collection."""


class _Told(Struct, frozen=True, forbid_unknown_fields=True):
    """What is told of every item: `key` names it among the items of its source."""

    key: str


class Note(_Told, frozen=True, kw_only=True):
    title: str
    on: date
    tags: tuple[str, ...] = ()
    text: str


class Media(_Told, frozen=True, kw_only=True):
    title: str
    type: str
    author: str
    on: date
    tags: tuple[str, ...] = ()
    text: str


class Chat(_Told, frozen=True, kw_only=True):
    """`text` has a message on each line: who says it, a colon, what."""

    title: str
    on: date
    text: str

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (sender.strip(), said.strip()) for sender, _, said in (line.partition(":") for line in self._lines)
        )

    @property
    def _lines(self) -> Sequence[str]:
        return self.text.strip().splitlines()


class Character(_Told, frozen=True, kw_only=True):
    name: str
    on: date
    description: str
    personality: str
    first_message: str


class Prompt(_Told, frozen=True, kw_only=True):
    name: str
    on: date
    details: str
    system: str
    user: str


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`grades` says of items, each as `source/key`, how well they answer: 3 fully, 2 well, 1 by the way."""

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
        """Every item, as judgements name it."""
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
        told = msgspec.toml.decode(path.read_bytes(), type=dict[str, tuple[kind, ...]])  # type: ignore[valid-type]  # a type made at run time
    except (OSError, msgspec.DecodeError) as error:
        raise BadCollection(f"{path.name}: {error}") from error
    if set(told) != {table}:
        raise BadCollection(f"{path.name}: got tables {sorted(told)}, expected [[{table}]] only")
    return told[table]


def _check(collection: Collection) -> None:
    for place, times in (
        *Counter(collection.names).items(),
        *Counter(query.text for query in collection.queries).items(),
    ):
        if times > 1:
            raise BadCollection(f"{place!r}: named {times} times, expected once")
    known = set(collection.names)
    for query in collection.queries:
        _check_query(query, known)
    for chat in collection.chats:
        if not all(sender and said for sender, said in chat.messages):
            raise BadCollection(f"chats/{chat.key}: a line has no sender or no words, expected `sender: words`")


def _check_query(query: Query, known: set[str]) -> None:
    for name, grade in query.grades.items():
        if name not in known:
            raise BadCollection(f"query {query.text!r}: judges {name!r}, which is no item")
        if not 0 <= grade <= GRADE_MAX:
            raise BadCollection(f"query {query.text!r}: {name} has grade {grade}, expected 0 to {GRADE_MAX}")
    is_answered = max(query.grades.values(), default=0) >= ANSWERS
    if is_answered == (query.kind == "none"):
        expected = "no grades" if query.kind == "none" else f"an item with grade {ANSWERS} or more"
        raise BadCollection(f"query {query.text!r} of kind {query.kind!r}: expected {expected}")
