"""Identifiers as searchable words: C++, C#, .NET and the parts of camelCase words."""

import re
from collections.abc import Iterator

_DOUBLE_PLUS = re.compile(r"(?<![^\W_])([A-Za-z])\+\+(?!\+)")
_SHARP = re.compile(r"(?<![^\W_])([A-Za-z])#")
_DOTNET = re.compile(r"(?<!\.)\.net(?![^\W_])", re.IGNORECASE)
# Maps each ASCII character to its class (upper, lower, digit, other), so that bytes.find can find "aB" without a
# regular expression.
_CLASSES = bytes(
    ord("A") if 65 <= code <= 90 else ord("a") if 97 <= code <= 122 else ord("0") if 48 <= code <= 57 else ord(" ")
    for code in range(256)
)
_CAMEL_CASE_PART = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")
# Longer words of mixed case are encoded data, whose parts would only bloat the index.
_CAMEL_CASE_MAX_CHARS = 64


def spell_identifiers(text: str) -> str:
    """Spells C++, C# and .NET as words and appends the parts of all camelCase words, so that they break no phrase."""
    if "+" in text:
        text = _DOUBLE_PLUS.sub(r" \1plusplus ", text)
    if "#" in text:
        text = _SHARP.sub(r" \1sharp ", text)
    if ".n" in text or ".N" in text:
        text = _DOTNET.sub(" dotnet ", text)
    classes = text.encode("ascii", "replace").translate(_CLASSES)
    return " ".join([text, *_all_camel_case_parts(text, classes)]) if b"aA" in classes else text


def _all_camel_case_parts(text: str, classes: bytes) -> Iterator[str]:
    end = 0
    while (boundary := classes.find(b"aA", end)) >= 0:
        start = classes.rfind(b" ", end, boundary) + 1 or end
        end = classes.find(b" ", boundary)
        end = len(text) if end < 0 else end
        if end - start <= _CAMEL_CASE_MAX_CHARS:
            yield from _CAMEL_CASE_PART.findall(text[start:end])


def camel_case_parts(word: str) -> list[str]:
    """Returns the parts of a camelCase word, or an empty list for any other text."""
    classes = word.encode("ascii", "replace").translate(_CLASSES)
    if b"aA" not in classes or b" " in classes or len(word) > _CAMEL_CASE_MAX_CHARS:
        return []
    return _CAMEL_CASE_PART.findall(word)
