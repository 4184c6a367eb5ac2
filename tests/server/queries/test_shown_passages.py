"""A hit shows the passage of a long item that has the words of the query."""

from tests.sources.source_fixture import LibraryUser

LONG = "The wheels were replaced and the rail was cleaned before the winter began. " * 40
TITLE = "Under the dome"


async def test_hit_shows_the_text_that_matches_rather_than_a_part_with_the_same_title(
    ada: LibraryUser, ben: LibraryUser
) -> None:
    for user in (ada, ben):
        # The last chunk is short, so the title is a large part of what is indexed with it.
        content = f"{LONG}In frost the dome sticks in the south-west. {LONG}In early summer, then."
        await user.add_media(TITLE, content)

    for user in (ada, ben):
        (hit,) = await user.search("media_search", "dome")
        assert "the dome sticks" in hit["snippet"]
        assert [hit["snippet"][start:end] for start, end in hit["highlights"]] == ["dome"]


async def test_item_that_matches_only_by_its_title_is_found(ada: LibraryUser) -> None:
    await ada.add_media(TITLE, f"{LONG}In early summer, then.")

    (hit,) = await ada.search("media_search", "dome")

    assert (hit["title"], "highlights" in hit) == (TITLE, False)


async def test_column_filters_do_not_look_for_other_columns(ada: LibraryUser) -> None:
    await ada.add_media(TITLE, f"{LONG}A dome. {LONG}In summer.")

    (hit,) = await ada.search("media_search", "title:dome")

    assert hit["title"] == TITLE
