"""Chats exported by WhatsApp: `_chat.txt` of an iPhone, the text file of an Android phone, or the zip with either.

The file contains neither ids nor a time zone, and writes dates as the phone does. Whether the day or the month comes
first is found out from all dates of the file; times are read as UTC.

Notices, such as that of the encryption and of who joined a group, are not messages and are skipped. Android writes them
without a name. An iPhone writes them in the name of the chat, and marks what it wrote itself with U+200E.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path, PurePosixPath

from msgspec import Struct

from config.errors import InvalidParams
from config.times import format_time
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.batches import require_messages
from sources.importers.engine.chat_messages import ChatMessage, conversation_draft, conversation_in_order
from sources.importers.engine.encodings import DecodedText
from sources.importers.engine.export_files import base_name, first_bytes, is_zip_file
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import (
    DoubtfulItem,
    SkippedItem,
    decode,
    encoding_doubts,
    file_key,
    file_size,
    printable_name,
    read_bytes,
    stable_uuid,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.values import clean_line

_NAME = "whatsapp"
# Invisible marks of direction, and the spaces before AM and PM.
_MARKS = re.compile("[\u200e\u200f\u202a-\u202c\u2066-\u2069\ufeff]")
_SPACES = re.compile("[\u202f\xa0]")
# A text that the program wrote. The replacement cannot occur in a text.
_WRITTEN_BY_PROGRAM = re.compile("(?<=: )[\u200e\u200f]")
_BY_PROGRAM = "\0"
_DATE = r"(?P<a>\d{1,4})(?P<separator>[./-])(?P<b>\d{1,2})[./-](?P<c>\d{1,4})\.?(?P<comma>,?) "
_TIME = r"(?P<hour>\d{1,2})[:.](?P<minute>\d{2})(?:[:.](?P<second>\d{2}))?(?: ?(?P<half>[AaPp])\.? ?[Mm]\.?)?"
_LINE = re.compile(rf"^\[?{_DATE}{_TIME}(?:\]| -) ", re.MULTILINE)
_SENDER = re.compile(r"([^:\n]{1,100}): ")
_QUOTES = re.compile('[“”„«»‘‚「『"]')
_NOTICE = "notice of WhatsApp"
_LINES_PROBED = 5
_CENTURY = 2000
_MONTHS = 12
_YEAR_DIGITS = 4
_CHAT_NAME = re.compile(
    r"(?:whatsapp[ -]chat|chat[ -]whatsapp)(?: (?:with|mit|avec|con|com|med|met))?[ -]*", re.IGNORECASE
)
_COPY = re.compile(r" ?\(\d{1,3}\)\Z")


class WhatsAppImporter(Importer):
    name = _NAME
    title = "WhatsApp chat (txt, or the zip with it)"
    suffixes = (".txt", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder or (is_zip(probe.head) and not any(map(_is_chat_file, probe.names))):
            return 0.0
        head = first_bytes(probe, _is_chat_file)
        lines = [line for line in _clean(head.decode("utf-8", "replace")).split("\n") if line.strip()][:_LINES_PROBED]
        matches = [match for line in lines if (match := _LINE.match(line)) and _is_date(match)]
        return 0.85 if matches and _LINE.match(lines[0]) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if not is_zip_file(path):
            yield from _read_chat(path, "", decode(read_bytes(path, limits.line_max_bytes), limits), limits)
            progress(file_size(path))
            return
        with open_archive(path, limits, progress) as archive:
            chats = [name for name in archive.names if _is_chat_file(name)]
            if not chats:
                raise InvalidParams("export: expected _chat.txt, found no such file")
            for name in chats:
                yield from _read_chat(path, name, decode(archive.read(name, limits.line_max_bytes), limits), limits)
            yield from (SkippedItem("media file of a chat") for name in archive.names if name not in chats)


IMPORTER = WhatsAppImporter()


class _WhatsAppLine(Struct):
    """A message: the parts of its date in their order, its time, and its text, which may have several lines."""

    date: tuple[int, int, int]
    is_year_first: bool
    hour: int
    minute: int
    second: int
    text: str


def _is_chat_file(name: str) -> bool:
    return base_name(name) == "_chat.txt" or ("whatsapp" in base_name(name) and name.lower().endswith(".txt"))


def _is_date(line: re.Match[str]) -> bool:
    """Programs write logs with a similar start, but with the year first and without a comma."""
    return len(line["a"]) < _YEAR_DIGITS or bool(line["comma"])


def _clean(text: str) -> str:
    return _SPACES.sub(" ", _MARKS.sub("", _WRITTEN_BY_PROGRAM.sub(_BY_PROGRAM, text))).replace("\r\n", "\n")


def _read_chat(path: Path, entry: str, text: DecodedText, limits: ImportLimits) -> Iterator[ImportEvent]:
    yield from encoding_doubts(entry, text.encoding, is_doubtful=text.is_doubtful)
    cleaned = _clean(text.text)
    # Before the messages are parsed, all of which are needed to find out the order of the dates.
    require_messages(sum(1 for _ in _LINE.finditer(cleaned)), limits)
    lines = []
    # Lines without a date belong to the message before them.
    for match, following in pairwise((*filter(_is_date, _LINE.finditer(cleaned)), None)):
        assert match is not None
        line_text = cleaned[match.end() : following.start() if following else len(cleaned)].strip()
        hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
        if match["half"]:
            hour = hour % 12 + (12 if match["half"].lower() == "p" else 0)
        date, is_year_first = (int(match["a"]), int(match["b"]), int(match["c"])), len(match["a"]) == _YEAR_DIGITS
        lines.append(_WhatsAppLine(date, is_year_first, hour, minute, second, line_text))
    if not lines:
        raise InvalidParams("expected lines with a date, a time and a name, found none")
    order, is_certain = _date_order(lines)
    if not is_certain:
        yield DoubtfulItem(
            entry, f"dates: read with the {order[0]} before the {order[1]}, which the file does not show"
        )
    messages = list(_messages(lines, order))
    # What is not a message is a notice.
    yield from (SkippedItem(_NOTICE) for _ in range(len(lines) - len(messages)))
    if messages:
        # The name that WhatsApp gave to the export; "" if the file was renamed. Its copies have a number.
        candidates = (PurePosixPath(entry).stem, path.stem, path.resolve().parent.name)
        names = (_COPY.sub("", printable_name(name)).strip() for name in candidates)
        name = clean_line(next((name for name in names if "whatsapp" in name.lower()), ""))
        speakers = Counter(message.sender for message in messages if message.sender)
        draft = conversation_draft(
            _NAME,
            # The file has no id. The name that WhatsApp gave it is the same in the next export of the chat.
            stable_uuid(_NAME, "conversation", name or f"{file_key(path, limits)}\0{entry}"),
            _CHAT_NAME.sub("", name, count=1).strip() or name or ", ".join(sorted(speakers)[:3]),
            created=next((message.time for message in messages if message.time), None),
            modified=max((message.time for message in messages if message.time), default=None),
            participants=sorted(speakers)[:100],
        )
        yield from conversation_in_order(_NAME, draft, messages, limits)


def _date_order(lines: Sequence[_WhatsAppLine]) -> tuple[tuple[str, str], bool]:
    """Returns whether the day or the month comes first, and whether the dates prove it: a number above twelve is a day;
    otherwise the order is the one in which the messages are sorted by time."""
    if lines[0].is_year_first or any(line.date[1] > _MONTHS for line in lines):
        return ("month", "day"), True
    if any(line.date[0] > _MONTHS for line in lines):
        return ("day", "month"), True
    descents: dict[tuple[str, str], int] = {}
    for order in (("day", "month"), ("month", "day")):
        times = [(*_year_month_day(line, order), line.hour, line.minute, line.second) for line in lines]
        descents[order] = sum(after < before for before, after in pairwise(times))
    best = min(descents, key=lambda order: descents[order])
    return best, len(set(descents.values())) > 1


def _year_month_day(line: _WhatsAppLine, order: tuple[str, str]) -> tuple[int, int, int]:
    first, second, third = line.date
    if line.is_year_first:
        return first, second, third
    day, month = (first, second) if order[0] == "day" else (second, first)
    return third if third >= _CENTURY // 2 else _CENTURY + third, month, day


def _messages(lines: Sequence[_WhatsAppLine], order: tuple[str, str]) -> Iterator[ChatMessage]:
    """A message is identified by its time, sender and text, so that a later export with fewer or more messages has the
    same ids."""
    seen = Counter[str]()
    speakers = _Speakers(lines)
    for number, line in enumerate(lines):
        sender = speakers.sender(line.text)
        if sender is None or (number == 0 and _is_by_program(line.text, sender)):
            continue
        year, month, day = _year_month_day(line, order)
        time = None
        with suppress(ValueError):
            time = format_time(datetime(year, month, day, line.hour, line.minute, line.second, tzinfo=UTC))
        name, text = clean_line(sender[1]), line.text.replace(_BY_PROGRAM, "")
        key = f"{time}\0{name}\0{sha256(text.encode('utf-8', 'replace')).hexdigest()}"
        seen[key] += 1
        yield ChatMessage(key=f"{key}\0{seen[key]}", role="user", sender=name, text=text[sender.end() :], time=time)


class _Speakers:
    """Finds out who speaks in a chat. On an iPhone the first line is the notice of the encryption, in the name of the
    other person or of the group; if all lines in that name are notices, it is that of a group."""

    def __init__(self, lines: Sequence[_WhatsAppLine]) -> None:
        senders = [(line, _SENDER.match(line.text)) for line in lines]
        self._counts = Counter(sender[1] for _, sender in senders if sender)
        first_line, first = senders[0]
        self._group = first[1] if first and _is_by_program(first_line.text, first) else None
        if any(
            sender and sender[1] == self._group and not _is_by_program(line.text, sender) for line, sender in senders
        ):
            self._group = None

    def sender(self, text: str) -> re.Match[str] | None:
        """A quoted part with a colon, such as the new name of a group, also looks like a name, but only once."""
        sender = _SENDER.match(text)
        if sender is None or sender[1] == self._group:
            return None
        return None if self._counts[sender[1]] == 1 and _QUOTES.search(sender[1]) else sender


def _is_by_program(text: str, sender: re.Match[str]) -> bool:
    """An attachment is a message, although the program writes its name."""
    return text.startswith(_BY_PROGRAM, sender.end()) and not text.startswith("<", sender.end() + 1)
