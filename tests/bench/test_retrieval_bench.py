"""The retrieval benchmark uses the tools, computes the datasets' metrics, and reports missing data."""

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import retrieval
from bench.datasets import MissingDataset, read_datasets
from bench.metrics import ndcg, recall
from bench.plain_bm25 import PlainBm25
from bench.quality.assistant import FILE as ASSISTANT_FILE
from bench.quality.assistant import FOLDER as LONG_CHATS
from bench.quality.assistant import AssistantChats, InvalidChats, read_assistant_chats, read_long_chats
from bench.retrieval import Outcome, QuestionResult, result_line
from bench.vector_cache import CachedVectors
from config.settings import Settings
from sources.semantic.named_models import FAST, load_model
from tests.bench.runs import run_bench

NUMBER = r"[01]\.[0-9]{4}"
RESULT = re.compile(
    rf"RESULT locomo_turn_r10=({NUMBER}) locomo_turn_r10_fast={NUMBER} scifact_ndcg10=({NUMBER}) "
    rf"scifact_ndcg10_fast={NUMBER} empty_answers=({NUMBER}) locomo_dates_r10=({NUMBER}) "
    rf"assistant_r10=({NUMBER}) assistant_r10_fast=({NUMBER}) "
    rf"locomo_turn_r10_loo={NUMBER} locomo_turn_r10_fast_loo={NUMBER}"
)


def turn(number: str, speaker: str, text: str, **more: str) -> dict[str, str]:
    return {"dia_id": number, "speaker": speaker, "text": text, **more}


def question(text: str, *evidence: str, category: int = 4) -> dict[str, Any]:
    return {"question": text, "evidence": list(evidence), "category": category}


SESSIONS = {
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        turn("D1:1", "Ana", "I bought a violin yesterday."),
        turn("D1:2", "Ben", "How lovely!", blip_caption="a photo of a lighthouse"),
    ],
    "session_2_date_time": "12:05 am on 31 December, 2023",
    "session_2": [turn("D2:1", "Ben", "The ferry to the island leaves at noon.")],
    "session_3_date_time": "9:00 am on 1 January, 2024",
    "session_3": [],
}
QUESTIONS = [
    question("When did Ana buy the violin in May?", "D1:1", category=2),
    question("Who showed a lighthouse?", "D1:2"),
    question("What do the violin and the ferry have in common?", "D1:1; D2:01", category=1),
]
ABSTRACTS = [
    {"_id": "11", "title": "Folic acid", "text": "Folate lowers homocysteine in blood."},
    {"_id": "12", "title": "Prions", "text": "Carriers of prions show no symptoms."},
]


def write_data(folder: Path, questions: Sequence[dict[str, Any]], claims: dict[str, str], grades: str) -> Path:
    dialogue = {"sample_id": "conv-1", "conversation": {"speaker_a": "Ana", **SESSIONS}, "qa": questions}
    (folder / "locomo").mkdir()
    (folder / "locomo" / "some.json").write_text(json.dumps([dialogue]))
    scifact = folder / "scifact"
    scifact.mkdir()
    with gzip.open(scifact / "corpus.jsonl.gz", "wt") as corpus:
        corpus.writelines(json.dumps(abstract) + "\n" for abstract in ABSTRACTS)
    queries = [json.dumps({"_id": number, "text": text}) for number, text in claims.items()]
    (scifact / "queries_some.jsonl").write_text("\n".join(queries))
    (scifact / "qrels_some.tsv").write_text(f"query-id\tcorpus-id\tscore\n{grades}")
    return folder


def test_answered_questions_count_fully_and_empty_results_are_reported(tmp_path: Path) -> None:
    questions = [*QUESTIONS, question("Quagga xylophone?", "D2:1")]
    claims = {"1": "Does folate lower homocysteine?", "2": "prions"}
    data = write_data(tmp_path, questions, claims, "1\t11\t1\n2\t12\t1\n")

    completed = run_bench("bench.retrieval", str(data), "--models", "fast")

    result = RESULT.fullmatch(completed.stdout.splitlines()[-1])
    assert result, completed.stderr
    # Three of four questions are answered. One of eight searches (claims are searched in notes and media) has no
    # results.
    figures = [float(number) for number in result.groups()]
    assert figures[:4] == [0.75, 1.0, 0.125, 1.0]
    # The chats with an assistant are part of the repository. The search must stay better than plain bm25.
    [plain] = [float(line.split()[-2]) for line in completed.stdout.splitlines() if line.startswith("plain bm25")]
    assert min(figures[4:]) > plain > 0.5


