"""Notes: appending, batches and search."""

import pytest

from config.errors import Conflict, InvalidParams, NotFound
from sources.drafts import NoteDraft
from sources.storage.contract import Library
from tests.sources.storage.library_fixture import OpenLibraries, ids, make_search, titles

pytestmark = pytest.mark.postgres(is_contract=True)


async def test_appended_text_is_stored_and_found(ada: Library, ben: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="List", content="bread"))
    appended = await ada.notes.append(note.id, "\nmarmalade", expected_version=1)
    assert (appended.content, appended.version, appended.title) == ("bread\nmarmalade", 2, "List")
    assert ids(await ada.notes.search(make_search("marmalade"))) == [note.id]
    with pytest.raises(Conflict):
        await ada.notes.append(note.id, "tea", expected_version=1)
    with pytest.raises(NotFound):
        await ben.notes.append(note.id, "tea")


async def test_note_needs_neither_title_nor_text(ada: Library) -> None:
    note = await ada.notes.create(NoteDraft())
    assert (note.title, note.content, note.tags) == ("", "", ())


async def test_batch_is_written_in_order(ada: Library, ben: Library) -> None:
    notes = await ada.notes.create_many([NoteDraft(title=f"Tea {n}", tags=["home"]) for n in range(300)])
    assert [note.title for note in notes] == [f"Tea {n}" for n in range(300)]
    assert (await ada.notes.search(make_search("tea", limit=1))).total == 300
    assert (await ben.notes.search(make_search("tea", limit=1))).total == 0
    assert await ada.notes.create_many([]) == []


async def test_batch_with_an_invalid_item_is_not_written(ada: Library) -> None:
    await ada.notes.create(NoteDraft(title="Tea", uuid="tea-1"))
    for invalid, error in ((NoteDraft(uuid="tea-1"), Conflict), (NoteDraft(content="\0"), InvalidParams)):
        with pytest.raises(error):
            await ada.notes.create_many([NoteDraft(title="Coffee"), invalid, NoteDraft(title="Milk")])
    assert (await ada.notes.list(10, 0)).total == 1
    assert (await ada.notes.search(make_search("coffee milk"))).hits == ()


async def test_first_item_that_exists_is_the_error_of_a_batch(ada: Library) -> None:
    await ada.notes.create(NoteDraft(title="Tea", uuid="tea-1"))
    drafts = [NoteDraft(title="Coffee"), NoteDraft(title="Milk"), NoteDraft(uuid="tea-1"), NoteDraft(title="Sugar")]
    with pytest.raises(Conflict, match="note 'tea-1' already exists"):
        await ada.notes.create_many([*drafts, NoteDraft(content="\0")])
    await ada.notes.create(NoteDraft(title="Cocoa", tags=["home"]))
    assert sorted([note.title for note in (await ada.notes.list(10, 0)).rows]) == ["Cocoa", "Tea"]
    assert (await ada.notes.search(make_search("coffee milk sugar"))).hits == ()


async def test_sizes_are_limited_by_settings(open_libraries: OpenLibraries) -> None:
    async with open_libraries(item_max_chars=1_000, batch_max_items=3) as libraries, libraries.library("ada") as ada:
        note = await ada.notes.create(NoteDraft(content="x" * 1_000))
        with pytest.raises(InvalidParams, match="content: expected at most 1000 characters, got 1001"):
            await ada.notes.create(NoteDraft(content="x" * 1_001))
        with pytest.raises(InvalidParams, match="content: expected at most 1000 characters, got 1001"):
            await ada.notes.append(note.id, "y")
        with pytest.raises(InvalidParams, match="items: expected at most 3 per call, got 4"):
            await ada.notes.create_many([NoteDraft()] * 4)


async def test_hit_contains_the_fields_of_the_note(ada: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="Green tea", content="Leaves, not bags.", tags=["Home"]))
    [hit] = (await ada.notes.search(make_search("green leaves"))).hits
    assert (hit.id, hit.title, hit.text, hit.tags) == (note.id, "Green tea", "Leaves, not bags.", ("Home",))
    assert (hit.created_at, hit.last_modified, hit.version) == (note.created_at, note.last_modified, 1)
    assert (hit.content_hash, hit.item_chars) == (note.content_hash, 17)
    assert 0 < hit.score < 1


async def test_note_with_all_words_ranks_above_one_that_repeats_a_word(ada: Library) -> None:
    await ada.notes.create(NoteDraft(title="Often", content="tea tea tea tea"))
    await ada.notes.create(NoteDraft(title="Both", content=f"tea and {'other words ' * 200} milk"))
    texts = await ada.notes.search(make_search("tea milk"))
    assert titles(texts) == ["Both", "Often"]


async def test_title_match_ranks_above_text_match(ada: Library) -> None:
    await ada.notes.create(NoteDraft(title="Walks", content="tea"))
    await ada.notes.create(NoteDraft(title="Tea", content="walks"))
    assert titles(await ada.notes.search(make_search("tea"))) == ["Tea", "Walks"]
    assert titles(await ada.notes.search(make_search("title:tea"))) == ["Tea"]


async def test_title_that_begins_like_the_question_ranks_higher(ada: Library) -> None:
    await ada.notes.create(NoteDraft(title="Who is who", content="Ana keeps the keys."))
    await ada.notes.create(NoteDraft(title="Last week", content="Ana lost the keys."))
    assert titles(await ada.notes.search(make_search("who is Ana?"))) == ["Who is who", "Last week"]
    assert titles(await ada.notes.search(make_search("Ana"))) == ["Last week", "Who is who"]


async def test_operators_are_applied(ada: Library) -> None:
    for text in ("tea milk", "tea sugar", "milk sugar", "tea with cold milk"):
        await ada.notes.create(NoteDraft(content=text))
    texts = {
        query: sorted(hit.text for hit in (await ada.notes.search(make_search(query))).hits)
        for query in ("tea AND milk", '"tea milk"', "tea -milk", "sug* NOT tea", "(tea OR sugar) AND milk")
    }
    assert texts == {
        "tea AND milk": ["tea milk", "tea with cold milk"],
        '"tea milk"': ["tea milk"],
        "tea -milk": ["tea sugar"],
        "sug* NOT tea": ["milk sugar"],
        "(tea OR sugar) AND milk": ["milk sugar", "tea milk", "tea with cold milk"],
    }


async def test_updated_note_is_found_only_by_its_new_words(ada: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="Tea", content="東京 C++ naïve"))
    await ada.notes.update(note.id, NoteDraft(title="Coffee", content="京都"))
    for old in ("tea", "東京", "C++", "naive"):
        assert (await ada.notes.search(make_search(old))).hits == ()
    for new in ("coffee", "京都"):
        assert ids(await ada.notes.search(make_search(new))) == [note.id]
