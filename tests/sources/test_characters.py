"""Characters: search by words or tags, reading as one text under headings."""

from typing import Any

import pytest

from tests.cases import each_case
from tests.sources.source_fixture import LibraryUser


async def add_wizards(user: LibraryUser) -> dict[str, int]:
    return {
        "merlin": await user.add_character("Merlin", "An old wizard of Britain.", ["fantasy", "mentor"]),
        "gandalf": await user.add_character("Gandalf", "A grey wanderer.", ["fantasy", "mentor", "tolkien"]),
        "holmes": await user.add_character("Sherlock Holmes", "A detective with mentor manners.", ["crime"]),
    }


@pytest.mark.parametrize("query", [["fantasy", "mentor"], "fantasy, mentor", "fantasy,mentor,", ["Fantasy", "MENTOR"]])
async def test_list_or_commas_mean_tags(ada: LibraryUser, ben: LibraryUser, query: Any) -> None:
    mine = await add_wizards(ada)
    await add_wizards(ben)

    response = await ada.call("characters_search", query=query)

    assert {hit["id"] for hit in response["results"]} == {mine["merlin"], mine["gandalf"]}
    assert response["read_as"].startswith("tags: ")


async def test_words_without_commas_are_searched_as_words(ada: LibraryUser) -> None:
    mine = await add_wizards(ada)

    assert [hit["id"] for hit in await ada.search("characters_search", "detective")] == [mine["holmes"]]


async def test_commas_in_a_sentence_do_not_prevent_a_word_search(ada: LibraryUser) -> None:
    mine = await add_wizards(ada)

    hits = await ada.search("characters_search", "old, wise wizard")

    assert hits[0]["id"] == mine["merlin"]


async def test_list_without_matching_tags_is_searched_as_words_and_says_so(ada: LibraryUser) -> None:
    mine = await add_wizards(ada)

    response = await ada.call("characters_search", query=["grey", "wanderer"])

    assert response["results"][0]["id"] == mine["gandalf"]
    assert response["read_as"] == "words: grey wanderer; no character has all these tags"


async def test_pages_of_a_tag_search_contain_every_character_once(ada: LibraryUser) -> None:
    expected = [await ada.add_character(f"Knight {n}", tags=["round table", "brave"]) for n in range(9)]
    seen: list[int] = []
    offset: int | None = 0

    while offset is not None:
        page = await ada.call("characters_search", query=["round table", "brave"], limit=4, offset=offset)
        seen += [hit["id"] for hit in page["results"]]
        offset = page["next_offset"]

    assert sorted(seen) == sorted(expected)


@each_case("query", [[], [""], [" , "], "", ",,"])
async def test_empty_query_matches_nothing(ada: LibraryUser, query: Any) -> None:
    await add_wizards(ada)

    assert await ada.search("characters_search", query) == []


async def test_loc_contains_field_and_offset(ada: LibraryUser) -> None:
    await ada.add_character("Merlin", "A wizard.", scenario="He lives in a cave of crystal.")

    (hit,) = await ada.search("characters_search", "crystal")

    assert hit["loc"]["field"] == "scenario"
    assert hit["loc"]["approx_offset"] >= 0


async def test_character_is_returned_whole_under_headings(ada: LibraryUser) -> None:
    merlin = await ada.add_character(
        "Merlin", "A wizard.", ["fantasy"], personality="Grumpy.", alternate_greetings=["Hm?", "You again."]
    )

    response = await ada.read("characters", merlin)

    assert response["mode"] == "full"
    assert response["content"] == (
        "# Merlin\n\n## Description\n\nA wizard.\n\n## Personality\n\nGrumpy.\n\n"
        "## Alternate greetings\n\nHm?\n\nYou again.\n\n## Tags\n\nfantasy"
    )


async def test_field_in_loc_selects_the_passage(ada: LibraryUser) -> None:
    merlin = await ada.add_character("Merlin", "A wizard. " * 400, scenario="A cave of crystal. " * 400)

    response = await ada.read("characters", merlin, loc={"field": "scenario"}, retrieval={"mode": "snippet"})

    assert response["content"].startswith("A cave of crystal.")


async def test_missing_field_is_rejected_with_the_existing_ones(ada: LibraryUser) -> None:
    merlin = await ada.add_character("Merlin", "A wizard.")

    message = await ada.call_error(
        "characters_get", character_id=merlin, loc={"field": "scenario"}, retrieval={"mode": "chunk"}
    )

    assert message == "loc.field: expected a field of this item (name, description), got 'scenario'"


@each_case("item_id", ["3", 3.0])
async def test_id_may_be_text_or_float(ada: LibraryUser, item_id: Any) -> None:
    for name in ("Merlin", "Gandalf", "Morgana"):
        await ada.add_character(name)

    assert (await ada.read("characters", item_id))["meta"]["title"] == "Morgana"


async def test_non_numeric_id_is_not_found(ada: LibraryUser) -> None:
    message = await ada.call_error("characters_get", character_id="Merlin")

    assert message == "character 'Merlin' not found"
