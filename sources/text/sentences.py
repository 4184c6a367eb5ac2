"""How a text begins, as it stands: nothing is put into other words."""

import re

from sources.text.boundaries import word_border

# A sentence ends at a mark that white space follows; ideographic marks need none.
_END = re.compile(r"[.!?…]+(?=\s)|[。！？]")


def first_sentence(text: str, limit_chars: int) -> str:
    """The first sentence of the first line that says anything, on one line and no longer than the limit."""
    line = next((stripped for one in text.splitlines() if (stripped := one.strip())), "")
    end = _END.search(line)
    return shorten(line[: end.end()] if end else line, limit_chars)


def first_line(text: str, limit_chars: int) -> str:
    return shorten(next((stripped for one in text.splitlines() if (stripped := one.strip())), ""), limit_chars)


def shorten(text: str, limit_chars: int) -> str:
    """On one line, cut between words, with `…` where it goes on."""
    line = " ".join(text.split())
    return line if len(line) <= limit_chars else line[: word_border(line, limit_chars - 1)].rstrip() + "…"