@pytest.mark.parametrize("missing", ["locomo", "scifact"])
def test_missing_dataset_is_reported(tmp_path: Path, missing: str) -> None:
    data = write_data(tmp_path, QUESTIONS, {"1": "prions"}, "1\t12\t1\n")
    (data / missing).rename(data / "elsewhere")

    completed = run_bench("bench.retrieval", str(data))

    assert completed.returncode == 2
    assert f"contains no {missing}/" in completed.stderr
    assert completed.stdout == ""


def test_only_the_chats_with_an_assistant_are_measured_without_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    complete = read_assistant_chats()
    judged = complete.questions[::9]
    keys = {key for question in judged for key in question.evidence}
    chats = [chat for chat in complete.chats if not keys.isdisjoint(message.key for message in chat.messages)]
    monkeypatch.setattr(retrieval, "read_assistant_chats", lambda: AssistantChats(tuple(chats), judged))

    retrieval.main(["--models", ""])

    *report, result = capsys.readouterr().out.splitlines()
    assert "scifact/corpus.jsonl.gz" in "\n".join(report)
    assert re.fullmatch(rf"RESULT assistant_r10={NUMBER}", result)
    assert float(result.rpartition("=")[2]) > 0.5


# -- chats with an assistant -------------------------------------------------------------------------------------------


def test_chats_with_an_assistant_are_complete_and_always_the_same() -> None:
    chats = read_assistant_chats()
    judged = {key for question in chats.questions for key in question.evidence}
    messages = {message.key: message for chat in chats.chats for message in chat.messages}

    assert chats == read_assistant_chats()
    assert judged <= set(messages)
    assert len(chats.questions) >= 150
    assert 0.45 < fmean(question.is_held_out for question in chats.questions) < 0.55
    lengths = [len(message.text.split()) for message in messages.values() if message.role == "assistant"]
    assert 300 < fmean(lengths) < 700


def test_conversations_written_in_full_have_long_answers_and_two_halves() -> None:
    long_chats = read_long_chats()
    halves: dict[bool, set[str]] = {False: set(), True: set()}
    for judged in long_chats.questions:
        halves[judged.is_held_out] |= {key.partition("/")[0] for key in judged.evidence}

    assert len(long_chats.chats) >= 12
    assert len(long_chats.questions) >= 150
    assert {judged.kind for judged in long_chats.questions} == {"user", "advice", "several", "time", "paraphrase"}
    assert all(len(judged.evidence) > 1 for judged in long_chats.questions if judged.kind == "several")
    assert halves[False].isdisjoint(halves[True])
    assert len(halves[False]) == len(halves[True]) == len(long_chats.chats) / 2
    for chat in long_chats.chats:
        assert 12 <= len(chat.messages) <= 24
        assert [message.role for message in chat.messages[:2]] == ["user", "assistant"]
        times = [message.said_at for message in chat.messages]
        assert times == sorted(times)
        for message in chat.messages:
            least, most = (10, 80) if message.role == "user" else (150, 500)
            assert least <= len(message.text.split()) <= most, message.key


def test_question_about_a_missing_message_of_a_conversation_is_rejected(tmp_path: Path) -> None:
    text = (LONG_CHATS / "rescue-dog.toml").read_text().replace('"u1", "user"', '"u9", "user"', 1)
    (tmp_path / "rescue-dog.toml").write_text(text)

    with pytest.raises(InvalidChats, match="rescue-dog/u9"):
        read_long_chats(tmp_path)


def test_question_about_a_missing_message_is_rejected(tmp_path: Path) -> None:
    text = ASSISTANT_FILE.read_text().replace('"u1"]', '"u9"]', 1)
    (tmp_path / "chats.toml").write_text(text)

    with pytest.raises(InvalidChats, match="baguettes/u9"):
        read_assistant_chats(tmp_path / "chats.toml")


def test_plain_bm25_prefers_rare_words_and_short_texts() -> None:
    index = PlainBm25({"a": "a violin and a bridge", "b": "a bridge", "c": "a bridge " + "of stone " * 20, "d": "tea"})

    assert index.search("violins on the bridge", 10) == ["a", "b", "c"]
    assert index.search("violins on the bridge", 1) == ["a"]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_sessions_are_read_in_order_with_times_speakers_and_captions(tmp_path: Path) -> None:
    data = write_data(tmp_path, QUESTIONS, {"1": "prions"}, "1\t12\t1\n")

    [dialogue] = read_datasets(data).dialogues

    [[first, second], [third]] = dialogue.sessions
    assert (first.speaker, first.text, first.said_at) == ("Ana", "I bought a violin yesterday.", "2023-05-08T13:56:00Z")
    assert (second.text, second.said_at) == ("How lovely! [a photo of a lighthouse]", "2023-05-08T13:56:01Z")
    assert (third.id, third.said_at) == ("D2:1", "2023-12-31T00:05:00Z")


