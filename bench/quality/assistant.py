"""Reads the chats with an assistant: those of `long_chats/`, written in full, and those of `assistant.toml`.

Each is what one person asked. In `assistant.toml`, the answer to a message is the part that was written for it, between
general paragraphs of the same topic and passages from the articles of the collection. Further conversations, which both
people have, consist of these alone, with notes of the collection as what the user wrote, so that what is asked for has
to be found among much that is similar. Everything is chosen by a generator with a fixed seed, so the chats are the same
in every run.
"""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench.quality.collection import read_collection

FILE = Path(__file__).with_name("assistant.toml")
FOLDER = Path(__file__).with_name("long_chats")
# Two people, because a question such as "how much do we owe on the house" has one answer for each.
PEOPLE = FIRST_PERSON, SECOND_PERSON = "assistant", "assistant-in-full"
# How many paragraphs and passages, of about 75 words each, are added to the part of an answer that was written for it.
_PARAGRAPHS = (3, 4, 5)
_PASSAGES = (1, 2, 3)
_PASSAGE_SENTENCES = 5
# Conversations without a judged message, and their exchanges. Nearly all messages of a real library are of this kind.
_OTHER_CONVERSATIONS = 240
_OTHER_EXCHANGES = 4
_FIRST_DAY = date(2025, 1, 2)
_SENTENCE_END = re.compile(r"(?<=[.?!])\s+")


class InvalidChats(Exception):
    """The file is not a valid collection of chats."""


# What a question is about: the user, the advice that was given, several messages, or a time. A paraphrase has few words
# of its evidence. Questions of `assistant.toml` have no kind.
QuestionKind = Literal["", "user", "advice", "several", "time", "paraphrase"]


class AssistantMessage(Struct, frozen=True):
    """`key` is the id of its conversation and `u` or `a` with the number of the exchange."""

    key: str
    role: str
    text: str
    said_at: datetime


class AssistantChat(Struct, frozen=True):
    person: str
    title: str
    messages: tuple[AssistantMessage, ...]


class AssistantQuestion(Struct, frozen=True):
    person: str
    text: str
    evidence: tuple[str, ...]
    is_held_out: bool
    kind: QuestionKind = ""


class AssistantChats(Struct, frozen=True):
    chats: tuple[AssistantChat, ...]
    questions: tuple[AssistantQuestion, ...]

    def of(self, person: str) -> tuple[AssistantChat, ...]:
        return tuple(chat for chat in self.chats if chat.person == person)


