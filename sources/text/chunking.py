"""Where a text may be cut: into chunks of whole sentences that overlap, with exact offsets. The text itself is never
changed, no grapheme is cut in two, and every text of any size and shape is handled in linear time."""

import re
from collections.abc import Iterable, Iterator
from unicodedata import category, combining

from msgspec import Struct

from config.numbers import clamp


class Chunk(Struct, frozen=True):
    """The characters from `start` up to `end` of the text it was made from."""

    index: int
    start: int
    end: int


def chunk(text: str, size_chars: int, overlap_chars: int) -> list[Chunk]:
    """Chunks of at most `size_chars`, each beginning with at most `overlap_chars` of the one before it.

    Together they cover the text. A heading begins a chunk, and nothing from before it is repeated there. No more than
    half a chunk is ever repeated, so that the number of chunks stays in proportion to the text.
    """
    size = max(1, size_chars)
    cutter = _Cutter(text, size, clamp(overlap_chars, 0, size // 2))
    return [Chunk(index, start, end) for index, (start, end) in enumerate(cutter.spans())]


class _Sentence(Struct, frozen=True):
    """A sentence with the space after it, or a heading; one follows the other without a gap."""

    start: int
    end: int
    is_heading: bool


class _Cutter:
    """Packs sentences: as many as fit, then a new chunk that begins with the last ones of the old."""

    def __init__(self, text: str, size: int, overlap: int) -> None:
        self._text = text
        self._size = size
        self._overlap = overlap

    def spans(self) -> Iterator[tuple[int, int]]:
        start = 0
        held: list[_Sentence] = []
        for sentence in self._beside_headings(self._pieces()):
            begins_section = sentence.is_heading and not (held and held[-1].is_heading)
            if held and (begins_section or sentence.end - start > self._size):
                yield start, sentence.start
                start = sentence.start if sentence.is_heading else self._restart(start, held, sentence)
                held = []
            held.append(sentence)
        if held:
            yield start, held[-1].end

    def _pieces(self) -> Iterator[_Sentence]:
        """Sentences, those too long for a chunk in pieces that leave room for the overlap."""
        for sentence in _sentences(self._text):
            start, is_heading = sentence.start, sentence.is_heading
            while sentence.end - start > self._size:
                end = self._break(start, start + self._size - self._overlap)
                yield _Sentence(start, end, is_heading)
                start, is_heading = end, False
            if start < sentence.end:
                yield _Sentence(start, sentence.end, is_heading)

    def _beside_headings(self, pieces: Iterable[_Sentence]) -> Iterator[_Sentence]:
        """The same, a piece after a heading cut where the heading's chunk is full, so that none stands alone."""
        section: int | None = None
        for piece in pieces:
            if piece.is_heading:
                section = piece.start if section is None else section
                yield piece
                continue
            room = self._size if section is None else section + self._size - piece.start
            yield from self._cut_in_two(piece, room)
            section = None

    def _cut_in_two(self, piece: _Sentence, room: int) -> Iterator[_Sentence]:
        cut = self._break(piece.start, piece.start + room) if 1 < room < piece.end - piece.start else piece.end
        yield _Sentence(piece.start, cut, is_heading=False)
        if cut < piece.end:
            yield _Sentence(cut, piece.end, is_heading=False)

    def _break(self, start: int, end: int) -> int:
        """After the last line or word in the second half of the stretch, else after the last grapheme that fits."""
        middle = (start + end) // 2
        for mark in ("\n", " "):
            found = self._text.rfind(mark, middle, end) + 1
            if found and is_border(self._text, found):
                return found
        fitting = cut_before(self._text, end)
        return fitting if fitting > start else cut_after(self._text, end)

    def _restart(self, start: int, held: list[_Sentence], following: _Sentence) -> int:
        """Where the next chunk begins: at a sentence of the last one if one fits, else at a word, else at a letter."""
        room = min(self._overlap, self._size - (following.end - following.start))
        earliest = max(following.start - room, start + 1)
        if earliest >= following.start:
            return following.start
        whole = next((sentence.start for sentence in held if sentence.start >= earliest), None)
        if whole is not None:
            return whole
        word = self._text.find(" ", earliest - 1, following.start) + 1
        if word and is_border(self._text, word):
            return word
        return min(cut_after(self._text, earliest), following.start)


# -- sentences ---------------------------------------------------------------------------------------------------------

# Each alternative begins with a look behind and takes what it matches for good, so that a megabyte of full stops is
# read once and not once for each of them.
_SENTENCE_END = re.compile(
    r"""
      (?<![.!?…]) (?P<western> [.!?…]++ ) ["'”’»)\]]*+ \s++
    | (?<![。！？｡]) [。！？｡]++ [」』）】〉》”’"')]*+ \s*+
    | (?<![।॥؟۔։።။།។៕]) [।॥؟۔։።။།។៕]++ ["'”’»)\]]*+ \s*+
    | \n [^\S\n]*+ \n \s*+
    | \n (?= [^\S\n]{0,8} (?: [-*+•] | \d{1,3} [.)] ) [^\S\n] )
    """,
    re.VERBOSE,
)
# What stands before a full stop that ends no sentence: a title, an initial, U.S, e.g; the number of a list item.
_ABBREVIATED = re.compile(
    r"""
    (?: (?<![^\W_]) (?:
        [^\W\d_] | (?: [^\W\d_] \. )+ [^\W\d_]
      | dr | mr | mrs | ms | prof | st | jr | sr | vs | etc | cf | al | approx | dept | inc | ltd | co | corp | gen
      | col | sgt | capt | lt | rev | hon | gov | sen | rep | mt | ft | ca | ph\.d
      | jan | feb | apr | jun | jul | aug | sep | sept | oct | nov | dec
      | bzw | usw | ggf | evtl | inkl | zzgl | sog | mme | mlle
    ) | (?: ^ | \n ) \s* \d{1,3} ) \Z
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ABBREVIATED_BEFORE_NUMBER = re.compile(r"(?<![^\W_])(?:nos?|nr|figs?|eqs?|sec|ch|vol|pp|art|cap)\Z", re.IGNORECASE)
_LONGEST_ABBREVIATION_CHARS = 12

_LINE_OF_NOTE = re.compile(
    r"""
    ^ [ ]{0,3} (?:
        (?P<fence> `{3,} | ~{3,} )
      | (?P<heading> \#{1,6} [^\S\n]+ \S [^\n]*+ | \S [^\n]{0,200} \n [ ]{0,3} (?: ={3,} | -{3,} ) [^\S\n]*+ $ )
        (?: \n [^\S\n]*+ (?= \n ) )*+ \n?
    )
    """,
    re.VERBOSE | re.MULTILINE,
)


def _sentences(text: str) -> Iterator[_Sentence]:
    start = 0
    for begin, end in _headings(text):
        opening = start if text[start:begin].isspace() else begin
        yield from _plain_sentences(text, start, opening)
        yield _Sentence(opening, end, is_heading=True)
        start = end
    yield from _plain_sentences(text, start, len(text))


def _headings(text: str) -> Iterator[tuple[int, int]]:
    """Markdown headings, underlined ones too; a # inside a fenced block of code is a comment."""
    fence = ""
    for match in _LINE_OF_NOTE.finditer(text):
        mark = match["fence"]
        if mark and not fence:
            fence = mark
        elif mark and mark.startswith(fence):
            fence = ""
        elif not mark and not fence and is_border(text, match.end()):
            yield match.start(), match.end()


def _plain_sentences(text: str, start: int, end: int) -> Iterator[_Sentence]:
    for match in _SENTENCE_END.finditer(text, start, end):
        if match.end() < end and _is_end(text, match) and is_border(text, match.end()):
            yield _Sentence(start, match.end(), is_heading=False)
            start = match.end()
    if start < end:
        yield _Sentence(start, end, is_heading=False)


def _is_end(text: str, match: re.Match[str]) -> bool:
    if match["western"] is None or "\n\n" in match[0]:
        return True
    following = text[match.end()]
    if following.islower():
        return False
    if match["western"] != ".":
        return True
    before = text[max(0, match.start() - _LONGEST_ABBREVIATION_CHARS) : match.start()]
    if following.isdigit() and _ABBREVIATED_BEFORE_NUMBER.search(before):
        return False
    return not _ABBREVIATED.search(before)


# -- graphemes ---------------------------------------------------------------------------------------------------------

# No letter has more marks than this (Unicode's stream-safe format allows 30); what goes on longer is cut anyway.
_GRAPHEME_MAX_CHARS = 128
_JOINER = "\u200d"
_ATTACHED = re.compile(
    # joiners, Thai and Lao am, half-width voicing, Hangul vowels and finals, skin tones, tags
    "[\u200c\u200d\u0e33\u0eb3\uff9e\uff9f\u1160-\u11ff\ud7b0-\ud7fb\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)
_HANGUL_INITIAL = re.compile("[\u1100-\u115f\ua960-\ua97c]")
_HANGUL_FOLLOWING = re.compile("[\u1100-\u115f\ua960-\ua97c\uac00-\ud7a3]")
_REGIONAL = re.compile("[\U0001f1e6-\U0001f1ff]")
_VIRAMA = 9  # canonical combining class


def cut_before(text: str, index: int) -> int:
    """The last place at or before `index` that is not inside a grapheme."""
    for place in range(index, max(0, index - _GRAPHEME_MAX_CHARS), -1):
        if is_border(text, place):
            return place
    return 0 if index <= _GRAPHEME_MAX_CHARS else index


def cut_after(text: str, index: int) -> int:
    """The first place at or after `index` that is not inside a grapheme."""
    for place in range(index, min(len(text), index + _GRAPHEME_MAX_CHARS)):
        if is_border(text, place):
            return place
    return min(len(text), index + _GRAPHEME_MAX_CHARS)


def is_border(text: str, index: int) -> bool:
    """Whether a text may be cut before the character at `index`: Unicode's extended grapheme clusters, simplified."""
    if index <= 0 or index >= len(text):
        return True
    before, after = text[index - 1], text[index]
    if after.isascii():
        return (before, after) != ("\r", "\n")
    if before.isascii() and category(before) == "Cc":
        return True
    if category(after)[0] == "M" or _ATTACHED.match(after) or before == _JOINER:
        return False
    if combining(before) == _VIRAMA:
        return not after.isalpha()
    if _REGIONAL.match(after):
        return _flags_before(text, index) % 2 == 0
    return not (_HANGUL_INITIAL.match(before) and _HANGUL_FOLLOWING.match(after))


def _flags_before(text: str, index: int) -> int:
    """How many regional letters stand right before: they make flags in pairs."""
    earliest = max(0, index - _GRAPHEME_MAX_CHARS)
    start = index
    while start > earliest and _REGIONAL.match(text[start - 1]):
        start -= 1
    return index - start
