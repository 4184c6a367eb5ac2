"""Counts the terms of a query in texts, for scoring."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from sources.query import Term
from sources.search.term_matching import JoinedForms, pad, term_matcher
from sources.text.segmentation import segment

# How often a term of a query matches, by the number of the text.
TermCounts = dict[int, int]


class TermCounter:
    """The terms of one query, prepared to be counted in the index forms of many texts."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._matchers = [term_matcher(term.word) for term in terms]

    def count(self, form: str) -> list[int]:
        """Returns how often each term matches."""
        padded = pad(form)
        return [matcher.count(padded) for matcher in self._matchers]

    def count_each(self, forms: JoinedForms) -> list[TermCounts]:
        """Returns how often each term matches, by the number of the text, in those of several texts that have it. The
        texts are searched as one."""
        return [matcher.count_each(forms) for matcher in self._matchers]


@lru_cache(maxsize=64)
def term_counter(terms: tuple[Term, ...]) -> TermCounter:
    """Returns the counter of these terms. All sources of a search need the same."""
    return TermCounter(terms)


def best_field(fields: Mapping[str, str], counter: TermCounter) -> tuple[str, str] | None:
    """Returns the name and text of the field that matches most terms; if none matches, of the first that is not empty.
    Returns None if all are empty."""
    filled = [(name, text) for name, text in fields.items() if text]
    if len(filled) < 2:
        return filled[0] if filled else None
    forms = JoinedForms([text for _, text in filled])
    by_term = counter.count_each(forms)
    counts = [[in_fields.get(field, 0) for in_fields in by_term] for field in range(len(forms))]
    # Folding finds everything except other scripts and parts of identifiers, and is much cheaper than segmenting.
    if not any(map(any, counts)):
        counts = [counter.count(segment(text)) for _, text in filled]
    best, chosen = (0, 0), filled[0]
    for field, in_field in zip(filled, counts, strict=True):
        if any(in_field) and (matches := (len(in_field) - in_field.count(0), sum(in_field))) > best:
            best, chosen = matches, field
    return chosen
