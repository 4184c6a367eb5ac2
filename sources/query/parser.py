"""Parses query text into a `ParsedQuery`.

No text raises an error, and no query matches the whole library: a query without words has no expression. `read_as`
explains everything that was not taken literally.
"""

import re
from collections.abc import Iterator, Sequence
from unicodedata import normalize

from msgspec import Struct
from msgspec.structs import replace

from config.numbers import replace_unstorable
from sources.query.filters import FilterExtractor, Filters, mentioned_times
from sources.query.grammar import (
    AllOf,
    AnyOf,
    Branch,
    Expression,
    Negation,
    Phrase,
    QueryNotes,
    Title,
    TitleLeaf,
    Tree,
    Without,
    Word,
    build_tree,
    flatten,
    has_operators,
    render,
    without_exclusions,
    without_operators,
)
from sources.query.lexer import BareWord, QueryLimits, QuotedText, Symbol, lexemes
from sources.query.numbers import join_numbers
from sources.query.words import (
    WordReader,
    is_foreign,
    is_plain_word,
    is_stop_word,
    is_weak_token,
    limit_tokens,
    phrase_word,
    with_articles,
    with_other_endings,
    with_other_spellings,
    with_tones,
)
from sources.text.folding import is_vietnamese
from sources.text.segmentation import FOREIGN_STOPWORDS, UNSPACED_RUN, VIETNAMESE_STOPWORDS, stem
from sources.times import TIME_WORDS, TimeMention, TimeSpan


class Term(Struct, frozen=True, cache_hash=True, gc=False):
    """A word to score and to highlight, and how often the query contains it. A near term is not in the query: it may be
    what another term, of which this is the index, was meant to be."""

    word: Word
    count: int
    near: int | None = None


class ParsedQuery(Struct, frozen=True, cache_hash=True):
    """The meaning of a query. Without an expression, only its filters can match, and `read_as` says so.

    With AND or OR in the query (`has_operators`), adjacent words are all required; otherwise any of them may match. A
    query of operators or quotations alone is literal. Phrases that are quoted in a sentence are `preferred`: items that
    contain them come first, and others match as well. `relaxed` is how to read the query if nothing matches.
    `prose` is what the query says without its filters. It is empty if the query asks for words and not for a meaning:
    with operators, exclusions and titles, or if it has only quotations and prefixes.
    """

    expression: Expression | None
    terms: tuple[Term, ...]
    filters: Filters
    read_as: str | None
    has_operators: bool
    is_truncated: bool
    # The times in the text. Once it is known when the query was asked, `times` are their ranges, and `time_terms` the
    # indexes of the terms that name them.
    mentions: tuple[TimeMention, ...] = ()
    times: tuple[TimeSpan, ...] = ()
    time_terms: frozenset[int] = frozenset()
    prose: str = ""
    is_literal: bool = False
    preferred: tuple[Word, ...] = ()
    relaxed: "ParsedQuery | None" = None

    @property
    def own_terms(self) -> tuple[Term, ...]:
        """The terms that the query contains; near terms follow them."""
        if not self.terms or self.terms[-1].near is None:
            return self.terms
        return tuple([term for term in self.terms if term.near is None])


_DEFAULT_LIMITS = QueryLimits()
_WORDS_MAX = _DEFAULT_LIMITS.max_terms
# A word in a script without spaces is several pairs of letters. More of them make searches slower and no better:
# nDCG@10 of Thai questions is .962 with 22 and with 32 (`make bench-languages`).
_PAIRS_MAX = 22
_TRAILING_PUNCTUATION = ".,;!?"
_NO_FILTERS = Filters()
_OPERATORS = (Symbol("AND"), Symbol("OR"), Symbol("NOT"))


