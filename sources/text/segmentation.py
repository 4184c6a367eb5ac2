"""The index form of a text: folded tokens separated by spaces, the same for documents and queries.

`segment` makes every script searchable by an engine that knows only words. Runs of scripts written without spaces
become overlapping pairs of letters, identifiers and emoji become words, accents and letter forms are folded. It accepts
any text, never raises, and depends on no engine and no language setting. `stem` is what the engine makes of a token.
"""

import re
from array import array
from collections.abc import Iterable
from functools import lru_cache
from operator import add
from unicodedata import normalize

from sources.text.folding import (
    FOLDED_BYTES,
    INDEX_FOLDING,
    blocks_except,
    compose,
    fold,
    fold_by_table,
    fold_to_lower_case,
    folds_bytewise,
    folds_to_lower_case,
    grapheme_boundary_before,
    may_have,
    tone_tokens,
    without_ignorable,
)

# -- identifiers -------------------------------------------------------------------------------------------------------
# Identifiers as searchable words: C++, C#, .NET and the parts of camelCase words.
#
# Functions that only look at ASCII characters take the text encoded as Latin-1, with `?` for every other character:
# bytes are searched faster, and offsets are the same.

Span = tuple[int, int]
Spelling = tuple[int, int, str]

# For each identifier a mark to look for, where the identifier starts relative to it, and the spelling after its letter.
_SPELLINGS = (
    (b"++", -1, re.compile(r"(?<![^\W_])([A-Za-z])\+\+(?!\+)"), "plusplus"),
    (b"#", -1, re.compile(r"(?<![^\W_])([A-Za-z])#"), "sharp"),
    (b".net", 0, re.compile(r"(?<!\.)\.net()(?![^\W_])", re.IGNORECASE), "dotnet"),
)
# Maps each character to its class (upper, lower, digit, other), so that bytes.find can find "aB" without a regular
# expression.
_CLASSES = bytes(
    ord("A") if 65 <= code <= 90 else ord("a") if 97 <= code <= 122 else ord("0") if 48 <= code <= 57 else ord(" ")
    for code in range(256)
)
_CAMEL_CASE_PART = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
# Longer words of mixed case are encoded data, whose parts would only bloat the index.
_CAMEL_CASE_MAX_CHARS = 64


def encode_latin1(text: str) -> bytes:
    return text.encode("latin-1", "replace")


def fold_identifiers(text: str) -> tuple[str, bytes, str, list[Spelling]]:
    """Spells the identifiers of a text that `folds_bytewise`. Returns it, encoded and folded, and the spellings."""
    encoded = text.encode("latin-1", "replace")
    folded = encoded.translate(FOLDED_BYTES).decode("latin-1")
    # Whether it may contain C++, C# or .NET: much faster than a search.
    if "+" in text or "#" in text or " net" in folded or folded[:3] == "net":
        spellings = identifier_spellings(text, encoded)
        if spellings:
            text = spell(text, spellings)
            encoded = encode_latin1(text)
            return text, encoded, encoded.translate(FOLDED_BYTES).decode("latin-1"), spellings
    return text, encoded, folded, []


def identifier_spellings(text: str, encoded: bytes) -> list[Spelling]:
    """Returns start, end and spelling of each C++, C# and .NET in a text."""
    lowered = encoded.lower()
    spellings: list[Spelling] = []
    for mark, offset, pattern, spelling in _SPELLINGS:
        position = lowered.find(mark)
        while position >= 0:
            match = pattern.match(text, position + offset) if position + offset >= 0 else None
            if match is not None:
                spellings.append((match.start(), match.end(), f" {match[1]}{spelling} "))
            position = lowered.find(mark, position + 1)
    spellings.sort()
    return spellings


def spell(text: str, spellings: Iterable[Spelling]) -> str:
    """Replaces each identifier with its spelling."""
    pieces: list[str] = []
    position = 0
    for start, end, spelling in spellings:
        pieces += (text[position:start], spelling)
        position = end
    return "".join([*pieces, text[position:]])


