"""Full-text indexes as the tables know them: which columns are indexed, and in what form a text is."""

import re

from msgspec import Struct

from sources.text.folding import fold_bytewise, folds_bytewise
from sources.text.segmentation import segment

# Everything except ASCII and the Latin-1 letters, signs and punctuation that FTS5's tokenizer folds as `segment` does.
_FOLDED_DIFFERENTLY = re.compile(
    r"[^\x00-\x7f\xa0-\xa9\xab-\xac\xae-\xb1\xb4-\xb8\xbb-\xcf\xd1-\xd7\xd9-\xef\xf1-\xf7\xf9-\xff"
    r"\u2010-\u2027\u2030-\u205e\u20ac]"
)


class TextIndex(Struct, frozen=True):
    """A full-text index. In SQLite, `<table>_source` is the view of what it must contain, and `<table>_queue` holds
    changed rows."""

    table: str
    columns: tuple[str, ...]
    # The views of which `<table>_source` is a union, each with the condition that finds a queued row in it: SQLite can
    # look up single rows in a part, but not in the union.
    parts: tuple[tuple[str, str], ...] = ()
    # Indexes of other rows of the same tables. They are updated together with this one.
    companions: tuple["TextIndex", ...] = ()

    @property
    def collection(self) -> str:
        return self.table.removesuffix("_index")


class SegmentedTable(Struct, frozen=True):
    """A table with index form columns, each with the SQL expression of its text."""

    table: str
    forms: tuple[tuple[str, str], ...]
    index: TextIndex
    # Whether its rows are counted for the term frequencies of the library.
    is_counted: bool = True


# Between a text and the tags that are indexed with it. It is part of no word, and no text with it is indexed as it is:
# tags are in the index form only.
_TAGS_SEPARATOR = "\n\u00ad"


def text_with_tags(text: str, tags: str) -> str:
    """Returns what is indexed for a text and a JSON array of tags."""
    return text if tags == "[]" else f"{text}{_TAGS_SEPARATOR}{tags}"


def text_with_tags_sql(column: str) -> str:
    """The SQL expression of `text_with_tags` for a column of an item table."""
    return f"{column} || CASE tags WHEN '[]' THEN '' ELSE char(10) || char(173) || tags END"


def index_form(text: str) -> str | None:
    """Returns what is indexed instead of the text, or None if FTS5 produces the same tokens from the text itself.

    So most Western prose is stored only once. The form is stored with the row because the index must be given the exact
    text to remove, and because scoring counts words in it without segmenting again.
    """
    form = segment(text)
    if folds_bytewise(text) and form == fold_bytewise(text) and not _FOLDED_DIFFERENTLY.search(text):
        return None
    return form
