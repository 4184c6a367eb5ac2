"""Notes: search by words and keywords, reading in passages."""

import pytest

from tests.sources.source_fixture import LibraryUser

TEXT = " ".join(f"Sentence {n} tells of topic{n}." for n in range(200))


async def test_keywords_match_only_notes_that_have_all_of_them(ada: LibraryUser, ben: LibraryUser) -> None:
    both = await ada.add_note("Voyage", "A galleon.", ["ships", "history"])
    await ada.add_note("Voyage", "A galleon.", ["ships"])
    await ben.add_note("Voyage", "A galleon.", ["ships", "history"])

    hits = await ada.search("notes_search", "galleon", keywords=["history", "Ships"])

    assert [hit["id"] for hit in hits] == [both]
    assert sorted(hits[0]["tags"]) == ["history", "ships"]


async def test_note_is_found_by_its_title(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage of the Beagle", "Finches.")

    assert [hit["id"] for hit in await ada.search("notes_search", "title:beagle")] == [note]


async def test_loc_is_an_offset_near_the_match(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", TEXT)

    (hit,) = await ada.search("notes_search", "topic150")

    assert list(hit["loc"]) == ["approx_offset"]
    assert abs(TEXT.index("topic150") - hit["loc"]["approx_offset"]) < 400


async def test_get_without_retrieval_returns_a_snippet(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", TEXT)

    response = await ada.read("notes", note)

    assert (response["mode"], response["anchor"]) == ("snippet", "beginning")
    assert len(response["content"]) <= 300
    assert response["content"].startswith("Sentence 0")


async def test_chunk_is_selected_by_its_index(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", TEXT)
    options = {"mode": "chunk", "chunk_size_tokens": 50, "chunk_overlap_tokens": 0}

    first = await ada.read("notes", note, loc={"chunk_index": 0}, retrieval=options)
    second = await ada.read("notes", note, loc={"chunk_index": 1}, retrieval=options)

    assert TEXT.startswith(first["content"] + second["content"])


async def test_chunk_index_out_of_range_is_rejected_with_the_range(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "One chunk only.")

    message = await ada.call_error("notes_get", note_id=note, loc={"chunk_index": 5}, retrieval={"mode": "chunk"})

    assert message == "loc.chunk_index: expected 0 to 0, got 5"


async def test_cursor_of_a_changed_note_is_rejected(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", TEXT)
    page = await ada.read("notes", note, retrieval={"mode": "full", "max_tokens": 300})
    async with ada.libraries.library(ada.context) as library:
        await library.notes.append(note, " And more.")

    message = await ada.call_error("notes_get", note_id=note, cursor=page["next_cursor"])

    assert "expected a cursor of version 2, got one of version 1" in message


async def test_cursor_of_another_note_is_rejected(ada: LibraryUser) -> None:
    first, second = await ada.add_note("One", TEXT), await ada.add_note("Two", TEXT)
    page = await ada.read("notes", first, retrieval={"mode": "full", "max_tokens": 300})

    assert "another item" in await ada.call_error("notes_get", note_id=second, cursor=page["next_cursor"])


async def test_empty_note_can_be_read_in_every_mode(ada: LibraryUser) -> None:
    note = await ada.add_note("Empty", "")

    for mode in ("snippet", "chunk", "chunk_with_siblings", "full"):
        response = await ada.read("notes", note, query="anything", retrieval={"mode": mode})
        assert (response["content"], response["next_cursor"], response["truncated"]) == ("", None, False)


async def test_full_mode_returns_the_exact_text(ada: LibraryUser) -> None:
    text = "  Leading space,\r\n\ttabs and 👨‍👩‍👧‍👦 stay.\n\n"
    note = await ada.add_note("Exact", text)

    assert (await ada.read("notes", note, retrieval={"mode": "full"}))["content"] == text


async def test_long_title_is_shortened(ada: LibraryUser) -> None:
    await ada.add_note("galleon " * 60, "text")

    (hit,) = await ada.search("notes_search", "galleon")

    assert len(hit["title"]) <= 200
    assert hit["title"].endswith("…")


async def test_missing_id_is_rejected_by_name(ada: LibraryUser) -> None:
    assert await ada.call_error("notes_get") == "note_id: expected the id or uri of a hit, got nothing"


async def test_filter_that_notes_do_not_support_matches_nothing_and_says_why(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "A galleon.")

    response = await ada.call("notes_search", query="galleon sender:Ana")

    assert response["results"] == []
    assert response["read_as"] == "searched for nothing; sender:Ana cannot match: notes have no sender"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "galleon after:2026-05-01 before:2026-04-01",
            "before:2026-04-01 cannot match: after:2026-05-01 allows only later times",
        ),
        (
            "galleon after:2026-05-01 before:2026-05-01",
            "before:2026-05-01 cannot match: after:2026-05-01 allows only later times",
        ),
        ("galleon after:2026-05-01 before:2026-05-02", None),
    ],
)
async def test_filters_that_leave_no_time_match_nothing_and_say_why(
    ada: LibraryUser, query: str, reason: str | None
) -> None:
    await ada.add_note("Voyage", "A galleon.")

    response = await ada.call("notes_search", query=query)

    assert response["results"] == []
    assert (reason in response["read_as"]) if reason else ("cannot match" not in response.get("read_as", ""))


async def test_words_are_weighted_by_their_frequency_in_the_whole_library(ada: LibraryUser, ben: LibraryUser) -> None:
    for user in (ada, ben):
        await user.add_note("Voyage", "A galleon at sea.")
        await user.add_note("Repair", "A broken mast.")
    before = (await ada.search("notes_search", "galleon mast"))[0]["score"]

    for number in range(30):
        await ada.add_media(f"Film {number}", "A galleon, and another galleon.")
    scores = {hit["title"]: hit["score"] for hit in await ada.search("notes_search", "galleon mast")}

    assert scores["Voyage"] < before < scores["Repair"]
    assert (await ben.search("notes_search", "galleon mast"))[0]["score"] == before


async def test_an_empty_query_with_keywords_is_reported_as_a_filter(ada: LibraryUser, ben: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.", ["work"])
    await ben.add_note("Ben's", "A galleon.", ["work"])

    response = await ada.call("notes_search", query="", keywords=["work"])

    assert [hit["id"] for hit in response["results"]] == [note]
    assert response["read_as"] == "filter only, newest first"


async def test_uri_of_a_hit_quotes_an_id_that_is_not_safe_in_a_uri(ada: LibraryUser) -> None:
    note, other = (
        await ada.add_note("Voyage", "A galleon.", uuid="a:b.c"),
        await ada.add_note("Voyage", "Two galleons."),
    )

    hits = await ada.search("notes_search", "galleon")

    assert {hit["uri"] for hit in hits} == {"notes://a%3Ab.c", f"notes://{other}"}
    assert (await ada.read("notes", note))["meta"]["uri"] == "notes://a%3Ab.c"
