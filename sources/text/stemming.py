"""English stemming with Porter's algorithm (1980), identical to FTS5's `porter` tokenizer.

Includes the two rules that Porter added later (bli, logi). Like FTS5, it leaves words of fewer than three or more than
64 bytes alone.
"""

from collections.abc import Iterable
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
    # Step 1a: plurals.
    if word.endswith("s") and not word.endswith("ss"):
        is_two = (len(word) > 3 and word.endswith("ies")) or (len(word) > 4 and word.endswith("sses"))
        word = word[:-2] if is_two else word[:-1]
    # Steps 1b and 1c.
    word = _remove_participle(word)
    if word[-1] == "y" and "v" in _letter_kinds(word[:-1]):
        word = word[:-1] + "i"
    # Steps 2 and 3: double endings such as -ization, then those such as -ative.
    for endings in (_STEP_2_ENDINGS, _STEP_3_ENDINGS):
        ending = _longest_ending(word, endings)
        rest = word[: len(word) - len(ending)]
        if ending and "vc" in _letter_kinds(rest):
            word = rest + endings[ending]
    # Step 4: single endings, from words that have more than one syllable without them.
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
    if not word.endswith(("ed", "ing")):
        return word
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
    """Returns the longest ending that is shorter than the word, or "". Most words have none."""
    longest = ""
    if word.endswith(tuple(endings)):
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
