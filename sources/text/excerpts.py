"""Short excerpts from the beginning of a text, quoted literally on one line."""

import re

from sources.text.word_boundaries import word_boundary_before

# A sentence ends at a mark followed by white space; ideographic marks need none.
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++(?=\s)|[。！？]")


def first_sentence(text: str, limit_chars: int) -> str:
    """Returns the first sentence of the first line that is not blank, shortened to the limit."""
    line = _first_non_blank_line(text)
    end = _SENTENCE_END.search(line)
    return shorten(line[: end.end()] if end else line, limit_chars)


def first_line(text: str, limit_chars: int) -> str:
    """Returns the first line that is not blank, shortened to the limit."""
    return shorten(_first_non_blank_line(text), limit_chars)


def shorten(text: str, limit_chars: int) -> str:
    """Returns the text on one line. If it is over the limit, it is cut between words and ends with `…`."""
    line = " ".join(text.split())
    return line if len(line) <= limit_chars else line[: word_boundary_before(line, limit_chars - 1)].rstrip() + "…"


def _first_non_blank_line(text: str) -> str:
    return next((stripped for line in text.splitlines() if (stripped := line.strip())), "")
