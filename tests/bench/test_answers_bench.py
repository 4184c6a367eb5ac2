"""The benchmark of first responses: its questions have answers, it runs end to end, and it reads what models see."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.answers import (
    DEMO,
    LOCOMO,
    AnswerQuestion,
    AnswerResult,
    InvalidQuestions,
    MissedAnswer,
    choose_questions,
    list_missed,
    normalise,
    read_questions,
    report,
    result_line,
    text_of,
    texts_of_demo,
    visible_text,
)
from bench.datasets import Dialogue, Question, Turn
from sources.demo import read_demo
from tests.bench.runs import run_bench
from tests.cases import each_case

NUMBER = r"[01]\.[0-9]{4}"
RESULT = re.compile(
    rf"RESULT answered=({NUMBER}) answered_search={NUMBER} tokens_p50=([0-9]+) empty_snippets=[0-9]+ "
    rf"answered_limit8=({NUMBER}) answered_words=({NUMBER})"
)
QUESTION = AnswerQuestion(ask="how much was it", answers=("412 crowns", "it's “free”"))
QUESTIONS = """
    [[question]]
    ask = "How long does a turn take?"
    answers = ["96 seconds"]
    items = ["notes/dome-repair"]
"""


def result(part: str = DEMO, *, answered: bool, tokens: int = 900, empty: int = 0) -> AnswerResult:
    missed = None if answered else MissedAnswer(QUESTION, 20, 26, 3, ("notes, Costs: 'much'",))
    return AnswerResult(part, answered, False, True, tokens, empty, missed)


def test_short_run_asks_about_both_libraries_and_prints_the_result(tmp_path: Path) -> None:
    turn = {"dia_id": "D1:1", "speaker": "Ana", "text": "I bought a violin made of maple wood in Cremona."}
    entry = {
        "sample_id": "conv-1",
        "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [turn]},
        "qa": [
            {"question": "What did Ana buy?", "answer": "violin made of maple", "evidence": ["D1:1"], "category": 4}
        ],
    }
    (tmp_path / "locomo").mkdir()
    (tmp_path / "locomo" / "some.json").write_text(json.dumps([entry]))

    completed = run_bench("bench.answers", str(tmp_path), "--words-only", "--questions", "5", "--show-missed")

    assert completed.returncode == 0, completed.stderr
    *lines, last = completed.stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith(("words, demo  ", "words, LoCoMo  "))]
    assert [row[:3] for row in rows] == [["words,", "demo", "5"], ["words,", "LoCoMo", "1"]]
    # A conversation with one message has one hit, which is shown whole by all tools.
    assert rows[1][3:6] == ["1.0000"] * 3
    assert rows[1][7] == "0"
    figures = RESULT.fullmatch(last)
    assert figures
    assert figures[1] == figures[4]
    assert float(figures[3]) >= 0.3


def test_folder_without_locomo_is_reported(tmp_path: Path) -> None:
    completed = run_bench("bench.answers", str(tmp_path))

    assert completed.returncode == 2
    assert "contains no locomo/" in completed.stderr


# -- the questions -----------------------------------------------------------------------------------------------------


def test_questions_cover_all_sources_and_a_fifth_is_in_own_words() -> None:
    questions = read_questions()

    assert len(questions) >= 60
    assert len({question.ask for question in questions}) == len(questions)
    sources = [{item.split("/")[0] for item in question.items} for question in questions]
    for source, at_least in {"notes": 20, "media": 15, "chats": 15, "characters": 5, "prompts": 5}.items():
        assert sum(source in one for one in sources) >= at_least
    assert sum(question.own_words for question in questions) >= len(questions) / 5


@each_case("question", lambda: [one for one in read_questions() if one.own_words])
def test_questions_in_own_words_share_no_longer_word_with_their_passage(question: AnswerQuestion) -> None:
    people = {"maren", "pell"}
    texts = texts_of_demo(read_demo())
    answers = [normalise(answer) for answer in question.answers]
    passages = [
        texts[item][max(0, texts[item].index(answer) - 100) : texts[item].index(answer) + len(answer) + 100]
        for item in question.items
        for answer in answers
        if answer in texts[item]
    ]

    words = {word[:6] for word in re.findall(r"\w{5,}", normalise(question.ask))} - people
    shared = {word for passage in passages for word in words if re.search(rf"\b{word}", passage)}

    # Small words that every text has.
    assert shared <= {"should", "where", "having"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("How long does a turn take?", "Does a turn take 96 seconds?", "contains its answer"),
        ('["notes/dome-repair"]', '["notes/dome-log"]', r"expected items \['notes/dome-repair'\]"),
        ('"96 seconds"', '"97 seconds"', r"expected items \[\]"),
        ('"96 seconds"', '"96 seconds", "97 seconds"', "no item contains '97 seconds'"),
        ("ask =", "query =", "query"),
        ("[[question]]", "[[questions]]", "question"),
    ],
)
def test_invalid_questions_are_rejected(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "answers.toml"
    path.write_text(QUESTIONS)
    assert len(read_questions(path)) == 1
    path.write_text(QUESTIONS.replace(old, new))

    with pytest.raises(InvalidQuestions, match=message):
        read_questions(path)


def test_only_questions_whose_answer_is_in_one_turn_alone_are_chosen() -> None:
    said_at = "2023-05-08T13:56:00Z"
    texts = ["I bought an old violin.", "I play the trumpet at home.", "You play the trumpet?", "A cat, yes."]
    turns = tuple(Turn(f"D1:{number}", "Ana", text, said_at) for number, text in enumerate(texts, 1))
    questions = (
        Question("What did Ana buy?", 4, ("D1:1",), "An old violin"),
        Question("Does Ana own an old violin?", 4, ("D1:1",), "an old violin"),
        Question("What does Ana play?", 4, ("D1:2",), "the trumpet"),
        Question("What does Ana do in two turns?", 4, ("D1:1", "D1:2"), "an old violin"),
        Question("Which pet?", 4, ("D1:4",), "A cat"),
        Question("What else?", 4, ("D1:2",), "an old violin"),
    )

    chosen = choose_questions(Dialogue("conv-1", (turns,), questions))

    assert [one.ask for one in chosen] == ["What did Ana buy?"]


# -- reading a response ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["Cost: **412\ncrowns**.", "| 412 | Crowns |", "It\u2019s \u201cfree\u201d now", "“412 crowns”"]
)
def test_answer_is_found_despite_markup_case_and_typography(text: str) -> None:
    assert QUESTION.is_answered_by(normalise(text))


@pytest.mark.parametrize("text", ["1412 crowns", "412 crownsx", "412", ""])
def test_part_of_a_word_or_number_is_no_answer(text: str) -> None:
    assert not QUESTION.is_answered_by(normalise(text))


@pytest.mark.parametrize(
    "hit",
    [
        {"title": "Costs", "snippet": "412 crowns"},
        {"title": "412 crowns", "snippet": "x"},
        {"passages": ["x", "412 crowns"]},
        {"passages": [{"text": "412 crowns", "sender": "Ana"}]},
        {"id": "notes://1", "title": "Costs", "url": "http://x", "text": "412 crowns"},
    ],
)
def test_titles_and_passages_of_json_are_read(hit: dict[str, Any]) -> None:
    assert QUESTION.is_answered_by(visible_text(json.dumps({"results": [hit]})))


def test_metadata_and_other_fields_of_json_are_not_read() -> None:
    hit = {
        "title": "Costs",
        "tags": ["412 crowns"],
        "uri": "notes://412 crowns",
        "passages": [{"sender": "412 crowns"}],
    }

    assert not QUESTION.is_answered_by(visible_text(json.dumps({"results": [hit], "note": "412 crowns"})))
    assert not text_of(hit).strip()


def test_markdown_is_read_without_its_addresses() -> None:
    assert QUESTION.is_answered_by(visible_text("1. **Costs** (notes)\n   > together _412 crowns_"))
    assert not AnswerQuestion(ask="", answers=("costs",)).is_answered_by(visible_text("see notes://costs"))


# -- the figures -------------------------------------------------------------------------------------------------------


def test_result_has_the_figures_of_the_last_model_over_both_libraries() -> None:
    words = [result(answered=False), result(LOCOMO, answered=False)]
    minilm = [result(answered=True, tokens=1_000, empty=2), result(LOCOMO, answered=False, tokens=500, empty=1)]

    assert result_line({"words": words, "minilm": minilm}) == (
        "RESULT answered=0.5000 answered_search=0.0000 tokens_p50=750 empty_snippets=3 answered_limit8=1.0000 "
        "answered_words=0.0000 answered_minilm=0.5000"
    )
    rows = list(report({"words": words, "minilm": minilm}))
    assert [row.split()[:3] for row in rows[1:]] == [
        [f"{model},", part, "1"] for model in ("words", "minilm") for part in (DEMO, LOCOMO)
    ]


def test_report_says_that_locomo_was_not_measured() -> None:
    assert "LoCoMo was not measured" in list(report({"words": [result(answered=True)]}))[-1]


def test_missed_questions_are_listed_with_their_cause() -> None:
    lines = list(list_missed({"words": [result(answered=False), result(answered=True)]}))

    assert lines[0] == "words, demo: ranked low, hit 26, answered with limit 8: how much was it"
    assert lines[2] == "    1. notes, Costs: 'much'"
    assert lines[3] == "words, demo: 1 missed: ranked low 1"


@pytest.mark.parametrize(
    ("position", "item_position", "cause"),
    [(3, 1, "text cut"), (21, 1, "ranked low"), (None, 4, "another passage"), (None, None, "not found")],
)
def test_cause_depends_on_where_the_answer_would_be(
    position: int | None, item_position: int | None, cause: str
) -> None:
    assert MissedAnswer(QUESTION, 20, position, item_position, ()).cause == cause
