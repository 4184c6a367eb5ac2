"""Case, accent and letter-form folding, the same for documents and queries.

A folded text holds lower-case letters and digits of any script, and spaces for everything else. `fold` accepts any
text and never raises.
"""

import re
from codecs import charmap_build, charmap_decode, charmap_encode
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal
from unicodedata import category, combining, decimal, is_normalized, normalize

from msgspec import Struct

# -- blocks of characters ----------------------------------------------------------------------------------------------
# Most texts have no characters of some blocks of 256 characters. The upper bytes of all characters tell that in a third
# to a tenth of the time of a regular expression that finds none. Surrogates represent the characters beyond U+FFFF.


def blocks_except(*blocks: int) -> bytes:
    """Returns the numbers of all blocks but these, for `may_have`."""
    return bytes(block for block in range(256) if block not in blocks)


def may_have(text: str, other_blocks: bytes) -> bool:
    """Returns whether a text has characters of any block that is not among `other_blocks`."""
    return bool(text.encode("utf-16-be", "surrogatepass")[::2].translate(None, other_blocks))


# -- characters --------------------------------------------------------------------------------------------------------

_LETTER_FORMS = {
    "ı": "i", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ё": "е", "ς": "σ",
    "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه",
    "™": " ", "℠": " ",  # NFKC would glue "tm" to the name before it
}  # fmt: skip

# Removed without splitting the word: combining marks and vowel points that writers may omit, joiners, variation
# selectors, the soft hyphen.
IGNORABLE = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u0640\u200b-\u200f\u2060\ufeff\u00ad\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
# The ignorable characters of two blocks that nearly every text uses, and the numbers of all blocks without any others.
_COMMON_IGNORABLE = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060"
_NOT_IGNORABLE = blocks_except(0x03, 0x05, 0x06, 0xDB, 0xFE)
_EMOJI = re.compile("[\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff]")
_ACCENTED_SCRIPTS = re.compile("[a-zα-ω]")


def _fold_character(character: str) -> str:
    """Returns what one character contributes to a token, or a space if it ends the token."""
    if IGNORABLE.match(character):
        return ""
    if character in _LETTER_FORMS:
        return _LETTER_FORMS[character]
    folded = "".join(_fold_letter(part) for part in normalize("NFKC", character).casefold())
    return " " if folded.isspace() else folded or " "


def _fold_letter(letter: str) -> str:
    if IGNORABLE.match(letter):
        return ""
    letter = _LETTER_FORMS.get(letter, letter)
    base = normalize("NFD", letter)
    # Only Latin and Greek lose their accents: й is a letter of its own and not an accented и; likewise が and か.
    if len(base) > 1 and _ACCENTED_SCRIPTS.match(base):
        return IGNORABLE.sub("", base)
    kind = category(letter[0])
    if kind == "Nd":
        return str(decimal(letter))
    # The Unicode tables of Python may be older than an ideograph, which FTS5 indexes nevertheless.
    is_letter = kind[0] in "LN" or kind in {"Co", "Mn", "Mc"} or "\U00020000" <= letter <= "\U0003134f"
    return letter if is_letter else " "


# When and how `fold_by_table` encodes a text. A language has some 100 letters, capitals and punctuation included.
_LONG_TEXT_CHARS = 128
_BEGINNING_CHARS = 48
_ALPHABET_MAX_LETTERS = 255
_ALPHABET_ATTEMPTS = 6
_ENCODABLE_END = "\ufffe"
# A letter that tells which alphabet a text is written in: not Latin, except for that of Vietnamese.
_FOREIGN_LETTER = re.compile("[\u0250-\u1fff\u2c00-\ufffd]")


class _Alphabet(Struct, frozen=True):
    """A one-byte encoding of letters that each fold to one character: as `codecs` encodes them, and folded, by byte."""

    letters: str
    encoding: Any
    folded: Any  # a str, which typeshed does not know that `charmap_decode` takes