def parse(text: str, limits: QueryLimits = _DEFAULT_LIMITS) -> ParsedQuery:
    """Parses any text. With AND and OR it is taken literally, and mentions no time."""
    typed = [word.rstrip(_TRAILING_PUNCTUATION) for word in text.split()]
    plain = None
    if len(text) <= limits.max_chars and all(map(is_plain_word, typed)):
        plain = _parse_plain_words(text, typed, limits)
        if plain is not None and TIME_WORDS.isdisjoint(map(str.lower, typed)):
            return plain  # most queries mention no time
    query = plain or _parse_any(text, limits)
    mentions = () if query.has_operators else mentioned_times(text[: limits.max_chars])
    return replace(query, mentions=mentions) if mentions else query


def _parse_plain_words(text: str, typed: Sequence[str], limits: QueryLimits) -> ParsedQuery | None:
    """Parses the most common kind of query, plain words, without lexer and grammar. Returns None if there are none, or
    too many."""
    significant = [word for word in typed if not is_weak_token(word.lower(), word)] or typed
    counts: dict[str, int] = {}
    words: dict[str, Word] = {}
    for word in significant:
        root = stem(token := word.lower())
        counts[root] = counts.get(root, 0) + 1
        if root not in words:
            words[root] = with_other_spellings(Word(word, (Phrase(word, (token,)),)))
    if not 0 < len(words) <= limits.max_terms:
        return None
    return ParsedQuery(
        expression=_any_of(tuple(words.values())),
        terms=tuple(map(Term, words.values(), counts.values())),
        filters=_NO_FILTERS,
        read_as=None,
        has_operators=False,
        is_truncated=False,
        prose=" ".join(text.split()),
    )


def _parse_any(text: str, limits: QueryLimits) -> ParsedQuery:
    notes = QueryNotes()
    extractor = FilterExtractor(notes)
    if len(text) > limits.max_chars:
        notes.add_truncation(f"used only the first {limits.max_chars} characters")
    items = list(extractor.extract(lexemes(replace_unstorable(text[: limits.max_chars], " "))))
    tree = build_tree(items, limits.max_nesting, notes)
    return _TreeReader(limits, extractor.filters, _prose(items)).read(tree, notes)


def _prose(items: Sequence[Tree | Symbol]) -> str:
    if any(isinstance(item, TitleLeaf | Negation) or item in _OPERATORS for item in items):
        return ""
    words = [item for item in items if isinstance(item, BareWord | QuotedText)]
    if all(isinstance(word, QuotedText) or word.text.endswith("*") for word in words):
        return ""
    return " ".join(word.text for word in words)


class _TreeReader:
    """Reads a syntax tree as typed, and in ways that match more."""

    def __init__(self, limits: QueryLimits, filters: Filters, prose: str) -> None:
        self._limits = limits
        self._filters = filters
        self._prose = prose

    def read(self, tree: Tree | None, notes: QueryNotes) -> ParsedQuery:
        is_literal = tree is not None and _is_literal(tree)
        query = self._read(tree, notes.copy(), is_literal=is_literal)
        return replace(query, relaxed=self._relax(tree, query, notes)) if tree is not None else query

    def _relax(self, tree: Tree, query: ParsedQuery, notes: QueryNotes) -> ParsedQuery | None:
        """Drops exclusions first, then operators and the requirement of quotations."""
        if query.expression is None:
            return None
        notes = notes.copy()
        kept = without_exclusions(tree)
        if kept is not None and kept != tree:
            notes.add("ignored an exclusion (it removed every match)")
            return self.read(kept, notes)
        if not query.is_literal:
            return None
        notes.add(f"nothing matches {render(query.expression)} literally")
        return self._read(without_operators(tree), notes, is_literal=False)

    def _read(self, tree: Tree | None, notes: QueryNotes, *, is_literal: bool) -> ParsedQuery:
        reader = WordReader(self._limits, notes)
        builder = _ExpressionBuilder(reader, notes, tree, is_literal=is_literal)
        expression = builder.build()
        return ParsedQuery(
            expression=expression,
            terms=tuple(Term(word, count) for word, count in reader.count_terms(_positive_words(expression))),
            filters=self._filters,
            read_as=notes.read_as(expression, has_filters=self._filters.restricts_items),
            has_operators=tree is not None and expression is not None and has_operators(tree),
            is_truncated=notes.is_truncated,
            is_literal=is_literal and expression is not None,
            preferred=builder.preferred,
            prose=self._prose,
        )


