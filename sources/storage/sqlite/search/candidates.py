"""Candidates: index entries that may become hits, with the columns that scoring and hits need."""

from typing import Any

from msgspec import Struct

from sources.records import Hit
from sources.search.term_counting import TermCounter
from sources.storage.contract import Search
from sources.storage.sqlite.index.text_index import stored_index_form
from sources.storage.sqlite.write.item_table import decode_texts
from sources.text.folding import fold


class RankingResult(Struct, kw_only=True, gc=False):
    """What the search computes for a candidate."""

    bm25: float | None = None
    more_in_item: int = 0
    has_all_terms: bool = False
    score: float = 0.0


class HitCandidate(RankingResult, gc=False):
    """The columns that every source selects first, in this order; subclasses add their own columns after them."""

    id: str | int
    title: str
    # A JSON array, decoded only for hits.
    tags: str
    created_at: str
    last_modified: str
    version: int
    content_hash: str

    @property
    def sort_key(self) -> str | int:
        """Orders candidates that are otherwise equal."""
        return self.id

    @property
    def has_title(self) -> bool:
        """Whether the prominent text is a title."""
        return True

    def prominent_form(self) -> str:
        """Returns the index form of the text with the higher weight, usually the title."""
        raise NotImplementedError

    def other_form(self) -> str:
        """Returns the index form of the rest of the text."""
        raise NotImplementedError

    @property
    def chars(self) -> int:
        """The length of both texts, by which scores are normalized."""
        raise NotImplementedError

    def hit(self, search: Search, counter: TermCounter) -> Hit:
        raise NotImplementedError

    def make_hit(self, text: str, item_chars: int, **details: Any) -> Hit:
        """Returns a hit with the fields that all sources have; `details` are those of one source."""
        return Hit(
            id=self.id,
            title=self.title,
            text=text,
            score=self.score,
            bm25=self.bm25,
            created_at=self.created_at,
            last_modified=self.last_modified,
            version=self.version,
            tags=decode_texts(self.tags),
            content_hash=self.content_hash,
            item_chars=item_chars,
            **details,
        )


class TextCandidate(HitCandidate, gc=False):
    """A candidate with a title and one text, each with its index form."""

    title_seg: str | None
    text: str
    text_seg: str | None

    def prominent_form(self) -> str:
        return stored_index_form(self.title, self.title_seg)

    def other_form(self) -> str:
        return stored_index_form(self.text, self.text_seg)

    @property
    def chars(self) -> int:
        return len(self.title) + len(self.text)


class FieldsCandidate(HitCandidate, gc=False):
    """A candidate with a title and several other fields. `body` joins their index forms."""

    title_seg: str | None
    body: str

    def prominent_form(self) -> str:
        return stored_index_form(self.title, self.title_seg)

    def other_form(self) -> str:
        return fold(self.body)

    @property
    def chars(self) -> int:
        return len(self.title) + len(self.body)
