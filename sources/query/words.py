"""One chunk or quotation of a query as the words it looks for: literally, where the person wrote an operator, or
loosely, where any part of it may match. `C++`, `fox-trot`, `10:30`, `v1.2.3` and 東京都 each mean what was meant."""

import re
from functools import lru_cache
from math import ceil

from msgspec import Struct

from sources.query.expression import Phrase, Prefix, Word
from sources.text.folding import fold
from sources.text.identifiers import camel_case_parts
from sources.text.segmentation import UNSPACED_RUN, letter_clusters, letter_pairs, spaced_words, tokenize, unspaced_runs
from sources.text.stemming import stem
from sources.text.stopwords import STOPWORDS

_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)", re.IGNORECASE)
_WEB_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*://(?:www\.)?|www\.)", re.IGNORECASE)
_POSSESSIVE = re.compile("['’]s$", re.IGNORECASE)
_EMOJI_TOKEN = re.compile("u[0-9a-f]{4,5}x")
_HIRAGANA = re.compile("[\u3041-\u309f]+")
_EDGES_LEFT = "([{<'’`,;:!?*/\\|~^&%$=_"
_EDGES_RIGHT = ")]}>'’`.,;:!?*/\\|~^&%$=_…"


class Loose(Struct, frozen=True):
    """A word of a plain query. A weak one (stop word, single letter) is dropped as soon as another remains."""

    word: Word
    is_weak: bool


def loose(chunk: str) -> list[Loose]:
    """What a chunk looks for when any of it may match: the whole, and the parts that say something."""
    text = _tidy(chunk)
    if is_plain_word(text):
        return [_loose_token(text.lower(), text)]  # most words of most queries
    special = _version(text) or _camel_case(text)
    if special:
        return [Loose(special, is_weak=False)]
    if UNSPACED_RUN.search(fold(text)):
        return _loose_runs(text)
    found = _row(text)
    if len(found) == 1:
        return [_loose_token(found[0], text)]
    if any(_EMOJI_TOKEN.fullmatch(token) for token in found):
        return [_loose_token(token, _written(token)) for token in found]
    return _loose_joined(text, found) if found else []


def is_plain_word(text: str) -> bool:
    """Whether a text is one token, whatever it stands in: no operator, no identifier, no other script."""
    return text.isascii() and text.isalpha() and (text.islower() or text.istitle())


def is_weak_word(text: str) -> bool:
    """Whether a plain word says nothing by itself."""
    return _is_weak(text.lower(), text)


def literal(chunk: str) -> Word | None:
    """What a chunk looks for when it is obeyed to the letter; nothing for mere punctuation."""
    text = _tidy(chunk)
    return _version(text) or _camel_case(text) or quotation(text)


def quotation(text: str) -> Word | None:
    """The tokens of a text in their order. A run at its end may go on in the item, so its last unit stays open."""
    found = tuple(_row(text))
    text = " ".join(text.split())
    last_run = unspaced_runs(text)[-1:]
    if not last_run or not fold(text).rstrip().endswith(last_run[0]):
        return Word(text, (Phrase(text, found),)) if found else None
    if len(letter_clusters(last_run[0])) == 1:
        return Word(text, (Prefix(text, found),))
    return Word(text, (Phrase(text, found[:-1]),))


def beginning(stump: str) -> Word | None:
    """Words that begin with a stump. Their stems may be shorter than it (organi* and organization: organ), so those
    stems that do not begin with it are looked for as well."""
    folded = fold(_tidy(stump)).split()
    if not folded:
        return None
    *before, last = folded
    text = " ".join(folded)
    if before or not last.isascii():
        return Word(f"{text}*", (Prefix(text, tuple(folded)),))
    stumps = [Prefix(one, (one,)) for one in _stumps(last)]
    return Word(f"{text}*", (*stumps, *(Phrase(word, (word,)) for word in _grown(last))))


def inflected(word: Word) -> Word:
    """The same word with other endings, for languages the index has no stemmer for: its first 70 %, at least four
    letters. Worth 4 to 13 points of recall there; in English it costs one."""
    token = word.text and fold(word.text).strip()
    if len(word.alternatives) != 1 or word.alternatives[0].tokens != (token,) or not _inflects(token):
        return word
    root = token[: max(4, ceil(0.7 * len(token)))]
    return Word(word.text, (*word.alternatives, Prefix(root, (root,))))


def is_weak(word: Word) -> bool:
    """Whether a literal word is a stop word."""
    return all(phrase.tokens[0] in STOPWORDS and len(phrase.tokens) == 1 for phrase in word.alternatives)


def is_foreign(texts: list[str]) -> bool:
    """Whether a query looks like a language other than English that is written with spaces."""
    if not any(_has_foreign_letter(text) for text in texts):
        return False
    return STOPWORDS.isdisjoint(word for text in texts for word in spaced_words(text))


def _has_foreign_letter(text: str) -> bool:
    return not text.isascii() and any(
        letter.isalpha() and not letter.isascii() for letter in UNSPACED_RUN.sub("", text)
    )


def _tidy(chunk: str) -> str:
    chunk = _WEB_ADDRESS.sub("", chunk, count=1) if _WEB_ADDRESS.match(chunk) else chunk
    return _POSSESSIVE.sub("", chunk.lstrip(_EDGES_LEFT).rstrip(_EDGES_RIGHT))


