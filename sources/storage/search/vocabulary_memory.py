"""The words of full-text indexes that are in memory, of all users."""

import threading
from collections import OrderedDict

# What a vocabulary takes in memory besides its text.
_ENTRY_BYTES = 500

# The library, the index and the beginning of the words.
_VocabularyKey = tuple[int | str, str, str]


class VocabularyMemory:
    """The vocabularies of all users that were read last, as far as they fit into `max_bytes`. Each belongs to one
    version of its index."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        # Least recently used first.
        self._vocabularies: OrderedDict[_VocabularyKey, tuple[bytes, str]] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: _VocabularyKey, version: bytes) -> str | None:
        with self._lock:
            known_version, words = self._vocabularies.get(key, (b"", ""))
            if known_version != version:
                return None
            self._vocabularies.move_to_end(key)
            return words

    def put(self, key: _VocabularyKey, version: bytes, words: str) -> None:
        with self._lock:
            self._remove(key)
            self._vocabularies[key] = version, words
            self.size_bytes += _size_bytes(words)
            while self.size_bytes > self._max_bytes:
                self._remove(next(iter(self._vocabularies)))

    def forget(self, library: object) -> None:
        """Drops the vocabularies of a library that is closed."""
        with self._lock:
            for key in [key for key in self._vocabularies if key[0] == id(library)]:
                self._remove(key)

    def _remove(self, key: _VocabularyKey) -> None:
        known = self._vocabularies.pop(key, None)
        if known is not None:
            self.size_bytes -= _size_bytes(known[1])


def _size_bytes(words: str) -> int:
    return words.__sizeof__() + _ENTRY_BYTES
