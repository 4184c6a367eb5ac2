"""Collections with judged questions, read from a folder that is not part of this repository."""

import csv
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

NEEDED = """\
  locomo/*.json             LoCoMo: long conversations, questions with the turns that answer them
  scifact/corpus.jsonl.gz   SciFact in BEIR's layout: abstracts,
  scifact/queries*.jsonl    claims,
  scifact/qrels*.tsv        and which abstracts speak of which claim"""
# The fifth category asks for what was never said.
_ANSWERABLE = (1, 2, 3, 4)
_TURN = re.compile(r"D(\d+):(\d+)")
_SESSION = re.compile(r"session_(\d+)")


class MissingData(Exception):
    """The folder does not hold what is needed."""


class Turn(Struct, frozen=True):
    id: str
    speaker: str
    text: str
    said_at: str


class Question(Struct, frozen=True):
    """`evidence` are the turns that answer it, at least one."""

    text: str
    category: int
    evidence: tuple[str, ...]


class Dialogue(Struct, frozen=True):
    """One LoCoMo conversation: two people over many sessions."""

    id: str
    sessions: tuple[tuple[Turn, ...], ...]
    questions: tuple[Question, ...]


class Abstract(Struct, frozen=True):
    id: str
    title: str
    text: str


class Claim(Struct, frozen=True):
    """`grades` says which abstracts speak of it, and how much."""

    text: str
    grades: Mapping[str, int]


class Judged(Struct, frozen=True):
    dialogues: tuple[Dialogue, ...]
    abstracts: tuple[Abstract, ...]
    claims: tuple[Claim, ...]


def read_judged(folder: Path) -> Judged:
    dialogues = [_dialogue(told) for path in _files(folder, "locomo/*.json") for told in json.loads(path.read_text())]
    [corpus] = _files(folder, "scifact/corpus.jsonl.gz")
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        abstracts = [Abstract(told["_id"], told["title"], told["text"]) for told in map(json.loads, lines)]
    return Judged(tuple(dialogues), tuple(abstracts), tuple(_claims(folder)))


def _files(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    if not found:
        raise MissingData(f"{folder} holds no {pattern}")
    return found


# -- LoCoMo ------------------------------------------------------------------------------------------------------------


def _dialogue(told: Mapping[str, Any]) -> Dialogue:
    sessions = tuple(_sessions(told["conversation"]))
    known = {turn.id for session in sessions for turn in session}
    questions = [_question(asked, known) for asked in told["qa"] if asked["category"] in _ANSWERABLE]
    return Dialogue(told["sample_id"], sessions, tuple(question for question in questions if question.evidence))


def _sessions(conversation: Mapping[str, Any]) -> Iterator[tuple[Turn, ...]]:
    numbers = sorted(int(match[1]) for name in conversation if (match := _SESSION.fullmatch(name)))
    for number in numbers:
        began = datetime.strptime(conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(
            tzinfo=UTC
        )
        turns = conversation[f"session_{number}"]
        if turns:
            yield tuple(_turn(turn, began + timedelta(seconds=place)) for place, turn in enumerate(turns))


def _turn(told: Mapping[str, Any], said_at: datetime) -> Turn:
    """A shared picture is part of what was said; what it shows stands after the words."""
    caption = told.get("blip_caption")
    text = f"{told['text']} [{caption}]" if caption else told["text"]
    return Turn(_turn_ids(told["dia_id"])[0], told["speaker"], text, said_at.isoformat().replace("+00:00", "Z"))


def _question(asked: Mapping[str, Any], known: set[str]) -> Question:
    """Some evidence names several turns at once, and some none that exists; that cannot be found and is left out."""
    named = [turn for evidence in asked.get("evidence", ()) for turn in _turn_ids(evidence)]
    return Question(asked["question"], asked["category"], tuple(turn for turn in dict.fromkeys(named) if turn in known))


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
            asked = json.loads(line)
            if any(grade > 0 for grade in grades.get(asked["_id"], {}).values()):
                yield Claim(asked["text"], grades[asked["_id"]])
