"""English stemming with Porter's algorithm (1980), identical to FTS5's `porter` tokenizer.

Includes the two rules that Porter added later (bli, logi). Like FTS5, it leaves words of fewer than three or more than
64 bytes alone.
"""

from functools import lru_cache

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
    word = _remove_participle(_remove_plural(word))  # steps 1a and 1b
    if word[-1] == "y" and "v" in _letter_kinds(word[:-1]):
        word = word[:-1] + "i"
    word = _replace_ending(word, _STEP_2_ENDINGS)
    word = _replace_ending(word, _STEP_3_ENDINGS)
    return _remove_final_letter(_remove_ending(word))


def stem_prefix(root: str) -> str:
    """Returns the letters that every word with this stem begins with.

    That is the stem itself, except that its last letter may have been changed: happy and happi, shaping and shape,
    visibility and visibl.
    """
    shortest = 2 if root.endswith("i") else 3
    return root[:-1] if len(root) >= shortest and root.endswith(("i", "e", "bl")) else root


def _letter_kinds(word: str) -> str:
    """Returns v for each vowel and c for each consonant; y is a vowel after a consonant."""
    kinds = word.translate(_LETTER_KINDS)
    while (at := kinds.find("y")) >= 0:
        kinds = f"{kinds[:at]}{'v' if kinds[at - 1 : at] == 'c' else 'c'}{kinds[at + 1 :]}"
    return kinds


def _measure(word: str) -> int:
    """Porter's m: the number of vowels followed by a consonant."""
    return _letter_kinds(word).count("vc")


def _ends_with_short_syllable(word: str) -> bool:
    """Porter's *o: ends with consonant, vowel, consonant, where the last is not w, x or y."""
    return _letter_kinds(word).endswith("cvc") and word[-1] not in "wxy"


def _remove_plural(word: str) -> str:
    if not word.endswith("s") or word.endswith("ss"):
        return word
    if len(word) > 3 and word.endswith("ies"):
        return word[:-2]
    return word[:-2] if len(word) > 4 and word.endswith("sses") else word[:-1]


def _remove_participle(word: str) -> str:
    if len(word) > 3 and word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for ending in ("ed", "ing"):
        if word.endswith(ending):
            rest = word[: -len(ending)]
            return _restore_verb(rest) if "v" in _letter_kinds(rest) else word
    return word


def _restore_verb(word: str) -> str:
    """Restores the spelling of a verb whose ending was removed: hop(p)ing, hop(e)d, conflat(e)d."""
    if len(word) > 2 and word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word[-1:] == word[-2:-1] and word[-1] not in "aeioulsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_with_short_syllable(word) else word


def _replace_ending(word: str, endings: dict[str, str]) -> str:
    ending = _longest_ending(word, tuple(endings))
    if not ending:
        return word
    rest = word[: -len(ending)]
    return rest + endings[ending] if _measure(rest) else word


def _remove_ending(word: str) -> str:
    ending = _longest_ending(word, _STEP_4_ENDINGS)
    rest = word[: len(word) - len(ending)]
    if not ending or (ending == "ion" and rest[-1] not in "st"):
        return word
    return rest if _measure(rest) > 1 else word


def _longest_ending(word: str, endings: tuple[str, ...]) -> str:
    """Returns the longest ending that is shorter than the word, or "". Most words have none."""
    if not word.endswith(endings):
        return ""
    candidates = [ending for ending in endings if word.endswith(ending) and len(word) > len(ending)]
    return max(candidates, key=len, default="")


def _remove_final_letter(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_with_short_syllable(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


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
