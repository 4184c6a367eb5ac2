"""Finds the words of a vocabulary that a misspelled word may mean.

A vocabulary is one text: its words, each with a space before and after it. That takes a tenth of the memory of a list,
and most words are ruled out by searching the text for parts of the misspelled word.
"""

# Shorter words have too many neighbours.
NEAR_MIN_CHARS = 4
# Longer ones are encoded data rather than words.
NEAR_MAX_CHARS = 64
# From this length on, two letters may be wrong; before, one. Shorter words have unrelated words at that distance.
_TWO_EDITS_MIN_CHARS = 7
# A part of a compound has at least this many letters.
COMPOUND_MIN_CHARS = 5


def can_be_misspelled(word: str) -> bool:
    """Returns whether similar words are worth looking for: not for numbers and names of things with digits."""
    return len(word) >= NEAR_MIN_CHARS and not any(map(str.isdigit, word))


def similar_words(word: str, vocabulary: str) -> dict[str, int]:
    """Returns the words that a misspelled word may mean, each with the number of edits between the two. A swap of
    two neighbouring letters counts as one edit."""
    from rapidfuzz.distance import OSA  # noqa: PLC0415 - most processes never need it
    from rapidfuzz.process import extract  # noqa: PLC0415 - as above

    edits_max = 2 if len(word) >= _TWO_EDITS_MIN_CHARS else 1
    possible = set[str]()
    for part in _surviving_parts(word, edits_max):
        possible.update(_words_with(part, vocabulary, len(word) - edits_max, len(word) + edits_max))
    found = extract(word, possible, scorer=OSA.distance, score_cutoff=edits_max, limit=None)
    return {other: edits for other, edits, _ in found if edits and can_be_misspelled(other)}


def compounds_with(word: str, vocabulary: str) -> list[str]:
    """Returns the compounds that end with a word."""
    if len(word) < COMPOUND_MIN_CHARS:
        return []
    return _words_with(f"{word} ", vocabulary, len(word) + 1, NEAR_MAX_CHARS)


def _surviving_parts(word: str, edits_max: int) -> set[str]:
    """Returns texts of which every word within this distance contains one.

    With one edit, a word still begins with its first half or ends with its second. With two, it begins with its first
    third, or ends with its last, or one edit is in each of these, and it contains the second. An edit can also swap the
    letters at the border of two parts. Then a word begins or ends with such a part, unless there is another edit in it:
    in that case it ends or begins with the part on the other side.
    """
    cuts = [len(word) * number // (edits_max + 1) for number in range(edits_max + 2)]
    first, last = cuts[1], cuts[-2]
    beginnings = (word[:first], word[: first - 1] + word[first])
    endings = (word[last:], word[last - 1] + word[last + 1 :])
    middle = (word[first:last],) if first < last else ()
    return {*(f" {part}" for part in beginnings), *(f"{part} " for part in endings), *middle}


def _words_with(part: str, vocabulary: str, min_chars: int, max_chars: int) -> list[str]:
    """Returns the words of some lengths that contain a text, which may include the space before or after a word."""
    words = []
    at = vocabulary.find(part)
    while at >= 0:
        start, end = vocabulary.rfind(" ", 0, at + 1) + 1, vocabulary.find(" ", at + 1)
        if min_chars <= end - start <= max_chars:
            words.append(vocabulary[start:end])
        at = vocabulary.find(part, end)
    return words
