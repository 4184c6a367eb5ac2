"""Text as the index sees it: folded tokens with spaces between them, the same for a document and a query.

`segment` makes every script searchable by an engine that only knows words: scripts written without spaces become
overlapping pairs, identifiers and emoji become words, accents and letter forms fold together. Everything here is a
function of its argument and none of it raises, whatever the text holds. It knows no engine and no language setting.
"""

import re
from array import array
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from unicodedata import category, decimal, is_normalized, normalize

# An index holds what `segment` made of a row. Raise this number whenever the same text gives other tokens: an engine
# that finds an older number in its file rebuilds, because FTS5 can only delete the tokens it was once given.
SEGMENT_VERSION = 1

# unicode61 splits at everything outside `categories`; without Mn and Mc the vowel signs of Hindi split its words.
TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"

# Words that say nothing of what is looked for. Not among them, though common: may (the month), won, us, go.
_STOPWORDS = """
    a about after again all also am an and any anyone anything are aren as at be because been before being below
    between both but by can could couldn did didn do does doesn doing don down during each either else ever every for
    from further get gets getting got had hadn has hasn have haven having he her here hers herself him himself his how
    however i if in into is isn it its itself just ll many me might more most much must my myself no nor not of off on
    once only or other our ours ourselves out over own please re same shall she should shouldn so some someone something
    such tell than that the their theirs them themselves then there these they this those through to too under until up
    upon ve very was wasn we were weren what when where whether which while who whom whose why will with within without
    would wouldn yes yet you your yours yourself
"""
STOPWORDS = frozenset(_STOPWORDS.split())

# -- folding -----------------------------------------------------------------------------------------------------------

_LETTER_FORMS = {
    "ı": "i", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ё": "е", "ς": "σ",
    "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه",
    "™": " ", "℠": " ",  # NFKC would glue "tm" to the name it stands after
}  # fmt: skip

# Deleted, not split at: points and vowels a writer may leave out, joiners, selectors, the soft hyphen.
_DELETED = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u0640\u200b-\u200f\u2060\ufeff\u00ad\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_EMOJI = re.compile("[\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001faff]")
_ACCENTED_SCRIPTS = re.compile("[a-zα-ω]")


def _fold_character(character: str) -> str:
    """What one character contributes to a token: letters and digits of any script, or a space where tokens end."""
    if _DELETED.match(character):
        return ""
    if character in _LETTER_FORMS:
        return _LETTER_FORMS[character]
    folded = "".join(_plain_letter(part) for part in normalize("NFKC", character).casefold())
    return " " if folded.isspace() else folded or " "


def _plain_letter(letter: str) -> str:
    if _DELETED.match(letter):
        return ""
    letter = _LETTER_FORMS.get(letter, letter)
    base = normalize("NFD", letter)
    # Only Latin and Greek lose their accents: й is not и with a mark, nor が a か.
    if len(base) > 1 and _ACCENTED_SCRIPTS.match(base):
        return _DELETED.sub("", base)
    kind = category(letter[0])
    if kind == "Nd":
        return str(decimal(letter))
    return letter if kind[0] in "LN" or kind in {"Co", "Mn", "Mc"} else " "


class _Folding(dict[int, str]):
    """`str.translate` table that fills itself; bounded, because a hostile text may hold every code point."""

    limit = 16_384

    def __missing__(self, code: int) -> str:
        folded = self.fold(chr(code))
        if len(self) < self.limit:
            self[code] = folded
        return folded

    def fold(self, character: str) -> str:
        return _fold_character(character)


class _IndexFolding(_Folding):
    """The same with emoji as words, so that an engine that indexes letters only can find them."""

    def fold(self, character: str) -> str:
        return f" u{ord(character):x}x " if _EMOJI.match(character) else _fold_character(character)


FOLDING = _Folding()
_INDEX_FOLDING = _IndexFolding()