class _Conversation(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    topic: str
    date: date
    title: str
    exchanges: tuple[tuple[str, str], ...]
    questions: tuple[tuple[str, str], ...]
    held_out: tuple[tuple[str, str], ...]

    def judged_questions(self) -> Iterator[AssistantQuestion]:
        for pairs, is_held_out in ((self.questions, False), (self.held_out, True)):
            for text, evidence in pairs:
                keys = tuple(f"{self.id}/{key}" for key in evidence.split())
                yield AssistantQuestion(FIRST_PERSON, text, keys, is_held_out)


class _Exchange(Struct, frozen=True, forbid_unknown_fields=True):
    at: datetime
    user: str
    assistant: str


class _LongChat(Struct, frozen=True, forbid_unknown_fields=True):
    """A question is its text, its evidence and its kind."""

    title: str
    held_out: bool
    questions: tuple[tuple[str, str, QuestionKind], ...]
    exchange: tuple[_Exchange, ...]

    def judged_questions(self, name: str) -> Iterator[AssistantQuestion]:
        for text, evidence, kind in self.questions:
            keys = tuple(f"{name}/{key}" for key in evidence.split())
            yield AssistantQuestion(SECOND_PERSON, text, keys, self.held_out, kind)


class _Texts(Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    texts: tuple[str, ...]


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    conversation: tuple[_Conversation, ...]
    paragraph: tuple[_Texts, ...]
    opening: tuple[_Texts, ...]


class _Material(Struct, frozen=True):
    """The texts of messages that are no answer to any question: the sentences of each article, and the notes."""

    articles: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def passage(self, generator: random.Random) -> str:
        """Returns a few consecutive sentences of an article."""
        sentences = generator.choice(self.articles)
        start = generator.randrange(max(1, len(sentences) - _PASSAGE_SENTENCES))
        return " ".join(sentences[start : start + _PASSAGE_SENTENCES])


def read_assistant_chats(path: Path = FILE) -> AssistantChats:
    """Raises InvalidChats if a question refers to a message that does not exist, or if a text occurs twice."""
    file = msgspec.toml.decode(path.read_bytes(), type=_File)
    material = _read_material()
    paragraphs = {one.topic: one.texts for one in file.paragraph}
    long_chats = read_long_chats()
    judged = [_judged_chat(one, paragraphs[one.topic], material) for one in file.conversation]
    judged += long_chats.chats
    questions = [question for one in file.conversation for question in one.judged_questions()]
    questions += long_chats.questions
    _check(judged, questions)
    openings = {one.topic: one.texts for one in file.opening}
    others = [
        _other_chat(number, openings[topic], paragraphs[topic], material)
        for number, topic in zip(range(_OTHER_CONVERSATIONS), itertools.cycle(openings))
    ]
    chats = (*judged, *(replace(other, person=person) for person in PEOPLE for other in others))
    return AssistantChats(chats, tuple(questions))


def read_long_chats(folder: Path = FOLDER) -> AssistantChats:
    """Raises InvalidChats like `read_assistant_chats`. A conversation has the name of its file."""
    chats: list[AssistantChat] = []
    questions: list[AssistantQuestion] = []
    for path in sorted(folder.glob("*.toml")):
        file = msgspec.toml.decode(path.read_bytes(), type=_LongChat)
        messages = []
        for number, one in enumerate(file.exchange, start=1):
            messages.append(AssistantMessage(f"{path.stem}/u{number}", "user", one.user.strip(), one.at))
            messages.append(AssistantMessage(f"{path.stem}/a{number}", "assistant", one.assistant.strip(), one.at))
        chats.append(AssistantChat(SECOND_PERSON, file.title, tuple(messages)))
        questions.extend(file.judged_questions(path.stem))
    _check(chats, questions)
    return AssistantChats(tuple(chats), tuple(questions))


def _read_material() -> _Material:
    collection = read_collection()
    articles = (tuple(_SENTENCE_END.split(one.text.strip())) for one in collection.media)
    return _Material(tuple(articles), tuple(note.text.strip() for note in collection.notes))


def _check(chats: Sequence[AssistantChat], questions: Sequence[AssistantQuestion]) -> None:
    keys = [message.key for chat in chats for message in chat.messages]
    for names in (keys, [question.text for question in questions]):
        if repeated := [name for name in names if names.count(name) > 1]:
            raise InvalidChats(f"{repeated[0]!r} occurs twice")
    for question in questions:
        if missing := set(question.evidence) - set(keys):
            raise InvalidChats(f"{question.text!r} refers to {missing.pop()!r}, which does not exist")


def _judged_chat(conversation: _Conversation, paragraphs: Sequence[str], material: _Material) -> AssistantChat:
    messages, said_at = [], _said_at(conversation.date)
    for number, (said, answered) in enumerate(conversation.exchanges, start=1):
        key = f"{conversation.id}/{{}}{number}"
        messages.append(AssistantMessage(key.format("u"), "user", said, said_at))
        text = _answer(key, paragraphs, material, answered)
        messages.append(AssistantMessage(key.format("a"), "assistant", text, said_at))
    return AssistantChat(FIRST_PERSON, conversation.title, tuple(messages))


def _other_chat(number: int, openings: Sequence[str], paragraphs: Sequence[str], material: _Material) -> AssistantChat:
    generator = random.Random(f"other {number}")
    said = [generator.choice(openings), *generator.sample(material.notes, _OTHER_EXCHANGES - 1)]
    messages, said_at = [], _said_at(_FIRST_DAY + timedelta(days=number))
    for place, text in enumerate(said, start=1):
        key = f"other-{number}/{{}}{place}"
        messages.append(AssistantMessage(key.format("u"), "user", text, said_at))
        messages.append(AssistantMessage(key.format("a"), "assistant", _answer(key, paragraphs, material), said_at))
    return AssistantChat("", said[0], tuple(messages))


def _said_at(day: date) -> datetime:
    return datetime.combine(day, time(10), UTC)


def _answer(key: str, paragraphs: Sequence[str], material: _Material, own: str = "") -> str:
    """Puts the part that was written for the message at any place between the others."""
    generator = random.Random(key)
    texts = generator.sample(paragraphs, generator.choice(_PARAGRAPHS))
    texts += [material.passage(generator) for _ in range(generator.choice(_PASSAGES))]
    generator.shuffle(texts)
    if own:
        texts.insert(generator.randrange(len(texts) + 1), own)
    return "\n\n".join(texts)
