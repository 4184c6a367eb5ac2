"""Kinds of items. Each is declared once; storage, search, export, forms, tools and documentation derive from it.

A declaration is a Struct with an annotated field for everything that an item holds, and a `Kind` that names it:

    class Bookmark(Item, frozen=True, kw_only=True):
        title: Annotated[str, Field("Title", is_required=True)]
        url: Annotated[str, Field("Address", is_searched=True)] = ""
        description: Annotated[str, Field("Description", is_long=True, is_searched=True, is_embedded=True)] = ""

    BOOKMARK = Kind(name="bookmark", source="bookmarks", record=Bookmark, content="description")

The type of a field says what it holds (`str`, `int | None`, `bool`, `tuple[str, ...]`, a `Literal`, a mapping, or a
tuple of Structs), its annotation how it is validated, labelled and searched. The built-in kinds are in
`sources/records.py`, those of other distributions come through the entry points `florilegium.kinds`
(`sources/installed.py`). The rest is functions over this data, mostly in `sources/storage/tables/kind_tables.py`.
`florilegium schema` prints the SQL.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct

from config.paths import DatabaseKind

# A URI scheme (RFC 3986 section 3.1) without the characters that a tool or a table name cannot have.
SOURCE_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")

# The numbers of kinds that other distributions add begin here.
ADDED_NUMBERS = 1_000
# What a field holds, and so how it is stored, checked and edited. An `object` and `objects` are JSON.
FieldShape = Literal["line", "text", "list", "number", "flag", "choice", "object", "objects"]


class Record(Struct, frozen=True, kw_only=True):
    """Fields of every record. `version` increases with each change. A deleted record is hidden everywhere until it is
    purged. `arrived` is the import stamp of the last imported draft; it recognizes the same draft when it is imported
    again."""

    uuid: str
    tags: tuple[str, ...] = ()
    created_at: str
    last_modified: str
    version: int
    client_id: str
    content_hash: str
    metadata: Mapping[str, Any] = {}
    arrived: str | None = None


# The key of the metadata that says that a person pinned an item. Conversations have a column instead. A pin is not part
# of the content: it changes neither the version nor the modification time, and an import does not remove it.
PINNED_KEY = "_pinned"


def is_pinned(record: Record) -> bool:
    return bool(getattr(record, "is_pinned", False)) or record.metadata.get(PINNED_KEY) is True


class Item(Record, frozen=True, kw_only=True):
    """A record whose public id is its uuid."""

    @property
    def id(self) -> str:
        return self.uuid


class NumberedItem(Record, frozen=True, kw_only=True):
    """A record whose public id is a number, which the library assigns."""

    id: int


class Field(Struct, frozen=True):
    """What the type of a field does not say. A field with a label can be edited: it is in the form of the console and
    in `fields` of `items_create` and `items_update`. Long texts may have the size of an item, others that of a title.
    A searched field is in the full-text index; an embedded one is also compared by meaning. `is_author` marks the name
    of the person who wrote the item, which says little about what it is about. `choices` are the only values of a text,
    if it is not a Literal."""

    label: str = ""
    is_long: bool = False
    is_required: bool = False
    is_searched: bool = False
    is_embedded: bool = False
    is_author: bool = False
    choices: tuple[str, ...] = ()
    help: str = ""


class KindField(Struct, frozen=True):
    """A field of a kind as its record declares it. `type` is without annotations, `default` is NODEFAULT if there is
    none."""

    name: str
    type: Any
    shape: FieldShape
    is_optional: bool
    default: Any
    declared: Field

    @property
    def choices(self) -> tuple[str, ...]:
        return self.declared.choices or (get_args(self.type) if self.shape == "choice" else ())


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of item.

    `name` is the noun for one item, in errors and export lines; `source` the name of its table, its URIs and its file
    in an export. `label` is the noun for people. `title` and `content` are the fields behind the arguments of the same
    name of `items_create`; a kind without `content` has its text elsewhere, such as in messages. The public id of an
    item is that of its record: an `Item` has a uuid, a `NumberedItem` a number.

    `layout` says how the index is divided: into the title and the content ("text"), the title and one column with all
    other searched fields ("body"), or one column for each field, which can be searched alone ("columns").
    """

    name: str
    source: str
    record: type[Item | NumberedItem]
    label: str = ""
    title: str = "title"
    content: str | None = None
    # Labels of the form, if they are not those of the fields.
    content_label: str = ""
    # What to do instead of replacing the content, if there is none.
    content_hint: str = ""
    layout: Literal["text", "body", "columns"] = "body"
    # The columns of the content hash; all of them and the tags if empty.
    hashed: tuple[str, ...] = ()
    # The order in which the fields of an item are read, if it is not that of the declaration.
    reading_order: tuple[str, ...] = ()
    # How the tags are called in a text, and whether they are searched with the other fields.
    tags_name: str = "tags"
    searches_tags: bool = True
    # The fields whose text is the size of an item in lists; all long texts if empty.
    sized: tuple[str, ...] = ()
    # Whether it is searched with all others and counts for quotas and for how common a word is.
    is_source: bool = True
    # The file of SQLite that has its table.
    database: DatabaseKind = "chacha"
    # The number of its entries in the index of PostgreSQL and the letter before its words; see `sources.installed`.
    number: int = 0
    prefix: str = ""

    @property
    def fields(self) -> tuple[KindField, ...]:
        return declared_fields(self.record)

    @property
    def key(self) -> Literal["uuid", "id"]:
        """The column of the public id."""
        return "id" if issubclass(self.record, NumberedItem) else "uuid"

    @property
    def is_added(self) -> bool:
        """Whether another distribution declares it."""
        return self.number >= ADDED_NUMBERS

    @property
    def table(self) -> str:
        return "conversations" if self.source == "chats" else self.source

    @property
    def noun(self) -> str:
        return self.label or self.name

    def field(self, name: str) -> KindField:
        return next(field for field in self.fields if field.name == name)

    @property
    def searched(self) -> tuple[str, ...]:
        """The searched fields besides the title, and the tags last."""
        names = tuple(field.name for field in self.fields if field.declared.is_searched and field.name != self.title)
        return (*names, "tags") if self.searches_tags and self.layout != "text" else names

    @property
    def embedded(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields if field.declared.is_embedded)

    @property
    def author(self) -> str | None:
        return next((field.name for field in self.fields if field.declared.is_author), None)

    @property
    def editable(self) -> tuple[KindField, ...]:
        """The fields besides title and content that people and clients can set."""
        return tuple(
            field for field in self.fields if field.declared.label and field.name not in (self.title, self.content)
        )

    @property
    def read_fields(self) -> tuple[str, ...]:
        """The fields of an item's text besides its title, in reading order."""
        if self.reading_order:
            return self.reading_order
        shapes = ("line", "text", "list")
        return (*(field.name for field in self.fields if field.shape in shapes and field.name != self.title), "tags")


