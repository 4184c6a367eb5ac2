"""Chats of SillyTavern: a line about the chat, then a message on each line. The swipes that were not chosen are kept as
branches. Whoever speaks keeps their name; the character itself is imported from its card.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from msgspec import UNSET, Struct

from config.errors import InvalidParams
from config.times import format_time
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.exports import counted
from sources.importers.engine.files import plain_name
from sources.importers.engine.imported_items import FailedItem, ImportEvent, ReadPosition, SkippedItem, stable_uuid
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.json_stream import decode, require_depth
from sources.importers.engine.threads import SkipMessage, arrivals_of, line_of, require_text
from sources.importers.engine.times import moment_of

_NAME = "sillytavern"
_PROGRAM = "SillyTavern System"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# June 19, 2023 2:20pm
_WORDS = re.compile(r"([A-Za-z]{3})[a-z]* (\d{1,2}), (\d{4}) (\d{1,2}):(\d\d) ?([ap])m", re.IGNORECASE)
# 2023-6-19 @14h 20m 30s 123ms, and the form in file names, 2023-06-19@14h20m30s
_HOURS = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@ ?(\d{1,2})h ?(\d{1,2})m ?(\d{1,2})s ?(?:(\d{1,3})ms)?")


class _Line(Struct, frozen=True):
    """The first line, or one of the others: each has fields of its own."""

    user_name: Any = None
    character_name: Any = None
    create_date: Any = None
    name: Any = None
    is_user: Any = None
    is_system: Any = None
    send_date: Any = None
    mes: Any = UNSET
    swipes: Any = None
    swipe_id: Any = None
    swipe_info: Any = None
    extra: Any = None


class _Turn(Struct, frozen=True):
    """A message as it stands on its line: `texts` are its swipes, of which `choice` was taken."""

    number: int
    line: _Line
    texts: tuple[str, ...]
    choice: int


def _recognizes(probe: FileProbe) -> float:
    head, *_ = probe.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)
    if probe.is_folder or not head.startswith(b"{"):
        return 0.0
    if b'"user_name"' in head and b'"character_name"' in head:
        return 0.95
    return 0.85 if b'"mes"' in head and b'"is_user"' in head else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    chat = _chat_draft(_first_line(path, limits), plain_name(path.stem))
    yield from arrivals_of(chat, _messages(path, limits, progress, chat))


def _messages(
    path: Path, limits: ImportLimits, progress: ProgressCallback, chat: ConversationDraft
) -> Iterator[MessageDraft | SkippedItem | FailedItem]:
    """The file is gone through twice, so that no more than a line of it is held: once for what was said, and once for
    what might have been."""
    thread = _Thread(chat)
    for turn in _turns(path, limits, progress):
        yield thread.chosen(turn) if isinstance(turn, _Turn) else turn
    thread = _Thread(chat)
    for turn in _turns(path, limits, progress):
        if isinstance(turn, _Turn):
            yield from thread.others(turn, limits)
            thread.chosen(turn)


class _Thread:
    """Gives messages their ids: of the chat, the line and the swipe."""

    def __init__(self, chat: ConversationDraft) -> None:
        self._chat = chat
        self._before: str | None = None
        self._time = chat.created_at

    def chosen(self, turn: _Turn) -> MessageDraft:
        draft = self._draft(turn, turn.choice, is_canonical=True)
        self._before, self._time = str(draft.uuid), draft.created_at
        return draft

    def others(self, turn: _Turn, limits: ImportLimits) -> Iterator[MessageDraft | FailedItem]:
        for swipe, text in enumerate(turn.texts):
            if swipe == turn.choice or not text.strip():
                continue
            try:
                require_text(text, limits)
                yield self._draft(turn, swipe, is_canonical=False)
            except InvalidParams as error:
                yield FailedItem(f"line {turn.number}, swipe {swipe + 1}", error.message)

    def _draft(self, turn: _Turn, swipe: int, *, is_canonical: bool) -> MessageDraft:
        line, info = turn.line, _swipe_info(turn.line, swipe)
        role = "user" if line.is_user is True else "assistant"
        model = line_of(_field(info.get("extra"), "model")) or (
            line_of(_field(line.extra, "model")) if is_canonical else ""
        )
        return MessageDraft(
            uuid=stable_uuid(_NAME, "message", f"{self._chat.uuid}\0{turn.number}\0{swipe}"),
            role=role,
            sender=line_of(line.name) or role,
            content=turn.texts[swipe],
            model=model or None,
            metadata={"is_hidden": True} if line.is_system is True else {},
            parent_id=self._before,
            is_canonical=is_canonical,
            created_at=_moment(info.get("send_date")) or _moment(line.send_date) or self._time,
        )


# -- lines -------------------------------------------------------------------------------------------------------------


def _first_line(path: Path, limits: ImportLimits) -> _Line:
    with path.open("rb") as file:
        for _, data in _lines(file, limits):
            if data is not None:
                return _decoded(data, limits)
            break
    raise InvalidParams("the file: got no line that can be read, expected one about the chat")


def _chat_draft(head: _Line, stem: str) -> ConversationDraft:
    """A chat that was branched off another one has its first line, so the file's name is part of what it is known by.
    Old chats begin with a message."""
    character, user = line_of(head.character_name), line_of(head.user_name)
    about = {"character_name": character, "user_name": user}
    return ConversationDraft(
        uuid=stable_uuid(_NAME, "conversation", f"{character}\0{line_of(head.create_date)}\0{stem}"),
        title=line_of(stem),
        metadata={"imported_from": _NAME} | {name: value for name, value in about.items() if value},
        created_at=_moment(head.create_date) or _moment(head.send_date) or UNSET,
    )


def _turns(path: Path, limits: ImportLimits, progress: ProgressCallback) -> Iterator[_Turn | SkippedItem | FailedItem]:
    with path.open("rb") as file:
        for number, data in _lines(counted(file, limits, progress), limits):
            if data is None:
                yield FailedItem(f"line {number}", f"got more than {limits.line_max_bytes} bytes, expected fewer")
                continue
            try:
                line = _decoded(data, limits)
                if line.mes is not UNSET:
                    yield _turn(number, line, limits)
                elif number > 1:
                    raise InvalidParams("got no mes, expected a message")
            except SkipMessage as left_out:
                yield SkippedItem(left_out.reason)
            except InvalidParams as error:
                yield FailedItem(f"line {number}", error.message)


def _turn(number: int, line: _Line, limits: ImportLimits) -> _Turn:
    # Chub writes an object in which the text stands.
    said = _field(line.mes, "message") if isinstance(line.mes, dict) else line.mes
    text = said if isinstance(said, str) else ""
    if line.is_system is True and line.name == _PROGRAM:
        raise SkipMessage("a message of the program")
    if not text.strip():
        raise SkipMessage("an empty message")
    require_text(text, limits)
    swipes = [swipe if isinstance(swipe, str) else "" for swipe in line.swipes] if isinstance(line.swipes, list) else []
    choice = line.swipe_id if type(line.swipe_id) is int and 0 <= line.swipe_id < len(swipes) else 0
    # What was edited last is the message.
    return _Turn(number, line, (*swipes[:choice], text, *swipes[choice + 1 :]), choice)


def _decoded(data: bytes, limits: ImportLimits) -> _Line:
    require_depth(data, limits)
    return decode(data, _Line)


def _lines(file: IO[bytes], limits: ImportLimits) -> Iterator[tuple[int, bytes | None]]:
    """From 1; nothing for one that is too long. Empty ones are counted, and not given."""
    number = 0
    while line := file.readline(limits.line_max_bytes + 1):
        number += 1
        if len(line) > limits.line_max_bytes:
            while line and not line.endswith(b"\n"):
                line = file.readline(1 << 20)
            yield number, None
        elif line := (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip():
            yield number, line


def _swipe_info(line: _Line, swipe: int) -> Mapping[str, Any]:
    infos = line.swipe_info if isinstance(line.swipe_info, list) else []
    info = infos[swipe] if swipe < len(infos) else None
    return info if isinstance(info, dict) else {}


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


# -- times -------------------------------------------------------------------------------------------------------------


def _moment(value: Any) -> str | None:
    """As the versions of the program write it; it names no zone, so it is taken for UTC."""
    text = line_of(value)
    words, hours = _WORDS.match(text), _HOURS.match(text)
    try:
        if words and words[1].lower() in _MONTHS:
            hour = int(words[4]) % 12 + (12 if words[6].lower() == "p" else 0)
            month = _MONTHS.index(words[1].lower()) + 1
            return format_time(datetime(int(words[3]), month, int(words[2]), hour, int(words[5]), tzinfo=UTC))
        if hours:
            *numbers, thousandths = (int(part or 0) for part in hours.groups())
            year, month, day, hour, minute, second = numbers
            return format_time(datetime(year, month, day, hour, minute, second, thousandths * 1000, tzinfo=UTC))
    except ValueError:
        return None
    return moment_of(value)


IMPORTER = Importer(name=_NAME, title="SillyTavern chat", recognizes=_recognizes, read=_read, suffixes=(".jsonl",))
