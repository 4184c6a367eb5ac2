"""Turns a bare word or a quotation into the words to search for.

Literal words are used with operators: the text must match as typed. Loose words are used without: any part may match.
`C++`, `fox-trot`, `10:30`, `v1.2.3` and 東京都 each become the words that were meant.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil
from unicodedata import normalize

from msgspec import Struct

from sources.query.grammar import Phrase, Prefix, QueryNotes, Word
from sources.query.lexer import BareWord, QueryLimits, QuotedText
from sources.query.numbers import Tokens, joined_spelling, number_spellings
from sources.text.folding import fold, tone_token
from sources.text.segmentation import (
    STOPWORDS,
    THAI_STOPWORDS,
    UNSPACED_RUN,
    camel_case_parts,
    letter_clusters,
    letter_pairs,
    spaced_words,
    stem,
    tokenize,
    unspaced_runs,
)

_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)", re.IGNORECASE)
_WEB_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*://(?:www\.)?|www\.)", re.IGNORECASE)
# Of letters in scripts with spaces, with their marks, and perhaps punctuation that is not ASCII.
_FOREIGN_WORD = re.compile("[a-z\u00c0-\u0dff\u1e00-\u1fff]+")
_POSSESSIVE = re.compile("['’]s$", re.IGNORECASE)
_EMOJI_TOKEN = re.compile("u[0-9a-f]{4,5}x")
_ARABIC = re.compile("[\u0621-\u064a\u0671-\u06d3]+")
# The article alone, and after "and", "with" and "to".
_ARABIC_ARTICLES = ("ال", "وال", "بال", "لل")
_ARABIC_NOUN_MIN_CHARS = 3
# Letters that are written as two where a keyboard lacks them. In short words, and after q and other vowels, the two
# letters are hardly ever such a letter: blue, question, neues.
_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
_WRITTEN_AS_TWO = re.compile("[äöüåø]")
_DIGRAPH = re.compile("(?<![aeiouq])(?:ae|oe|ue|aa)")
_DIGRAPH_MIN_CHARS = 6
# Words that English writes with a hyphen as often as without. Any other beginning (`remember`, `every`) would be tried
# for most words of a query.
_HYPHENATED = re.compile(
    "(co)(o.{4,})|(re|pre)(e.{3,})|(non|anti|multi|semi|self)(.{4,})|(e)(mails?|books?|commerce|bikes?|learning)"
    "|(x)(rays?|rayed)|(t)(shirts?)|(wi)(fi)"
)
# Nouns whose plural Porter's algorithm does not reduce to the singular.
_IRREGULAR = """
    mouse mice  foot feet  tooth teeth  goose geese  man men  woman women  louse lice  ox oxen  child children
    person people  leaf leaves  knife knives  wife wives  wolf wolves  shelf shelves  half halves  calf calves
    thief thieves  loaf loaves  index indices  matrix matrices  vertex vertices  appendix appendices
    criterion criteria  phenomenon phenomena
