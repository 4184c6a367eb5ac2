"""Other ways to write a word or a number of a query."""

from sources.query import parse
from sources.query.numbers import join_numbers, number_spellings
from tests.cases import each_case


def spellings(query: str) -> set[str]:
    """Returns all that the query matches, with a space between tokens."""
    return {" ".join(phrase.tokens) for term in parse(query).terms for phrase in term.word.alternatives}


@each_case(
    ("query", "others"),
    [
        ("12.5kg", ["12 5 kg", "12 5kg"]),
        ("12.5 kg", ["12 5 kg", "12 5kg"]),
        ("4TB", ["4tb", "4 tb"]),
        ("disk of 4 TB", ["4tb", "4 tb", "disk"]),
        ("1299", ["1299", "1 299"]),
        ("$1,299.99", ["1 299 99", "1299 99"]),
        ("1299.99", ["1299 99", "1 299 99"]),
        ("+49301234567", ["49301234567", "49 30 1234567"]),
        ("5551234567", ["555 123 4567"]),
        ("030 1234567", ["030 1234567", "0301234567", "1234567"]),
        ("(030) 123-4567", ["030 123 4567", "0301234567"]),
        ("9783161484100", ["9783161484100", "978 3 16 148410 0"]),
        ("978-3-16-148410-0", ["978 3 16 148410 0", "9783161484100"]),
        ("DE89370400440532013000", ["de89370400440532013000", "de89 3704 0044 0532 0130 00"]),
        ("DE89 3704 0044 0532 0130 00", ["de89 3704 0044 0532 0130 00", "de89370400440532013000"]),
        ("co-operate", ["co operate", "cooperate"]),
        ("cooperate", ["cooperate", "co operate"]),
        ("xray", ["xray", "x ray"]),
        ("mouse", ["mouse", "mice"]),
        ("teeth", ["teeth", "tooth"]),
    ],
)
def test_query_matches_other_spellings(query: str, others: list[str]) -> None:
    assert set(others) <= spellings(query)


@each_case("query", ["2023", "2023-05-08", "10:30", "remember", "every", "self", "4 you", "12 18"])
def test_no_other_spelling_is_tried_for_dates_and_common_words(query: str) -> None:
    assert [len(term.word.alternatives) for term in parse(query).terms] == [1] * len(parse(query).terms)


@each_case("query", ["1.2.3", "192.168.0.1", "v2.10", "08.05.2023"])
def test_versions_and_addresses_have_no_groups(query: str) -> None:
    assert [len(term.word.alternatives) for term in parse(query).terms] == [2]


def test_numbers_that_do_not_belong_together_stay_apart() -> None:
    texts = ["flights", "12", "18", "may", "3", "kg", "0049", "call"]
    assert list(join_numbers(texts)) == ["flights", "12", "18", "may", "3kg", "0049", "call"]


def test_number_of_spellings_is_bounded() -> None:
    assert max(len(number_spellings(text)) for text in ("+491512345678901"[:16], "9783161484100", "123456789")) < 200
