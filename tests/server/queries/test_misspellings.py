"""Misspelled words and parts of compounds find what was meant, below what matches exactly."""

from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import SOURCES, LibraryUser


@each_case(
    ("text", "query", "word"),
    [
        ("How to bake sourdough bread", "sourdoh", "sourdough"),
        ("The bakery opens at six", "bakry", "bakery"),
        ("We will receive the parcel", "recieve", "receive"),
        ("Программирование на Питоне", "програмирование", "программирование"),
        ("Το μουσείο της Ακρόπολης", "μυσείο", "μουσειο"),
        ("مكتبة الإسكندرية القديمة", "الاسكندريه", None),
        ("הספרייה הלאומית בירושלים", "בירשולים", "בירושלים"),
        ("पुस्तकालय सुबह खुलता है", "पुसतकालय", "पुस्तकालय"),
        ("ქართული ენის ლექსიკონი", "ლექსკონი", "ლექსიკონი"),
        ("Փոքրիկ գրադարան", "գրդարան", "գրադարան"),
    ],
)
async def test_misspelled_word_finds_the_word_that_was_meant(
    ada: LibraryUser, ben: LibraryUser, text: str, query: str, word: str | None
) -> None:
    await ada.add_note("Meant", text)
    await ben.add_note("Foreign", f"{query} {text}")

    response = await ada.call("knowledge_search", query=query)

    assert [hit["title"] for hit in response["results"]] == ["Meant"]
    assert 0 < response["results"][0]["score"] < 1
    if word is not None:
        assert f"did you mean {word}?" in response["read_as"]


@each_case("source", SOURCES)
async def test_every_source_reports_and_highlights_the_near_word(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "The lighthouse keeper wrote a letter.")

    response = await ada.call(f"{source}_search", query="lighthuose")

    assert "did you mean lighthouse?" in response["read_as"]
    assert [hit["snippet"][start:end].lower() for hit in response["results"] for start, end in hit["highlights"]] == [
        "lighthouse"
    ]


async def test_word_of_the_library_is_not_corrected(ada: LibraryUser) -> None:
    await ada.add_note("Meant", "The form of the vase")
    await ada.add_note("Near", "From the vase to the fork")

    response = await ada.call("knowledge_search", query="form")

    assert [hit["title"] for hit in response["results"]] == ["Meant"]
    assert "read_as" not in response


async def test_exact_matches_come_before_near_ones(ada: LibraryUser) -> None:
    for n in range(3):
        await ada.add_note(f"Near {n}", "Steuererklärung")
    await ada.add_note("Exact", f"Die Steuer. {'Noch ein Satz über etwas anderes. ' * 40}")

    response = await ada.call("notes_search", query="Steuer")

    assert response["results"][0]["title"] == "Exact"
    assert len(response["results"]) == 4
    assert "words that begin with Steuer" in response["read_as"]


async def test_word_is_not_counted_again_as_the_beginning_of_a_compound(ada: LibraryUser) -> None:
    await ada.add_note("Tax", "Die Steuer ist bezahlt.")
    [alone] = (await ada.call("notes_search", query="Steuer"))["results"]
    await ada.add_note("Form", "Die Steuererklärung liegt bereit.")

    scores = {hit["title"]: hit["score"] for hit in (await ada.call("notes_search", query="Steuer"))["results"]}

    assert scores["Tax"] == alone["score"] > scores["Form"]


@each_case(
    ("query", "text", "word"),
    [
        ("Erklärung", "Steuererklärung und Einkommensteuererklärung", "Steuererklärung"),
        ("sommarstuga", "Vi målade sommarstugan", "sommarstugan"),
    ],
)
async def test_several_near_words_count_like_one(ada: LibraryUser, query: str, text: str, word: str) -> None:
    await ada.add_note("A", text)

    [near] = (await ada.call("notes_search", query=query))["results"]
    [exact] = (await ada.call("notes_search", query=word))["results"]

    assert 0 < near["score"] < exact["score"]


@each_case("query", ["Steuer", "Steuererklaerung", "Erklärung", "steuererklärng"])
async def test_compounds_and_umlauts(ada: LibraryUser, query: str) -> None:
    await ada.add_note("Tax", "Die Steuererklärung für 2023 liegt bereit.")

    assert [hit["title"] for hit in await ada.search("knowledge_search", query)] == ["Tax"]


async def test_quoted_word_is_corrected_only_if_it_matches_nothing(ada: LibraryUser) -> None:
    await ada.add_note("Meant", "A lighthouse")

    response = await ada.call("knowledge_search", query='"lighthuose"')

    assert [hit["title"] for hit in response["results"]] == ["Meant"]
    assert response["read_as"] == (
        "searched for lighthuose OR lighthouse; nothing matches lighthuose literally; "
        "did you mean lighthouse? (lighthuose is in no item)"
    )


async def test_pages_of_a_corrected_query_have_every_hit_once(ada: LibraryUser) -> None:
    for n in range(7):
        await ada.add_item(SOURCES[n % 5], f"Voyage {n}", f"The lighthouse number {n}.")

    whole = await ada.call("knowledge_search", query="lighthuose", limit=7)
    paged = [
        (await ada.call("knowledge_search", query="lighthuose", limit=1, offset=n))["results"][0]["uri"]
        for n in range(7)
    ]

    assert paged == [hit["uri"] for hit in whole["results"]]


async def test_human_only_words_are_no_suggestions_for_agents(ada: LibraryUser, api: RestClient) -> None:
    hidden = MessageDraft(role="user", content="The lighthouse", metadata={"human_only": True})
    await ada.add_chat("Talk", hidden, "Something else")

    for query in ("lighthuose", "lighth", "lighthousekeeper"):
        response = await ada.call("knowledge_search", query=query)
        assert (response["results"], response.get("read_as")) == ([], None)


async def test_another_user_has_another_vocabulary(ada: LibraryUser, ben: LibraryUser) -> None:
    await ben.add_note("Meant", "A lighthouse")

    response = await ada.call("knowledge_search", query="lighthuose")

    assert (response["results"], response.get("read_as")) == ([], None)


@each_case("source", SOURCES)
async def test_suggestions_follow_every_write(ada: LibraryUser, api: RestClient, source: str) -> None:
    await ada.add_item(source, "Voyage", "The lighthouse keeper wrote a letter.")
    assert "read_as" not in await ada.call("knowledge_search", query="harbuor")

    item_id = await ada.add_item(source, "Port", "The harbour is near.")
    for name in SOURCES:
        response = await ada.call(f"{name}_search", query="harbuor")
        assert (bool(response["results"]), "did you mean harbour?" in response.get("read_as", "")) == (
            (name == source,) * 2
        )

    async with ada.libraries.library(ada.context) as library:
        await getattr(library, source).delete(item_id)
    assert "read_as" not in await ada.call("knowledge_search", query="harbuor")