"""
_SINGULARS, _PLURALS = _IRREGULAR.split()[::2], _IRREGULAR.split()[1::2]
_OTHER_NUMBER: dict[str, str] = dict(zip(_SINGULARS + _PLURALS, _PLURALS + _SINGULARS, strict=True))
_HIRAGANA = re.compile("[\u3041-\u309f]+")
_LEADING_PUNCTUATION = "([{<'’`,;:!?*/\\|~^&%$=_"
_TRAILING_PUNCTUATION = ")]}>'’`.,;:!?*/\\|~^&%$=_…؟،؛।"


class LooseWord(Struct, frozen=True, gc=False):
    """A word of a plain query. Weak words (stop words, single letters) are dropped if there are others."""

    word: Word
    is_weak: bool


def loose_words(text: str) -> Sequence[LooseWord]:
    """Returns the words of which any may match: the whole text, and its parts if they are significant."""
    return _known_loose_words(text) if len(text) <= _KNOWN_MAX_CHARS else _loose_words(text)


def _loose_words(text: str) -> Sequence[LooseWord]:
    text = strip_punctuation(text)
    if is_plain_word(text):
        return [_loose_token(text.lower(), text)]  # most words of most queries
    if _FOREIGN_WORD.fullmatch(text) and (token := fold(text)) and " " not in token:
        return [_loose_token(token, text)]
    special = _version_word(text) or _camel_case_word(text)
    if special is None and " " not in text and any(map(str.isdigit, text)):
        number = with_spellings(Word(text, (Phrase(text, tuple(tokenize(text.lower()))),)), number_spellings(text))
        special = number if len(number.alternatives) > 1 else None
    if special:
        return [LooseWord(special, is_weak=False)]
    if UNSPACED_RUN.search(fold(text)):
        # Splits unspaced runs into pairs, because a whole sentence without spaces matches nowhere. Pairs of particles
        # are weak.
        words: list[LooseWord] = []
        for run in unspaced_runs(text):
            if len(letter_clusters(run)) == 1:
                words.append(LooseWord(Word(run, (Prefix(run, (run,)),)), is_weak=False))
            # The pairs of stop words, and those across their borders, are weak.
            strong = {pair for part in THAI_STOPWORDS.split(run) for pair in letter_pairs(part)}
            words += [_loose_pair(pair, is_weak=pair not in strong) for pair in letter_pairs(run)]
        gaps = UNSPACED_RUN.sub(" ", text)
        return [*words, *(_loose_token(token, _display_text(token)) for token in tokenize(gaps))]
    tokens = _consecutive_tokens(text)
    if len(tokens) == 1:
        return [_loose_token(tokens[0], text)]
    if any(_EMOJI_TOKEN.fullmatch(token) for token in tokens):
        return [_loose_token(token, _display_text(token)) for token in tokens]
    return _loose_compound(text, tokens) if tokens else []


# Most words of a query are common words of its language.
_known_loose_words = lru_cache(maxsize=4_096)(_loose_words)
_KNOWN_MAX_CHARS = 32


def is_plain_word(text: str) -> bool:
    """Returns whether a text is a single token in any context: no operator, no identifier, no other script."""
    return text.isascii() and text.isalpha() and (text.islower() or text.istitle())


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
    for phrase in word.alternatives:
        if len(phrase.tokens) > tokens_max:
            return Word(word.text, tuple(Phrase(one.text, one.tokens[:tokens_max]) for one in word.alternatives))
    return word


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
    and Mueller, Århus and Aarhus. English words match with a hyphen and with an irregular plural, too."""
    phrase = word.alternatives[0]
    if isinstance(phrase, Prefix) or len(phrase.tokens) != 1:
        return word
    token, text = phrase.tokens[0], word.text.lower()
    other = token
    if not text.isascii():
        if _WRITTEN_AS_TWO.search(composed := normalize("NFC", text)):
            other = fold(composed.translate(_TWO_LETTERS)).strip()
    elif len(token) >= _DIGRAPH_MIN_CHARS:
        other = _DIGRAPH.sub(lambda match: match[0][0], token)
    if other != token and stem(other) != stem(token) and other.isalnum():
        word = Word(word.text, (*word.alternatives, Phrase(other, (other,))))
    spellings: list[Tokens] = []
    if (other_number := _OTHER_NUMBER.get(token)) is not None:
        spellings.append((other_number,))
    if (parts := _HYPHENATED.fullmatch(token)) is not None:
        first, second = filter(None, parts.groups())
        spellings.append((first, second))
    return with_spellings(word, spellings) if spellings else word


def with_spellings(word: Word, spellings: Iterable[Tokens]) -> Word:
    """Returns a word that also matches where it is written in one of these ways."""
    known = {phrase.tokens for phrase in word.alternatives}
    others = [Phrase(" ".join(tokens), tokens) for tokens in dict.fromkeys(spellings) if tokens not in known]
    return Word(word.text, (*word.alternatives, *others)) if others else word


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
    word = Word(text, tuple(Phrase(spelling, tuple(tokenize(spelling))) for spelling in spellings))
    # 1299.99 is not a version, but 1299 with decimals.
    return with_spellings(word, number_spellings(text)) if text.count(".") == 1 else word


def _camel_case_word(text: str) -> Word | None:
    parts = camel_case_parts(text)
    if not parts:
        return None
    whole = text.lower()
    return Word(text, (Phrase(whole, (whole,)), Phrase(" ".join(parts), tuple(part.lower() for part in parts))))


# A script has few common pairs, and a query contains many of them.
@lru_cache(maxsize=2_048)
def _loose_pair(pair: str, *, is_weak: bool) -> LooseWord:
    return LooseWord(Word(pair, (Phrase(pair, (pair,)),)), is_weak or _HIRAGANA.fullmatch(pair) is not None)


def _loose_compound(text: str, tokens: list[str]) -> list[LooseWord]:
    """Splits words joined by punctuation into the whole phrase and the parts that are significant by themselves."""
    is_contraction = "'" in text or "’" in text
    parts = [_loose_token(token, token) for token in dict.fromkeys(tokens)]
    is_phrase_weak = all(part.is_weak for part in parts) if is_contraction else STOPWORDS.issuperset(tokens)
    whole = with_spellings(Word(text, (Phrase(text, tuple(tokens)),)), joined_spelling(text, tokens))
    phrase = LooseWord(whole, is_phrase_weak)
    return [
        phrase,
        *(part for part in parts if not (part.is_weak or (len(part.word.text) <= 2 and part.word.text.isdigit()))),
    ]


def _display_text(token: str) -> str:
    """Returns a token as it is written in texts: emoji tokens are spelled differently in the index."""
    return chr(int(token[1:-1], 16)) if _EMOJI_TOKEN.fullmatch(token) else token


def _loose_token(token: str, text: str) -> LooseWord:
    return LooseWord(Word(text, (Phrase(text, (token,)),)), is_weak_token(token, text))


