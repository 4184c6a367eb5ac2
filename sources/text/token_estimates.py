"""Estimates the number of tokens in a text without a tokenizer.

Budgets are hard limits, so estimates err on the high side. A caller can instead specify how many characters a token
has.

Weights are in sixtieths of a token, so that they are integers and add up without rounding errors. The weights of media
are stored: if the tables below change, a migration has to set `media.text_weight` to NULL.
"""

import math
from bisect import bisect_right
from typing import Any
from zlib import adler32

import msgspec
from msgspec import Struct

from config.numbers import clamp

_TOKEN = 60
# Weights of Latin-1 characters. They were fitted to o200k_base so that 600 characters of prose, code, JSON, ids or
# numbers never have more tokens than estimated; English is then overestimated by a third. Ids and numbers have fewer
# than two characters per token, and tokenizers differ in how they split digits. A quotation mark of JSON forms one
# token with its comma or colon; one inside a text is preceded by a backslash.
_LATIN1_WEIGHTS = (
    (0x00, 0xFF, 90),  # accented letters; the default
    (0x00, 0x20, 20),  # space; control characters are escaped in JSON
    (0x21, 0x7E, 33),  # punctuation
    (ord("0"), ord("9"), 60),
    (ord("A"), ord("Z"), 36),
    (ord("a"), ord("z"), 15),
    (ord('"'), ord('"'), 9),
    (ord("\\"), ord("\\"), 54),
    (0x7F, 0x9F, 120),
)
# Weights per block of 256 characters (the upper byte in UTF-16), which roughly tells the script. Other scripts count a
# token for each of the three bytes of a character, the maximum for any byte-level tokenizer.
_BLOCK_WEIGHTS = (
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
    (0xD8, 0xDF, 90),  # each half of a surrogate pair: emoji
    (0xFB, 0xFE, 120),
    (0xFF, 0xFF, 90),  # full and half width forms
)
# Long runs of letters and digits without spaces are base64 or similar: two characters per token.
_ENCODED_EXTRA = 17
_ENCODED_MIN_CHARS = 32
# Weight of a lower-case letter: no character of a text weighs less.
_MIN_CHAR_WEIGHT = 15
# How much text is weighed at a time when looking for the position where a budget ends.
_STEP_CHARS = 4096
# So many weights, of at most 180 each, add up to less than 65,521, the modulus of Adler-32.
_SUM_BYTES = 360


def _table(weights: tuple[tuple[int, int, int], ...]) -> bytes:
    """Returns the weight of each byte value; later ranges override earlier ones."""
    table = bytearray(256)
    for first, last, weight in weights:
        table[first : last + 1] = bytes([weight]) * (last + 1 - first)
    return bytes(table)


_LATIN1_TABLE = _table(_LATIN1_WEIGHTS)
_NOT_ASCII = bytes(range(128, 256))
_BLOCK_TABLE = _table(_BLOCK_WEIGHTS)
_ENCODED_CHARS = bytes(b"x"[0] if (chr(n).isalnum() and n < 128) or n in b"+/" else b" "[0] for n in range(256))


_encode = msgspec.json.Encoder().encode


def json_text(value: Any) -> str:
    return _encode(value).decode()


class TokenScale(Struct, frozen=True):
    """The unit of a budget: characters if the caller specifies how many a token has, otherwise the weights above."""

    chars_per_token: float | None = None

    def budget(self, tokens: int) -> int:
        """Returns the weight of a number of tokens."""
        return int(tokens * (self.chars_per_token or _TOKEN))

    def tokens(self, weight: int) -> int:
        """Returns the number of tokens of a weight, rounded up."""
        return math.ceil(weight / (self.chars_per_token or _TOKEN))

    def tokens_of(self, weight: int, chars: int) -> int:
        """Returns the tokens of a text whose weight (by the default scale) and length are known."""
        return math.ceil(weight / _TOKEN) if self.chars_per_token is None else self.tokens(chars)

    def estimate_tokens(self, text: str) -> int:
        weight = _weight(_encode(text)[1:-1]) if self.chars_per_token is None else len(text)  # as in `weigh`
        return math.ceil(weight / (self.chars_per_token or _TOKEN))

    def weigh(self, text: str) -> int:
        """Returns the weight of a text in a response. Responses are JSON, in which a line break is two characters."""
        return _weight(_encode(text)[1:-1]) if self.chars_per_token is None else len(text)

    def weigh_json(self, value: Any) -> int:
        encoded = _encode(value)
        return _weight(encoded) if self.chars_per_token is None else len(encoded.decode())

    def max_chars(self, weight: int) -> int:
        """Returns the length that no text of this weight exceeds."""
        return weight // _MIN_CHAR_WEIGHT if self.chars_per_token is None else weight

    def count_fitting(self, text: str, room: int, start: int = 0) -> int:
        """Returns how many characters from `start` on fit into `room`. Reads little more than what fits."""
        if self.chars_per_token is not None:
            return clamp(room, 0, len(text) - start)
        end = start
        while end < len(text):
            step = text[end : end + _STEP_CHARS]
            weight = self.weigh(step)
            if weight > room:
                # How many characters fit of a text that does not fit as a whole.
                return end + bisect_right(range(1, len(step)), room, key=lambda chars: self.weigh(step[:chars])) - start
            end, room = end + len(step), room - weight
        return len(text) - start

    def count_fitting_before(self, text: str, room: int, end: int) -> int:
        """Returns how many characters right before `end` fit into `room`."""
        return self.count_fitting(text[max(0, end - self.max_chars(room)) : end][::-1], room)


def _weight(encoded: bytes) -> int:
    """Returns the weight of a text in UTF-8."""
    latin, blocks = encoded, b""
    if not encoded.isascii():
        text = encoded.decode()
        if b"\xc2" in encoded or b"\xc3" in encoded:
            latin = text.encode("latin-1", "ignore")
        else:
            latin = encoded.translate(None, _NOT_ASCII)  # the same if there are only letters of ASCII, but faster
        if len(latin) < len(text):
            blocks = text.encode("utf-16-be")[::2].translate(_BLOCK_TABLE)
    weight = 0
    # The lower half of Adler-32 is the sum of the bytes, and computing it is eight times as fast as `sum`.
    weights = latin.translate(_LATIN1_TABLE) + blocks
    for start in range(0, len(weights), _SUM_BYTES):
        weight += adler32(weights[start : start + _SUM_BYTES], 0) & 0xFFFF
    kinds = latin.translate(_ENCODED_CHARS)
    if b"x" * _ENCODED_MIN_CHARS in kinds:
        weight += _ENCODED_EXTRA * sum([len(run) for run in kinds.split() if len(run) >= _ENCODED_MIN_CHARS])
    return weight
