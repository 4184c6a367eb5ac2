"""Snippets of the exact search: twenty words around the matches of an FTS5 expression, with the matches marked.

FTS5's own `snippet` takes time that is quadratic in the number of matches, in one step that cannot be interrupted.
These functions read a bounded part of a text.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import chain, compress, count

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
# What FTS5 takes for the end of a sentence: right after a word.
_SENTENCE_END = re.compile(r"(?<=[^\W_]|[\u0300-\u036f])[.:]\s")
_NEW_PHRASE_SCORE = 1_000
# Of each byte in ASCII: the letter in lower case or the digit, or a space.
_ASCII_FORM = bytes(ord(char.lower()) if (char := chr(code)).isalnum() and code < 128 else 32 for code in range(256))

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
        matches = region.matches
        # The first token and the end of the best matches that fit into a snippet.
        best, span = 0, (0, 0)
        counts = [0] * len(self._phrases)
        left = score = 0
        for right, (_, end, phrase) in enumerate(matches):
            counts[phrase] += 1
            score += 1 if counts[phrase] > 1 else _NEW_PHRASE_SCORE
            while left < right and end - matches[left][0] > _SNIPPET_TOKENS:
                dropped = matches[left][2]
                counts[dropped] -= 1
                score -= 1 if counts[dropped] else _NEW_PHRASE_SCORE
                left += 1
            if score > best:
                best, span = score, (matches[left][0], end)
        return region.render(*span)

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
        starts, prefixes = self._by_first_token, self._prefixes
        firsts: Iterable[int]
        if prefixes:
            firsts = [at for at, token in enumerate(tokens) if token in starts or token.startswith(prefixes)]
        else:
            firsts = compress(count(), map(starts.__contains__, tokens))  # half the time of a loop
        for first in firsts:
            token = tokens[first]
            opened = (self._by_first_prefix[prefix] for prefix in prefixes if token.startswith(prefix))
            for index in chain(starts.get(token, ()), *opened):
                phrase = self._phrases[index]
                end = first + len(phrase.tokens)
                # Whether the tokens after the first one match as well.
                *middle, last = phrase.tokens
                *found, found_last = tokens[first:end]
                is_last = found_last.startswith(last) if phrase.is_prefix else found_last == last
                if is_last and found == middle:
                    yield first, end, index


class _SnippetRegion:
    """The part of a text that is searched, with its matches."""

    def __init__(self, text: str, start: int, find: Callable[[Sequence[str]], Iterator[_PhraseMatch]]) -> None:
        self._text = text[start : start + _SCAN_MAX_CHARS]
        self._is_start, self._is_end = start == 0, start + len(self._text) == len(text)
        # Of a text in ASCII, its tokens in lower case with spaces in between, at the same offsets: splitting it takes a
        # tenth of the time of finding the tokens.
        self._form = ""
        # Where tokens are in the text, as far as that is known.
        self._spans: dict[int, tuple[int, int]] = {}
        if self._text.isascii():
            self._form = self._text.encode().translate(_ASCII_FORM).decode()
            tokens = self._form.split()
        else:
            found = [*_tokens(self._text)]
            self._spans = {number: (first, last) for number, (_, first, last) in enumerate(found)}
            tokens = [token for token, _, _ in found]
        self._count = len(tokens)
        self.matches = [*find(tokens)]

    def render(self, first: int, end: int) -> str:
        """Returns a snippet with these tokens in its middle, or at the start of their sentence."""
        if not self._count:
            return escape(self._text[:_TAIL_MAX_CHARS])
        slack = max(0, _SNIPPET_TOKENS - (end - first))
        start = max(0, min(first - slack // 2, self._count - _SNIPPET_TOKENS))
        # What is between the tokens from `before` to the first one may end a sentence.
        before = max(0, first - slack - 1)
        gap_start, gap_end = self._span(before)[1], self._span(first)[0]
        if marks := [*_SENTENCE_END.finditer(self._text, gap_start, gap_end)]:
            start = self._count_before(marks[-1].start())
        elif first <= slack and self._is_start:
            start = 0
        end = min(self._count, start + _SNIPPET_TOKENS)
        is_cut_before = start > 0 or not self._is_start
        is_cut_after = end < self._count or not self._is_end
        shown_start = self._span(start)[0] if is_cut_before else 0
        shown_end = self._span(end - 1)[1]
        if not is_cut_after:
            shown_end = min(len(self._text), shown_end + _TAIL_MAX_CHARS)
        html, at = "…" if is_cut_before else "", shown_start
        for left, right in _merged(match for match in self.matches if start <= match[0] and match[1] <= end):
            mark_start, mark_end = self._span(left)[0], self._span(right - 1)[1]
            html += f"{escape(self._text[at:mark_start])}<mark>{escape(self._text[mark_start:mark_end])}</mark>"
            at = mark_end
        return f"{html}{escape(self._text[at:shown_end])}{'…' if is_cut_after else ''}"

    def _span(self, token: int) -> tuple[int, int]:
        """Returns where a token is in the text."""
        span = self._spans.get(token)
        if span is None:
            start = len(self._form) - len(self._form.split(None, token)[-1])
            end = self._form.find(" ", start)
            span = self._spans[token] = (start, end if end >= 0 else len(self._form))
        return span

    def _count_before(self, offset: int) -> int:
        """Returns how many tokens begin before an offset."""
        return len(self._form[:offset].split()) if self._form else bisect_left([*self._spans.values()], (offset,))


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
