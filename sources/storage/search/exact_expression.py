"""The expressions of the exact search: FTS5's query language.

SQLite evaluates them itself. For other engines they are parsed here and evaluated in the texts that may match, with the
same matches and the same ranks as in an FTS5 index of these texts. No input raises an error: an expression that FTS5
cannot parse is searched as words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from math import log
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sources.storage.contract import ExactSearch
from sources.storage.search.exact_snippets import ExactPhrase, exact_tokens, read_phrases
from sources.storage.tables.validation import is_storable
from sources.text.segmentation import SEPARATOR, separate_letters

# How often one phrase may occur. FTS5 counts the matches again for each occurrence, in a step that cannot be
# interrupted: sixteen times the same letter in a message of a megabyte took five seconds.
_REPEATS_MAX = 2
# How often one word may occur in all phrases together. A phrase of 300 times the same word took nine seconds.
_WORD_REPEATS_MAX = 8
_NO_WORD = "searched for nothing; the expression contains no words"
_OPERATORS = frozenset(("AND", "OR", "NOT", "NEAR"))
T = TypeVar("T")


class ExactMatch(Struct, frozen=True):
    rowid: int
    rank: float


class ExactMatches(Struct, frozen=True):
    """`read_as` is set if the expression was searched as words. `phrases` are those to highlight."""

    matches: tuple[ExactMatch, ...] = ()
    phrases: tuple[ExactPhrase, ...] = ()
    read_as: str | None = None
    is_ranked: bool = True


def run_expression(search: ExactSearch, run: Callable[[str], T | None]) -> tuple[T | None, str | None]:
    """Returns what `run` returns for the expression, and how it was read if not as it is. `run` returns None if an
    expression is invalid. Such a one is read as words, and also one with too many phrases, or with a phrase or a word
    too often."""
    expression = separate_letters(search.expression)
    # FTS5 takes a leading `*` as a command, not as an expression.
    is_expression = expression.strip() and is_storable(expression) and not expression.lstrip().startswith("*")
    if is_expression and _is_affordable(read_phrases(expression), search.phrases_max):
        result = run(expression)
        if result is not None:
            return result, None
    words = _quoted_words(expression, search.phrases_max)
    return (run(words), words.replace(SEPARATOR, "")) if words else (None, _NO_WORD)


def merge_matches(one: ExactMatches, other: ExactMatches, limit: int) -> ExactMatches:
    """Merges the matches in two indexes. Their ranks cannot be compared, so ranked matches alternate."""
    is_ranked = one.is_ranked and other.is_ranked
    if is_ranked:
        pairs = zip_longest(one.matches, other.matches)
        matches = [match for pair in pairs for match in pair if match is not None]
    else:
        matches = sorted((*one.matches, *other.matches), key=attrgetter("rowid"), reverse=True)
    return replace(one, matches=tuple(matches[:limit]), is_ranked=is_ranked)


def _is_affordable(phrases: Sequence[ExactPhrase], phrases_max: int) -> bool:
    return (
        len(phrases) <= phrases_max
        and _most_common_count(phrases) <= _REPEATS_MAX
        and _most_common_count(token for phrase in phrases for token in phrase.tokens) <= _WORD_REPEATS_MAX
    )


def _most_common_count(values: Iterable[object]) -> int:
    return max(Counter(values).values(), default=0)


def _quoted_words(text: str, words_max: int) -> str:
    """Returns an expression of the first words, each quoted so that none is syntax, and each once. Words without a
    letter or digit are omitted."""
    if not is_storable(text):
        text = "".join(character if is_storable(character) else " " for character in text)
    words = [word for word in text.split() if word not in _OPERATORS and any(map(_is_token_character, word))]
    quoted = dict.fromkeys(part for word in words for part in _affordable_parts(word.replace('"', " ").strip()))
    return " AND ".join(f'"{part}"' for part in islice(quoted, words_max))


def _affordable_parts(word: str) -> Iterable[str]:
    """A word can be a phrase, such as `fox-trot` or a word of several letters that are indexed as words. One that
    repeats itself too often is split."""
    tokens = [token for phrase in read_phrases(f'"{word}"') for token in phrase.tokens]
    return (word,) if _most_common_count(tokens) <= _WORD_REPEATS_MAX else tokens


def _is_token_character(character: str) -> bool:
    """As defined by FTS5's unicode61 tokenizer."""
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Co"


