"""Turns a bare word or a quotation into the words to search for.

Literal words are used with operators: the text must match as typed. Loose words are used without: any part may match.
`C++`, `fox-trot`, `10:30`, `v1.2.3` and 東京都 each become the words that were meant.
"""

import re
from math import ceil
from unicodedata import normalize

from msgspec import Struct

from sources.query.expression import Phrase, Prefix, Word
from sources.text.folding import fold
from sources.text.identifiers import camel_case_parts
from sources.text.segmentation import (
    UNSPACED_RUN,
    letter_clusters,
    letter_pairs,
    spaced_words,
    tokenize,
    unspaced_runs,
)
from sources.text.stemming import stem
from sources.text.stopwords import STOPWORDS
from sources.text.vietnamese import tone_token

_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)", re.IGNORECASE)
_WEB_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*://(?:www\.)?|www\.)", re.IGNORECASE)
_POSSESSIVE = re.compile("['’]s$", re.IGNORECASE)
_EMOJI_TOKEN = re.compile("u[0-9a-f]{4,5}x")
_ARABIC = re.compile("[\u0621-\u064a\u0671-\u06d3]+")
# The article alone, and after "and", "with" and "to".
_ARABIC_ARTICLES = ("ال", "وال", "بال", "لل")
_ARABIC_NOUN_MIN_CHARS = 3
# Letters that are written as two where a keyboard lacks them. In short words, and after q and other vowels, the two
# letters are hardly ever such a letter: blue, question, neues.
_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
_DIGRAPH = re.compile("(?<![aeiouq])(?:ae|oe|ue|aa)")
_DIGRAPH_MIN_CHARS = 6
_HIRAGANA = re.compile("[\u3041-\u309f]+")
_LEADING_PUNCTUATION = "([{<'’`,;:!?*/\\|~^&%$=_"
_TRAILING_PUNCTUATION = ")]}>'’`.,;:!?*/\\|~^&%$=_…"


class LooseWord(Struct, frozen=True):
    """A word of a plain query. Weak words (stop words, single letters) are dropped if there are others."""

    word: Word
    is_weak: bool


def loose_words(text: str) -> list[LooseWord]:
    """Returns the words of which any may match: the whole text, and its parts if they are significant."""
    text = strip_punctuation(text)
    if is_plain_word(text):
        return [_loose_token(text.lower(), text)]  # most words of most queries
    special = _version_word(text) or _camel_case_word(text)
    if special:
        return [LooseWord(special, is_weak=False)]
    if UNSPACED_RUN.search(fold(text)):
        return _loose_runs(text)
    tokens = _consecutive_tokens(text)
    if len(tokens) == 1:
        return [_loose_token(tokens[0], text)]
    if any(_EMOJI_TOKEN.fullmatch(token) for token in tokens):
        return [_loose_token(token, _display_text(token)) for token in tokens]
    return _loose_compound(text, tokens) if tokens else []


def is_plain_word(text: str) -> bool:
    """Returns whether a text is a single token in any context: no operator, no identifier, no other script."""
    return text.isascii() and text.isalpha() and (text.islower() or text.istitle())


def is_weak_plain_word(text: str) -> bool:
    """Returns whether a plain word is insignificant by itself."""
    return _is_weak_token(text.lower(), text)


def literal_word(text: str) -> Word | None:
    """Returns the word that matches the text as typed, or None for mere punctuation."""
    text = strip_punctuation(text)
    return _version_word(text) or _camel_case_word(text) or phrase_word(text)


def phrase_word(text: str) -> Word | None:
    """Returns the word that matches the tokens of a text in order, or None if it has none.

    An unspaced run at the end may continue in the item, so its last letter is left open.
    """
    tokens = tuple(_consecutive_tokens(text))
    text = " ".join(text.split())
    last_run = unspaced_runs(text)[-1:]
    if not last_run or not fold(text).rstrip().endswith(last_run[0]):
        return Word(text, (Phrase(text, tokens),)) if tokens else None
    if len(letter_clusters(last_run[0])) == 1:
        return Word(text, (Prefix(text, tokens),))
    return Word(text, (Phrase(text, tokens[:-1]),))


def limit_tokens(word: Word, tokens_max: int) -> Word:
    """Returns a word whose alternatives have at most `tokens_max` tokens."""
    if all(len(phrase.tokens) <= tokens_max for phrase in word.alternatives):
        return word
    return Word(word.text, tuple(Phrase(phrase.text, phrase.tokens[:tokens_max]) for phrase in word.alternatives))


def with_other_endings(word: Word) -> Word:
    """Lets a word match with other endings too, for languages that the index does not stem.

    Matches the first 70 % of the word, at least four letters. Improves recall by 4 to 13 points in these languages; in
    English it would cost one point.
    """
    token = word.text and fold(word.text).strip()
    if len(word.alternatives) != 1 or word.alternatives[0].tokens != (token,) or not _can_inflect(token):
        return word
    root = token[: max(4, ceil(0.7 * len(token)))]
    return Word(word.text, (*word.alternatives, Prefix(root, (root,))))


def with_tones(word: Word) -> list[Word]:
    """Returns a word of a Vietnamese query, and the same word with its marks. An item that has it with other marks, or
    with none because its writer omits them, matches too, but less well."""
    token = tone_token(normalize("NFC", strip_punctuation(word.text)))
    return [word, Word(word.text, (Phrase(word.text, (token,)),))] if token else [word]


