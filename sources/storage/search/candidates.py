"""Candidates: index entries that may become hits, with the columns that scoring and hits need."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from sources.records import Hit
from sources.search.term_matching import TermCounter, best_field
from sources.storage.tables.item_table import decode_texts
from sources.text.chunking import SHORT_CHARS, split_into_chunks

# -- passages ----------------------------------------------------------------------------------------------------------
# Splits the text of an item into the passages that are embedded. Pure functions.
#
# A passage is what a small model reads at once. Each starts with the title of its item, because a part of a long text
# often does not say what it is about.

# About 220 tokens of English. The models read 256, and longer passages mean less precise vectors.
PASSAGE_CHARS = 900
# A text that is only a little longer stays whole.
_WHOLE_MAX_CHARS = 1_200
# Further text of a single item is not embedded: about 900,000 characters.
PASSAGES_MAX = 1_000
_CONTEXT_CHARS = 200
_TITLE_CHARS = 200


class Passage(Struct, frozen=True):
    """The text to embed, and where its own part of the item's text starts and ends."""

    text: str
    start: int
    end: int


def split_text(title: str, text: str) -> list[Passage]:
    """Returns the passages of a text with a title; none if both are blank."""
    head = title.strip()[:_TITLE_CHARS]
    return [Passage(_join(head, text[start:end]), start, end) for start, end in _spans(text) if head or text.strip()]


def split_fields(title: str, fields: Sequence[str]) -> list[Passage]:
    """Returns the passages of several fields, whose offsets count in the fields joined by `join_fields`."""
    return split_text(title, join_fields(fields))


def join_fields(fields: Sequence[str]) -> str:
    """Empty fields are left out."""
    return "\n".join(field for field in fields if field)


def field_at(fields: Sequence[str], offset: int) -> tuple[int, int]:
    """Returns which of the joined fields an offset is in, and the offset there."""
    for index, field in enumerate(fields):
        if field and offset <= len(field):
            return index, max(0, offset)
        offset -= len(field) + 1 if field else 0
    return 0, 0


def split_message(sender: str, content: str, previous: str | None) -> list[Passage]:
    """Returns the passages of a message. The first one starts with the beginning of the message before it, for models
    that need this context to understand short replies."""
    if not content.strip():
        return []
    head = f"{sender}: " if sender else ""
    context = f"{previous[:_CONTEXT_CHARS].strip()} / " if previous and previous.strip() else ""
    return [
        Passage(f"{context if not index else ''}{head}{content[start:end]}", start, end)
        for index, (start, end) in enumerate(_spans(content))
    ]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    if len(text) <= _WHOLE_MAX_CHARS:
        yield 0, len(text)
        return
    # The limit comes first, so that splitting takes bounded time.
    for chunk in split_into_chunks(text[: PASSAGE_CHARS * PASSAGES_MAX], PASSAGE_CHARS, 0):
        yield chunk.start, chunk.end


def _join(title: str, text: str) -> str:
    return f"{title}\n{text}".strip() if title else text


class FieldChoice(Struct, frozen=True):
    """Decides which field of an item a hit shows: one that was searched, and matches best."""

    searched: tuple[str, ...]
    counter: TermCounter


class RankingResult(Struct, kw_only=True, gc=False):
    """What the search computes for a candidate. `entry` is the rowid of its index entry."""

    entry: int = 0
    bm25: float | None = None
    more_in_item: int = 0
    has_all_terms: bool = False
    # Whether the less prominent text contains words of the query, and whether only that does.
    is_matched_in_other: bool = False
    is_matched_aside: bool = False
    # Whether the name of its author is all of the query that it has, and all of the query.
    is_only_named: bool = False
    score: float = 0.0
    # The parts of the score, and the passage with the nearest meaning, if meanings were compared.
    lexical: float | None = None
    cosine: float | None = None
    passage: tuple[int, int] | None = None
    # For hits that show one of several fields: how it is chosen, and the hit if it is already built.
    field_choice: FieldChoice | None = None
    complete_hit: Hit | None = None


