"""A small demo library with items of all five sources: one year of an invented observatory.

It is added to a user's library. Its ids are fixed, so items that exist or were deleted are skipped, and other items are
not touched.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import UNSET, Struct

from config.errors import Conflict
from config.times import format_time
from sources.drafts import CharacterDraft, ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.records import MediaChunk, Segment
from sources.storage.contract import Library

# -- collection --------------------------------------------------------------------------------------------------------
# Reads the files of the demo library. They are part of the program, so an error in them fails an assertion.

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
        timed = [((int(line[1]) * 60 + int(line[2])) * 1_000, line[3], line[4]) for line in lines if line is not None]
        assert len(timed) == len(lines), f"media/{self.key} has a line without time or speaker"
        # A line ends where the next one starts.
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


class DemoFields(Struct, frozen=True):
    """A character or prompt: `fields` are those of its draft."""

    key: str
    on: datetime
    fields: Mapping[str, Any]


class DemoCollection(Struct, frozen=True, kw_only=True):
    notes: tuple[DemoNote, ...]
    media: tuple[DemoMedia, ...]
    chats: tuple[DemoConversation, ...]
    characters: tuple[DemoFields, ...]
    prompts: tuple[DemoFields, ...]


def read_demo() -> DemoCollection:
    return DemoCollection(
        notes=_read("notes", "note", DemoNote),
        media=_read("media", "media", DemoMedia),
        chats=_read("chats", "chat", DemoConversation),
        characters=_read_fields("characters", "character"),
        prompts=_read_fields("prompts", "prompt"),
    )


def _read(name: str, table: str, kind: type[T]) -> tuple[T, ...]:
    content = (_FOLDER / f"{name}.toml").read_bytes()
    items: tuple[T, ...] = msgspec.toml.decode(content, type=dict[str, tuple[kind, ...]])[table]  # type: ignore[valid-type]  # the type is only known at run time
    return items


def _read_fields(name: str, table: str) -> tuple[DemoFields, ...]:
    return tuple(DemoFields(item.pop("key"), item.pop("on"), item) for item in _read(name, table, dict[str, Any]))


_BETWEEN_MESSAGES = timedelta(minutes=2)


class FillResult(Struct, frozen=True):
    """The number of demo items of each source, and how many of all were added."""

    items: Mapping[str, int]
    new: int

    @property
    def total(self) -> int:
        return sum(self.items.values())


async def fill(library: Library) -> FillResult:
    """Items are added one by one; if the call is interrupted, the next one adds the rest."""
    demo, new = read_demo(), 0
    # The method that adds each item, and the drafts it takes. Prompts come last, as `fill_once` expects.
    calls: dict[str, list[tuple[Callable[..., Awaitable[object]], Sequence[object]]]] = {
        "notes": [
            (library.notes.create, [_draft(NoteDraft, "notes", one, title=one.title, content=one.text, tags=one.tags)])
            for one in demo.notes
        ],
        "media": [(library.media.create, [_media(item)]) for item in demo.media],
        "chats": [
            (
                library.chats.create,
                [_draft(ConversationDraft, "chats", one, title=one.title, tags=one.tags), _messages(one)],
            )
            for one in demo.chats
        ],
        "characters": [
            (library.characters.create, [_draft(CharacterDraft, "characters", item, **item.fields)])
            for item in demo.characters
        ],
        "prompts": [
            (library.prompts.create, [_draft(PromptDraft, "prompts", item, **item.fields)]) for item in demo.prompts
        ],
    }
    for create, drafts in chain.from_iterable(calls.values()):
        with suppress(Conflict):
            await create(*drafts)
            new += 1
    return FillResult({source: len(items) for source, items in calls.items()}, new)


async def fill_once(library: Library) -> None:
    """Fills the library only if it has no prompts, which are added last. Cheap enough for every start of a command."""
    if not (await library.prompts.list(1, 0)).total:
        await fill(library)


def _draft(draft: type[T], source: str, item: _DemoItem | DemoFields, **fields: Any) -> T:
    texts = {name: value.strip() for name, value in fields.items() if isinstance(value, str)}
    common = {"uuid": demo_uuid(source, item.key), "created_at": format_time(item.on)}
    return msgspec.convert({**fields, **texts, **common}, draft)


def _media(item: DemoMedia) -> MediaDraft:
    # The chunks of a transcript, whose text is its lines joined by line breaks.
    chunks: list[MediaChunk] = []
    start = 0
    for index, lines in enumerate(item.passages if item.transcript else ()):
        text = "\n".join(line.text for line in lines)
        speakers = {line.speaker for line in lines}
        chunk = MediaChunk(
            index=index,
            uuid=demo_uuid("media", f"{item.key}/{index}"),
            text=text,
            start=start,
            end=start + len(text),
            start_ms=lines[0].start_ms,
            end_ms=lines[-1].end_ms,
            speaker=speakers.pop() if len(speakers) == 1 else None,
        )
        chunks.append(chunk)
        start += len(text) + 1
    return MediaDraft(
        title=item.title,
        media_type=item.type,
        author=item.author,
        url=item.url,
        content=item.text.strip() if item.text else UNSET,
        segments=item.segments if item.transcript else UNSET,
        chunks=chunks or UNSET,
        tags=item.tags,
        uuid=demo_uuid("media", item.key),
        created_at=format_time(item.on),
    )


def _messages(item: DemoConversation) -> list[MessageDraft]:
    return [
        MessageDraft(
            sender=sender,
            role="assistant" if sender == "Assistant" else "user",
            content=words,
            uuid=demo_uuid("chats", f"{item.key}/{index}"),
            created_at=format_time(item.on + index * _BETWEEN_MESSAGES),
        )
        for index, (sender, words) in enumerate(item.messages)
    ]


def demo_uuid(source: str, key: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"florilegium-demo/{source}/{key}"))
