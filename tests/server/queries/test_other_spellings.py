"""A query finds what is written in another way, and a long query what its rarest words are about."""

import pytest

from tests.cases import each_case
from tests.sources.source_fixture import LibraryUser


@each_case(
    ("text", "query"),
    [
        ("The parcel weighed 12.5kg.", "12.5 kg"),
        ("The parcel weighed 12.5 kg.", "12.5kg"),
        ("A disk of 4 TB", "4TB"),
        ("A disk of 4TB", "4 TB"),
        ("It cost $1,299.99 in the sale.", "1299"),
        ("It cost 1299.99 in the sale.", "$1,299.99"),
        ("Call +49 30 1234567 after five.", "+49301234567"),
        ("Call (030) 123-4567 after five.", "0301234567"),
        ("Call 0301234567 after five.", "030 123-4567"),
        ("ISBN 978-3-16-148410-0", "9783161484100"),
        ("ISBN 9783161484100", "978-3-16-148410-0"),
        ("Pay to DE89 3704 0044 0532 0130 00", "DE89370400440532013000"),
        ("Pay to DE89370400440532013000", "DE89 3704 0044 0532 0130 00"),
        ("Pay to FR1420041010050500013M02606", "FR14 2004 1010 0505 0001 3M02 606"),
        ("Call +49 (0)89 1234-5678 after five.", "+49 89 12345678"),
        ("Call 5558675309 after five.", "555 867 5309"),
        ("A speed of 120 km/h", "120km/h"),
        ("The plate says VTX-7731-K.", "vtx7731k"),
        ("The plate says VTX7731K.", "VTX-7731-K"),
        ("The plate says VTX-7731-K.", "vtx-7731k"),
        ("Order KNFL 2204 came late.", "KNFL2204"),
        ("The villages co-operate.", "cooperate"),
        ("They pre-empt the question.", "preempt"),
        ("The indices rose.", "index"),
        ("The villages cooperate.", "co-operate"),
        ("The X-ray showed a fracture.", "xray"),
        ("An xray of the hand", "X-ray"),
        ("Mice live in the barn.", "mouse"),
        ("A mouse ran by.", "mice"),
        ("Das Krankenhausbett war schmal.", "Bett"),
        ("Das Krankenhausbett war schmal.", "Haus"),
        ("Eine Lebensversicherungsgesellschaft rief an.", "Versicherung"),
        ("Das Leitungswasser ist kalt.", "Wasser"),
        ("Unser Kinderzimmer ist leer.", "Zimmer"),
        ("The appointment is on Friday.", "appointmnet"),
        ("The inscription is in Latin.", "inscriptoin"),
    ],
)
async def test_query_finds_another_spelling(ada: LibraryUser, ben: LibraryUser, text: str, query: str) -> None:
    await ada.add_note("Meant", text)
    await ada.add_note("Other", "Nothing special happened in the garden.")
    await ben.add_note("Foreign", text)
    hits = await ada.search("notes_search", query)
    assert {hit["title"] for hit in hits} == {"Meant"}
    assert any(text.startswith(hit["snippet"].strip("…")) for hit in hits)


@each_case("query", ["<script>", "script", "rape", "ration", "marker"])
async def test_word_is_not_corrected_to_a_stranger(ada: LibraryUser, query: str) -> None:
    await ada.add_note("Bell", "The inscription on the bell is in Latin. The therapeutic narration is a benchmark.")
    assert await ada.search("notes_search", query) == []


@pytest.mark.parametrize("tool", ["notes_search", "knowledge_search"])
async def test_of_a_long_query_the_rarest_words_count(ada: LibraryUser, tool: str) -> None:
    common = [f"{word}{letter}k" for word in ("report", "meeting") for letter in "abcdefghijklmnopqrstuvwxyz"]
    for number in range(12):
        await ada.add_note(f"Number {number}", " ".join(common))
    await ada.add_note("Meant", "The heron nests behind the weir.")
    response = await ada.call(tool, query=" ".join([*common, "heron", "weir"]))
    assert response["results"][0]["title"] == "Meant"
    assert "used only the 32 rarest terms" in response["read_as"]


async def test_of_a_long_query_without_spaces_the_rarest_pairs_of_letters_count(ada: LibraryUser) -> None:
    common = "".join(map(chr, range(0x4E00, 0x4E1C)))
    for number in range(12):
        await ada.add_note(f"Number {number}", common)
    await ada.add_note("Meant", "蒼鷺在堰後築巢。")
    response = await ada.call("notes_search", query=f"{common} 蒼鷺築巢")
    assert response["results"][0]["title"] == "Meant"
    assert "used only the 22 rarest terms" in response["read_as"]