def is_weak_token(token: str, text: str) -> bool:
    """Returns whether the token of a word is insignificant by itself."""
    # Whether a letter is a name, as in vitamin C, plan B or the language R, and not an article or pronoun.
    return token in STOPWORDS or (
        len(token) == 1 and not (token.isdigit() or (len(text) == 1 and text.isupper() and text not in "AI"))
    )


# -- prefixes ----------------------------------------------------------------------------------------------------------
# Prefix words such as `organi*`, which have to find words whose stem is shorter than the prefix.

# English endings that Porter's algorithm removes, so that the stem can be shorter than the prefix.
ENDINGS = (
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
    return next((root + ending for ending in ("", "e", *ENDINGS) if stem(root + ending) == root), None)


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
        for ending in ENDINGS:
            if ending.startswith(tail):
                words_by_stem.setdefault(stem(root + ending), root + ending)
    shorter = {root: word for root, word in words_by_stem.items() if not root.startswith(prefix)}
    # The stem itself is preferred, unless it would be stemmed once more.
    return tuple(root if stem(root) == root else word for root, word in shorter.items())


# -- word reader -------------------------------------------------------------------------------------------------------
# Turns the leaves of a syntax tree into words, within the limits of a query.


class WordReader:
    """Reads words and counts terms, prefixes and phrase lengths against the limits."""

    def __init__(self, limits: QueryLimits, notes: QueryNotes) -> None:
        self._limits = limits
        self._notes = notes
        self._counts: dict[_Stems, int] = {}
        self._prefixes = 0

    # -- leaves to words -----------------------------------------------------------------------------------------------

    def read_literal(self, leaf: BareWord | QuotedText) -> Word | None:
        """Returns the literal word of a leaf, or None for mere punctuation."""
        match leaf:
            case QuotedText(text=text):
                word = phrase_word(text)
            case BareWord(text=text) if "*" in text:
                # A star at the end of a long enough word makes it a prefix; any other star is punctuation.
                plain = literal_word(text.replace("*", " "))
                prefix = text[:-1]
                if plain is None or UNSPACED_RUN.search(prefix):
                    word = plain  # unspaced runs match anywhere in a text, so they already match as prefixes
                elif "*" in prefix or not text.endswith("*"):
                    self._notes.add("ignored * (it works only at the end of a word)")
                    word = plain
                else:
                    word = self._read_prefix(prefix) or plain
            case BareWord(text=text):
                word = literal_word(text)
        return word and self._shorten(word)

    def read_loose(self, text: str) -> list[LooseWord]:
        """Returns the words of which any may match."""
        if "*" not in text:
            return [
                loose if (shortened := self._shorten(loose.word)) is loose.word else LooseWord(shortened, loose.is_weak)
                for loose in loose_words(text)
            ]
        word = self.read_literal(BareWord(text))
        return [LooseWord(word, is_weak=False)] if word else []

    def _read_prefix(self, prefix: str) -> Word | None:
        word = prefix_word(prefix)
        if word is None or len(word.alternatives[0].tokens[-1]) < self._limits.min_prefix_chars:
            self._notes.add(f"ignored * (it needs at least {self._limits.min_prefix_chars} letters before it)")
            return None
        if self._prefixes == self._limits.max_prefixes:
            self._notes.add_truncation(f"used * only in the first {self._limits.max_prefixes} words that end with it")
            return None
        self._prefixes += 1
        return word

    def _shorten(self, word: Word) -> Word:
        limit = self._limits.max_phrase_tokens
        limited = limit_tokens(word, limit)
        if limited is not word:
            self._notes.add_truncation(f"used only the first {limit} words of a phrase")
        return limited

    # -- words to terms ------------------------------------------------------------------------------------------------

    def admit(self, word: Word) -> bool:
        """Counts a word. Returns False if it is a new one and the query already has the maximum number of terms."""
        return self._admit_stems(_stems(word))

    def _admit_stems(self, stems: "_Stems") -> bool:
        if stems not in self._counts and len(self._counts) == self._limits.max_terms:
            self._notes.add_truncation(f"used only the first {self._limits.max_terms} terms")
            return False
        self._counts[stems] = self._counts.get(stems, 0) + 1
        return True

    def admit_all(self, words: Iterable[Word]) -> list[Word]:
        """Counts words and returns those within the limit; of words with the same stems, only the first."""
        admitted: dict[_Stems, Word] = {}
        for word in words:
            if self._admit_stems(stems := _stems(word)):
                admitted.setdefault(stems, word)
        return list(admitted.values())

    def count_terms(self, words: Iterable[Word]) -> list[tuple[Word, int]]:
        """Returns the words with distinct stems, each with the number of times the query contains it."""
        distinct: dict[_Stems, Word] = {}
        for word in words:
            distinct.setdefault(_stems(word), word)
        return [(word, self._counts[stems]) for stems, word in distinct.items()]


_Stems = tuple[tuple[type, tuple[str, ...]], ...]


@lru_cache(maxsize=1_024)
def _stems(word: Word) -> _Stems:
    return tuple([(type(phrase), tuple(map(stem, phrase.tokens))) for phrase in word.alternatives])