def _is_literal(tree: Tree) -> bool:
    """Returns whether a query has operators, or nothing but quotations."""
    leaves = [leaf for leaf in flatten(tree) if isinstance(leaf, BareWord | QuotedText)]
    has_quotation = any(isinstance(leaf, QuotedText) for leaf in leaves)
    has_word = any(isinstance(leaf, BareWord) and any(map(str.isalnum, leaf.text)) for leaf in leaves)
    return has_operators(tree) or (has_quotation and not has_word)


class _ExpressionBuilder:
    """Builds the expression of a syntax tree. If the query `is_literal`, quotations are required; otherwise their words
    are words like the others, and the phrases are preferred."""

    def __init__(self, reader: WordReader, notes: QueryNotes, tree: Tree | None, *, is_literal: bool) -> None:
        self.preferred: tuple[Word, ...] = ()
        self._reader = reader
        self._notes = notes
        self._tree = tree
        self._is_literal = is_literal
        texts = list(_texts(tree)) if tree is not None else []
        self._is_vietnamese = is_vietnamese(normalize("NFC", " ".join(texts)))
        # Vietnamese words have no endings.
        self._is_foreign = not self._is_vietnamese and is_foreign(texts)

    def build(self) -> Expression | None:
        if self._tree is None:
            return None
        is_joined = has_operators(self._tree)
        return self._with_operators(self._tree) if is_joined else self._without_operators(self._tree)

    def _read(self, leaf: BareWord | QuotedText, *, is_excluded: bool = False) -> Word | None:
        """Reads a leaf literally. In a language that the index does not stem, words to find match with other endings
        too; words to exclude never do."""
        word = self._reader.read_literal(leaf)
        if word is None or is_excluded or isinstance(leaf, QuotedText):
            return word
        return with_other_spellings(with_other_endings(word) if self._is_foreign else word)

    # -- without AND and OR: any word may match ------------------------------------------------------------------------

    def _without_operators(self, tree: Tree) -> Expression | None:
        """Requires titles, and any of the other words."""
        parts = list(flatten(tree))
        admit_all = self._reader.admit_all
        titles = admit_all(word for part in parts if isinstance(part, TitleLeaf) if (word := self._read(part.leaf)))
        quoted = admit_all(word for part in parts if isinstance(part, QuotedText) if (word := self._quotation(part)))
        words = admit_all(self._loose_words(parts, are_optional=bool(titles or quoted)))
        required = [*map(Title, titles), *(quoted if self._is_literal else ())]
        if not self._is_literal:
            self.preferred = tuple(quoted)
        optional = words if self._is_literal else [*quoted, *words]
        return self._exclude(_all_of([*required, *([_any_of(optional)] if optional else [])]), parts)

    def _quotation(self, leaf: QuotedText) -> Word | None:
        """Returns the phrase of a quotation, or None in a sentence if it is a single word."""
        word = self._read(leaf)
        if word is None or self._is_literal or len(word.alternatives[0].tokens) > 1:
            return word
        return None

    def _loose_words(self, parts: Sequence[Tree], *, are_optional: bool) -> list[Word]:
        """Drops weak words if there is anything else to search for."""
        texts = join_numbers([text for part in parts for text in self._loose_texts(part)])
        words = [loose for text in texts for loose in self._reader.read_loose(text)]
        stopwords = VIETNAMESE_STOPWORDS if self._is_vietnamese else FOREIGN_STOPWORDS
        strong = [
            loose for loose in words if not (loose.is_weak or normalize("NFC", loose.word.text.lower()) in stopwords)
        ]
        selected = strong or ([] if are_optional else words)
        if self._is_vietnamese:
            return [word for loose in selected for word in with_tones(loose.word)]
        variants: list[Word] = []
        for word in [loose.word for loose in selected]:
            if UNSPACED_RUN.match(word.text):
                variants.append(word)  # pairs of letters have none, and are many
            else:
                inflected = with_other_endings(word) if self._is_foreign else word
                variants.append(with_articles(with_other_spellings(inflected)))
        return variants

    def _loose_texts(self, part: Tree) -> Sequence[str]:
        match part:
            case BareWord(text=text):
                return (text,)
            case QuotedText(text=text) if not self._is_literal:
                return text.replace("*", " ").split()
            case _:
                return ()

    # -- with AND or OR: every operator is obeyed ----------------------------------------------------------------------

    def _with_operators(self, tree: Tree, *, is_excluded: bool = False) -> Expression | None:
        match tree:
            case Branch(operator="OR", parts=parts):
                options = self._build_parts(parts, is_excluded=is_excluded)
                return _any_of(options) if options else None
            case Branch(operator=operator, parts=parts):
                positive = [part for part in parts if not isinstance(part, Negation)]
                required = self._build_parts(positive, is_excluded=is_excluded)
                required = required if operator == "AND" else _without_stop_words(required)
                return self._exclude(_all_of(required), parts)
            case Negation():
                return self._exclude(None, (tree,))
            case TitleLeaf(leaf=leaf):
                word = self._read(leaf, is_excluded=is_excluded)
                return Title(word) if word and self._reader.admit(word) else None
            case BareWord() | QuotedText():
                word = self._read(tree, is_excluded=is_excluded)
                return word if word and self._reader.admit(word) else None

    def _build_parts(self, parts: Sequence[Tree], *, is_excluded: bool) -> list[Expression]:
        expressions = (self._with_operators(part, is_excluded=is_excluded) for part in parts)
        return [expression for expression in expressions if expression is not None]

    def _exclude(self, keep: Expression | None, parts: Sequence[Tree]) -> Expression | None:
        """Excludes the negations among the parts from `keep`."""
        dropped = self._build_parts([part.part for part in parts if isinstance(part, Negation)], is_excluded=True)
        if keep is None and dropped:
            self._notes.add("ignored an exclusion (it needs another term to search for)")
        return Without(keep, _any_of(dropped)) if keep is not None and dropped else keep