def camel_case_words(encoded: bytes) -> list[Span]:
    """Returns the start and end of each camelCase word."""
    classes = encoded.translate(_CLASSES)
    spans: list[Span] = []
    end = 0
    while (boundary := classes.find(b"aA", end)) >= 0:
        start = classes.rfind(b" ", end, boundary) + 1 or end
        end = classes.find(b" ", boundary)
        end = len(classes) if end < 0 else end
        if end - start <= _CAMEL_CASE_MAX_CHARS:
            spans.append((start, end))
    return spans


def has_camel_case(encoded: bytes) -> bool:
    """Returns whether a text may contain camelCase words."""
    classes = encoded.translate(_CLASSES)
    # In most texts, all capitals begin a word or the text. To find one byte or a space is much faster than to find two
    # bytes of which the first is in every word.
    return classes.replace(b" A", b"  ").find(b"A", 1) > 0 and b"aA" in classes


def all_camel_case_parts(text: str, words: Iterable[Span]) -> list[str]:
    """Returns the parts of camelCase words, in lower case."""
    return [part.lower() for start, end in words for part in _CAMEL_CASE_PART.findall(text, start, end)]


def camel_case_part_spans(text: str, words: Iterable[Span]) -> list[tuple[int, int, int]]:
    """Returns the start and end of each part of camelCase words, and the end of its word."""
    return [(*part.span(), word[1]) for word in words for part in _CAMEL_CASE_PART.finditer(text, *word)]


def camel_case_parts(word: str) -> list[str]:
    """Returns the parts of a camelCase word, or an empty list for any other text."""
    return _CAMEL_CASE_PART.findall(word) if camel_case_words(encode_latin1(word)) == [(0, len(word))] else []


# Indexes store what `segment` returns. Increment this whenever the same text gives different tokens: an engine that
# finds an older number in its file rebuilds, because FTS5 can only delete the exact tokens it was given.
SEGMENT_VERSION = 2

# unicode61 splits at every character outside `categories`; without Mn and Mc the vowel signs of Hindi split its words.
TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"

# Vowel signs and tone marks that belong to the letter before them.
_DEPENDENT = (
    "\u0e31\u0e33-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb3-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064"
    "\u1067-\u106d\u1071-\u1074\u1082-\u108d\ua9e5\uaa7b-\uaa7d\u17b4-\u17d3\u17dd"
)
UNSPACED = (
    "\u3005-\u3007\u3021-\u3029\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f\uac00-\ud7a3\u0e01-\u0e3a\u0e40-\u0e4e"
    "\u0e81-\u0ebd\u0ec0-\u0ecd\u0edc-\u0edf\u1780-\u17d3\u17d7\u17dc\u17dd\u1000-\u103f\u1050-\u108f\ua9e0-\ua9ef"
    "\uaa60-\uaa7f"
)
# The blocks of 256 characters that contain letters of unspaced scripts; surrogates represent those beyond U+FFFF.
_SPACED = blocks_except(0x0E, 0x10, 0x17, *range(0x30, 0x32), *range(0x34, 0xA0), *range(0xA9, 0xDC), 0xF9, 0xFA)
UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")
_RUNS_AND_GAPS = re.compile(f"([{UNSPACED}]+)")
_CLUSTER = re.compile(f".[{_DEPENDENT}]*", re.DOTALL)
_HAS_DEPENDENT = re.compile(f"[{_DEPENDENT}]")
# The same as a set: faster for the many single characters that highlighting looks at.
DEPENDENT_SIGNS = frozenset(
    chr(code)
    for first, last in re.findall("(.)(?:-(.))?", _DEPENDENT)
    for code in range(ord(first), ord(last or first) + 1)
)


