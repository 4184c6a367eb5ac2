"""Reads the files of the demo library. They are part of the program, so an error in them fails an assertion."""

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
# A transcript contains the start of each line; the last one is taken to last this long.
_LAST_LINE_MS = 8_000
# About twenty seconds of speech.
_PASSAGE_MAX_CHARS = 400

T = TypeVar("T")


class _DemoItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of every item; `key` is unique among the items of its source."""

    key: str
    on: datetime
    tags: tuple[str, ...] = ()


class DemoNote(_DemoItem, frozen=True, kw_only=True):
    title: str
    text: str


class DemoMedia(_DemoItem, frozen=True, kw_only=True):
    """Has a `text`, or a `transcript` with lines of the form `minutes:seconds speaker: words`."""

    title: str
    type: str
    author: str
    url: str = ""
    text: str = ""
    transcript: str = ""

    @property
    def segments(self) -> tuple[Segment, ...]:
        lines = [_LINE.fullmatch(line) for line in self.transcript.strip().splitlines()]
        timed = [(_milliseconds(line), line[3], line[4]) for line in lines if line is not None]
        assert len(timed) == len(lines), f"media/{self.key} has a line without time or speaker"
        ends = [after[0] for _, after in pairwise(timed)] + [start + _LAST_LINE_MS for start, _, _ in timed[-1:]]
        return tuple(
            Segment(start_ms=start, end_ms=end, speaker=speaker, text=words)
            for (start, speaker, words), end in zip(timed, ends, strict=True)
        )

    @property
    def passages(self) -> Iterator[tuple[Segment, ...]]:
        """Groups of lines that become one chunk. Short chunks put a hit close to the time of its words."""
        group: list[Segment] = []
        for segment in self.segments:
            if group and sum(len(line.text) + 1 for line in (*group, segment)) > _PASSAGE_MAX_CHARS:
                yield tuple(group)
                group = []
            group.append(segment)
        yield tuple(group)


def _milliseconds(line: re.Match[str]) -> int:
    return (int(line[1]) * 60 + int(line[2])) * 1_000


class DemoConversation(_DemoItem, frozen=True, kw_only=True):
    """Each line of `text` is a message: the sender, a colon and the words."""

    title: str
    text: str

    @property
    def messages(self) -> Iterator[tuple[str, str]]:
        for line in self.text.strip().splitlines():
            sender, colon, words = line.partition(": ")
            assert colon, f"chats/{self.key} has a line without a sender"
            yield sender, words


class DemoCharacter(_DemoItem, frozen=True, kw_only=True):
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


class DemoPrompt(_DemoItem, frozen=True, kw_only=True):
    name: str
    author: str
    details: str
    system: str
    user: str
    arguments: tuple[SavedPromptArgument, ...]


class DemoCollection(Struct, frozen=True, kw_only=True):
    notes: tuple[DemoNote, ...]
    media: tuple[DemoMedia, ...]
    chats: tuple[DemoConversation, ...]
    characters: tuple[DemoCharacter, ...]
    prompts: tuple[DemoPrompt, ...]


def read_demo() -> DemoCollection:
    return DemoCollection(
        notes=_read("notes", "note", DemoNote),
        media=_read("media", "media", DemoMedia),
        chats=_read("chats", "chat", DemoConversation),
        characters=_read("characters", "character", DemoCharacter),
        prompts=_read("prompts", "prompt", DemoPrompt),
    )


def _read(name: str, table: str, kind: type[T]) -> tuple[T, ...]:
    content = (_FOLDER / f"{name}.toml").read_bytes()
    items: tuple[T, ...] = msgspec.toml.decode(content, type=dict[str, tuple[kind, ...]])[table]  # type: ignore[valid-type]  # the type is only known at run time
    return items