# -- syntax ------------------------------------------------------------------------------------------------------------

# A token and whether words may begin with it.
Term = tuple[str, bool]


class Near(Struct, frozen=True):
    """Phrases that are near to each other, usually one. Without phrases, it matches nothing. `number` is that of the
    first phrase in the expression."""

    phrases: tuple[tuple[Term, ...], ...] = ()
    distance: int = 10
    # Whether the text must begin with the phrase.
    is_first: bool = False
    number: int = 0


class ExactOperation(Struct, frozen=True):
    operator: str
    left: "ExactNode"
    right: "ExactNode"


ExactNode = Near | ExactOperation
_COLUMN = "content"
# FTS5 rejects more parentheses within each other.
_DEPTH_MAX = 97
# A quoted string, in which "" is a quote; a bare word; a sign; or what is none of them. Spaces are not matched.
_SYMBOL = re.compile(r'"((?:[^"]|"")*+)"|([A-Za-z0-9_\x1a\x80-\U0010ffff]+)|([(){}:,+*^-])|([^ \t\n\r])')
_OPERATOR_ORDER = ("OR", "AND", "NOT")


class _SyntaxError(Exception):
    pass


class _Parser:
    """A parser for the grammar of FTS5 (fts5parse.y) with one column."""

    def __init__(self, expression: str) -> None:
        # The kind of each symbol and its text. A bare operator or sign is a kind of its own.
        self._symbols: list[tuple[str, str]] = []
        for found in _SYMBOL.finditer(expression):
            quoted, bare, sign, other = found.groups()
            if other:
                raise _SyntaxError
            if quoted is not None:
                self._symbols.append(("quoted", quoted.replace('""', '"')))
            else:
                text = bare or sign
                self._symbols.append((text if sign or text in _OPERATOR_ORDER else "bare", text))
        self._symbols.append(("end", ""))
        self._next = 0
        self._depth = 0
        self._phrases = 0

    def parse(self) -> ExactNode:
        node = self._operation(0)
        self._take("end")
        return node

    def _kind(self, ahead: int = 0) -> str:
        return self._symbols[min(self._next + ahead, len(self._symbols) - 1)][0]

    def _is_string(self, ahead: int = 0) -> bool:
        return self._kind(ahead) in ("quoted", "bare")

    def _take(self, *kinds: str) -> str:
        kind, text = self._symbols[self._next]
        if kind not in kinds:
            raise _SyntaxError
        self._next += 1
        return text

    def _string(self) -> str:
        return self._take("quoted", "bare")

    def _operation(self, level: int) -> ExactNode:
        """NOT binds more tightly than AND, and AND more tightly than OR."""
        if level == len(_OPERATOR_ORDER):
            return self._operand()
        node = self._operation(level + 1)
        while self._kind() == _OPERATOR_ORDER[level]:
            self._next += 1
            node = ExactOperation(_OPERATOR_ORDER[level], node, self._operation(level + 1))
        return node

    def _operand(self) -> ExactNode:
        """An expression in parentheses, or phrases, all of which must match. Phrases without a word are ignored."""
        if self._kind() == "(":
            return self._group()
        start = self._next
        if self._is_column():
            has_column = self._column()
            if self._kind() == "(":
                node = self._group()
                return node if has_column else Near()
            self._next = start
        node = self._near_in_column()
        while self._is_string() or self._kind() in ("^", "-", "{"):
            following = self._near_in_column()
            if node == Near():
                node = following
            elif following != Near():
                node = ExactOperation("AND", node, following)
        return node

    def _group(self) -> ExactNode:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _SyntaxError
        self._take("(")
        node = self._operation(0)
        self._take(")")
        self._depth -= 1
        return node

    def _is_column(self) -> bool:
        return self._kind() in ("-", "{") or (self._is_string() and self._kind(1) == ":")

    def _column(self) -> bool:
        """Reads the columns of a filter. Returns whether the only column is one of them."""
        is_inverted = self._kind() == "-"
        self._next += is_inverted
        names: list[str] = []
        if self._kind() == "{":
            self._next += 1
            while not names or self._kind() != "}":
                names.append(self._string())
            self._take("}")
        else:
            names.append(self._string())
        self._take(":")
        if any(name.lower() != _COLUMN for name in names):
            raise _SyntaxError
        return not is_inverted

    def _near_in_column(self) -> ExactNode:
        has_column = self._column() if self._is_column() else True
        near = self._near()
        self._phrases += len(near.phrases)
        # Nothing is in another column.
        return near if has_column or not near.phrases else ExactOperation("NOT", near, near)

    def _near(self) -> Near:
        number, distance = self._phrases, Near().distance
        is_first = self._kind() == "^"
        self._next += is_first
        if is_first or not self._is_string() or self._kind(1) != "(":
            phrases = [self._phrase()]
        else:
            if self._take("bare") != "NEAR":
                raise _SyntaxError
            self._take("(")
            phrases = [self._phrase()]
            while self._is_string():
                phrases.append(self._phrase())
            if self._kind() == ",":
                self._next += 1
                text = self._string()
                if not (text.isascii() and text.isdigit()):
                    raise _SyntaxError
                distance = int(text)
            self._take(")")
        phrases = [phrase for phrase in phrases if phrase]
        return Near(tuple(phrases), distance, is_first, number) if phrases else Near()

    def _phrase(self) -> tuple[Term, ...]:
        terms: list[Term] = []
        while True:
            tokens = exact_tokens(self._string())
            is_prefix = self._kind() == "*"
            self._next += is_prefix
            terms += [(token, is_prefix and number == len(tokens)) for number, token in enumerate(tokens, 1)]
            if self._kind() != "+":
                return tuple(terms)
            self._next += 1