def _row(text: str) -> list[str]:
    """The tokens of a text as they follow one another in the index; of camelCase words the whole, not the parts."""
    return tokenize(text.lower())


def _inflects(token: str) -> bool:
    return len(token) >= 5 and not any(letter.isdigit() for letter in token) and not UNSPACED_RUN.search(token)


def _version(text: str) -> Word | None:
    """1.2.3 and v1.2.3 are the same version; the index holds the v together with the first number."""
    match = _VERSION.fullmatch(text)
    if not match:
        return None
    written = (match[1], f"v{match[1]}")
    return Word(text, tuple(Phrase(form, tuple(tokenize(form))) for form in written))


def _camel_case(text: str) -> Word | None:
    parts = camel_case_parts(text)
    if not parts:
        return None
    whole = text.lower()
    return Word(text, (Phrase(whole, (whole,)), Phrase(" ".join(parts), tuple(part.lower() for part in parts))))


def _loose_runs(text: str) -> list[Loose]:
    """Pairs, because a whole sentence without spaces is found nowhere; pairs of particles only when nothing else is."""
    found: list[Loose] = []
    for run in unspaced_runs(text):
        if len(letter_clusters(run)) == 1:
            found.append(Loose(Word(run, (Prefix(run, (run,)),)), is_weak=False))
        found += [_loose_pair(pair) for pair in letter_pairs(run)]
    between = UNSPACED_RUN.sub(" ", text)
    return [*found, *(_loose_token(token, _written(token)) for token in tokenize(between))]


def _loose_pair(pair: str) -> Loose:
    return Loose(Word(pair, (Phrase(pair, (pair,)),)), is_weak=_HIRAGANA.fullmatch(pair) is not None)


def _loose_joined(text: str, found: list[str]) -> list[Loose]:
    """Words joined by punctuation: all in a row, and each that says something by itself."""
    is_contraction = "'" in text or "’" in text
    parts = [_loose_token(token, token) for token in dict.fromkeys(found)]
    is_phrase_weak = all(part.is_weak for part in parts) if is_contraction else STOPWORDS.issuperset(found)
    phrase = Loose(Word(text, (Phrase(text, tuple(found)),)), is_phrase_weak)
    return [phrase, *(part for part in parts if not (part.is_weak or _is_short_number(part.word.text)))]


def _written(token: str) -> str:
    """A token as it stands in a text: an emoji was spelled to be indexed."""
    return chr(int(token[1:-1], 16)) if _EMOJI_TOKEN.fullmatch(token) else token


def _loose_token(token: str, text: str) -> Loose:
    return Loose(Word(text, (Phrase(text, (token,)),)), _is_weak(token, text))


def _is_weak(token: str, text: str) -> bool:
    return token in STOPWORDS or (len(token) == 1 and not (token.isdigit() or _is_name_letter(text)))


def _is_name_letter(text: str) -> bool:
    """Vitamin C, plan B, the language R; but neither the article nor the pronoun."""
    return len(text) == 1 and text.isupper() and text not in "AI"


def _is_short_number(text: str) -> bool:
    return len(text) <= 2 and text.isdigit()


# English endings that Porter's algorithm takes off: what may follow a stump for its stem to be shorter than the stump.
_ENDINGS = (
    "abilities", "ability", "able", "ably", "al", "ally", "ance", "ancy", "ant", "antly", "ate", "ated", "ately",
    "ates", "ating", "ation", "ational", "ations", "ative", "ator", "ators", "ed", "ement", "ence", "ency", "ent",
    "ently", "er", "ers", "es", "ful", "fully", "fulness", "ibility", "ible", "ibly", "ic", "ical", "ically", "icate",
    "icity", "ies", "ing", "ings", "ion", "ional", "ions", "ism", "isms", "ist", "ity", "ive", "ively", "iveness",
    "ivity", "ization", "ize", "ized", "izer", "izes", "izing", "ly", "ment", "ments", "ness", "ous", "ously",
    "ousness", "y",
)  # fmt: skip
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@lru_cache(maxsize=1_024)
def _stumps(stump: str) -> tuple[str, ...]:
    """A stump as an index can look for it. It stems what it is asked for, poly to poli, and would find no polygon; so
    such a stump is asked for with every letter that may follow."""
    if stump.startswith(stem(stump)):
        return (stump,)
    longer = [stump + letter for letter in _LETTERS]
    even_longer = [one + letter for one in longer if not one.startswith(stem(one)) for letter in _LETTERS]
    return (stump, *(one for one in (*longer, *even_longer) if one.startswith(stem(one))))


@lru_cache(maxsize=1_024)
def _grown(stump: str) -> tuple[str, ...]:
    """One word for each stem that a word beginning with the stump can have without beginning with it."""
    grown: dict[str, str] = {}
    for taken in range(min(8, len(stump) - 2)):
        root, tail = stump[: len(stump) - taken], stump[len(stump) - taken :]
        for ending in _ENDINGS:
            if ending.startswith(tail):
                grown.setdefault(stem(root + ending), root + ending)
    shorter = {found: word for found, word in grown.items() if not found.startswith(stump)}
    # The stem itself says it best, unless it would be stemmed once more.
    return tuple(found if stem(found) == found else word for found, word in shorter.items())
