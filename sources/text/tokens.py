"""How many tokens a text takes, without a tokenizer: an estimate that is sooner too high than too low, for a budget is
a promise. Where a caller says how many characters a token has, that is taken at its word instead.

Weights are counted in sixtieths of a token, so that they are whole numbers and add up without error.
"""

import math
from bisect import bisect_right
from typing import Any

import msgspec
from msgspec import Struct

from config.numbers import clamp

_TOKEN = 60
# By character, for what a Latin-1 text holds. They were fitted to o200k_base, so that 600 characters of prose, code,
# JSON, ids or numbers never have more tokens than they weigh; English then weighs a third more than it has. Ids and
# numbers run at less than two characters a token, and no two tokenizers divide digits alike. A quotation mark of JSON
# comes with its comma or colon in one token; one inside a text has a backslash before it.
_LETTERS = (
    (0x00, 0xFF, 90),  # accented letters; what is not told below
    (0x00, 0x20, 20),  # space; control characters are escaped in JSON
    (0x21, 0x7E, 33),  # punctuation
    (ord("0"), ord("9"), 60),
    (ord("A"), ord("Z"), 36),
    (ord("a"), ord("z"), 15),
    (ord('"'), ord('"'), 9),
    (ord("\\"), ord("\\"), 54),
    (0x7F, 0x9F, 120),
)
# By block of 256 characters, which is the upper byte in UTF-16: every script has its own. One that is not named takes a
# token for each of its three bytes, and no tokenizer that reads bytes can take more.
_BLOCKS = (
    (0x00, 0xFF, 180),
    (0x00, 0x00, 0),  # counted by character
    (0x01, 0x02, 90),  # Latin of the languages that write many accents
    (0x03, 0x03, 36),  # Greek
    (0x04, 0x05, 33),  # Cyrillic, Armenian, Hebrew
    (0x06, 0x06, 36),  # Arabic
    (0x07, 0x08, 120),
    (0x09, 0x09, 33),  # Devanagari, Bengali
    (0x0A, 0x0A, 42),  # Gurmukhi, Gujarati
    (0x0B, 0x0B, 72),  # Oriya, Tamil
    (0x0C, 0x0D, 39),  # Telugu, Kannada, Malayalam, Sinhala
    (0x0E, 0x0E, 60),  # Thai; Lao takes two
    (0x0F, 0x0F, 108),  # Tibetan
    (0x10, 0x10, 39),  # Burmese, Georgian
    (0x17, 0x17, 48),  # Khmer
    (0x1E, 0x1E, 72),  # Vietnamese
    (0x20, 0x20, 78),  # dashes and quotation marks
    (0x21, 0x2F, 120),  # symbols
    (0x30, 0x30, 45),  # kana
    (0x4E, 0x9F, 75),  # ideographs
    (0xAC, 0xD7, 54),  # Hangul
    (0xD8, 0xDF, 90),  # each half of what is beyond: emoji
    (0xFB, 0xFE, 120),
    (0xFF, 0xFF, 90),  # full and half width forms
)
# What no spaces divide is no text in any language, but base64 or the like: two characters a token.
_SOLID_EXTRA = 17
_SOLID_MIN_CHARS = 32
# A small letter: no character of a text weighs less.
_LIGHTEST = 15
# Of a character of which nothing is known.
_USUAL = 18
# How much is weighed at a time, to see where a text has to end.
_STEP_CHARS = 4096
_SAMPLE_CHARS = 400


def _table(weights: tuple[tuple[int, int, int], ...]) -> bytes:
    """One weight for each byte; later lines go over earlier ones."""
    table = bytearray(256)
    for first, last, weight in weights:
        table[first : last + 1] = bytes([weight]) * (last + 1 - first)
    return bytes(table)


_WEIGHT_OF_LETTER = _table(_LETTERS)
_WEIGHT_OF_BLOCK = _table(_BLOCKS)
_IS_SOLID = bytes(b"x"[0] if (chr(n).isalnum() and n < 128) or n in b"+/" else b" "[0] for n in range(256))


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Scale(Struct, frozen=True):
    """What a budget is counted in: characters for a caller that says how many a token has, else weights of ours."""

    chars_per_token: float | None = None

    def budget(self, tokens: int) -> int:
        return int(tokens * (self.chars_per_token or _TOKEN))

    def tokens(self, weight: int) -> int:
        return math.ceil(weight / (self.chars_per_token or _TOKEN))

    def estimate_tokens(self, text: str, chars: int | None = None) -> int:
        """Of a text; or, with `chars`, of one that is so long and of which `text` is a part."""
        if chars is None:
            return self.tokens(self.weigh(text))
        if self.chars_per_token is not None:
            return self.tokens(chars)
        sample = text[:_SAMPLE_CHARS]
        return self.tokens(math.ceil(chars * (self.weigh(sample) / len(sample) if sample else _USUAL)))

    def weigh(self, text: str) -> int:
        """A text inside an answer. It goes over the wire as JSON, in which a line break is two characters."""
        return _weight(json_text(text)[1:-1]) if self.chars_per_token is None else len(text)

    def weigh_json(self, value: Any) -> int:
        text = json_text(value)
        return _weight(text) if self.chars_per_token is None else len(text)

    def most_chars(self, weight: int) -> int:
        """Of any text that weighs so much."""
        return weight // _LIGHTEST if self.chars_per_token is None else weight

    def fitting(self, text: str, room: int, start: int = 0) -> int:
        """How many characters fit, from `start` on. No more is looked at than fits, however long the text."""
        if self.chars_per_token is not None:
            return clamp(room, 0, len(text) - start)
        end = start
        while end < len(text):
            step = text[end : end + _STEP_CHARS]
            weight = self.weigh(step)
            if weight > room:
                return end + self._beginning(step, room) - start
            end, room = end + len(step), room - weight
        return len(text) - start

    def _beginning(self, text: str, room: int) -> int:
        """How many characters fit of a text that does not."""
        return bisect_right(range(1, len(text)), room, key=lambda chars: self.weigh(text[:chars]))

    def fitting_before(self, text: str, room: int, end: int) -> int:
        """The same, counted back from `end`."""
        return self.fitting(text[max(0, end - self.most_chars(room)) : end][::-1], room)


def _weight(text: str) -> int:
    latin = text.encode("latin-1", "ignore")
    weight = sum(latin.translate(_WEIGHT_OF_LETTER)) + _SOLID_EXTRA * _solid_chars(latin)
    if len(latin) < len(text):
        weight += sum(text.encode("utf-16-be")[::2].translate(_WEIGHT_OF_BLOCK))
    return weight


def _solid_chars(latin: bytes) -> int:
    kinds = latin.translate(_IS_SOLID)
    if b"x" * _SOLID_MIN_CHARS not in kinds:
        return 0
    return sum(len(run) for run in kinds.split() if len(run) >= _SOLID_MIN_CHARS)
