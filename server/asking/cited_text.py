"""Answers as sentences that cite numbered passages, and as text."""

import re
from collections.abc import Collection, Sequence

from msgspec import Struct

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


def answer_text(sentences: Sequence[AnswerSentence], citations: Sequence[Citation]) -> str:
    """Returns an answer as plain text, with a line for each passage that it cites."""
    text = ""
    for sentence in sentences:
        marks = "".join(f"[{number}]" for number in sentence.citations)
        separator = "" if not text else "\n\n" if sentence.starts_paragraph else " "
        text += f"{separator}{sentence.text}{' ' if marks else ''}{marks}"
    lines = [f"[{one.number}] {' '.join(one.title.split())} ({one.uri})" for one in citations]
    return "\n\n".join([text, *(["\n".join(lines)] if lines else [])])


def stored_sentences(content: str, model: str | None, numbers: Collection[int]) -> tuple[AnswerSentence, ...]:
    """Reads what `answer_text` wrote back into sentences. Quotations may contain numbers in brackets of their own."""
    text = content.rpartition("\n\n")[0] if numbers else content
    sentences = []
    for paragraph in filter(None, text.split("\n\n")):
        match = _LAST_CITATION.fullmatch(paragraph)
        number = int(match[2]) if match else 0
        if match is None or number not in numbers:
            sentences.append(AnswerSentence(text=paragraph, starts_paragraph=True))
        else:
            sentences.append(AnswerSentence(text=match[1], citations=(number,), starts_paragraph=True))
    return tuple(sentences)
