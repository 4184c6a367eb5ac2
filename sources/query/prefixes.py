"""Prefix words such as `organi*`, which have to find words whose stem is shorter than the prefix."""

from functools import lru_cache

from sources.query.expression import Phrase, Prefix, Word
from sources.query.words import strip_punctuation
from sources.text.folding import fold
from sources.text.stemming import stem

# English endings that Porter's algorithm removes, so that the stem can be shorter than the prefix.
_ENDINGS = (
    "abilities", "ability", "able", "ably", "al", "ally", "ance", "ancy", "ant", "antly", "ate", "ated", "ately",
    "ates", "ating", "ation", "ational", "ations", "ative", "ator", "ators", "ed", "ement", "ence", "ency", "ent",
    "ently", "er", "ers", "es", "ful", "fully", "fulness", "ibility", "ible", "ibly", "ic", "ical", "ically", "icate",
    "icity", "ies", "ing", "ings", "ion", "ional", "ions", "ism", "isms", "ist", "ity", "ive", "ively", "iveness",
    "ivity", "ization", "ize", "ized", "izer", "izes", "izing", "ly", "ment", "ments", "ness", "ous", "ously",
    "ousness", "y",
)  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def prefix_word(prefix: str) -> Word | None:
    """Returns the word that matches all words beginning with `prefix`, or None if it has no letters.

    The index holds stems, which may be shorter than the prefix (organi* and organization: organ). Stems that do not
    begin with the prefix are alternatives of their own.
    """
    tokens = fold(strip_punctuation(prefix)).split()
    if not tokens:
        return None
    *before, last = tokens
    text = " ".join(tokens)
    if before or not last.isascii():
        return Word(f"{text}*", (Prefix(text, tuple(tokens)),))
    prefixes = [Prefix(candidate, (candidate,)) for candidate in searchable_prefixes(last)]
    return Word(f"{text}*", (*prefixes, *(Phrase(word, (word,)) for word in _words_with_shorter_stems(last))))


def word_with_stem(root: str) -> str | None:
    """Returns a word that has this stem, not necessarily a real one, or None if none was found. The stem itself is not
    always such a word: lighthous, the stem of lighthouse, is stemmed to lighthou."""
    return next((root + ending for ending in ("", "e", *_ENDINGS) if stem(root + ending) == root), None)


@lru_cache(maxsize=1_024)
def searchable_prefixes(prefix: str) -> tuple[str, ...]:
    """Returns prefixes that together match what begins with the prefix.

    The index stems search terms too: it turns poly into poli and would not find polygon. Such a prefix is therefore
    searched with each letter that may follow it.
    """
    if prefix.startswith(stem(prefix)):
        return (prefix,)
    longer = [prefix + letter for letter in _LETTERS]
    longest = [one + letter for one in longer if not one.startswith(stem(one)) for letter in _LETTERS]
    return (prefix, *(one for one in (*longer, *longest) if one.startswith(stem(one))))


@lru_cache(maxsize=1_024)
def _words_with_shorter_stems(prefix: str) -> tuple[str, ...]:
    """Returns a word for each stem that does not begin with the prefix although its word does."""
    words_by_stem: dict[str, str] = {}
    for length in range(min(8, len(prefix) - 2)):
        root, tail = prefix[: len(prefix) - length], prefix[len(prefix) - length :]
        for ending in _ENDINGS:
            if ending.startswith(tail):
                words_by_stem.setdefault(stem(root + ending), root + ending)
    shorter = {root: word for root, word in words_by_stem.items() if not root.startswith(prefix)}
    # The stem itself is preferred, unless it would be stemmed once more.
    return tuple(root if stem(root) == root else word for root, word in shorter.items())