class _FoldingTable(dict[int, str]):
    """A `str.translate` table filled on demand. Its size is bounded because a hostile text may hold every code
    point."""

    limit = 16_384

    def __init__(self) -> None:
        super().__init__()
        self.alphabets: dict[int, _Alphabet] = {}  # by the block of 256 characters of a text's first foreign letter

    def learn_alphabet(self, block: int, letters: str) -> _Alphabet:
        """Adds letters to the alphabet of a block, or starts a new one if it has no room for them."""
        known = self.alphabets.get(block)
        extended = "".join(dict.fromkeys((known.letters if known else "\0") + letters))
        # The encoding is only fast if its first character is NUL.
        learned = extended if len(extended) <= _ALPHABET_MAX_LETTERS + 1 else "\0" + letters.replace("\0", "")
        alphabet = _Alphabet(learned, charmap_build(learned), learned.translate(self))
        self.alphabets[block] = alphabet
        return alphabet

    def __missing__(self, code: int) -> str:
        folded = self.fold(chr(code))
        if len(self) < self.limit:
            self[code] = folded
        return folded

    def fold(self, character: str) -> str:
        return _fold_character(character)


class _IndexFoldingTable(_FoldingTable):
    """Folds emoji to words as well, so that an engine that indexes only letters can find them."""

    def fold(self, character: str) -> str:
        return f" u{ord(character):x}x " if _EMOJI.match(character) else _fold_character(character)


FOLDING = _FoldingTable()
INDEX_FOLDING = _IndexFoldingTable()

# Latin-1 letters that fold to one letter go through bytes.translate, about twenty times faster than str.translate.
# `_NOT_BYTEWISE` finds what bytes.translate cannot do: characters that fold to several characters or to none, and every
# letter beyond Latin-1. Punctuation beyond Latin-1 (dashes, curly quotes) is encoded as "?" and so becomes a space,
# which is exactly its fold.
_LATIN1 = [FOLDING[code] for code in range(256)]
FOLDED_BYTES = "".join(folded if len(folded) == 1 else " " for folded in _LATIN1).encode("latin-1", "replace")
_SINGLE_LATIN1 = "\xa0-\xa9\xab\xac\xae-\xb4\xb6-\xbb\xbf-\xc5\xc7-\xdd\xe0-\xe5\xe7-\xfd\xff"
_PUNCTUATION = (
    "\u2000-\u200a\u2010-\u205f\u20a0-\u20a7\u20a9-\u20cf\u2200-\u22ff\u2500-\u259f\u3000-\u3003\u3008-\u3020"
)
_NOT_BYTEWISE = re.compile(f"[^{_SINGLE_LATIN1}{_PUNCTUATION}]")
_ASCII = bytes(range(128))
# The letters of Western languages that fold to two, which is most of what keeps their texts from folding bytewise.
_LIGATURES = "ßæœÆŒ"
# Texts are joined with NUL, which no stored text contains. Folded, it is a line break: a word that no term matches.
_JOINED_BYTES = b"\n" + FOLDED_BYTES[1:]
_SEPARATOR = " \n "
_SEPARATOR_CHARS = len(_SEPARATOR)
JoinedForms = tuple[str, list[int]]
# The bytes of folded texts in UTF-8, also of joined ones: the only characters of ASCII in them, and those of all other
# letters, except the first bytes of the rest of Latin-1, and of U+2000 to U+2FFF, where punctuation is.
_FOLDED_UTF8 = b"abcdefghijklmnopqrstuvwxyz0123456789 \0" + bytes(set(range(0x80, 256)) - {0xC2, 0xC3, 0xE2})
# Characters that NFKC turns into letters of unspaced scripts, or merges with a neighbor: ﾃﾞ, ㍻, the Thai am.
_COMPATIBILITY = re.compile(
    "[\u0e33\u0eb3\u2e80-\u2fdf\u309b\u309c\u309f\u30ff\u3130-\u318f\u3200-\u33ff\uff66-\uffdc]"
)
_NOT_COMPATIBILITY = blocks_except(0x0E, 0x2E, 0x2F, 0x30, 0x31, 0x32, 0x33, 0xFF)


def folds_bytewise(text: str) -> bool:
    """Returns whether `fold_bytewise` gives the fold of this text: each character folds to one Latin-1 character."""
    if text.isascii():
        return True
    # The beginning tells it for most texts in another script.
    for part in (text[:_BEGINNING_CHARS], text) if len(text) > _LONG_TEXT_CHARS else (text,):
        # Only the non-ASCII characters; searching these is seven times faster than searching the whole text.
        if _NOT_BYTEWISE.search(part.encode("utf-8", "replace").translate(None, _ASCII).decode()):
            return False
    return True


def fold_bytewise(text: str) -> str:
    """Folds character by character, so that offsets in the text stay valid in the result."""
    return text.encode("latin-1", "replace").translate(FOLDED_BYTES).decode("latin-1")


