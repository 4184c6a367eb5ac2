"""Snippets of the exact search: twenty words around the matches of an FTS5 expression, with the matches marked.

FTS5's own `snippet` takes time that is quadratic in the number of matches, in one step that cannot be interrupted.
These functions read a bounded part of a text.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import chain

from msgspec import Struct

from sources.text.segmentation import UNSPACED

_SNIPPET_TOKENS = 20
# The part of a text that is searched for matches, and the text kept after the last word.
_SCAN_MAX_CHARS = 8_192
_TAIL_MAX_CHARS = 200
_OPERATORS = frozenset(("AND", "OR", "NOT", "NEAR"))
# A quoted string, in which "" is a quote, or a bare word; followed by a colon it is the name of a column.
_WORD = re.compile(r'"((?:[^"]|"")*+)"(?!")|([^\s"(){}:+*^,-]++)')
_COLUMN = re.compile(r"\s*+:")
_PREFIX = re.compile(r"\s*+\*")
_NEAR_DISTANCE = re.compile(r",\s*+\d*+")
# As in FTS5's tokenizer unicode61: letters and digits, and accents that belong to them. A letter of a script without
# spaces is indexed as a word.
_LETTER = f"[^\\W_{UNSPACED}]"
_TOKEN = re.compile(f"[{UNSPACED}]|{_LETTER}++(?:[\u0300-\u036f]++{_LETTER}*+)*+")
# What FTS5 takes for the end of a sentence, between two words.
_SENTENCE_END = re.compile(r"[.:]\s")
_NEW_PHRASE_SCORE = 1_000

# A match: its first token, the token after its last one, and the index of the phrase.
_PhraseMatch = tuple[int, int, int]


class ExactPhrase(Struct, frozen=True):
    """Consecutive tokens, as they are compared. With `is_prefix` the last one may be the beginning of a word."""

    tokens: tuple[str, ...]
    is_prefix: bool


def read_phrases(expression: str) -> tuple[ExactPhrase, ...]:
    """Returns the phrases of an expression. Phrases joined by `+` are returned separately."""
    expression = _NEAR_DISTANCE.sub(" ", expression)
    phrases = []
    for match in _WORD.finditer(expression):
        quoted, bare = match[1], match[2]
        if bare in _OPERATORS or _COLUMN.match(expression, match.end()):
            continue
        tokens = tuple(token for token, _, _ in _tokens(bare if quoted is None else quoted.replace('""', '"')))
        if tokens:
            phrases.append(ExactPhrase(tokens, _PREFIX.match(expression, match.end()) is not None))
    return tuple(phrases)


class ExactHighlighter:
    """The phrases of one expression, prepared to be found in many texts."""

    def __init__(self, phrases: Sequence[ExactPhrase]) -> None:
        self._phrases = tuple(dict.fromkeys(phrases))
        self._by_first_token: dict[str, list[int]] = {}
        self._by_first_prefix: dict[str, list[int]] = {}
        for index, phrase in enumerate(self._phrases):
            is_open = phrase.is_prefix and len(phrase.tokens) == 1
            starts = self._by_first_prefix if is_open else self._by_first_token
            starts.setdefault(phrase.tokens[0], []).append(index)
        self._prefixes = tuple(self._by_first_prefix)

    def snippet(self, text: str) -> str:
        """Returns HTML: at most twenty words, with the most different phrases and then the most matches."""
        region = self._region(text)
        # The first token and the end of the best matches that fit into a snippet.
        best, span = 0, (0, 0)
        counts = Counter[int]()
        left = score = 0
        for right, (_, end, phrase) in enumerate(region.matches):
            counts[phrase] += 1
            score += 1 if counts[phrase] > 1 else _NEW_PHRASE_SCORE
            while left < right and end - region.matches[left][0] > _SNIPPET_TOKENS:
                dropped = region.matches[left][2]
                counts[dropped] -= 1
                score -= 1 if counts[dropped] else _NEW_PHRASE_SCORE
                left += 1
            if score > best:
                best, span = score, (region.matches[left][0], end)
        first = region.window_start(span)
        return region.render(first)

    def _region(self, text: str) -> "_SnippetRegion":
        region = _SnippetRegion(text, 0, self._find)
        if region.matches or len(text) <= _SCAN_MAX_CHARS:
            return region
        # A position shortly before an occurrence of a phrase as it is usually written.
        firsts = {phrase.tokens[0] for phrase in self._phrases}
        found = [text.find(variant) for first in firsts for variant in (first, first.capitalize(), first.upper())]
        promising_start = max(0, min((at for at in found if at >= 0), default=0) - _SCAN_MAX_CHARS // 2)
        later = _SnippetRegion(text, promising_start, self._find)
        return later if later.matches else region

    def _find(self, tokens: Sequence[str]) -> Iterator[_PhraseMatch]:
        for position, token in enumerate(tokens):
            candidates: Sequence[int] = self._by_first_token.get(token, ())
            if self._prefixes and token.startswith(self._prefixes):
                opened = (self._by_first_prefix[prefix] for prefix in self._prefixes if token.startswith(prefix))
                candidates = [*candidates, *chain.from_iterable(opened)]
            for index in candidates:
                phrase = self._phrases[index]
                # Whether the tokens after the first one match as well.
                *middle, last = phrase.tokens
                found = tokens[position : position + len(phrase.tokens)]
                if len(found) < len(phrase.tokens) or list(found[:-1]) != middle:
                    continues = False
                else:
                    continues = found[-1].startswith(last) if phrase.is_prefix else found[-1] == last
                if continues:
                    yield position, position + len(phrase.tokens), index


class _SnippetRegion:
    """The part of a text that is searched, with its tokens and matches."""

    def __init__(self, text: str, start: int, find: Callable[[Sequence[str]], Iterator[_PhraseMatch]]) -> None:
        self._text = text[start : start + _SCAN_MAX_CHARS]
        self._is_start, self._is_end = start == 0, start + len(self._text) == len(text)
        tokens = list(_tokens(self._text))
        self._spans = [(first, last) for _, first, last in tokens]
        self.matches = list(find([token for token, _, _ in tokens]))

    def window_start(self, span: tuple[int, int]) -> int:
        """Returns the first token of a snippet with the span in its middle, or at the start of its sentence."""
        first, end = span
        slack = max(0, _SNIPPET_TOKENS - (end - first))
        for start in range(first, max(0, first - slack) - 1, -1):
            if start == 0:
                starts_sentence = self._is_start
            else:
                starts_sentence = bool(
                    _SENTENCE_END.match(self._text[self._spans[start - 1][1] : self._spans[start][0]])
                )
            if starts_sentence:
                return start
        return max(0, min(first - slack // 2, len(self._spans) - _SNIPPET_TOKENS))

    def render(self, first: int) -> str:
        if not self._spans:
            return escape(self._text[:_TAIL_MAX_CHARS])
        end = min(len(self._spans), first + _SNIPPET_TOKENS)
        is_cut_before = first > 0 or not self._is_start
        is_cut_after = end < len(self._spans) or not self._is_end
        start = self._spans[first][0] if is_cut_before else 0
        stop = self._spans[end - 1][1] if is_cut_after else min(len(self._text), self._spans[-1][1] + _TAIL_MAX_CHARS)
        parts = [*self._marked_parts(first, end, start, stop)]
        return ("…" if is_cut_before else "") + "".join(parts) + ("…" if is_cut_after else "")

    def _marked_parts(self, first: int, end: int, start: int, stop: int) -> Iterator[str]:
        position = start
        for left, right in _merged(match for match in self.matches if first <= match[0] and match[1] <= end):
            mark_start, mark_end = self._spans[left][0], self._spans[right - 1][1]
            yield escape(self._text[position:mark_start])
            yield f"<mark>{escape(self._text[mark_start:mark_end])}</mark>"
            position = mark_end
        yield escape(self._text[position:stop])


def exact_tokens(text: str) -> list[str]:
    """Returns the words of a text, as they are compared."""
    if text.isascii():
        return _TOKEN.findall(text.lower())
    return [_fold(token) for token in _TOKEN.findall(text)]


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _TOKEN.finditer(text):
        yield _fold(match[0]), match.start(), match.end()


def _fold(token: str) -> str:
    """Removes case and accents, as the index does."""
    if token.isascii():
        return token.lower()
    return "".join(c for c in unicodedata.normalize("NFD", token.lower()) if not unicodedata.combining(c))


def _merged(matches: Iterable[_PhraseMatch]) -> Iterator[tuple[int, int]]:
    """Joins matches that overlap. They are sorted by their first token."""
    current: tuple[int, int] | None = None
    for first, end, _ in matches:
        if current is not None and first < current[1]:
            current = (current[0], max(current[1], end))
            continue
        if current is not None:
            yield current
        current = (first, end)
    if current is not None:
        yield current