def segment(text: str) -> str:
    """Returns the tokens of a text, separated by spaces, as they are indexed and searched.

    The parts of camelCase words and Vietnamese words with their marks are at its end, so that they break no phrase.
    """
    form, parts, tones = _form_and_tail(text)
    return " ".join([form, *parts, *tones]) if parts or tones else form


def tokenize(text: str) -> list[str]:
    """Returns the tokens of a text, not stemmed: the engine does that. Vietnamese words are without their marks."""
    form, parts, _ = _form_and_tail(text)
    return [*form.split(), *parts]


def _form_and_tail(text: str) -> tuple[str, list[str], list[str]]:
    """Returns the index form, the parts of camelCase words, and Vietnamese words with their marks."""
    tones: list[str] = []
    # Soft hyphens are ignored, and one separates a text from its tags. Without them most Western text is plain.
    plain = text.replace("\u00ad", "") if "\u00ad" in text else text
    if folds_bytewise(plain):
        text, encoded, form, _ = fold_identifiers(plain)
    else:
        # Composed first: the E of a decomposed É is not the capital of a camelCase word.
        text = normalize_letters(text)
        tones = tone_tokens(text)
        text = spell(text, identifier_spellings(text, encode_latin1(text)))
        encoded = encode_latin1(text)
        form = " ".join(segment_parts(text)[1])
    if not has_camel_case(encoded):
        return form, [], tones
    return form, all_camel_case_parts(text, camel_case_words(encoded)), tones


def spaced_words(text: str) -> list[str]:
    """Returns the folded words of a text without its runs of unspaced scripts."""
    return UNSPACED_RUN.sub(" ", fold(text)).split()


def unspaced_runs(text: str) -> list[str]:
    """Returns the folded runs of unspaced scripts in a text."""
    return UNSPACED_RUN.findall(fold(text))


def letter_clusters(run: str) -> list[str]:
    """Returns the letters of an unspaced run, each with its vowel signs and tone marks."""
    return _CLUSTER.findall(run) if _HAS_DEPENDENT.search(run) else list(run)


def letter_pairs(run: str) -> list[str]:
    """Returns the overlapping pairs of letters of an unspaced run; none for a single letter."""
    clusters = letter_clusters(run)
    return list(map(add, clusters, clusters[1:]))


def has_dependent_sign(run: str) -> bool:
    """Returns whether a run contains vowel signs or tone marks that belong to the letter before them."""
    return _HAS_DEPENDENT.search(run) is not None


def normalize_letters(text: str) -> str:
    """Composes letters and removes ignorable characters."""
    return text if folds_to_lower_case(text) else without_ignorable(compose(text))


def segment_parts(text: str, *, splits_runs: bool = True) -> tuple[list[str], list[str]]:
    """Splits a text with normalized letters into parts and returns them as they are, or folded, and segmented.

    The parts are alternately text between unspaced runs, which may be empty, and runs.
    """
    if folds_to_lower_case(text):
        parts = _split_at_runs(fold_to_lower_case(text))
        segments = parts.copy()
    else:
        parts = _split_at_runs(text)
        segments = parts.copy()
        segments[0::2] = [fold_by_table(gap, INDEX_FOLDING) for gap in parts[0::2]]
    if splits_runs:
        segments[1::2] = _split_runs(parts[1::2])
    return parts, segments


def may_have_unspaced_letters(text: str) -> bool:
    """Returns whether a text has characters of the blocks of unspaced scripts."""
    return may_have(text, _SPACED)


def _split_at_runs(text: str) -> list[str]:
    return _RUNS_AND_GAPS.split(text) if may_have_unspaced_letters(text) else [text]


