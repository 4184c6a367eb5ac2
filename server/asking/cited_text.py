"""Answers as sentences that cite numbered passages, and as text."""

import re
from collections.abc import AsyncIterator, Collection, Iterator, Sequence

from msgspec import Struct

from server.compat.agentkit.chat.passages import EXTRACTIVE
from server.console.markdown import without_markup
from sources.text.chunking import Sentence, sentences

# `[1]`, `[1, 2]`, `[1-3]`, and the brackets and carets of some models. Numbers have few digits: `[2024]` is a year.
_NUMBERS = r"\^?\d{1,3}(?:[\s,;–-]{1,3}\^?\d{1,3}){0,20}"
_CITATION = re.compile(rf"[ \t]?[\[【]({_NUMBERS})[\]】]")
# What a model writes can be anything, so that no pattern may need more than linear time.
_CITATION_AFTER_END = re.compile(
    rf"(?<![.!?…。！？])([.!?…。！？]++[\"'”’»)]*+)[ \t]*+((?:[ \t]?[\[【]{_NUMBERS}[\]】])+)(\s|$)"
)
_PARTIAL_CITATION = re.compile(r"[\[【][\d\s,;^–-]{0,60}\Z")
_SPACE_BEFORE_MARK = re.compile(r"(?<! ) ++([.!?…,;:])")
_RANGE_MAX = 20
_SENTENCE_MAX_CHARS = 2_000
_LAST_CITATION = re.compile(r"(.*) \[(\d+)\]", re.DOTALL)


class AnswerSentence(Struct, frozen=True, kw_only=True):
    """A sentence of the answer, or several that are quoted together. `citations` are the numbers of the passages that
    say so."""

    text: str
    citations: tuple[int, ...] = ()
    starts_paragraph: bool = False


class Citation(Struct, frozen=True, kw_only=True):
    """A passage. `url` opens its item at the passage."""

    number: int
    uri: str
    source: str
    title: str
    url: str
    text: str


def answer_text(answer: Sequence[AnswerSentence], citations: Sequence[Citation]) -> str:
    """Returns an answer as plain text, with a line for each passage that it cites."""
    text = ""
    for sentence in answer:
        marks = "".join(f"[{number}]" for number in sentence.citations)
        separator = "" if not text else "\n\n" if sentence.starts_paragraph else " "
        text += f"{separator}{sentence.text}{' ' if marks else ''}{marks}"
    lines = [f"[{one.number}] {' '.join(one.title.split())} ({one.uri})" for one in citations]
    return "\n\n".join([text, *(["\n".join(lines)] if lines else [])])


def stored_sentences(content: str, model: str | None, numbers: Collection[int]) -> tuple[AnswerSentence, ...]:
    """Reads what `answer_text` wrote back into sentences."""
    text = content.rpartition("\n\n")[0] if numbers else content
    if model != EXTRACTIVE:
        parser = CitedTextParser(numbers)
        return (*parser.feed(text), *parser.end())
    quoted = []
    for paragraph in filter(None, text.split("\n\n")):
        # Quotations may contain numbers in brackets of their own.
        match = _LAST_CITATION.fullmatch(paragraph)
        cited = (int(match[2]),) if match is not None and int(match[2]) in numbers else ()
        shown = match[1] if match is not None and cited else paragraph
        quoted.append(AnswerSentence(text=shown, citations=cited, starts_paragraph=True))
    return tuple(quoted)


class CitedTextParser:
    """Splits what a model writes into sentences with their citations, as it arrives.

    Citations of passages that were not found are removed and counted, and so are sentences that cite none."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers = frozenset(numbers)
        self._text = ""
        self._starts_paragraph = True
        self.removed_citations = 0
        self.uncited_sentences = 0

    async def read(self, fragments: AsyncIterator[str]) -> AsyncIterator[AnswerSentence]:
        async for fragment in fragments:
            for sentence in self.feed(fragment):
                yield sentence
        for sentence in self.end():
            yield sentence

    def feed(self, text: str) -> list[AnswerSentence]:
        """Returns the sentences that are complete: another one has begun after them."""
        self._text = _moved_citations(self._text + text)
        # What may become a citation belongs to the sentence before it.
        partial = _PARTIAL_CITATION.search(self._text)
        end = partial.start() if partial is not None else len(self._text)
        *complete, last = [*sentences(self._text[:end])] or [Sentence(0, 0, is_heading=False)]
        start = last.start
        if end - start > _SENTENCE_MAX_CHARS:
            # A model can write without end.
            complete, start = [*complete, last], end
        found = [self._read(self._text[one.start : one.end]) for one in complete]
        self._text = self._text[start:]
        return [one for one in found if one is not None]

    def end(self) -> list[AnswerSentence]:
        """Returns the rest."""
        found = [self._read(self._text[one.start : one.end]) for one in sentences(self._text)]
        self._text = ""
        return [one for one in found if one is not None]

    def _read(self, part: str) -> AnswerSentence | None:
        cited: dict[int, None] = {}
        for match in _CITATION.finditer(part):
            for number in _cited_numbers(match[1]):
                if number in self._numbers:
                    cited[number] = None
                else:
                    self.removed_citations += 1
        text = without_markup(_SPACE_BEFORE_MARK.sub(r"\1", _CITATION.sub("", part)))
        starts_paragraph, self._starts_paragraph = self._starts_paragraph, part.rstrip(" ").endswith("\n")
        if not any(map(str.isalnum, text)):
            return None
        if not cited:
            self.uncited_sentences += 1
        return AnswerSentence(text=text, citations=tuple(cited), starts_paragraph=starts_paragraph)


def _moved_citations(text: str) -> str:
    """Moves citations that follow the end of a sentence before it, because they belong to that sentence."""
    return _CITATION_AFTER_END.sub(lambda match: f" {match[2].strip()}{match[1]}{match[3]}", text)


def _cited_numbers(text: str) -> Iterator[int]:
    """Yields the numbers of `1`, `1, 2` and `1-3`. A long range is one number that was not found."""
    for part in re.split(r"[,;\s]+", text.strip(" ,;^")):
        first, _, last = part.replace("–", "-").partition("-")
        if first.isdecimal() and last.isdecimal() and 0 <= int(last) - int(first) <= _RANGE_MAX:
            yield from range(int(first), int(last) + 1)
        elif first.isdecimal():
            yield int(first)
