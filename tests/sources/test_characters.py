"""Characters: found by words or tags, read as one text under headings."""

from typing import Any

import pytest

from tests.sources.source_fixture import LibraryUser


async def wizards(reader: LibraryUser) -> dict[str, int]:
    return {
        "merlin": await reader.add_character("Merlin", "An old wizard of Britain.", ["fantasy", "mentor"]),
        "gandalf": await reader.add_character("Gandalf", "A grey wanderer.", ["fantasy", "mentor", "tolkien"]),
        "holmes": await reader.add_character("Sherlock Holmes", "A detective with mentor manners.", ["crime"]),
    }


@pytest.mark.parametrize("query", [["fantasy", "mentor"], "fantasy, mentor", "fantasy,mentor,", ["Fantasy", "MENTOR"]])
async def test_a_list_or_commas_mean_tags(ada: LibraryUser, ben: LibraryUser, query: Any) -> None:
    mine = await wizards(ada)
    await wizards(ben)

    answer = await ada.call("characters_search", query=query)

    assert {hit["id"] for hit in answer["results"]} == {mine["merlin"], mine["gandalf"]}
    assert answer["read_as"].startswith("tags: ")


async def test_words_are_searched_for_as_words(ada: LibraryUser) -> None:
    mine = await wizards(ada)

    assert [hit["id"] for hit in await ada.search("characters_search", "detective")] == [mine["holmes"]]


async def test_a_comma_in_a_sentence_is_a_comma(ada: LibraryUser) -> None:
    mine = await wizards(ada)

    hits = await ada.search("characters_search", "old, wise wizard")

    assert hits[0]["id"] == mine["merlin"]


async def test_a_list_that_names_no_tags_is_read_as_words_and_says_so(ada: LibraryUser) -> None:
    mine = await wizards(ada)

    answer = await ada.call("characters_search", query=["grey", "wanderer"])

    assert answer["results"][0]["id"] == mine["gandalf"]
    assert answer["read_as"] == "words: grey wanderer; no character has all these tags"


async def test_pages_of_a_search_by_tags_hold_every_character_once(ada: LibraryUser) -> None:
    expected = [await ada.add_character(f"Knight {n}", tags=["round table", "brave"]) for n in range(9)]
    seen: list[int] = []
    offset: int | None = 0

    while offset is not None:
        page = await ada.call("characters_search", query=["round table", "brave"], limit=4, offset=offset)
        seen += [hit["id"] for hit in page["results"]]
        offset = page["next_offset"]

    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("query", [[], [""], [" , "], "", ",,"])
async def test_a_query_that_names_nothing_finds_nothing(ada: LibraryUser, query: Any) -> None:
    await wizards(ada)

    assert await ada.search("characters_search", query) == []


async def test_the_loc_of_a_character_names_field_and_offset(ada: LibraryUser) -> None:
    await ada.add_character("Merlin", "A wizard.", scenario="He lives in a cave of crystal.")

    (hit,) = await ada.search("characters_search", "crystal")

    assert hit["loc"]["field"] == "scenario"
    assert hit["loc"]["approx_offset"] >= 0


async def test_a_character_is_read_whole_under_headings(ada: LibraryUser) -> None:
    merlin = await ada.add_character(
        "Merlin", "A wizard.", ["fantasy"], personality="Grumpy.", alternate_greetings=["Hm?", "You again."]
    )

    answer = await ada.read("characters", merlin)

    assert answer["mode"] == "full"
    assert answer["content"] == (
        "# Merlin\n\n## Description\n\nA wizard.\n\n## Personality\n\nGrumpy.\n\n"
        "## Alternate greetings\n\nHm?\n\nYou again.\n\n## Tags\n\nfantasy"
    )


async def test_a_field_is_an_anchor(ada: LibraryUser) -> None:
    merlin = await ada.add_character("Merlin", "A wizard. " * 400, scenario="A cave of crystal. " * 400)

    answer = await ada.read("characters", merlin, loc={"field": "scenario"}, retrieval={"mode": "snippet"})

    assert answer["content"].startswith("A cave of crystal.")


async def test_a_field_the_character_does_not_have_is_refused_with_those_it_has(ada: LibraryUser) -> None:
    merlin = await ada.add_character("Merlin", "A wizard.")

    sentence = await ada.call_error(
        "characters_get", character_id=merlin, loc={"field": "scenario"}, retrieval={"mode": "chunk"}
    )

    assert sentence == "loc.field: expected a field of this item (name, description), got 'scenario'"


@pytest.mark.parametrize("identity", ["3", 3.0])
async def test_a_number_may_be_sent_as_a_model_sends_it(ada: LibraryUser, identity: Any) -> None:
    for name in ("Merlin", "Gandalf", "Morgana"):
        await ada.add_character(name)

    assert (await ada.read("characters", identity))["meta"]["title"] == "Morgana"


async def test_an_id_that_is_no_number_is_refused(ada: LibraryUser) -> None:
    sentence = await ada.call_error("characters_get", character_id="Merlin")

    assert sentence.startswith("character_id: expected `int`, got `str`")
