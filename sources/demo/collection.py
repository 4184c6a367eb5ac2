"""The demo library as its files tell it. They are part of the program, so a mistake in one is a mistake of ours."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from sources.records import SavedPromptArgument, Segment

_FOLDER = Path(__file__).parent
_LINE = re.compile(r"(\d\d):(\d\d) ([^:]+): (.+)")
# A transcript says when a line begins; this is how long the last one lasts.
_LAST_LINE_MS = 8_000
# Some twenty seconds of talk.
_PASSAGE_MAX_CHARS = 400

T = TypeVar("T")


class _Told(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is told of every item: `key` names it among the items of its source."""

    key: str
    on: datetime
    tags: tuple[str, ...] = ()


class Note(_Told, frozen=True, kw_only=True):
    title: str
    text: str


class Media(_Told, frozen=True, kw_only=True):
    """Written, as `text`, or spoken: then each line of `transcript` is `minutes:seconds speaker: words`."""

    title: str
    type: str
    author: str
    url: str = ""
    text: str = ""
    transcript: str = ""

    @property
    def segments(self) -> tuple[Segment, ...]:
        lines = [_LINE.fullmatch(line) for line in self.transcript.strip().splitlines()]
        spoken = [(_milliseconds(line), line[3], line[4]) for line in lines if line is not None]
        assert len(spoken) == len(lines), f"media/{self.key} has a line without time or speaker"
        ends = [after[0] for _, after in pairwise(spoken)] + [start + _LAST_LINE_MS for start, _, _ in spoken[-1:]]
        return tuple(
            Segment(start_ms=start, end_ms=end, speaker=speaker, text=words)
            for (start, speaker, words), end in zip(spoken, ends, strict=True)
        )

    @property
    def passages(self) -> Iterator[tuple[Segment, ...]]:
        """Lines that are found together. The shorter they are, the nearer a hit is to the second it is spoken."""
        held: list[Segment] = []
        for segment in self.segments:
            if held and sum(len(one.text) + 1 for one in (*held, segment)) > _PASSAGE_MAX_CHARS:
                yield tuple(held)
                held = []
            held.append(segment)
        yield tuple(held)


def _milliseconds(line: re.Match[str]) -> int:
    return (int(line[1]) * 60 + int(line[2])) * 1_000


class Chat(_Told, frozen=True, kw_only=True):
    """`text` has a message on each line: who says it, a colon, what."""

    title: str
    text: str

    @property
    def messages(self) -> Iterator[tuple[str, str]]:
        for line in self.text.strip().splitlines():
            sender, colon, words = line.partition(": ")
            assert colon, f"chats/{self.key} has a line without a sender"
            yield sender, words


class Character(_Told, frozen=True, kw_only=True):
    name: str
    description: str
    personality: str
    scenario: str
    first_message: str
    message_example: str = ""
    system_prompt: str = ""
    post_history_instructions: str = ""
    creator_notes: str = ""
    creator: str
    character_version: str
    nickname: str = ""
    alternate_greetings: tuple[str, ...] = ()
    group_only_greetings: tuple[str, ...] = ()


class Prompt(_Told, frozen=True, kw_only=True):
    name: str
    author: str
    details: str
    system: str
    user: str
    arguments: tuple[SavedPromptArgument, ...]


class Collection(Struct, frozen=True, kw_only=True):
    notes: tuple[Note, ...]
    media: tuple[Media, ...]
    chats: tuple[Chat, ...]
    characters: tuple[Character, ...]
    prompts: tuple[Prompt, ...]


def read_collection() -> Collection:
    return Collection(
        notes=_read("notes", "note", Note),
        media=_read("media", "media", Media),
        chats=_read("chats", "chat", Chat),
        characters=_read("characters", "character", Character),
        prompts=_read("prompts", "prompt", Prompt),
    )


def _read(name: str, table: str, kind: type[T]) -> tuple[T, ...]:
    told = (_FOLDER / f"{name}.toml").read_bytes()
    items: tuple[T, ...] = msgspec.toml.decode(told, type=dict[str, tuple[kind, ...]])[table]  # type: ignore[valid-type]  # a type made at run time
    return items