def fold(text: str) -> str:
    """Returns the text as lower-case unaccented letters, digits and spaces. Unspaced scripts are not split."""
    if text.isascii():
        return text.encode().translate(FOLDED_BYTES).decode("latin-1")
    return _fold_word(text) if len(text) <= _WORD_MAX_CHARS else _fold(text)


def _fold(text: str) -> str:
    return fold_bytewise(text) if folds_bytewise(text) else fold_by_table(compose(text), FOLDING)


# A query needs the fold of each of its words several times.
_fold_word = lru_cache(maxsize=4_096)(_fold)
_WORD_MAX_CHARS = 128


def fold_joined(texts: Sequence[str]) -> JoinedForms:
    """Folds several stored texts and joins them as `join_forms` does. A stored text `folds_bytewise`, or is an index
    form, which is folded already; a context may consist of both.

    Folding all of them at once is several times faster than one after the other.
    """
    joined = " \0 ".join(texts)
    if not joined.isascii():
        if _is_index_form(joined):
            return join_forms(texts)
        if not folds_bytewise(joined):
            return join_forms([text if _is_index_form(text) else fold(text) for text in texts])
    starts = accumulate(map(_SEPARATOR_CHARS.__add__, map(len, texts)), initial=0)
    return f" {joined.encode('latin-1', 'replace').translate(_JOINED_BYTES).decode('latin-1')} ", list(starts)


def join_forms(forms: Sequence[str]) -> JoinedForms:
    """Joins folded texts with the word `\\n`, which no term matches, so that no phrase matches across texts. Every word
    has a space on both sides. Also returns where the space before each text is, and where one before a further text
    would be."""
    starts = accumulate(map(_SEPARATOR_CHARS.__add__, map(len, forms)), initial=0)
    return f" {_SEPARATOR.join(forms)} ", list(starts)


def _is_index_form(text: str) -> bool:
    """Returns whether a stored text contains nothing that `fold_bytewise` would change. May wrongly say no."""
    encoded = text.encode("utf-8", "replace")
    # The first bytes of U+3000 to U+303F, where punctuation is, too.
    return not encoded.translate(None, _FOLDED_UTF8) and b"\xe3\x80" not in encoded


def fold_by_table(text: str, table: "_FoldingTable") -> str:
    """Folds any text. A long text goes through a one-byte encoding of its letters, which is ten times faster than
    translating it character by character."""
    if len(text) < _LONG_TEXT_CHARS:
        return text.translate(table)
    for ligature in _LIGATURES:
        if ligature in text:
            text = text.replace(ligature, table[ord(ligature)])
    if folds_bytewise(text):
        return fold_bytewise(text)
    for _ in range(_ALPHABET_ATTEMPTS):
        encoded = _encode_letters(text, table)
        if not isinstance(encoded, str):
            return charmap_decode(encoded[0], "strict", encoded[1].folded)[0]
        if not encoded:
            break
        text = text.replace(encoded, table[ord(encoded)])  # the same in the end, because folding is idempotent
    return text.translate(table)


def _encode_letters(text: str, table: "_FoldingTable") -> "tuple[bytes, _Alphabet] | str":
    """Encodes a text whose characters each fold to one. Otherwise returns a character that does not, or an empty text
    if it has too many letters."""
    letter = _FOREIGN_LETTER.search(text)
    block = ord(letter[0]) >> 8 if letter else 0
    for _ in range(_ALPHABET_ATTEMPTS):
        alphabet = table.alphabets.get(block) or table.learn_alphabet(block, "\0")
        try:
            encoded, _ = charmap_encode(text, "strict", alphabet.encoding)
        except UnicodeEncodeError as error:
            unknown = text[error.start]
            if len(table[ord(unknown)]) != 1 or unknown >= _ENCODABLE_END:
                return unknown
            letters = {one for one in set(text) if one < _ENCODABLE_END and len(table[ord(one)]) == 1}
            if len(letters) > _ALPHABET_MAX_LETTERS:
                break
            table.learn_alphabet(block, "".join(letters))
        else:
            return encoded, alphabet
    return ""


def without_ignorable(text: str) -> str:
    """Removes the characters that are ignored within a word."""
    for character in _COMMON_IGNORABLE:
        if character in text:
            text = text.replace(character, "")
    return IGNORABLE.sub("", text) if may_have(text, _NOT_IGNORABLE) and not folds_singly(text) else text


