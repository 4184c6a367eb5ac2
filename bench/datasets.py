"""Reads datasets with judged questions from a folder that is not part of this repository."""

import csv
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

from config.times import format_time_seconds

REQUIRED_FILES = """\
  locomo/*.json             LoCoMo: long conversations, questions and the turns that answer them
  scifact/corpus.jsonl.gz   SciFact in BEIR's layout: abstracts,
  scifact/queries*.jsonl    claims,
  scifact/qrels*.tsv        and which abstracts are relevant to which claim"""
# The fifth category asks for information that is not in the conversation.
_ANSWERABLE = (1, 2, 3, 4)
_TURN = re.compile(r"D(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")


class MissingDataset(Exception):
    """A required file is missing from the folder."""


class Turn(Struct, frozen=True):
    id: str
    speaker: str
    text: str
    said_at: str


class Question(Struct, frozen=True):
    """`evidence` lists the turns that answer the question, at least one. `answer` is what the dataset expects."""

    text: str
    category: int
    evidence: tuple[str, ...]
    answer: str = ""


class Dialogue(Struct, frozen=True):
    """A LoCoMo conversation between two people over many sessions."""

    id: str
    sessions: tuple[tuple[Turn, ...], ...]
    questions: tuple[Question, ...]


class Abstract(Struct, frozen=True):
    id: str
    title: str
    text: str


class Claim(Struct, frozen=True):
    """`grades` contains the relevant abstracts and how relevant they are."""

    text: str
    grades: Mapping[str, int]


class JudgedData(Struct, frozen=True):
    dialogues: tuple[Dialogue, ...]
    abstracts: tuple[Abstract, ...]
    claims: tuple[Claim, ...]


def read_datasets(folder: Path) -> JudgedData:
    dialogues = read_dialogues(folder)
    [corpus] = _files(folder, "scifact/corpus.jsonl.gz")
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        abstracts = [Abstract(entry["_id"], entry["title"], entry["text"]) for entry in map(json.loads, lines)]
    return JudgedData(dialogues, tuple(abstracts), tuple(_claims(folder)))


def read_dialogues(folder: Path) -> tuple[Dialogue, ...]:
    """Reads LoCoMo alone."""
    paths = _files(folder, "locomo/*.json")
    return tuple(_dialogue(entry) for path in paths for entry in json.loads(path.read_text()))


def _files(folder: Path, pattern: str) -> list[Path]:
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise MissingDataset(f"{folder} contains no {pattern}")
    return paths


# -- LoCoMo ------------------------------------------------------------------------------------------------------------


def _dialogue(entry: Mapping[str, Any]) -> Dialogue:
    sessions = tuple(_sessions(entry["conversation"]))
    known = {turn.id for session in sessions for turn in session}
    questions = [_question(question, known) for question in entry["qa"] if question["category"] in _ANSWERABLE]
    return Dialogue(entry["sample_id"], sessions, tuple(question for question in questions if question.evidence))


def _sessions(conversation: Mapping[str, Any]) -> Iterator[tuple[Turn, ...]]:
    numbers = sorted(int(match[1]) for name in conversation if (match := _SESSION.fullmatch(name)))
    for number in numbers:
        started_at = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(
            tzinfo=UTC
        )
        turns = conversation[f"session_{number}"]
        if turns:
            yield tuple(_turn(turn, started_at + timedelta(seconds=index)) for index, turn in enumerate(turns))


def _turn(entry: Mapping[str, Any], said_at: datetime) -> Turn:
    """The caption of a shared picture is appended to the text."""
    caption = entry.get("blip_caption")
    text = f"{entry['text']} [{caption}]" if caption else entry["text"]
    return Turn(_turn_ids(entry["dia_id"])[0], entry["speaker"], text, format_time_seconds(said_at.timestamp()))


def _question(entry: Mapping[str, Any], known: set[str]) -> Question:
    """Evidence may name several turns at once, or turns that do not exist, which are left out."""
    turns = [turn for evidence in entry.get("evidence", ()) for turn in _turn_ids(evidence)]
    evidence = tuple(turn for turn in dict.fromkeys(turns) if turn in known)
    return Question(entry["question"], entry["category"], evidence, str(entry.get("answer", "")))


def _turn_ids(text: str) -> list[str]:
    return [f"D{int(session)}:{int(turn)}" for session, turn in _TURN.findall(text)]


# -- SciFact -----------------------------------------------------------------------------------------------------------


def _claims(folder: Path) -> Iterator[Claim]:
    grades: dict[str, dict[str, int]] = {}
    for path in _files(folder, "scifact/qrels*.tsv"):
        with path.open(encoding="utf-8", newline="") as rows:
            for row in csv.DictReader(rows, delimiter="\t"):
                grades.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    for path in _files(folder, "scifact/queries*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            query = json.loads(line)
            if any(grade > 0 for grade in grades.get(query["_id"], {}).values()):
                yield Claim(query["text"], grades[query["_id"]])
