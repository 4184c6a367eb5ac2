"""How much of some texts is in other languages than English: `auto` chooses a model by it."""

import re
from collections.abc import Iterable

from sources.text.folding import fold, is_vietnamese
from sources.text.segmentation import UNSPACED_RUN
from sources.text.stemming import STOPWORDS

# Enough of a text to recognise its language, and fewer words than which say nothing.
_TEXT_MAX_CHARS = 1_000
_WORDS_MIN = 5
# Of English prose, 30 to 50 % are words of the list; of German, 4 %, because of "in", "an" and "so".
_ENGLISH_MIN = 0.15
# Lists, tables and code have few of these words, too. They are in another language only if that can be seen: by
# letters, or by frequent words of languages that are written with few accents.
_LETTERS_MIN = 0.01
_FUNCTION_WORDS_MIN = 0.08
_FUNCTION_WORDS = frozenset({
    "che", "dan", "das", "de", "del", "der", "di", "die", "een", "ein", "el", "en", "er", "et", "het", "il", "ist",
    "la", "las", "le", "les", "los", "na", "nicht", "nie", "och", "og", "op", "que", "som", "un", "una", "und", "van",
    "voor", "yang", "zu",
})  # fmt: skip
_FOREIGN_LETTER = re.compile("[^\\W\\d_a-zA-Z]")
# Greek, Armenian, Hebrew, Georgian and the scripts of India: `multilingual` does not know these languages.
_UNKNOWN_LETTER = re.compile("[\u0370-\u03ff\u0530-\u05ff\u0900-\u0dff\u10a0-\u10ff]")


def foreign_share(texts: Iterable[str]) -> float:
    """Returns the share of the texts, by their length, that is in another language than English which `multilingual`
    knows. Texts whose language cannot be told do not count."""
    foreign = total = 0
    for text in (text[:_TEXT_MAX_CHARS] for text in texts):
        unspaced = sum(map(len, UNSPACED_RUN.findall(text)))
        words = fold(text).split()
        if len(words) < _WORDS_MIN and 2 * unspaced < len(text):
            continue
        total += len(text)
        if 2 * unspaced >= len(text) or _is_foreign(text, words):
            foreign += len(text)
    return foreign / total if total else 0.0


def _is_foreign(text: str, words: list[str]) -> bool:
    """Whether a text in a script with spaces is."""
    if sum(word in STOPWORDS for word in words) >= _ENGLISH_MIN * len(words) or is_vietnamese(text):
        return False
    letters, unknown = len(_FOREIGN_LETTER.findall(text)), len(_UNKNOWN_LETTER.findall(text))
    if 2 * unknown > letters:
        return False
    is_seen = sum(word in _FUNCTION_WORDS for word in words) >= _FUNCTION_WORDS_MIN * len(words)
    return is_seen or letters >= _LETTERS_MIN * len(text)