class ExactExpression(Struct, frozen=True):
    node: ExactNode
    # Those to highlight.
    phrases: tuple[ExactPhrase, ...]

    @property
    def counted(self) -> list[Near]:
        """Each phrase by itself, in the order of their numbers, to count the texts that contain it."""
        return _phrases(self.node)


def parse(expression: str) -> ExactExpression | None:
    """Returns None for what FTS5 cannot parse."""
    try:
        return ExactExpression(_Parser(expression).parse(), read_phrases(expression))
    except _SyntaxError:
        return None


def _phrases(node: ExactNode) -> list[Near]:
    if isinstance(node, ExactOperation):
        return _phrases(node.left) + _phrases(node.right)
    return [
        Near((phrase,), is_first=node.is_first, number=node.number + place) for place, phrase in enumerate(node.phrases)
    ]


# -- evaluation --------------------------------------------------------------------------------------------------------

# The parameters of bm25 in FTS5, and the weight of a phrase that more than half of the texts contain.
_K1, _B, _COMMON_WEIGHT = 1.2, 0.75, 1e-6

# How often a phrase occurs, by its number.
_Counts = Mapping[int, int]


class TextCounts(Struct, frozen=True):
    """How many texts there are, and how many contain each phrase of `ExactExpression.counted`."""

    texts: int
    phrases: Sequence[int]


