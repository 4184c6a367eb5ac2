"""Counts the terms of a query in texts, for scoring."""

from collections.abc import Mapping, Sequence

from sources.query import Term
from sources.search.term_matching import JoinedForms, TermMatcher, pad
from sources.text.folding import fold
from sources.text.segmentation import segment


class TermCounter:
    """The terms of one query, prepared to be counted in the index forms of many texts."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._matchers = [TermMatcher(term.word) for term in terms]

    def count(self, form: str) -> list[int]:
        """Returns how often each term matches."""
        padded = pad(form)
        return [matcher.count(padded) for matcher in self._matchers]

    def count_each(self, forms: Sequence[str]) -> list[tuple[int, ...]]:
        """Returns how often each term matches in each of several texts, which are searched as one."""
        joined = JoinedForms(forms)
        return list(zip(*[matcher.count_each(joined) for matcher in self._matchers], strict=True))


def best_field(fields: Mapping[str, str], counter: TermCounter) -> tuple[str, str] | None:
    """Returns the name and text of the field that matches most terms; if none matches, of the first that is not
    empty."""
    filled = [(name, text) for name, text in fields.items() if text]
    if len(filled) < 2:
        return filled[0] if filled else None
    # Folding finds everything except other scripts and parts of identifiers, and is much cheaper than segmenting.
    folded = {name: fold(text) for name, text in filled}
    best = _best_match(folded, counter) or _best_match({name: segment(text) for name, text in filled}, counter)
    return (best, fields[best]) if best is not None else filled[0]


def _best_match(forms: Mapping[str, str], counter: TermCounter) -> str | None:
    best, best_name = (0, 0), None
    for name, form in forms.items():
        counts = counter.count(form)
        matches = (sum(map(bool, counts)), sum(counts))
        if matches > best:
            best, best_name = matches, name
    return best_name
