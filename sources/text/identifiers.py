"""Identifiers as searchable words: C++, C#, .NET and the parts of camelCase words.

Functions that only look at ASCII characters take the text encoded as Latin-1, with `?` for every other character: bytes
are searched faster, and offsets are the same.
"""

import re
from collections.abc import Iterable

Span = tuple[int, int]
Spelling = tuple[int, int, str]

# For each identifier a mark to look for, where the identifier starts relative to it, and the spelling after its letter.
_SPELLINGS = (
    (b"++", -1, re.compile(r"(?<![^\W_])([A-Za-z])\+\+(?!\+)"), "plusplus"),
    (b"#", -1, re.compile(r"(?<![^\W_])([A-Za-z])#"), "sharp"),
    (b".net", 0, re.compile(r"(?<!\.)\.net()(?![^\W_])", re.IGNORECASE), "dotnet"),
)
# Maps each character to its class (upper, lower, digit, other), so that bytes.find can find "aB" without a regular
# expression.
_CLASSES = bytes(
    ord("A") if 65 <= code <= 90 else ord("a") if 97 <= code <= 122 else ord("0") if 48 <= code <= 57 else ord(" ")
    for code in range(256)
)
_CAMEL_CASE_PART = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
# Longer words of mixed case are encoded data, whose parts would only bloat the index.
_CAMEL_CASE_MAX_CHARS = 64


def encode_latin1(text: str) -> bytes:
    return text.encode("latin-1", "replace")


def may_have_identifiers(encoded: bytes, folded: str) -> bool:
    """Returns whether a text may contain C++, C# or .NET, judged by the text and its fold. Much faster than a
    search."""
    return b"+" in encoded or b"#" in encoded or " net" in folded or folded.startswith("net")


def identifier_spellings(text: str, encoded: bytes) -> list[Spelling]:
    """Returns start, end and spelling of each C++, C# and .NET in a text."""
    lowered = encoded.lower()
    spellings: list[Spelling] = []
    for mark, offset, pattern, spelling in _SPELLINGS:
        position = lowered.find(mark)
        while position >= 0:
            match = pattern.match(text, position + offset) if position + offset >= 0 else None
            if match is not None:
                spellings.append((match.start(), match.end(), f" {match[1]}{spelling} "))
            position = lowered.find(mark, position + 1)
    spellings.sort()
    return spellings


def spell(text: str, spellings: Iterable[Spelling]) -> str:
    """Replaces each identifier with its spelling."""
    pieces: list[str] = []
    position = 0
    for start, end, spelling in spellings:
        pieces += (text[position:start], spelling)
        position = end
    return "".join([*pieces, text[position:]])


def camel_case_words(encoded: bytes) -> list[Span]:
    """Returns the start and end of each camelCase word."""
    classes = encoded.translate(_CLASSES)
    spans: list[Span] = []
    end = 0
    while (boundary := classes.find(b"aA", end)) >= 0:
        start = classes.rfind(b" ", end, boundary) + 1 or end
        end = classes.find(b" ", boundary)
        end = len(classes) if end < 0 else end
        if end - start <= _CAMEL_CASE_MAX_CHARS:
            spans.append((start, end))
    return spans


def has_camel_case(encoded: bytes) -> bool:
    """Returns whether a text may contain camelCase words."""
    return b"aA" in encoded.translate(_CLASSES)


def all_camel_case_parts(text: str, words: Iterable[Span]) -> list[str]:
    """Returns the parts of camelCase words, in lower case."""
    return [part.lower() for start, end in words for part in _CAMEL_CASE_PART.findall(text, start, end)]


def camel_case_part_spans(text: str, words: Iterable[Span]) -> list[tuple[int, int, int]]:
    """Returns the start and end of each part of camelCase words, and the end of its word."""
    return [(*part.span(), word[1]) for word in words for part in _CAMEL_CASE_PART.finditer(text, *word)]


def camel_case_parts(word: str) -> list[str]:
    """Returns the parts of a camelCase word, or an empty list for any other text."""
    return _CAMEL_CASE_PART.findall(word) if camel_case_words(encode_latin1(word)) == [(0, len(word))] else []