def match_texts(
    expression: ExactExpression, texts: Sequence[tuple[int, str]], limit: int, counts: TextCounts | None
) -> ExactMatches:
    """Searches texts, each with its rowid. Matches are ranked by bm25, or, without counts, keep the order of the
    texts."""
    tokens = {rowid: exact_tokens(text) for rowid, text in texts}
    found = {rowid: own for rowid, some in tokens.items() if (own := count_phrases(expression.node, some)) is not None}
    matches = [ExactMatch(rowid, 0.0) for rowid in found]
    if counts is not None and found:
        matches = _ranked(expression.counted, tokens, found, counts)
    return ExactMatches(tuple(matches[:limit]), expression.phrases, is_ranked=counts is not None)


def _ranked(
    phrases: Sequence[Near], tokens: Mapping[int, Sequence[str]], found: Mapping[int, _Counts], counts: TextCounts
) -> list[ExactMatch]:
    """The rank is the negative bm25, so that lower is better."""
    average = sum(map(len, tokens.values())) / max(1, len(tokens))
    weights = {
        phrase.number: max(_COMMON_WEIGHT, log(max(0.5, counts.texts - rows + 0.5) / (rows + 0.5)))
        for phrase, rows in zip(phrases, counts.phrases, strict=True)
    }
    matches = []
    for rowid, own in found.items():
        length = _K1 * (1 - _B + _B * len(tokens[rowid]) / average)
        scores = [weights[number] * count * (_K1 + 1) / (count + length) for number, count in own.items()]
        matches.append(ExactMatch(rowid, -sum(scores)))
    return sorted(matches, key=lambda match: (match.rank, match.rowid))


def count_phrases(node: ExactNode, tokens: Sequence[str]) -> _Counts | None:
    """Returns how often each phrase occurs, or None if the text does not match."""
    if isinstance(node, ExactOperation):
        left, right = count_phrases(node.left, tokens), count_phrases(node.right, tokens)
        if node.operator == "NOT":
            return left if right is None else None
        if left is not None and right is not None:
            return {**left, **right}
        return (left or right) if node.operator == "OR" else None
    positions = [_positions(phrase, tokens, is_first=node.is_first) for phrase in node.phrases]
    if len(positions) > 1:
        positions = _near_positions(node, positions)
    if not positions or not all(positions):
        return None
    return {number: len(own) for number, own in enumerate(positions, node.number)}


def _positions(phrase: Sequence[Term], tokens: Sequence[str], *, is_first: bool) -> list[int]:
    """Returns where the phrase begins."""
    text, is_prefix = phrase[0]
    starts = [0]
    if not is_first:
        starts = [
            place for place, token in enumerate(tokens) if token == text or (is_prefix and token.startswith(text))
        ]
    if len(phrase) == 1 and not is_first:
        return starts
    return [start for start in starts if _has_phrase(phrase, tokens[start : start + len(phrase)])]


def _has_phrase(phrase: Sequence[Term], tokens: Sequence[str]) -> bool:
    return len(tokens) == len(phrase) and all(
        token == text or (is_prefix and token.startswith(text))
        for (text, is_prefix), token in zip(phrase, tokens, strict=True)
    )


def _near_positions(node: Near, positions: Sequence[Sequence[int]]) -> list[list[int]]:
    """Returns the positions of each phrase that are near to one of every other phrase, as FTS5 finds them."""
    found: list[list[int]] = [[] for _ in positions]
    if not all(positions):
        return found
    places = [0] * len(positions)
    while True:
        current = [own[place] for own, place in zip(positions, places, strict=True)]
        last = max(current)
        behind = [i for i, phrase in enumerate(node.phrases) if current[i] < last - len(phrase) - node.distance]
        if not behind:
            for own, position in zip(found, current, strict=True):
                if not own or own[-1] != position:
                    own.append(position)
            # Continues with the phrase whose next position is the first one.
            following = [(own[places[i] + 1], i) for i, own in enumerate(positions) if places[i] + 1 < len(own)]
            if not following:
                return found
            behind = [min(following)[1]]
        for i in behind:
            places[i] += 1
            if places[i] == len(positions[i]):
                return found