def _split_runs(runs: list[str]) -> list[str]:
    """Splits each run into its pairs and its last letter. The latter makes every letter the beginning of a token, so
    that a prefix search finds words of one letter."""
    if not runs:
        return []
    joined = "\0" + "\0".join(runs)
    if not _HAS_DEPENDENT.search(joined):
        # Splits runs without dependent signs on an array, which is six times faster than a loop over the letters.
        # Writes every letter with its successor and a space. Each run then ends with its last letter and the NUL that
        # follows; the pair made of the preceding NUL and the first letter is cut off.
        letters = array("I", joined.encode("utf-32-le"))
        spread = array("I", b"\x20\0\0\0") * (3 * len(letters))
        spread[0::3] = letters
        spread[1::3] = letters[1:] + array("I", b"\0\0\0\0")
        return [run[2:] for run in spread.tobytes().decode("utf-32-le").split("\0")[1::2]]
    return [_split_clusters(letter_clusters(run)) for run in runs]


def _split_clusters(clusters: list[str]) -> str:
    """Joins each cluster, its successor and a space: faster than building the pairs first."""
    pieces = [" "] * (3 * len(clusters))
    pieces[0::3] = clusters
    pieces[1::3] = [*clusters[1:], ""]
    return "".join(pieces)[:-1]


# -- word boundaries ---------------------------------------------------------------------------------------------------
# Positions at which a text is cut to fit a budget: between words if one ends nearby, otherwise between graphemes.

# How far a cut may move to keep a word whole; longer than the words of languages that use spaces.
_WORD_MAX_CHARS = 48


def word_boundary_before(text: str, position: int, start: int = 0) -> int:
    """Returns the last word boundary at or before `position`, but not before `start`.

    For a position past the end, that is the end of the text.
    """
    if position >= len(text):
        return len(text)
    for index in range(position, max(start, position - _WORD_MAX_CHARS), -1):
        if text[index].isspace() != text[index - 1].isspace():
            return index
    return max(start, grapheme_boundary_before(text, position))


def next_word_start(text: str, position: int) -> int:
    """Returns the first start of a word at or after `position`; if none is near, a grapheme boundary at or before
    it."""
    if position <= 0:
        return 0
    for index in range(position, min(len(text), position + _WORD_MAX_CHARS)):
        if text[index - 1].isspace() and not text[index].isspace():
            return index
    return grapheme_boundary_before(text, min(position, len(text)))


# -- literals ----------------------------------------------------------------------------------------------------------
# Literal comparison of texts: as they are written, except for case, white space and the composition of letters.

# A letter or digit. As in the index, an underscore separates words.
_WORD_CHARACTER = r"[^\W_]"


def literal_form(text: str) -> str:
    """Returns a text without the differences that a literal comparison ignores."""
    return " ".join(normalize("NFC", text).casefold().split())


def contains_literal(text: str, literal: str) -> bool:
    """Returns whether a text contains another one, given in its literal form, as whole words. In scripts without
    spaces, it may be part of a longer run."""
    return _pattern(literal).search(literal_form(text)) is not None


@lru_cache(maxsize=64)
def _pattern(literal: str) -> re.Pattern[str]:
    start = f"(?<!{_WORD_CHARACTER})" if _is_of_spaced_word(literal[:1]) else ""
    end = f"(?!{_WORD_CHARACTER})" if _is_of_spaced_word(literal[-1:]) else ""
    return re.compile(f"{start}{re.escape(literal)}{end}")


def _is_of_spaced_word(character: str) -> bool:
    return character.isalnum() and not UNSPACED_RUN.match(character)


# -- letter separation -------------------------------------------------------------------------------------------------
# Separates the letters of scripts that are written without spaces, for tokenizers that know only words.

# A zero-width space: it is part of no word, and invisible.
SEPARATOR = "\u200b"


def separate_letters(text: str) -> str:
    """Puts a separator before and after every letter of a script without spaces. A tokenizer then takes each letter for
    a word, and a word of several letters for a phrase, which is found inside running text."""
    if text.isascii() or not may_have_unspaced_letters(text):
        return text
    return UNSPACED_RUN.sub(lambda run: f"{SEPARATOR}{SEPARATOR.join(run[0])}{SEPARATOR}", text)


