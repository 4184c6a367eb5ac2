"""Finds the times that a query mentions in its bare words. Quotations, filters and exclusions are taken literally."""

import re
from collections.abc import Iterator

from sources.query.lexer import BareWord, Symbol, lexemes
from sources.times import TimeMention, find_times

# Without any of these, a query consists of bare words.
_SYNTAX = re.compile(r"""["():“”„‟«»＂（）：]|(?<!\S)-|\bNOT\b""")


def mentioned_times(text: str) -> tuple[TimeMention, ...]:
    if not _SYNTAX.search(text):
        return find_times(text)
    return tuple(mention for run in _bare_runs(text) for mention in find_times(run))


def _bare_runs(text: str) -> Iterator[str]:
    """Yields the longest runs of words without other syntax between them."""
    run: list[str] = []
    is_excluded = False
    for lexeme in lexemes(text):
        if isinstance(lexeme, BareWord) and not is_excluded:
            run.append(lexeme.text)
            continue
        yield " ".join(run)
        run = []
        is_excluded = lexeme == Symbol("NOT")
    yield " ".join(run)