def fold_to_lower_case(text: str) -> str:
    """Folds a text for which `folds_to_lower_case` is true, character by character."""
    folded = text.lower()
    for mark in set(_PUNCTUATION_MARK.findall(folded)):
        folded = folded.replace(mark, " ")
    return folded


def compose(text: str) -> str:
    """Gives letters that can be written with or without combining characters one spelling."""
    form = composition_form(text)
    if form == "NFKC":
        # Often the Thai and Lao am are the only such characters; `normalize` is ten times faster without them.
        text = text.replace("\u0e33", "\u0e4d\u0e32").replace("\u0eb3", "\u0ecd\u0eb2")
    if len(text) > _LONG_TEXT_CHARS:
        # Nothing is composed across a space. `normalize` is fast for lines and words that it need not change.
        by_word = _INDIAN_LETTER.search(text, 0, _BEGINNING_CHARS) is not None
        composed = "\n".join(
            [
                line
                if not by_word and is_normalized(form, line)
                else " ".join([normalize(form, word) for word in line.split(" ")])
                for line in text.split("\n")
            ]
        )
    else:
        composed = normalize(form, text)
    return text if composed == text else composed  # the same object, for a fast comparison


# The scripts of India, in which some letters are composed in most lines: it takes long to find out whether a line is
# normalized.
_INDIAN_LETTER = re.compile("[\u0900-\u0dff]")


def composition_form(text: str) -> Literal["NFC", "NFKC"]:
    """Returns the Unicode normalization form that `compose` uses for a text."""
    may_be = len(text) < _LONG_TEXT_CHARS or may_have(text, _NOT_COMPATIBILITY)
    return "NFKC" if may_be and _COMPATIBILITY.search(text) else "NFC"


# Contains every character whose fold is not exactly one character, and a few others.
_NOT_SINGLE = re.compile(
    "[\u00ad\u00bc-\u00be\u00c6\u00de\u00df\u00e6\u00fe\u0132\u0133\u013f\u0140\u0149\u0152\u0153\u01c4-\u01cc\u01f1-\u01f3"
    "\u0300-\u037a\u0587-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670-\u0678\u06d6-\u06dc\u0958-\u095f\u09dc-\u09df"
    "\u0a33-\u0a36\u0a59-\u0a5e\u0b5c\u0b5d\u0e33\u0eb3\u0edc\u0edd\u0f43-\u0fb9\u1d2d\u1e9a-\u1e9e\u1f80-\u200f\u2060"
    "\u20a8\u2100-\u2189\u2469-\u24b5\u309b-\u309f\u30ff\u3200-\u33ff\ua7f9\ufb00-\ufb4f\ufbdd-\ufdff\ufe00-\ufe0f"
    "\ufef5-\ufeff\U00010783\U0001d15e-\U0001d1c0\U0001f100-\U0001f248\U000e0100-\U000e01ef]"
)
# Letters that fold to their lower case, and punctuation, all in composed form: most of Russian, Hebrew, Chinese,
# Japanese and Korean.
_LOWERCASE_ONLY = re.compile(
    "[\0-\x7f\u00a0-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u0400\u0402-\u0450\u0452-\u045f\u05be"
    "\u05d0-\u05ea\u2010-\u2027\u2030-\u205e\u2500-\u259f\u3000-\u3003\u3005-\u3020\u3041-\u3096\u309d\u309e"
    "\u30a1-\u30fe\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]*"
)


# The punctuation among them, except the space.
_PUNCTUATION_MARK = re.compile(
    "[\0-\x1f!-/:-@\\[-`{-\x7f\u00a0-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u05be\u2010-\u2027"
    "\u2030-\u205e\u2500-\u259f\u3000-\u3003\u3008-\u3020\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
)


def folds_to_single_characters(text: str) -> bool:
    """Returns whether each character folds to exactly one. May wrongly say no."""
    return folds_singly(text) or not _NOT_SINGLE.search(text)


def folds_singly(text: str) -> bool:
    """The same for long texts, several times faster: encoding a text proves it, and also that nothing in it is
    ignorable. Says no more often."""
    return len(text) >= _LONG_TEXT_CHARS and not isinstance(_encode_letters(text, INDEX_FOLDING), str)


