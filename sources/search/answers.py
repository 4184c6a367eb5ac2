"""Chooses the sentences of passages that answer a question, without a language model.

A sentence is worth the question's words that it contains, weighted by their rarity as in `sources.search.scoring`. Its
surroundings count for half: what a sentence is about is often named by its heading or by the sentence before. No
number here is fitted to a set of questions; each rule says why it is there.
"""

import re
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from sources.query import Term
from sources.search.term_matching import TermCounter
from sources.text.chunking import Sentence, sentences
from sources.text.segmentation import segment

# Words alone often do not rank the right sentence first, so that a few are shown; more would be a list of results.
ANSWER_MAX_SENTENCES = 5
# The best sentence is shown with those around it, because answers often continue in the next sentence, and "it" in a
# sentence is what the one before names. This many characters are a few seconds to read.
_WINDOW_CHARS = 300

Expected = Literal["time", "number", "name"]
# The beginnings of questions in English, German, French and Spanish. "Who is Ada" asks for a description, not a name.
_QUESTIONS: Sequence[tuple[Expected, re.Pattern[str]]] = (
    ("time", re.compile(r"\b(when|what (day|date|year|time)|which (day|year)|wann|quand|cuándo)\b", re.IGNORECASE)),
    (
        "number",
        re.compile(
            r"\b(how (many|much|long|often|far|heavy|high|old|tall|big|large|deep|fast|hot|cold)|number of|"
            r"wie ?(viele?|lange|oft|weit|schwer|hoch|alt)|combien|cuánt[oa]s?)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "name",
        re.compile(
            r"^\W*(who|whose|wer|wessen|qui|quién(es)?)\b(?! (is|are|was|were|ist|war|est|es|fue)\b)", re.IGNORECASE
        ),
    ),
)
_DEFINITION = re.compile(
    r"\W*(?:who|what|wer|was|qui|qu'est|quién|qué) ?(?:is|are|was|were|ist|war|est|es)\b", re.IGNORECASE
)
# The speaker before the text of a message.
_SPEAKER = re.compile(r"^[^\n:.!?]{1,60}:")
_MONTHS = (
    "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mai|juin|juil|août|mär|okt|dez|ene|abr|ago|dic|"
    "mon|tues|wednes|thurs|fri|satur|sun"
)
_KINDS: dict[Expected, re.Pattern[str]] = {
    "time": re.compile(
        rf"\d|\b(?:{_MONTHS})[a-zé]*\b|\b(?:today|yesterday|tomorrow|morning|evening|night|noon)\b", re.IGNORECASE
    ),
    "number": re.compile(
        r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|"
        r"sixty|seventy|eighty|ninety|hundred|thousand|million|half|once|twice|none|every)\b",
        re.IGNORECASE,
    ),
    # A capital letter within the sentence, or the speaker before it.
    "name": re.compile(r"(?<=[\w,;:] )[A-ZÀ-Þ]\w|^\W*[A-ZÀ-Þ]\w*:"),
}


class CitedSentence(Struct, frozen=True):
    """A part of the passage with this index, and how much of the question it has: 0 to about 1."""

    text: str
    passage: int
    start: int
    score: float


class FoundPassage(Struct, frozen=True):
    """A passage that a search found, with its score and the title of its item."""

    title: str
    text: str
    score: float


def answer_sentences(
    question: str, terms: Sequence[Term], weights: Sequence[float], passages: Sequence[FoundPassage]
) -> list[CitedSentence]:
    """Returns the sentences that answer a question best, best first."""
    scorer = _SentenceScorer(question, terms, weights)
    best = [one for index, passage in enumerate(passages) if (one := scorer.best(index, passage)) is not None]
    best.sort(key=lambda one: (-one.score, one.passage))
    chosen: list[CitedSentence] = []
    for one in best:
        # The passages of a long item overlap.
        if not any(one.text in other.text or other.text in one.text for other in chosen):
            chosen.append(one)
    return chosen[:ANSWER_MAX_SENTENCES]


def expected_kind(question: str) -> Expected | None:
    """Returns what a question asks for, as far as its words say so."""
    return next((kind for kind, pattern in _QUESTIONS if pattern.search(question)), None)


class _SentenceScorer:
    def __init__(self, question: str, terms: Sequence[Term], weights: Sequence[float]) -> None:
        self._counter = TermCounter(terms)
        self._weights = weights
        self._total = sum(weights) or 1.0
        kind = expected_kind(question)
        self._expected = None if kind is None else _KINDS[kind]
        # What a person says does not say who the person is.
        self._is_definition = _DEFINITION.match(question) is not None

    def best(self, index: int, passage: FoundPassage) -> CitedSentence | None:
        """Returns the best sentence of a passage. Its score is that of the search, which knows the whole item and
        meanings, up to doubled by the share of the question in the sentence."""
        about = self._terms(passage.title)
        previous: frozenset[int] = frozenset()
        follows_question = False
        spans = list(sentences(passage.text))
        best_number, best_score = -1, -1.0
        for number, sentence in enumerate(spans):
            text = passage.text[sentence.start : sentence.end].strip()
            own = self._terms(_SPEAKER.sub("", text) if self._is_definition else text)
            if sentence.is_heading:
                about, previous, follows_question = about | own, frozenset(), False
                continue
            if text.rstrip("\"'”’»)*_").endswith(("?", "？", "؟")):
                # A question answers nothing, but what follows it may answer all that it asks.
                previous, follows_question = own, True
                continue
            score = self._sum(own) + self._sum((about | previous) - own) / 2
            if follows_question:
                score = max(score, self._sum(own | previous))
            if self._expected is not None and not self._expected.search(text):
                # Not excluded: numbers can be spelled in any language.
                score /= 2
            if score > best_score:
                best_number, best_score = number, score
            previous, follows_question = own, False
        if best_number < 0:
            return None
        start, end = _window(passage.text, spans, best_number)
        score = passage.score * (1 + best_score / self._total)
        return CitedSentence(passage.text[start:end].strip(), index, start, score)

    def _terms(self, text: str) -> frozenset[int]:
        return frozenset(number for number, count in enumerate(self._counter.count(segment(text))) if count)

    def _sum(self, terms: frozenset[int]) -> float:
        return sum(self._weights[number] for number in terms)


def _window(text: str, spans: Sequence[Sentence], number: int) -> tuple[int, int]:
    """Returns a sentence with those after it, and then the one before it, as far as they fit; no heading is crossed."""
    first = last = number
    while last + 1 < len(spans) and not spans[last + 1].is_heading and _fits(spans[first], spans[last + 1]):
        last += 1
    if first > 0 and not spans[first - 1].is_heading and _fits(spans[first - 1], spans[last]):
        first -= 1
    start = spans[first].start
    # A single sentence can be a page without full stops.
    end = max(spans[last].end if first < last else 0, min(spans[last].end, start + 2 * _WINDOW_CHARS))
    return start, min(end, len(text))


def _fits(first: Sentence, last: Sentence) -> bool:
    return last.end - first.start <= _WINDOW_CHARS