def with_articles(word: Word) -> Word:
    """Lets an Arabic word match with and without the article and the particles that are written with it."""
    phrase = word.alternatives[0]
    if isinstance(phrase, Prefix) or len(phrase.tokens) != 1 or not _ARABIC.fullmatch(token := phrase.tokens[0]):
        return word
    article = next((article for article in _ARABIC_ARTICLES if token.startswith(article)), "")
    noun = token[len(article) :]
    if len(noun) < _ARABIC_NOUN_MIN_CHARS:
        return word
    spellings = [beginning + noun for beginning in ("", *_ARABIC_ARTICLES) if beginning != article]
    return Word(word.text, (*word.alternatives, *(Phrase(spelling, (spelling,)) for spelling in spellings)))


def with_other_spellings(word: Word) -> Word:
    """Lets a word match where its ä, ö, ü, å or ø is written as ae, oe, ue, aa or oe, or the other way round: Müller
    and Mueller, Århus and Aarhus."""
    phrase = word.alternatives[0]
    if isinstance(phrase, Prefix) or len(phrase.tokens) != 1:
        return word
    token, text = phrase.tokens[0], word.text.lower()
    other = token
    if not text.isascii():
        other = fold(normalize("NFC", text).translate(_TWO_LETTERS)).strip()
    elif len(token) >= _DIGRAPH_MIN_CHARS:
        other = _DIGRAPH.sub(lambda match: match[0][0], token)
    if stem(other) == stem(token) or not other.isalnum():
        return word
    return Word(word.text, (*word.alternatives, Phrase(other, (other,))))


def is_stop_word(word: Word) -> bool:
    return all(phrase.tokens[0] in STOPWORDS and len(phrase.tokens) == 1 for phrase in word.alternatives)


def is_foreign(texts: list[str]) -> bool:
    """Returns whether a query seems to be in a language other than English that is written with spaces."""
    if not any(_has_foreign_letter(text) for text in texts):
        return False
    return STOPWORDS.isdisjoint(word for text in texts for word in spaced_words(text))


def strip_punctuation(text: str) -> str:
    """Removes the scheme of a web address, surrounding punctuation and a possessive ending."""
    if address := _WEB_ADDRESS.match(text):
        text = text[address.end() :]
    return _POSSESSIVE.sub("", text.lstrip(_LEADING_PUNCTUATION).rstrip(_TRAILING_PUNCTUATION))


def _has_foreign_letter(text: str) -> bool:
    return not text.isascii() and any(
        letter.isalpha() and not letter.isascii() for letter in UNSPACED_RUN.sub("", text)
    )


def _consecutive_tokens(text: str) -> list[str]:
    """Returns the tokens that are consecutive in the index: camelCase words as a whole, without their parts."""
    return tokenize(text.lower())


def _can_inflect(token: str) -> bool:
    return len(token) >= 5 and not any(letter.isdigit() for letter in token) and not UNSPACED_RUN.search(token)


def _version_word(text: str) -> Word | None:
    """Lets 1.2.3 and v1.2.3 match each other; the index has the v and the first number as one token."""
    match = _VERSION.fullmatch(text)
    if not match:
        return None
    spellings = (match[1], f"v{match[1]}")
    return Word(text, tuple(Phrase(spelling, tuple(tokenize(spelling))) for spelling in spellings))


def _camel_case_word(text: str) -> Word | None:
    parts = camel_case_parts(text)
    if not parts:
        return None
    whole = text.lower()
    return Word(text, (Phrase(whole, (whole,)), Phrase(" ".join(parts), tuple(part.lower() for part in parts))))


def _loose_runs(text: str) -> list[LooseWord]:
    """Splits unspaced runs into pairs, because a whole sentence without spaces matches nowhere. Pairs of particles are
    weak."""
    words: list[LooseWord] = []
    for run in unspaced_runs(text):
        if len(letter_clusters(run)) == 1:
            words.append(LooseWord(Word(run, (Prefix(run, (run,)),)), is_weak=False))
        words += [_loose_pair(pair) for pair in letter_pairs(run)]
    gaps = UNSPACED_RUN.sub(" ", text)
    return [*words, *(_loose_token(token, _display_text(token)) for token in tokenize(gaps))]


def _loose_pair(pair: str) -> LooseWord:
    return LooseWord(Word(pair, (Phrase(pair, (pair,)),)), is_weak=_HIRAGANA.fullmatch(pair) is not None)


def _loose_compound(text: str, tokens: list[str]) -> list[LooseWord]:
    """Splits words joined by punctuation into the whole phrase and the parts that are significant by themselves."""
    is_contraction = "'" in text or "’" in text
    parts = [_loose_token(token, token) for token in dict.fromkeys(tokens)]
    is_phrase_weak = all(part.is_weak for part in parts) if is_contraction else STOPWORDS.issuperset(tokens)
    phrase = LooseWord(Word(text, (Phrase(text, tuple(tokens)),)), is_phrase_weak)
    return [phrase, *(part for part in parts if not (part.is_weak or _is_short_number(part.word.text)))]


def _display_text(token: str) -> str:
    """Returns a token as it is written in texts: emoji tokens are spelled differently in the index."""
    return chr(int(token[1:-1], 16)) if _EMOJI_TOKEN.fullmatch(token) else token


def _loose_token(token: str, text: str) -> LooseWord:
    return LooseWord(Word(text, (Phrase(text, (token,)),)), _is_weak_token(token, text))


def _is_weak_token(token: str, text: str) -> bool:
    return token in STOPWORDS or (len(token) == 1 and not (token.isdigit() or _is_name_letter(text)))


def _is_name_letter(text: str) -> bool:
    """Returns whether a letter is a name, as in vitamin C, plan B or the language R, and not an article or pronoun."""
    return len(text) == 1 and text.isupper() and text not in "AI"


def _is_short_number(text: str) -> bool:
    return len(text) <= 2 and text.isdigit()