def folds_to_lower_case(text: str) -> bool:
    """Returns whether each letter of a composed text folds to its lower case. May wrongly say no."""
    return _LOWERCASE_ONLY.fullmatch(text) is not None


# -- vietnamese --------------------------------------------------------------------------------------------------------
# Vietnamese words with their tone marks and accents.
#
# Folding removes all marks, which in Vietnamese are what tells words apart: ma, má, mà, mả, mã and mạ are six words.
# Texts that contain letters of Vietnamese only are therefore indexed with a second token for each word with marks,
# spelled with digits as on Vietnamese keyboards (VNI): tiếng is tieng and tie61ng.

# Letters of no other language that is written with Latin letters: ơ and ư, and vowels with two marks or a dot below.
_VIETNAMESE = re.compile("[\u01a0\u01a1\u01af\u01b0\u1ea0-\u1ef9]")
_NOT_VIETNAMESE = blocks_except(0x01, 0x1E)
# Most words have marks. Those of ASCII letters alone are left out here, which is faster than looking at each.
_MARKED_WORD = re.compile(r"(?<![^\W\d_])[a-zA-Z]*[^\W\d_a-zA-Z][^\W\d_]*")
_DIGITS = str.maketrans(
    {"\u0301": "1", "\u0300": "2", "\u0309": "3", "\u0303": "4", "\u0323": "5", "\u0302": "6", "\u031b": "7"}
    | {"\u0306": "8", "đ": "d9"}
)


def is_vietnamese(text: str) -> bool:
    """Returns whether a composed text contains letters that only Vietnamese has."""
    may_be = not text.isascii() and (len(text) < _LONG_TEXT_CHARS or may_have(text, _NOT_VIETNAMESE))
    return may_be and _VIETNAMESE.search(text) is not None


def tone_words(text: str) -> list[tuple[int, int, str]]:
    """Returns the start, the end and the token of each word with marks in a composed Vietnamese text."""
    if not is_vietnamese(text):
        return []
    return [(*match.span(), token) for match in _MARKED_WORD.finditer(text) if (token := tone_token(match[0]))]


def tone_token(word: str) -> str | None:
    """Returns the token of a word with its marks, or None if it has none, or other ones than Vietnamese has."""
    if word.isascii():
        return None
    return _known_tone_token(word) if len(word) <= _SYLLABLE_MAX_CHARS else _tone_token(word)


def _tone_token(word: str) -> str | None:
    token = normalize("NFD", word.lower()).translate(_DIGITS)
    return token if token.isascii() and token.isalnum() else None


# Vietnamese has some 6,000 written syllables. Without this, a snippet of a text takes more than twice as long.
_known_tone_token = lru_cache(maxsize=8_192)(_tone_token)
_SYLLABLE_MAX_CHARS = 16


def tone_tokens(text: str) -> list[str]:
    """Returns the tokens of the words with marks in a composed Vietnamese text."""
    return [token for _, _, token in tone_words(text)]


# -- graphemes ---------------------------------------------------------------------------------------------------------
# Grapheme boundaries: the positions at which a text can be cut without splitting a character as the reader sees it.

# No letter has more marks than this (Unicode's stream-safe format allows 30); longer sequences are cut anyway.
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


def grapheme_boundary_before(text: str, index: int) -> int:
    """Returns the last boundary at or before `index`."""
    for position in range(index, max(0, index - _GRAPHEME_MAX_CHARS), -1):
        if is_grapheme_boundary(text, position):
            return position
    return 0 if index <= _GRAPHEME_MAX_CHARS else index


def grapheme_boundary_after(text: str, index: int) -> int:
    """Returns the first boundary at or after `index`."""
    for position in range(index, min(len(text), index + _GRAPHEME_MAX_CHARS)):
        if is_grapheme_boundary(text, position):
            return position
    return min(len(text), index + _GRAPHEME_MAX_CHARS)


def is_grapheme_boundary(text: str, index: int) -> bool:
    """Returns whether a text may be cut before the character at `index`.

    A simplified version of Unicode's extended grapheme clusters (UAX #29).
    """
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
        # Counts the regional letters right before `index`; each pair of them is a flag.
        earliest = max(0, index - _GRAPHEME_MAX_CHARS)
        start = index
        while start > earliest and _REGIONAL.match(text[start - 1]):
            start -= 1
        return (index - start) % 2 == 0
    return not (_HANGUL_INITIAL.match(before) and _HANGUL_FOLLOWING.match(after))