@cache
def declared_fields(record: type[Record]) -> tuple[KindField, ...]:
    """Returns the fields that a record declares itself, in order."""
    hints = get_type_hints(record, include_extras=True)
    # The default of a mapping is a function that makes one.
    defaults = {
        info.name: info.default_factory() if callable(info.default_factory) else info.default
        for info in msgspec.structs.fields(record)
    }
    own = (name for name in record.__struct_fields__ if name not in Record.__struct_fields__ and name != "id")
    fields: list[KindField] = []
    for name in own:
        declared, kind = Field(), hints[name]
        if get_origin(kind) is Annotated:
            kind, *annotations = get_args(kind)
            declared = next((one for one in annotations if isinstance(one, Field)), declared)
        plain, is_optional = kind, False
        if get_origin(kind) in (Union, UnionType):
            [plain] = [one for one in get_args(kind) if one is not NoneType]
            is_optional = True
        fields.append(KindField(name, plain, _shape(name, plain, declared), is_optional, defaults[name], declared))
    return tuple(fields)


def _shape(name: str, plain: Any, declared: Field) -> FieldShape:
    origin, arguments = get_origin(plain), get_args(plain)
    if origin is Annotated:
        return _shape(name, arguments[0], declared)
    if declared.choices:
        return "choice"
    if plain is str:
        return "text" if declared.is_long else "line"
    if plain is bool:
        return "flag"
    if plain is int:
        return "number"
    if origin is Literal:
        return "choice"
    if origin is tuple:
        return "list" if arguments[0] is str else "objects"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "object"
    raise TypeError(f"{name}: expected a text, a number, a flag, a choice, a tuple or a mapping, got {plain!r}")