# Latin-1 letters that fold to one letter are folded by bytes.translate, some twenty times faster than str.translate.
# `_WIDE` finds what that cannot do: characters that fold to several or to none, and every letter beyond Latin-1.
# Punctuation beyond Latin-1 (dashes, curly quotes) becomes "?" when encoded and so a space: exactly its fold.
_LATIN1 = [FOLDING[code] for code in range(256)]
_NARROW = "".join(folded if len(folded) == 1 else " " for folded in _LATIN1).encode("latin-1", "replace")
_EVEN_LATIN1 = "\xa0-\xa9\xab\xac\xae-\xb4\xb6-\xbb\xbf-\xc5\xc7-\xdd\xe0-\xe5\xe7-\xfd\xff"
_PUNCTUATION = (
    "\u2000-\u200a\u2010-\u205f\u20a0-\u20a7\u20a9-\u20cf\u2200-\u22ff\u2500-\u259f\u3000-\u3003\u3008-\u3020"
)
_WIDE = re.compile(f"[^{_EVEN_LATIN1}{_PUNCTUATION}]")
_ASCII = bytes(range(128))
# What NFKC turns into letters of unspaced scripts, or makes one letter of two: ﾃﾞ, ㍻, the Thai am.
_COMPATIBLE = re.compile("[\u0e33\u0eb3\u2e80-\u2fdf\u309b\u309c\u309f\u30ff\u3130-\u318f\u3200-\u33ff\uff66-\uffdc]")


def _beyond_ascii(text: str) -> str:
    """The characters of a text that are not ASCII; to look at these alone is seven times faster than at all."""
    return text.encode("utf-8", "replace").translate(None, _ASCII).decode()


def is_narrow(text: str) -> bool:
    """Whether `fold_narrow` may fold this text: nothing in it changes its length or lies beyond Latin-1's letters."""
    return text.isascii() or not _WIDE.search(_beyond_ascii(text))


def fold_narrow(text: str) -> str:
    """The fold of a narrow text, character for character, so that offsets stay what they were."""
    return text.encode("latin-1", "replace").translate(_NARROW).decode("latin-1")


# Whatever folds to more or less than one character is in here, and a few that do not.
_UNEVEN = re.compile(
    "[\u00ad\u00bc-\u00be\u00c6\u00de\u00df\u00e6\u00fe\u0132\u0133\u013f\u0140\u0149\u0152\u0153\u01c4-\u01cc\u01f1-\u01f3"
    "\u0300-\u037a\u0587-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670-\u0678\u06d6-\u06dc\u0958-\u095f\u09dc-\u09df"
    "\u0a33-\u0a36\u0a59-\u0a5e\u0b5c\u0b5d\u0e33\u0eb3\u0edc\u0edd\u0f43-\u0fb9\u1d2d\u1e9a-\u1e9e\u1f80-\u200f\u2060"
    "\u20a8\u2100-\u2189\u2469-\u24b5\u309b-\u309f\u30ff\u3200-\u33ff\ua7f9\ufb00-\ufb4f\ufbdd-\ufdff\ufe00-\ufe0f"
    "\ufef5-\ufeff\U00010783\U0001d15e-\U0001d1c0\U0001f100-\U0001f248\U000e0100-\U000e01ef]"
)
# What folds to its lower case, or is punctuation: most of what Russian, Hebrew, Chinese, Japanese and Korean hold.
_LEVEL = re.compile(
    "[\0-\x7f\u00a0-\u00a9\u00ab\u00ac\u00ae-\u00b1\u00b4\u00b6-\u00b8\u00bb\u00bf\u0400\u0402-\u0450\u0452-\u045f\u05be"
    "\u05d0-\u05ea\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u27bf\u3000-\u3003\u3005-\u3020\u3041-\u3096\u309d\u309e"
    "\u30a1-\u30fe\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
    "\U0001f300-\U0001f3fa\U0001f400-\U0001faff]*"
)


def is_even(text: str) -> bool:
    """Whether each character of a text folds to exactly one; sometimes no though yes would be right."""
    return not _UNEVEN.search(text)


def is_level(text: str) -> bool:
    """Whether the letters of a text fold to their lower case; sometimes no though yes would be right."""
    return _LEVEL.fullmatch(text) is not None


def fold(text: str) -> str:
    """Lower-case plain letters, digits and spaces; runs of unspaced scripts are left whole."""
    return fold_narrow(text) if is_narrow(text) else _compose(text).translate(FOLDING)


def _compose(text: str) -> str:
    """One spelling for letters that can be spelled as base and mark; the table folds the rest one by one."""
    if _COMPATIBLE.search(text):
        return normalize("NFKC", text)
    return text if is_normalized("NFC", text) else normalize("NFC", text)


# -- scripts without spaces --------------------------------------------------------------------------------------------

