"""Notes: found by words and keywords, read in passages."""

from tests.sources.source_fixture import LibraryUser

TEXT = " ".join(f"Sentence {n} tells of topic{n}." for n in range(200))


async def test_keywords_limit_notes_to_those_that_have_all_of_them(ada: LibraryUser, ben: LibraryUser) -> None:
    both = await ada.add_note("Voyage", "A galleon.", ["ships", "history"])
    await ada.add_note("Voyage", "A galleon.", ["ships"])
    await ben.add_note("Voyage", "A galleon.", ["ships", "history"])

    hits = await ada.search("notes_search", "galleon", keywords=["history", "Ships"])

    assert [hit["id"] for hit in hits] == [both]
    assert sorted(hits[0]["tags"]) == ["history", "ships"]


async def test_a_note_is_found_by_its_title(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage of the Beagle", "Finches.")

    assert [hit["id"] for hit in await ada.search("notes_search", "title:beagle")] == [note]


async def test_the_loc_of_a_note_is_an_offset_near_the_match(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", TEXT)

    (hit,) = await ada.search("notes_search", "topic150")

    assert list(hit["loc"]) == ["approx_offset"]
    assert abs(TEXT.index("topic150") - hit["loc"]["approx_offset"]) < 400


async def test_a_get_without_retrieval_is_a_snippet(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", TEXT)

    answer = await ada.read("notes", note)

    assert (answer["mode"], answer["anchor"]) == ("snippet", "beginning")
    assert len(answer["content"]) <= 300
    assert answer["content"].startswith("Sentence 0")


async def test_a_chunk_is_chosen_by_its_index(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", TEXT)
    options = {"mode": "chunk", "chunk_size_tokens": 50, "chunk_overlap_tokens": 0}

    first = await ada.read("notes", note, loc={"chunk_index": 0}, retrieval=options)
    second = await ada.read("notes", note, loc={"chunk_index": 1}, retrieval=options)

    assert TEXT.startswith(first["content"] + second["content"])


async def test_a_chunk_index_that_the_note_does_not_have_is_refused_with_the_range(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "One chunk only.")

    sentence = await ada.call_error("notes_get", note_id=note, loc={"chunk_index": 5}, retrieval={"mode": "chunk"})

    assert sentence == "loc.chunk_index: expected 0 to 0, got 5"


async def test_a_cursor_of_a_changed_note_is_refused(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", TEXT)
    page = await ada.read("notes", note, retrieval={"mode": "full", "max_tokens": 300})
    async with ada.libraries.library(ada.context) as library:
        await library.notes.append(note, " And more.")

    sentence = await ada.call_error("notes_get", note_id=note, cursor=page["next_cursor"])

    assert "expected a cursor of version 2, got one of version 1" in sentence


async def test_a_cursor_of_another_note_is_refused(ada: LibraryUser) -> None:
    first, second = await ada.add_note("One", TEXT), await ada.add_note("Two", TEXT)
    page = await ada.read("notes", first, retrieval={"mode": "full", "max_tokens": 300})

    assert "another item" in await ada.call_error("notes_get", note_id=second, cursor=page["next_cursor"])


async def test_an_empty_note_is_read_in_every_mode(ada: LibraryUser) -> None:
    note = await ada.add_note("Empty", "")

    for mode in ("snippet", "chunk", "chunk_with_siblings", "full"):
        answer = await ada.read("notes", note, query="anything", retrieval={"mode": mode})
        assert (answer["content"], answer["next_cursor"], answer["truncated"]) == ("", None, False)


async def test_the_full_text_is_the_text(ada: LibraryUser) -> None:
    text = "  Leading space,\r\n\ttabs and 👨‍👩‍👧‍👦 stay.\n\n"
    note = await ada.add_note("Exact", text)

    assert (await ada.read("notes", note, retrieval={"mode": "full"}))["content"] == text


async def test_a_long_title_is_shortened_on_the_wire(ada: LibraryUser) -> None:
    await ada.add_note("galleon " * 60, "text")

    (hit,) = await ada.search("notes_search", "galleon")

    assert len(hit["title"]) <= 200
    assert hit["title"].endswith("…")


async def test_a_missing_id_is_named(ada: LibraryUser) -> None:
    assert await ada.call_error("notes_get") == "note_id: required argument is missing"


async def test_what_a_note_has_no_part_in_finds_nothing_and_says_why(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "A galleon.")

    answer = await ada.call("notes_search", query="galleon sender:Ana")

    assert answer["results"] == []
    assert answer["read_as"] == "searched for nothing; sender:Ana cannot match: notes have no sender"


async def test_words_are_weighed_by_how_common_they_are_in_the_whole_library(
    ada: LibraryUser, ben: LibraryUser
) -> None:
    for reader in (ada, ben):
        await reader.add_note("Voyage", "A galleon at sea.")
        await reader.add_note("Repair", "A broken mast.")
    before = (await ada.search("notes_search", "galleon mast"))[0]["score"]

    for number in range(30):
        await ada.add_media(f"Film {number}", "A galleon, and another galleon.")
    scores = {hit["title"]: hit["score"] for hit in await ada.search("notes_search", "galleon mast")}

    assert scores["Voyage"] < before < scores["Repair"]
    assert (await ben.search("notes_search", "galleon mast"))[0]["score"] == before


async def test_an_empty_query_with_keywords_is_reported_as_a_filter(ada: LibraryUser, ben: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.", ["work"])
    await ben.add_note("Ben's", "A galleon.", ["work"])

    answer = await ada.call("notes_search", query="", keywords=["work"])

    assert [hit["id"] for hit in answer["results"]] == [note]
    assert answer["read_as"] == "filter only, newest first"
