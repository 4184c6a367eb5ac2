"""Tags count in the score, and words match across the spellings of their language."""

import pytest

from tests.cases import each_case
from tests.sources.source_fixture import SOURCES, LibraryUser


@each_case("source", SOURCES)
@each_case(("tag", "query"), [("kubernetes", "kubernetes"), ("東京", "東京"), ("größe", "Groesse")])
async def test_item_is_found_by_a_tag(ada: LibraryUser, ben: LibraryUser, source: str, tag: str, query: str) -> None:
    await ada.add_item(source, "Plan", "Upgrade the cluster.", tags=[tag, "work"])
    await ben.add_item(source, "Plan", "Upgrade the cluster.", tags=[tag])

    hits = await ada.search(f"{source}_search", query)

    assert [hit["title"] for hit in hits] == ["Plan"]
    assert hits[0]["score"] > 0.2
    assert tag in hits[0]["tags"]


async def test_tag_raises_the_score_of_a_hit(ada: LibraryUser) -> None:
    await ada.add_note("Without", "Upgrade of the cluster with kubernetes.")
    await ada.add_note("Tagged", "Upgrade of the cluster with kubernetes.", ["kubernetes"])

    hits = await ada.search("notes_search", "kubernetes")

    assert [hit["title"] for hit in hits] == ["Tagged", "Without"]
    assert hits[0]["score"] > hits[1]["score"]


async def test_removed_tag_is_not_found(ada: LibraryUser) -> None:
    note = await ada.add_note("Plan", "Upgrade the cluster.", ["kubernetes"])
    async with ada.libraries.library(ada.context) as library:
        stored = await library.notes.get(note)
        assert stored.tags == ("kubernetes",)
    await ada.call("items_tag", uri=f"notes://{note}", remove=["kubernetes"])

    assert await ada.search("knowledge_search", "kubernetes") == []


async def test_character_with_all_tags_of_the_query_has_the_full_score(ada: LibraryUser) -> None:
    await ada.add_character("Gandalf", "A wanderer.", ["wizard", "old"])

    (hit,) = await ada.search("characters_search", "wizard, old")

    assert hit["score"] == 1.0


async def test_vietnamese_tone_marks_tell_words_apart(ada: LibraryUser) -> None:
    await ada.add_note("Seedling", "Nông dân cấy mạ trên ruộng.")
    await ada.add_note("Ghost", "Chuyện kể về con ma ở trên núi.")
    await ada.add_note("Cheek", "Em bé có đôi má hồng rất xinh ở trên ruộng.")

    async def titles(query: str) -> list[str]:
        return [hit["title"] for hit in await ada.search("notes_search", query)]

    assert (await titles("cấy mạ"))[0] == "Seedling"
    assert (await titles("đôi má ở đâu"))[0] == "Cheek"
    assert (await titles("mạ ở đâu"))[0] == "Seedling"
    assert set(await titles("ma")) == {"Seedling", "Ghost", "Cheek"}


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Herr Müller ruft an", "Mueller"),
        ("Herr Mueller ruft an", "Müller"),
        ("Die Straße ist gesperrt", "Strasse"),
        ("Vi besøger København", "Koebenhavn"),
        ("Vi rejser til Aarhus", "Århus"),
        ("Hún býr á Íslandi", "islandi"),
        ("El niño aprendió a nadar", "nino aprendio"),
        ("İstanbul'da yağmur yağıyor", "istanbul yagmur"),
    ],
)
async def test_letters_match_in_their_other_spellings(ada: LibraryUser, text: str, query: str) -> None:
    await ada.add_note("Text", text)
    await ada.add_note("Other", "Something else")

    response = await ada.call("knowledge_search", query=query)

    assert [hit["title"] for hit in response["results"]] == ["Text"]
    assert "read_as" not in response