_DEPENDENT = (
    "\u0e31\u0e33-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb3-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064"
    "\u1067-\u106d\u1071-\u1074\u1082-\u108d\ua9e5\uaa7b-\uaa7d\u17b4-\u17d3\u17dd"
)
_UNSPACED = (
    "\u3005-\u3007\u3021-\u3029\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f\uac00-\ud7a3\u0e01-\u0e3a\u0e40-\u0e4e"
    "\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf\u1780-\u17d3\u17d7\u17dc\u17dd\u1000-\u103f\u1050-\u108f\ua9e0-\ua9ef"
    "\uaa60-\uaa7f"
)
RUN = re.compile(f"[{_UNSPACED}]+")
_RUNS_AND_GAPS = re.compile(f"([{_UNSPACED}]+)")
_UNIT = re.compile(f"[^{_DEPENDENT}][{_DEPENDENT}]*|[{_DEPENDENT}]+")
_HAS_DEPENDENT = re.compile(f"[{_DEPENDENT}]")


def units(run: str) -> list[str]:
    """The letters of a run, each with the vowels and tones that hang on it."""
    return _UNIT.findall(run) if _HAS_DEPENDENT.search(run) else list(run)


def pairs(run: str) -> list[str]:
    """The overlapping pairs of a run; a run of one unit has none."""
    return [first + second for first, second in pairwise(units(run))]


def _segment_wide(text: str) -> str:
    """Words folded, runs spread into tokens; the two alternate, so each kind is handled at once."""
    parts = _RUNS_AND_GAPS.split(text)
    parts[0::2] = [gap.translate(_INDEX_FOLDING) for gap in parts[0::2]]
    parts[1::2] = _spread(parts[1::2])
    return " ".join(parts)


def _spread(found: list[str]) -> list[str]:
    """Runs as their pairs and their last unit alone: by that one a one-letter word is found as a prefix."""
    if not found:
        return []
    joined = "\0" + "\0".join(found)
    if not _HAS_DEPENDENT.search(joined):
        return _spread_letters(joined)
    return [" ".join([*pairs(run), units(run)[-1]]) for run in found]


def _spread_letters(joined: str) -> list[str]:
    """The same for runs whose units are single letters, on an array: no Python step per letter, six times faster.

    Every letter is written with its successor and a space. A run so ends in its last letter and the NUL after it;
    the pair of the NUL before it and its first letter is cut off.
    """
    letters = array("I", joined.encode("utf-32-le"))
    spread = array("I", b"\x20\0\0\0") * (3 * len(letters))
    spread[0::3] = letters
    spread[1::3] = letters[1:] + array("I", b"\0\0\0\0")
    return [run[2:] for run in spread.tobytes().decode("utf-32-le").split("\0")[1::2]]


def words(text: str) -> list[str]:
    """The folded words of a text, without its runs of unspaced scripts."""
    return RUN.sub(" ", fold(text)).split()


def runs(text: str) -> list[str]:
    """The runs of unspaced scripts in a text, folded."""
    return RUN.findall(fold(text))


# -- identifiers -------------------------------------------------------------------------------------------------------

_DOUBLE_PLUS = re.compile(r"(?<![^\W_])([A-Za-z])\+\+(?!\+)")
_SHARP = re.compile(r"(?<![^\W_])([A-Za-z])#")
_DOTNET = re.compile(r"(?<!\.)\.net(?![^\W_])", re.IGNORECASE)
# The class of each ASCII character in one byte, to find "aB" with bytes.find instead of a regular expression.
_CLASSES = bytes(
    ord("A") if 65 <= code <= 90 else ord("a") if 97 <= code <= 122 else ord("0") if 48 <= code <= 57 else ord(" ")
    for code in range(256)
)
_CAMEL_PART = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
# Longer words with changing case are encoded data, whose parts would only fill the index.
_CAMEL_MAX_CHARS = 64


def _spell_identifiers(text: str) -> str:
    """C++, C# and .NET as words; the parts of camelCase words after everything else, where they break no phrase."""
    if "+" in text:
        text = _DOUBLE_PLUS.sub(r" \1plusplus ", text)
    if "#" in text:
        text = _SHARP.sub(r" \1sharp ", text)
    if ".n" in text or ".N" in text:
        text = _DOTNET.sub(" dotnet ", text)
    classes = text.encode("ascii", "replace").translate(_CLASSES)
    return " ".join([text, *_all_camel_parts(text, classes)]) if b"aA" in classes else text


def _all_camel_parts(text: str, classes: bytes) -> Iterator[str]:
    end = 0
    while (hump := classes.find(b"aA", end)) >= 0:
        start = classes.rfind(b" ", end, hump) + 1 or end
        end = classes.find(b" ", hump)
        end = len(text) if end < 0 else end
        if end - start <= _CAMEL_MAX_CHARS:
            yield from _CAMEL_PART.findall(text[start:end])