# -- stemming ----------------------------------------------------------------------------------------------------------
# English stemming with Porter's algorithm (1980), identical to FTS5's `porter` tokenizer.
#
# Includes the two rules that Porter added later (bli, logi). Like FTS5, it leaves words of fewer than three or more
# than 64 bytes alone.

_STEM_MAX_BYTES = 64
_STEP_2_ENDINGS = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "logi": "log", "bli": "ble",
    "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate",
    "alism": "al", "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive",
    "biliti": "ble",
}  # fmt: skip
_STEP_3_ENDINGS = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4_ENDINGS = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip
# Most words have none of the endings, which `str.endswith` tells at once.
_STEPS_2_AND_3 = tuple((endings, tuple(endings)) for endings in (_STEP_2_ENDINGS, _STEP_3_ENDINGS))
# The last letters of all endings that any step removes or changes; every other word is its own stem.
_LAST_LETTERS = frozenset("cdegilmnrstuy")
_LETTER_KINDS = str.maketrans(
    {chr(code): "v" if chr(code) in "aeiou" else "c" for code in range(256) if code != ord("y")}
)


@lru_cache(maxsize=32_768)
def stem(word: str) -> str:
    """Returns the stem that FTS5 gives a folded word. Words of other alphabets are returned unchanged, unless they end
    with Latin letters: FTS5 looks at bytes, and takes all others for consonants."""
    if not word or word[-1] not in _LAST_LETTERS:
        return word
    if not word.isascii():
        return _stem_bytes(word.encode().decode("latin-1")).encode("latin-1").decode()
    return _stem_bytes(word)


def _stem_bytes(word: str) -> str:
    """Each character of the word is a byte."""
    if not 3 <= len(word) <= _STEM_MAX_BYTES:
        return word
    # Step 1a: plurals.
    if word.endswith("s") and not word.endswith("ss"):
        is_two = (len(word) > 3 and word.endswith("ies")) or (len(word) > 4 and word.endswith("sses"))
        word = word[:-2] if is_two else word[:-1]
    # Steps 1b and 1c.
    if word.endswith(("ed", "ing")):
        word = _remove_participle(word)
    if word[-1] == "y" and "v" in _letter_kinds(word[:-1]):
        word = word[:-1] + "i"
    # Steps 2 and 3: double endings such as -ization, then those such as -ative.
    for replacements, endings in _STEPS_2_AND_3:
        if word.endswith(endings):
            ending = _longest_ending(word, endings)
            rest = word[: len(word) - len(ending)]
            if ending and "vc" in _letter_kinds(rest):
                word = rest + replacements[ending]
    # Step 4: single endings, from words that have more than one syllable without them.
    if word.endswith(_STEP_4_ENDINGS):
        ending = _longest_ending(word, _STEP_4_ENDINGS)
        rest = word[: len(word) - len(ending)]
        if ending and (ending != "ion" or rest[-1] in "st") and _letter_kinds(rest).count("vc") > 1:
            word = rest
    # Step 5: a final e, and one of two final l.
    if word.endswith("e"):
        kinds = _letter_kinds(word[:-1])
        measure = kinds.count("vc")
        if measure > 1 or (measure == 1 and not (kinds.endswith("cvc") and word[-2] not in "wxy")):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _letter_kinds(word[:-1]).count("vc") > 1 else word


def stem_prefix(root: str) -> str:
    """Returns the letters that every word with this stem begins with.

    That is the stem itself, except that its last letter may have been changed: happy and happi, shaping and shape,
    visibility and visibl.
    """
    shortest = 2 if root.endswith("i") else 3
    return root[:-1] if len(root) >= shortest and root.endswith(("i", "e", "bl")) else root