def validate_kind(kind: Any) -> None:
    """Raises ValueError or TypeError if a declaration of another distribution cannot work, so that a defect disables it
    and not the server."""
    if not isinstance(kind, Kind) or not issubclass(kind.record, Item | NumberedItem):
        raise TypeError(f"expected a Kind with an Item, got {kind!r}")
    for name in (kind.source, kind.name):
        if not SOURCE_NAME.fullmatch(name):
            raise ValueError(f"name of a kind: expected {SOURCE_NAME.pattern}, got {name!r}")
    names = [field.name for field in kind.fields]
    for name in names:
        if not _FIELD_NAME.fullmatch(name) or name in _RESERVED:
            raise ValueError(f"field of {kind.source}: {name!r} cannot be the name of a column")
    if kind.layout != "body":
        raise ValueError(f"{kind.source}: expected the layout 'body', got {kind.layout!r}")
    named = filter(None, (kind.title, kind.content, *kind.hashed, *kind.reading_order, *kind.sized))
    unknown = next((name for name in named if name not in names and name != "tags"), None)
    if unknown is not None:
        raise ValueError(f"{kind.source}: expected a declared field, got {unknown!r}")
    for name in filter(None, (kind.title, kind.content, *kind.embedded)):
        if kind.field(name).shape not in ("line", "text"):
            raise ValueError(f"{kind.source}.{name}: expected a text as title, content and embedded field")
    if any(field.default is NODEFAULT and not field.declared.is_required for field in kind.fields):
        raise ValueError(f"{kind.source}: a field that is not required needs a default")


# Columns that every table has, and words that SQL would read otherwise.
_RESERVED = frozenset(
    (
        *("id", "uuid", "tags", "metadata", "created_at", "last_modified", "version", "client_id", "content_hash"),
        *("deleted", "arrived", "body", "rowid", "rank", "kind", "bookkeeping", "preferred_id", "values"),
        *("all", "and", "as", "by", "case", "check", "column", "default", "end", "from", "group", "in", "index", "is"),
        *("limit", "like", "not", "null", "offset", "on", "or", "order", "primary", "references", "select", "set"),
        *("table", "then", "to", "trigger", "union", "unique", "user", "using", "view", "when", "where", "with"),
    )
)


# -- items of a kind ---------------------------------------------------------------------------------------------------


def title_of(kind: Kind, item: Any) -> str:
    return str(getattr(item, kind.title))


def field_text(value: Any, name: str = "") -> str:
    """Returns the text of a field: the parts of a list as paragraphs, and tags as one line."""
    if isinstance(value, str):
        return value
    return ", ".join(value) if name == "tags" else "\n\n".join(value)


def read_texts(kind: Kind, item: Any) -> Iterator[tuple[str, str]]:
    """Yields the fields of an item's text with their names, in reading order."""
    for name in kind.read_fields:
        yield kind.tags_name if name == "tags" else name, field_text(getattr(item, name), name)


def text_chars(kind: Kind, item: Any) -> int:
    """Returns the size of an item as lists show it."""
    names = kind.sized or [field.name for field in kind.fields if field.shape == "text"]
    return sum(len(getattr(item, name)) for name in names)
