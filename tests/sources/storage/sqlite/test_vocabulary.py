"""The words of libraries are kept in limited memory, each vocabulary for one version of its index."""

from sources.storage.search.vocabulary import VocabularyMemory


def test_vocabularies_that_were_not_used_for_the_longest_time_are_dropped() -> None:
    memory, library = VocabularyMemory(10_000), object()
    for number in range(100):
        memory.put((id(library), "notes_index", f"{number:02}"), b"1", " word " * 100)
        assert memory.get((id(library), "notes_index", "00"), b"1") is not None
        assert memory.size_bytes <= 10_000

    assert memory.get((id(library), "notes_index", "01"), b"1") is None
    assert memory.get((id(library), "notes_index", "99"), b"1") is not None


def test_vocabulary_that_is_larger_than_the_memory_is_not_kept() -> None:
    memory, library = VocabularyMemory(1_000), object()
    memory.put((id(library), "notes_index", ""), b"1", " word " * 1_000)

    assert memory.get((id(library), "notes_index", ""), b"1") is None
    assert memory.size_bytes == 0


def test_vocabulary_is_replaced_with_its_index() -> None:
    memory, library = VocabularyMemory(10_000), object()
    key = (id(library), "notes_index", "")
    memory.put(key, b"1", " old ")
    assert memory.get(key, b"2") is None
    memory.put(key, b"2", " new ")

    assert (memory.get(key, b"1"), memory.get(key, b"2")) == (None, " new ")


def test_closed_library_takes_no_memory() -> None:
    memory, one, other = VocabularyMemory(10_000), object(), object()
    for library in (one, other):
        memory.put((id(library), "notes_index", ""), b"1", " word ")
    size_bytes = memory.size_bytes

    memory.forget(one)

    assert memory.size_bytes == size_bytes / 2
    assert memory.get((id(other), "notes_index", ""), b"1") == " word "