def _letter_kinds(word: str) -> str:
    """Returns v for each vowel and c for each consonant; y is a vowel after a consonant. Porter's m, the number of
    vowels followed by a consonant, is how often it contains "vc". His *o is that it ends with "cvc", where the last
    letter is not w, x or y."""
    kinds = word.translate(_LETTER_KINDS)
    while (at := kinds.find("y")) >= 0:
        kinds = f"{kinds[:at]}{'v' if kinds[at - 1 : at] == 'c' else 'c'}{kinds[at + 1 :]}"
    return kinds


def _remove_participle(word: str) -> str:
    """Removes -ed and -ing, and restores the spelling of the verb: hop(p)ing, hop(e)d, conflat(e)d."""
    if len(word) > 3 and word.endswith("eed"):
        return word[:-1] if "vc" in _letter_kinds(word[:-3]) else word
    verb = word[:-2] if word.endswith("ed") else word[:-3]
    kinds = _letter_kinds(verb)
    if "v" not in kinds:
        return word
    if len(verb) > 2 and verb.endswith(("at", "bl", "iz")):
        return verb + "e"
    if verb[-1:] == verb[-2:-1] and verb[-1] not in "aeioulsz":
        return verb[:-1]
    return verb + "e" if kinds.count("vc") == 1 and kinds.endswith("cvc") and verb[-1] not in "wxy" else verb


def _longest_ending(word: str, endings: Iterable[str]) -> str:
    """Returns the longest ending that is shorter than the word, or ""."""
    longest = ""
    for ending in endings:
        if len(longest) < len(ending) < len(word) and word.endswith(ending):
            longest = ending
    return longest


# -- stopwords ---------------------------------------------------------------------------------------------------------
# English words too common to tell texts apart.

# Common words left out on purpose: may (the month), won, us, go.
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

# Stop words of languages that are recognized by their letters, in their usual spelling. Arabic words that are a name in
# another spelling, such as the one for "on", are left out.
_FOREIGN_STOPWORDS = """
    في من إلى عن مع هو هي ما ماذا متى أين كيف كم هل الذي التي الذين هذا هذه ذلك تلك كان كانت أن إن أو ثم قد لا لم لن بين
    عند بعد قبل كل أي منذ حتى خلال لماذا وهو وهي يكون تكون تم
    में के की का को से है हैं और ने पर यह वह कि जो था थी थे हो एक इस उस क्या कौन कौनसा कब कहाँ कहां कैसे कितने कितना कितनी किस
    किसने किसे क्यों लिए साथ तक भी नहीं या तो ही गया गई गए किया करने करता करते करती होता होती होते रहा रही रहे द्वारा अपने अपनी
    अपना इन उन इसके उसके जिस जब तब बाद
    και το της του η ο οι τα τους τις να σε για με από τι ποιος ποια ποιο ποιον ποιες ποιοι που πού πότε πώς πόσο πόσα
    πόσες είναι ήταν στο στη στην στον στα στις στους των τον την τη έχει είχε ένα ένας μια ή δεν θα ως κατά
"""
FOREIGN_STOPWORDS = frozenset(_FOREIGN_STOPWORDS.split())
# Some of them are written like names and words of other languages, so they are for Vietnamese queries only.
_VIETNAMESE_STOPWORDS = """
    là của và những các được trong có cho một gì nào bao nhiêu ai khi ở đã với từ để về thì mà bởi vì như thế này đó sau
    trước trên dưới ra vào đến tại theo do bị hay hoặc cũng không phải đâu sao
"""
VIETNAMESE_STOPWORDS = frozenset(_VIETNAMESE_STOPWORDS.split())
# What a Thai question asks for, and "is". Longer words do not contain them.
THAI_STOPWORDS = re.compile(
    f"(?:อะไร|เท่าไหร่|เท่าไร|เท่าใด|อย่างไร|เมื่อไหร่|เมื่อไร|เมื่อใด|ที่ไหน|ทําไม|หรือไม่|ใคร|ไหน|ใด|คือ)(?![{_DEPENDENT}])"
)