def camel_parts(word: str) -> list[str]:
    """The parts of one camelCase word, or nothing when it is not one."""
    classes = word.encode("ascii", "replace").translate(_CLASSES)
    if b"aA" not in classes or b" " in classes or len(word) > _CAMEL_MAX_CHARS:
        return []
    return _CAMEL_PART.findall(word)


# -- stemming ----------------------------------------------------------------------------------------------------------

# Porter's algorithm (1980) with the two rules he added later (bli, logi), as FTS5's `porter` runs it: words under
# three or over 64 bytes are left alone.
_STEM_MAX_BYTES = 64
_ENDINGS_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "logi": "log", "bli": "ble",
    "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate",
    "alism": "al", "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive",
    "biliti": "ble",
}  # fmt: skip
_ENDINGS_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_ENDINGS_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip
# The last letters of all endings that any step takes off or changes; every other word is its own stem.
_CHANGED_LAST = frozenset("cdegilmnrstuy")
_SHAPES = str.maketrans({chr(code): "v" if chr(code) in "aeiou" else "c" for code in range(128) if code != ord("y")})


@lru_cache(maxsize=32_768)
def stem(word: str) -> str:
    """The stem that FTS5's porter tokenizer gives a folded word; words of other alphabets are their own."""
    if not 3 <= len(word) <= _STEM_MAX_BYTES or word[-1] not in _CHANGED_LAST or not word.isascii():
        return word
    word = _drop_participle(_drop_plural(word))
    if word[-1] == "y" and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _swap_ending(word, _ENDINGS_2)
    word = _swap_ending(word, _ENDINGS_3)
    return _drop_final_letter(_drop_ending(word))


def _shape(word: str) -> str:
    """One letter per letter: v for a vowel, c for a consonant; y is a vowel after a consonant."""
    shape = word.translate(_SHAPES)
    while (at := shape.find("y")) >= 0:
        shape = f"{shape[:at]}{'v' if shape[at - 1 : at] == 'c' else 'c'}{shape[at + 1 :]}"
    return shape


def _measure(word: str) -> int:
    """Porter's m: how often a vowel is followed by a consonant."""
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """Porter's *o: consonant, vowel, consonant, the last not w, x or y."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _drop_plural(word: str) -> str:
    if not word.endswith("s") or word.endswith("ss"):
        return word
    if len(word) > 3 and word.endswith("ies"):
        return word[:-2]
    return word[:-2] if len(word) > 4 and word.endswith("sses") else word[:-1]


def _drop_participle(word: str) -> str:
    if len(word) > 3 and word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return _mend(rest) if "v" in _shape(rest) else word
    return word


def _mend(word: str) -> str:
    """What is left of a participle, as the verb is written: hop(p)ing, hop(e)d, conflat(e)d."""
    if len(word) > 2 and word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word[-1:] == word[-2:-1] and word[-1] not in "aeioulsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _swap_ending(word: str, endings: dict[str, str]) -> str:
    ending = _longest_ending(word, tuple(endings))
    if not ending:
        return word
    rest = word[: -len(ending)]
    return rest + endings[ending] if _measure(rest) else word


def _drop_ending(word: str) -> str:
    ending = _longest_ending(word, _ENDINGS_4)
    rest = word[: len(word) - len(ending)]
    if not ending or (ending == "ion" and rest[-1] not in "st"):
        return word
    return rest if _measure(rest) > 1 else word


def _longest_ending(word: str, endings: tuple[str, ...]) -> str:
    """Of those that leave something of the word; most words have none."""
    if not word.endswith(endings):
        return ""
    found = [ending for ending in endings if word.endswith(ending) and len(word) > len(ending)]
    return max(found, key=len, default="")


def _drop_final_letter(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


# -- the door ----------------------------------------------------------------------------------------------------------


def segment(text: str) -> str:
    """The tokens of a text, spaces between them: what is written to the index and what a query is made of."""
    if is_narrow(text):
        return fold_narrow(_spell_identifiers(text))
    # Composed first: the E of a decomposed É is not the capital of a camelCase word.
    return _segment_wide(_spell_identifiers(_DELETED.sub("", _compose(text))))


def tokens(text: str) -> list[str]:
    """The same as a list; an engine stems them, this does not."""
    return segment(text).split()


def content_stems(text: str) -> frozenset[str]:
    """The distinct stems of a text without its stop words: what a title is about."""
    return frozenset(stem(token) for token in tokens(text) if token not in STOPWORDS)
