"""The sentences that answer a question: rarity, surroundings, and what the question asks for."""

from hypothesis import given
from hypothesis import strategies as st

from sources.query import QueryLimits, parse
from sources.search.answers import ANSWER_MAX_SENTENCES, FoundPassage, answer_sentences, expected_kind
from tests.cases import each_case


def best(question: str, *texts: str, title: str = "", weights: dict[str, float] | None = None) -> str:
    """Returns the best answer. Words weigh 1 unless they are given a weight."""
    terms = parse(question, QueryLimits(max_chars=1_000, max_terms=64)).terms
    values = [(weights or {}).get(term.word.text, 1.0) for term in terms]
    passages = [FoundPassage(title, text, 0.5) for text in texts]
    found = answer_sentences(question, terms, values, passages)
    return found[0].text if found else ""


# Longer than what is shown with a sentence.
FILLER = "Nothing else was written down on that day, because nobody had the time for it. " * 5


def test_rare_words_decide() -> None:
    text = f"The dog ate the whole dinner. {FILLER} The axolotl ate."
    assert "axolotl" in best("what did the axolotl ate dinner", text, weights={"axolotl": 5.0})


def test_sentence_is_about_what_its_heading_names() -> None:
    text = f"# Boiler\n\nServiced by Hanna.\n\n# Car\n\n{FILLER}\n\nServiced by Otto."
    assert "Hanna" in best("who serviced the boiler", text)


def test_what_follows_a_question_answers_it() -> None:
    text = f"Cheese is fine. {FILLER}\n\nMaren: Which cheese will you bring?\n\nHenrik: The one from the ewes."
    assert "ewes" in best("which cheese will Henrik bring", text)


@each_case(
    "question, right, wrong",
    [
        ("when was the boiler serviced", "The boiler was serviced in May.", "The boiler was serviced well."),
        ("how many guests came", "Some 61 guests came.", "The guests came."),
        ("who serviced the boiler", "The boiler was serviced by Hanna.", "The boiler was serviced by them."),
        ("wann war das Fest", "Das Fest war am 3. Juni.", "Das Fest war gut."),
    ],
)
def test_sentence_has_what_the_question_asks_for(question: str, right: str, wrong: str) -> None:
    assert right in best(question, f"{wrong} {FILLER} {right}")


def test_what_a_person_says_does_not_say_who_the_person_is() -> None:
    text = f"Henrik: Hello there.\n\n{FILLER}\n\nHenrik owns the sheep."
    assert "sheep" in best("Who is Henrik?", text)


@each_case(
    "question, kind",
    [("When?", "time"), ("how much is it", "number"), ("Who came?", "name"), ("Who is Ada?", None), ("Why?", None)],
)
def test_kind_of_a_question(question: str, kind: str | None) -> None:
    assert expected_kind(question) == kind


def test_overlapping_passages_are_quoted_once_and_few_are_quoted() -> None:
    terms = parse("boiler", QueryLimits(max_chars=1_000, max_terms=64)).terms
    same = [FoundPassage("", "The boiler hums.", 0.5)] * 3
    others = [FoundPassage("", f"Boiler number {number} hums.", 0.5) for number in range(9)]
    assert len(answer_sentences("boiler", terms, [1.0], same)) == 1
    assert len(answer_sentences("boiler", terms, [1.0], others)) == ANSWER_MAX_SENTENCES


@given(st.text(max_size=200), st.lists(st.text(max_size=900), max_size=5))
def test_answers_are_parts_of_their_passages(question: str, texts: list[str]) -> None:
    terms = parse(question, QueryLimits(max_chars=1_000, max_terms=64)).terms
    passages = [FoundPassage("", text, 0.5) for text in texts]
    for one in answer_sentences(question, terms, [1.0] * len(terms), passages):
        assert one.text in texts[one.passage]
        assert len(one.text) <= 900
