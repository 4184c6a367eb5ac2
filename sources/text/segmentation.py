"""The index form of a text: folded tokens separated by spaces, the same for documents and queries.

`segment` makes every script searchable by an engine that knows only words. Runs of scripts written without spaces
become overlapping pairs of letters, identifiers and emoji become words, accents and letter forms are folded. It accepts
any text, never raises, and depends on no engine and no language setting.
"""

import re
from array import array
from itertools import pairwise

from sources.text.folding import IGNORABLE, INDEX_FOLDING, compose, fold, fold_bytewise, folds_bytewise
from sources.text.identifiers import spell_identifiers

# Indexes store what `segment` returns. Increment this whenever the same text gives different tokens: an engine that
# finds an older number in its file rebuilds, because FTS5 can only delete the exact tokens it was given.
SEGMENT_VERSION = 1

# unicode61 splits at every character outside `categories`; without Mn and Mc the vowel signs of Hindi split its words.
TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"

# Vowel signs and tone marks that belong to the letter before them.
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
UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_RUNS_AND_GAPS = re.compile(f"([{_UNSPACED}]+)")
_CLUSTER = re.compile(f"[^{_DEPENDENT}][{_DEPENDENT}]*|[{_DEPENDENT}]+")
_HAS_DEPENDENT = re.compile(f"[{_DEPENDENT}]")


def segment(text: str) -> str:
    """Returns the tokens of a text, separated by spaces: the form that is indexed and that queries are made of."""
    if folds_bytewise(text):
        return fold_bytewise(spell_identifiers(text))
    # Composed first: the E of a decomposed É is not the capital of a camelCase word.
    return _segment_runs(spell_identifiers(IGNORABLE.sub("", compose(text))))


def tokenize(text: str) -> list[str]:
    """Returns the tokens of a text, not stemmed: the engine does that."""
    return segment(text).split()


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
    return [first + second for first, second in pairwise(letter_clusters(run))]


def _segment_runs(text: str) -> str:
    """Folds the words and splits the unspaced runs. The two alternate, so each kind is processed as a whole."""
    parts = _RUNS_AND_GAPS.split(text)
    parts[0::2] = [gap.translate(INDEX_FOLDING) for gap in parts[0::2]]
    parts[1::2] = _split_runs(parts[1::2])
    return " ".join(parts)


def _split_runs(runs: list[str]) -> list[str]:
    """Splits each run into its pairs and its last letter. The latter makes every letter the beginning of a token, so
    that a prefix search finds words of one letter."""
    if not runs:
        return []
    joined = "\0" + "\0".join(runs)
    if not _HAS_DEPENDENT.search(joined):
        return _split_single_letters(joined)
    return [" ".join([*letter_pairs(run), letter_clusters(run)[-1]]) for run in runs]


def _split_single_letters(joined: str) -> list[str]:
    """Splits runs without dependent signs on an array, which is six times faster than a loop over the letters.

    Writes every letter with its successor and a space. Each run then ends with its last letter and the NUL that
    follows; the pair made of the preceding NUL and the first letter is cut off.
    """
    letters = array("I", joined.encode("utf-32-le"))
    spread = array("I", b"\x20\0\0\0") * (3 * len(letters))
    spread[0::3] = letters
    spread[1::3] = letters[1:] + array("I", b"\0\0\0\0")
    return [run[2:] for run in spread.tobytes().decode("utf-32-le").split("\0")[1::2]]