class HitCandidate(RankingResult, gc=False):
    """The columns that every source selects first, in this order; subclasses add their own columns after them.
    Implements `RankedMatch`."""

    # Whether candidates of this class can have a speaker, or an author whose name is part of the other text.
    has_speakers: ClassVar[bool] = False
    has_authors: ClassVar[bool] = False

    id: str | int
    title: str
    # A JSON array, decoded only for hits.
    tags: str
    created_at: str
    last_modified: str
    version: int
    content_hash: str

    @property
    def speaker(self) -> str:
        """The name of the person who said it, if it was said."""
        return ""

    @property
    def author_name(self) -> str:
        """The name of the person who wrote it, if it is searched with the other text."""
        return ""

    def scored_texts(self) -> tuple[str, str, int]:
        """Returns the text with the higher weight, usually the title, the rest of the text, and the length of both, by
        which scores are normalized. Of each text, the stored index form if it has one."""
        raise NotImplementedError

    @property
    def part_id(self) -> str | None:
        """The id of a part whose prominent text is not the title of the item, such as a message."""
        return None

    @property
    def item_chars(self) -> int:
        raise NotImplementedError

    @property
    def text_chars(self) -> int:
        raise NotImplementedError

    @property
    def hit_text(self) -> str:
        return self.hit().text

    @classmethod
    def prepare_hits(cls, candidates: Sequence[Any], choice: FieldChoice) -> None:
        """Stores what the hits of candidates of this class need to know about the search."""

    def hit(self) -> Hit:
        raise NotImplementedError

    def make_hit(self, text: str, **details: Any) -> Hit:
        """Returns a hit with the fields that all sources have; `details` are those of one source, or replace them."""
        passage = details.pop("passage", self.passage)
        return Hit(
            id=self.id,
            title=self.title,
            text=text,
            score=self.score,
            bm25=self.bm25,
            lexical=self.lexical,
            cosine=self.cosine,
            passage=passage,
            created_at=self.created_at,
            last_modified=self.last_modified,
            version=self.version,
            tags=() if self.tags == "[]" else decode_texts(self.tags),
            content_hash=self.content_hash,
            item_chars=self.item_chars,
            **details,
        )


class TextCandidate(HitCandidate, gc=False):
    """A candidate with a title and one text, each with its index form."""

    title_seg: str | None
    text: str
    text_seg: str | None

    def scored_texts(self) -> tuple[str, str, int]:
        title = self.title if self.title_seg is None else self.title_seg
        text = self.text if self.text_seg is None else self.text_seg
        return title, text, len(self.title) + len(self.text)

    @property
    def text_chars(self) -> int:
        return len(self.text)

    @property
    def hit_text(self) -> str:
        return self.text or self.title


class FieldsCandidate(HitCandidate, gc=False):
    """A candidate with a title and several other fields. `body` joins their index forms."""

    title_seg: str | None
    body: str

    def scored_texts(self) -> tuple[str, str, int]:
        title = self.title if self.title_seg is None else self.title_seg
        return title, self.body, len(self.title) + len(self.body)

    @property
    def text_chars(self) -> int:
        return len(self.title) + len(self.body)


class NamedFieldsCandidate(FieldsCandidate, gc=False):
    """A candidate whose hit shows the field that matches best. If it was found by its meaning, that is the one with the
    nearest passage."""

    @property
    def title_field(self) -> str:
        raise NotImplementedError

    @property
    def unsearched(self) -> Collection[str]:
        """The fields that are part of the hit but not of the index."""
        raise NotImplementedError

    @property
    def embedded(self) -> Sequence[str]:
        """The fields that are embedded together, in this order."""
        raise NotImplementedError

    @property
    def text_chars(self) -> int:
        return self.item_chars

    @classmethod
    def prepare_hits(cls, candidates: Sequence[Any], choice: FieldChoice) -> None:
        for candidate in candidates:
            candidate.field_choice = choice
            # Choosing a field takes time in proportion to the text, and hits are built on the event loop.
            if candidate.item_chars > SHORT_CHARS:
                candidate.hit()

    def hit(self) -> Hit:
        if self.complete_hit is None:
            fields = self.fields()
            # A hit without a word of the query was found by its meaning alone.
            is_by_meaning = self.passage is not None and not self.lexical
            shown = None if is_by_meaning else self._best_field(fields)
            if shown is not None:
                self.complete_hit = self.make_hit(shown[1], field=shown[0], fields=fields)
            else:
                field, text, passage = self._nearest_field(fields)
                self.complete_hit = self.make_hit(text, field=field, fields=fields, passage=passage)
        return self.complete_hit

    def fields(self) -> dict[str, str]:
        """Returns the texts of all fields but the title."""
        raise NotImplementedError

    def _best_field(self, fields: Mapping[str, str]) -> tuple[str, str] | None:
        assert self.field_choice is not None
        requested = {name: text for name, text in fields.items() if name in self.field_choice.searched}
        unsearched = self.unsearched
        searched = requested or {name: text for name, text in fields.items() if name not in unsearched}
        return best_field(searched, self.field_choice.counter)

    def _nearest_field(self, fields: Mapping[str, str]) -> tuple[str, str, tuple[int, int] | None]:
        """Returns the field of the nearest passage, and the passage relative to it; the name if there is none."""
        if self.passage is None or not any(fields[name] for name in self.embedded):
            return self.title_field, self.title, None
        start, end = self.passage
        index, offset = field_at([fields[name] for name in self.embedded], start)
        return self.embedded[index], fields[self.embedded[index]], (offset, offset + end - start)
