"""Chats of SillyTavern: a line about the chat, then one message per line. Swipes that were not chosen become alternate
branches. Speakers keep their names; the character itself is imported from its card."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from config.errors import InvalidParams
from config.times import format_time, parse_time
from sources.drafts import ConversationDraft, MessageDraft
from sources.importers.engine.chat_messages import SkipMessage, conversation_draft, conversation_parts
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.export_files import count_reads
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import FailedItem, SkippedItem, printable_name, require_lines, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import decode_object, require_depth
from sources.importers.engine.values import clean_line, object_or_empty, require_storable, stored_time, text_or_empty

_NAME = "sillytavern"
# The folder in which the program keeps copies of all chats.
_BACKUPS = "backups"
_BACKUP_AGE = timedelta(milliseconds=1)
_SYSTEM_SENDER = "SillyTavern System"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# June 19, 2023 2:20pm
_LONG_DATE = re.compile(r"([A-Za-z]{3})[a-z]* (\d{1,2}), (\d{4}) (\d{1,2}):(\d\d) ?([ap])m", re.IGNORECASE)
# 2023-6-19 @14h 20m 30s 123ms, and the form in file names, 2023-06-19@14h20m30s
_COMPACT_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@ ?(\d{1,2})h ?(\d{1,2})m ?(\d{1,2})s ?(?:(\d{1,3})ms)?")


class SillyTavernImporter(Importer):
    name = _NAME
    title = "SillyTavern chat"
    suffixes = (".jsonl",)

    def recognizes(self, probe: FileProbe) -> float:
        first_line, *_ = probe.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)
        if probe.is_folder or not first_line.startswith(b"{"):
            return 0.0
        if b'"user_name"' in first_line and b'"character_name"' in first_line:
            return 0.95
        return 0.85 if b'"mes"' in first_line and b'"is_user"' in first_line else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        # A chat is identified by its integrity id, which its backups share. In older versions, which have none, the
        # file name is part of the key, because a branched chat has the first line of the original. Old chats start with
        # a message.
        with open_file(path) as file:
            _, data = next(_read_lines(file, limits), (1, None))
        if data is None:
            raise InvalidParams("the first line is missing or too long")
        first = _decode_line(data, limits)
        character, user = clean_line(first.character_name), clean_line(first.user_name)
        stem = printable_name(path.stem)
        integrity, main_chat = (
            clean_line(object_or_empty(first.chat_metadata).get(name)) for name in ("integrity", "main_chat")
        )
        # Some versions copied the id to the branches of a chat, which name their origin.
        key = f"{integrity}\0{main_chat}\0{stem if main_chat else ''}" if integrity else ""
        chat = conversation_draft(
            _NAME,
            stable_uuid(_NAME, "conversation", key or f"{character}\0{clean_line(first.create_date)}\0{stem}"),
            # A backup is named after the character and the time of the backup.
            (character if _is_backup(path) else "") or clean_line(stem),
            created=_parse_time(first.create_date) or _parse_time(first.send_date),
            character_name=character,
            user_name=user,
            integrity=integrity,
        )
        if integrity:
            chat = replace(chat, last_modified=_last_modified(path, limits, chat))
        yield from conversation_parts(chat, _read_messages(path, limits, progress, chat))


IMPORTER = SillyTavernImporter()


class _TavernLine(Struct, frozen=True):
    """The first line of a chat, or a message; they have different fields."""

    user_name: Any = None
    character_name: Any = None
    create_date: Any = None
    chat_metadata: Any = None
    name: Any = None
    is_user: Any = None
    is_system: Any = None
    send_date: Any = None
    mes: Any = UNSET
    swipes: Any = None
    swipe_id: Any = None
    swipe_info: Any = None
    extra: Any = None


class _TavernMessage(Struct, frozen=True):
    """A message with its swipes, of which `choice` is the index of the chosen one."""

    number: int
    line: _TavernLine
    swipes: tuple[str, ...]
    choice: int


def _read_messages(
    path: Path, limits: ImportLimits, progress: ProgressCallback, chat: ConversationDraft
) -> Iterator[MessageDraft | SkippedItem | FailedItem]:
    """Reads the file twice, first the chosen swipes and then the others, so that only one line is held in memory."""
    thread = _TavernThread(chat)
    for message in _parse_messages(path, limits, progress):
        yield thread.add_chosen(message) if isinstance(message, _TavernMessage) else message
    thread = _TavernThread(chat)
    for message in _parse_messages(path, limits, progress):
        if isinstance(message, _TavernMessage):
            yield from thread.other_swipes(message, limits)
            thread.add_chosen(message)


class _TavernThread:
    """Creates drafts with ids, which are derived from chat, line and swipe."""

    def __init__(self, chat: ConversationDraft) -> None:
        self._chat = chat
        self._parent: str | None = None
        self._time = chat.created_at

    def add_chosen(self, message: _TavernMessage) -> MessageDraft:
        draft = self._message_draft(message, message.choice, is_canonical=True)
        self._parent, self._time = str(draft.uuid), draft.created_at
        return draft

    def other_swipes(self, message: _TavernMessage, limits: ImportLimits) -> Iterator[MessageDraft | FailedItem]:
        for swipe, text in enumerate(message.swipes):
            if swipe == message.choice or not text.strip():
                continue
            try:
                require_storable(text, limits)
                yield self._message_draft(message, swipe, is_canonical=False)
            except InvalidParams as error:
                yield FailedItem(f"line {message.number}, swipe {swipe + 1}", error.message)

    def _message_draft(self, message: _TavernMessage, swipe: int, *, is_canonical: bool) -> MessageDraft:
        line = message.line
        infos = line.swipe_info if isinstance(line.swipe_info, list) else []
        info = infos[swipe] if swipe < len(infos) and isinstance(infos[swipe], dict) else {}
        role = "user" if line.is_user is True else "assistant"
        model = clean_line(object_or_empty(info.get("extra")).get("model"))
        if not model and is_canonical:
            model = clean_line(object_or_empty(line.extra).get("model"))
        return MessageDraft(
            uuid=stable_uuid(_NAME, "message", f"{self._chat.uuid}\0{message.number}\0{swipe}"),
            role=role,
            sender=clean_line(line.name) or role,
            content=message.swipes[swipe],
            model=model or None,
            metadata={"is_hidden": True} if line.is_system is True else {},
            parent_id=self._parent,
            is_canonical=is_canonical,
            created_at=_parse_time(info.get("send_date")) or _parse_time(line.send_date) or self._time,
        )


def _is_backup(path: Path) -> bool:
    return path.resolve().parent.name.lower() == _BACKUPS


def _last_modified(path: Path, limits: ImportLimits, chat: ConversationDraft) -> str | UnsetType:
    """Returns the time of the newest message, so that an older backup does not replace the chat. A backup with the same
    messages counts as older, too."""
    thread = _TavernThread(chat)
    messages = (message for message in _parse_messages(path, limits, lambda _: None))
    times = [thread.add_chosen(message).created_at for message in messages if isinstance(message, _TavernMessage)]
    newest = max((time for time in times if time is not UNSET), default=UNSET)
    if newest is UNSET or not _is_backup(path):
        return newest
    return format_time(parse_time(newest) - _BACKUP_AGE)


def _parse_messages(
    path: Path, limits: ImportLimits, progress: ProgressCallback
) -> Iterator[_TavernMessage | SkippedItem | FailedItem]:
    with open_file(path) as file:
        for number, data in _read_lines(count_reads(file, limits, progress), limits):
            if data is None:
                yield FailedItem(f"line {number}", f"longer than {limits.line_max_bytes} bytes")
                continue
            try:
                line = _decode_line(data, limits)
                if line.mes is not UNSET:
                    yield _parse_message(number, line, limits)
                elif number > 1:
                    raise InvalidParams("not a message (no field mes)")
            except SkipMessage as skip:
                yield SkippedItem(skip.reason)
            except InvalidParams as error:
                yield FailedItem(f"line {number}", error.message)


def _parse_message(number: int, line: _TavernLine, limits: ImportLimits) -> _TavernMessage:
    # Chub writes an object that contains the text.
    text = text_or_empty(object_or_empty(line.mes).get("message") if isinstance(line.mes, dict) else line.mes)
    if line.is_system is True and line.name == _SYSTEM_SENDER:
        raise SkipMessage("system message")
    if not text.strip():
        raise SkipMessage("empty message")
    require_storable(text, limits)
    swipes = [text_or_empty(swipe) for swipe in line.swipes] if isinstance(line.swipes, list) else []
    choice = line.swipe_id if type(line.swipe_id) is int and 0 <= line.swipe_id < len(swipes) else 0
    # The message may have been edited since it was chosen, so it replaces its swipe.
    return _TavernMessage(number, line, (*swipes[:choice], text, *swipes[choice + 1 :]), choice)


def _decode_line(data: bytes, limits: ImportLimits) -> _TavernLine:
    require_depth(data, limits)
    return decode_object(data, _TavernLine)


def _read_lines(file: IO[bytes], limits: ImportLimits) -> Iterator[tuple[int, bytes | None]]:
    """Yields line numbers from 1, with the line or None if it is too long. Empty lines are counted, but not yielded."""
    number = 0
    while line := file.readline(limits.line_max_bytes + 1):
        number += 1
        require_lines(number, limits)
        if len(line) > limits.line_max_bytes:
            while line and not line.endswith(b"\n"):
                line = file.readline(1 << 20)
            yield number, None
        elif line := (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip():
            yield number, line


def _parse_time(value: Any) -> str | None:
    """Parses the forms that versions of SillyTavern write. They have no time zone; UTC is assumed."""
    text = clean_line(value)
    long_date, compact_date = _LONG_DATE.match(text), _COMPACT_DATE.match(text)
    try:
        if long_date and long_date[1].lower() in _MONTHS:
            hour = int(long_date[4]) % 12 + (12 if long_date[6].lower() == "p" else 0)
            year, month, day = int(long_date[3]), _MONTHS.index(long_date[1].lower()) + 1, int(long_date[2])
            return format_time(datetime(year, month, day, hour, int(long_date[5]), tzinfo=UTC))
        if compact_date:
            numbers = [int(part or 0) for part in compact_date.groups()]
            year, month, day, hour, minute, second, milliseconds = numbers
            return format_time(datetime(year, month, day, hour, minute, second, milliseconds * 1000, tzinfo=UTC))
    except ValueError:
        return None
    return stored_time(value)