def test_evidence_with_several_turns_is_split(tmp_path: Path) -> None:
    data = write_data(tmp_path, QUESTIONS, {"1": "prions"}, "1\t12\t1\n")

    [dialogue] = read_datasets(data).dialogues

    assert [question.evidence for question in dialogue.questions] == [("D1:1",), ("D1:2",), ("D1:1", "D2:1")]


def test_unanswerable_questions_are_skipped(tmp_path: Path) -> None:
    unanswerable = question("What colour was the violin?", "D1:1", category=5)
    unresolvable = question("Where is the harbour?", "D:9:9", "D7:1")
    claims = {"1": "prions", "2": "not judged", "3": "judged as irrelevant"}
    data = write_data(tmp_path, [*QUESTIONS, unanswerable, unresolvable], claims, "1\t12\t1\n3\t11\t0\n")

    datasets = read_datasets(data)

    assert len(datasets.dialogues[0].questions) == len(QUESTIONS)
    assert [claim.text for claim in datasets.claims] == ["prions"]


def test_empty_folder_raises_missing_dataset(tmp_path: Path) -> None:
    with pytest.raises(MissingDataset, match=r"locomo/\*\.json"):
        read_datasets(tmp_path)


# -- measures ----------------------------------------------------------------------------------------------------------


def test_recall_is_the_share_of_the_evidence_among_the_hits() -> None:
    assert recall(["a", "b", "x"], ["a", "b", "c", "d"]) == 0.5
    assert recall([], ["a"]) == 0.0


def test_ndcg_discounts_lower_ranks() -> None:
    # One of two relevant documents, at rank 2: (1 / log2 3) / (1 + 1 / log2 3).
    assert ndcg(["x", "a"], {"a": 1, "b": 1, "x": 0}, 10) == pytest.approx(0.386853, abs=1e-6)
    assert ndcg(["x", "a"], {"a": 1}, 1) == 0.0


@given(grades=st.dictionaries(st.text("abcdef", min_size=1), st.integers(1, 3), min_size=1), depth=st.integers(1, 12))
def test_best_order_has_an_ndcg_of_one(grades: dict[str, int], depth: int) -> None:
    best = sorted(grades, key=lambda identity: -grades[identity])

    assert ndcg(best, grades, depth) == pytest.approx(1.0)
    assert 0.0 < ndcg(best[::-1], grades, depth) <= 1.0 + 1e-9


def test_result_contains_turns_notes_and_all_empty_results() -> None:
    outcome = Outcome(
        turns=(
            QuestionResult("one turn", 1.0, is_empty=False),
            QuestionResult("time", 0.5, is_empty=False, names_date=True),
        ),
        notes=(QuestionResult("notes_search", 0.6, is_empty=False),),
        media=(QuestionResult("media_search", 0.0, is_empty=True),),
        assistant=(QuestionResult("the user's message", 0.2, is_empty=False),),
        turns_left_out=0.7,
    )

    with_model = Outcome(outcome.turns[:1], (QuestionResult("notes_search", 0.7, is_empty=True),))

    assert result_line(outcome, {}) == (
        "RESULT locomo_turn_r10=0.7500 scifact_ndcg10=0.6000 empty_answers=0.2500 locomo_dates_r10=0.5000 "
        "assistant_r10=0.2000 locomo_turn_r10_loo=0.7000"
    )
    assert result_line(outcome, {"fast": with_model}) == (
        "RESULT locomo_turn_r10=0.7500 locomo_turn_r10_fast=1.0000 scifact_ndcg10=0.6000 scifact_ndcg10_fast=0.7000 "
        "empty_answers=0.2500 locomo_dates_r10=0.5000 assistant_r10=0.2000 assistant_r10_fast=0.0000 "
        "locomo_turn_r10_loo=0.7000 locomo_turn_r10_fast_loo=0.0000"
    )


# -- vectors -----------------------------------------------------------------------------------------------------------


async def test_a_vector_of_an_earlier_run_is_not_made_again(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path), semantic_model="fast")
    texts = ["the old bridge", "a violin", "the old bridge", "", "a \ud800 surrogate"]
    first, second = CachedVectors(settings, tmp_path), CachedVectors(settings, tmp_path)

    made = await first.embed_passages(texts)
    known = await second.embed_passages([*texts, "something new"])

    assert known[: len(texts)] == made == load_model(FAST, tmp_path).embed(texts)
    assert (first.made, second.made) == (4, 1)
    await first.close()
    await second.close()