def _without_stop_words(expressions: list[Expression]) -> list[Expression]:
    return [part for part in expressions if not (isinstance(part, Word) and is_stop_word(part))] or expressions


def _texts(tree: Tree) -> Iterator[str]:
    """Yields the text of every leaf, excluded ones included."""
    match tree:
        case BareWord(text=text) | QuotedText(text=text):
            yield text
        case Branch(parts=parts):
            for part in parts:
                yield from _texts(part)
        case Negation(part=part) | TitleLeaf(leaf=part):
            yield from _texts(part)


def _positive_words(expression: Expression | None) -> Iterator[Word]:
    """Yields the words that are not excluded."""
    match expression:
        case Word():
            yield expression
        case Title(word=word):
            yield word
        case AnyOf(parts=parts) | AllOf(parts=parts):
            for part in parts:
                yield from _positive_words(part)
        case Without(keep=keep):
            yield from _positive_words(keep)
        case None:
            pass


def _any_of(parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _all_of(parts: Sequence[Expression]) -> Expression | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return AllOf(tuple(parts))


# -- near terms --------------------------------------------------------------------------------------------------------
# Adds words to a query that are near to words of it, which may be misspelled or part of a compound.


def can_have_near_terms(query: ParsedQuery) -> bool:
    """Returns whether any of the words may match: only then do others add matches without changing what was asked."""
    expression = query.expression
    while isinstance(expression, Without):
        expression = expression.keep
    parts = expression.parts if isinstance(expression, AnyOf) else (expression,)
    return not query.is_literal and set(map(type, parts)) == {Word}


def with_near_terms(query: ParsedQuery, near: Sequence[Term], notes: Sequence[str]) -> ParsedQuery:
    """Returns the query with near terms, which follow its own and replace misspelled words in its prose. `notes` are
    added to `read_as`."""
    assert query.expression is not None
    expression = _extend(query.expression, tuple(term.word for term in near))
    before = [note for note in (query.read_as or "").split("; ") if note and not note.startswith("searched for ")]
    read_as = "; ".join([f"searched for {render(expression)}", *before, *notes])
    prose = query.prose
    # The first near word is the most frequent one. Compounds, which are prefixes, correct nothing.
    for index, term in enumerate(query.terms):
        words = [one.word for one in near if one.near == index and isinstance(one.word.alternatives[0], Phrase)]
        if words:
            typed = re.compile(rf"(?<!\w){re.escape(term.word.text)}(?!\w)")
            prose = typed.sub(words[0].text, prose)
    return replace(query, expression=expression, terms=(*query.terms, *near), read_as=read_as, prose=prose)


def terms_max(query: ParsedQuery) -> int:
    """Returns how many terms of a query of plain words are searched for."""
    if len(query.terms) <= _PAIRS_MAX:
        return _WORDS_MAX
    pairs = sum(UNSPACED_RUN.match(term.word.text) is not None for term in query.terms)
    return _PAIRS_MAX if pairs > _PAIRS_MAX else _WORDS_MAX


def with_rarest_terms(query: ParsedQuery, frequencies: Sequence[int]) -> ParsedQuery:
    """Returns a query that has too many terms with the rarest that occur at all. The others match too much to
    matter."""
    most = terms_max(query)
    by_rarity = sorted(range(len(query.terms)), key=lambda index: (not frequencies[index], frequencies[index], index))
    kept = sorted(by_rarity[:most])
    terms = tuple([query.terms[index] for index in kept])
    expression = _any_of([term.word for term in terms])
    if isinstance(query.expression, Without):
        expression = Without(expression, query.expression.drop)
    note = f"used only the {most} rarest terms"
    return replace(
        query,
        expression=expression,
        terms=terms,
        time_terms=frozenset([at for at, index in enumerate(kept) if index in query.time_terms]),
        preferred=tuple([term.word for term in terms if term.word in query.preferred]),
        read_as=f"{query.read_as}; {note}" if query.read_as else note,
    )


def _extend(expression: Expression, words: tuple[Word, ...]) -> Expression:
    match expression:
        case Without(keep=keep, drop=drop):
            return Without(_extend(keep, words), drop)
        case AnyOf(parts=parts):
            return AnyOf((*parts, *words))
        case _:
            return AnyOf((expression, *words))


# -- literal -----------------------------------------------------------------------------------------------------------
# Reads a query as one literal text, without operators and filters.

_QUOTATION_MARK = '"'


def literal_text(text: str) -> str:
    """Returns the text to find: the query without the quotation marks around it."""
    text = replace_unstorable(text, " ").strip()
    is_quoted = text.count(_QUOTATION_MARK) == 2 and text[0] == text[-1] == _QUOTATION_MARK
    return text[1:-1].strip() if is_quoted else text


def parse_literal(text: str, limits: QueryLimits = _DEFAULT_LIMITS) -> ParsedQuery:
    """Returns the query for the phrase that a literal text is in the index.

    The index ignores punctuation and word endings and the phrase is limited, so the search must also require the text
    itself (`Search.contains`).
    """
    phrase = phrase_word(literal_text(text))
    word = phrase and limit_tokens(phrase, limits.max_phrase_tokens)
    return ParsedQuery(
        expression=word,
        terms=(Term(word, 1),) if word else (),
        filters=Filters(),
        read_as=QueryNotes().read_as(word, has_filters=False),
        has_operators=False,
        is_truncated=False,
    )
