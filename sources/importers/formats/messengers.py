"""Chats between people: WhatsApp, Telegram, Slack and Discord."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from msgspec import Struct

from config.errors import InvalidParams
from config.times import format_time
from sources.importers.engine.batches import require_messages
from sources.importers.engine.chat_messages import ChatMessage, MessageReport, conversation_draft, conversation_in_order
from sources.importers.engine.encodings import DecodedText
from sources.importers.engine.events import DoubtfulItem, FailedItem, SkippedItem, report_failure, stable_uuid
from sources.importers.engine.files import decode, decode_text, encoding_doubts, file_size, printable_name
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.input_file import FileTree, base_name
from sources.importers.engine.json_stream import JsonElement, element_object, read_member_list
from sources.importers.engine.table_reader import table_rows
from sources.importers.engine.values import Fields, clean_line, compact_metadata, stored_time, text_or_empty

# -- WhatsApp ----------------------------------------------------------------------------------------------------------
# Chats exported by WhatsApp: `_chat.txt` of an iPhone, the text file of an Android phone, or the zip with either.
#
# The file contains neither ids nor a time zone, and writes dates as the phone does. Whether the day or the month comes
# first is found out from all dates of the file; times are read as UTC.
#
# Notices, such as that of the encryption and of who joined a group, are not messages and are skipped. Android writes
# them without a name. An iPhone writes them in the name of the chat, and marks what it wrote itself with U+200E.

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
_LINES_PROBED = 5
_CENTURY = 2000
_MONTHS = 12
_YEAR_DIGITS = 4
_CHAT_NAME = re.compile(
    r"(?:whatsapp[ -]chat|chat[ -]whatsapp)(?: (?:with|mit|avec|con|com|med|met))?[ -]*", re.IGNORECASE
)
_COPY = re.compile(r" ?\(\d{1,3}\)\Z")


class WhatsAppImporter(FileImporter):
    name = "whatsapp"
    title = "WhatsApp chat (txt, or the zip with it)"
    suffixes = (".txt", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.first_bytes(_is_chat_file)
        lines = [line for line in _clean(head.decode("utf-8", "replace")).split("\n") if line.strip()][:_LINES_PROBED]
        matches = [match for line in lines if (match := _LINE.match(line)) and _is_date(match)]
        return 0.85 if matches and _LINE.match(lines[0]) else 0.0

    def read_file(self, file: InputFile) -> Events:
        limits = file.limits
        if not file.is_zip:
            yield from _read_chat(file, "", decode(file.content(), limits))
            file.progress(file_size(file.path))
            return
        with file.open_archive() as archive:
            chats = [name for name in archive.names if _is_chat_file(name)]
            if not chats:
                raise InvalidParams("export: expected _chat.txt, found no such file")
            for name in chats:
                yield from _read_chat(file, name, decode(archive.read(name, limits.line_max_bytes), limits))
            others = len(archive.names) - len(chats)
            yield from [SkippedItem("other file in the archive of a chat")] * others


class _WhatsAppLine(Struct):
    """A message: the parts of its date in their order, its hour, minute and second, and its text, which may have
    several lines."""

    date: tuple[int, int, int]
    is_year_first: bool
    time: tuple[int, int, int]
    text: str


def _is_chat_file(name: str) -> bool:
    return base_name(name) == "_chat.txt" or ("whatsapp" in base_name(name) and name.lower().endswith(".txt"))


def _is_date(line: re.Match[str]) -> bool:
    """Programs write logs with a similar start, but with the year first and without a comma."""
    return len(line["a"]) < _YEAR_DIGITS or bool(line["comma"])


def _clean(text: str) -> str:
    return _SPACES.sub(" ", _MARKS.sub("", _WRITTEN_BY_PROGRAM.sub(_BY_PROGRAM, text))).replace("\r\n", "\n")


def _read_chat(file: InputFile, entry: str, text: DecodedText) -> Events:
    yield from encoding_doubts(entry, text.encoding, is_doubtful=text.is_doubtful)
    cleaned = _clean(text.text)
    # Before the messages are parsed, all of which are needed to find out the order of the dates.
    require_messages(sum(1 for _ in _LINE.finditer(cleaned)), file.limits)
    lines = []
    # Lines without a date belong to the message before them.
    for match, following in pairwise((*filter(_is_date, _LINE.finditer(cleaned)), None)):
        assert match is not None
        line_text = cleaned[match.end() : following.start() if following else len(cleaned)].strip()
        hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
        if match["half"]:
            hour = hour % 12 + (12 if match["half"].lower() == "p" else 0)
        date, is_year_first = (int(match["a"]), int(match["b"]), int(match["c"])), len(match["a"]) == _YEAR_DIGITS
        lines.append(_WhatsAppLine(date, is_year_first, (hour, minute, second), line_text))
    if not lines:
        raise InvalidParams("expected lines with a date, a time and a name, found none")
    order, is_certain = _date_order(lines)
    if not is_certain:
        yield DoubtfulItem(
            entry, f"dates: read with the {order[0]} before the {order[1]}, which the file does not show"
        )
    messages = list(_whatsapp_messages(lines, order))
    # What is not a message is a notice.
    yield from (SkippedItem("notice of WhatsApp") for _ in range(len(lines) - len(messages)))
    if messages:
        # The name that WhatsApp gave to the export; "" if the file was renamed. Its copies have a number.
        candidates = (PurePosixPath(entry).stem, file.path.stem, file.path.resolve().parent.name)
        names = (_COPY.sub("", printable_name(name)).strip() for name in candidates)
        name = clean_line(next((name for name in names if "whatsapp" in name.lower()), ""))
        speakers = Counter(message.sender for message in messages if message.sender)
        draft = conversation_draft(
            "whatsapp",
            # The file has no id. The name that WhatsApp gave it is the same in the next export of the chat.
            name or f"{file.key}\0{entry}",
            _CHAT_NAME.sub("", name, count=1).strip() or name or ", ".join(sorted(speakers)[:3]),
            created=next((message.time for message in messages if message.time), None),
            modified=max((message.time for message in messages if message.time), default=None),
            participants=sorted(speakers)[:100],
        )
        yield from conversation_in_order("whatsapp", draft, messages, file.limits)


def _date_order(lines: Sequence[_WhatsAppLine]) -> tuple[tuple[str, str], bool]:
    """Returns whether the day or the month comes first, and whether the dates prove it: a number above twelve is a day;
    otherwise the order is the one in which the messages are sorted by time."""
    if lines[0].is_year_first or any(line.date[1] > _MONTHS for line in lines):
        return ("month", "day"), True
    if any(line.date[0] > _MONTHS for line in lines):
        return ("day", "month"), True
    descents: dict[tuple[str, str], int] = {}
    for order in (("day", "month"), ("month", "day")):
        times = [(*_year_month_day(line, order), *line.time) for line in lines]
        descents[order] = sum(after < before for before, after in pairwise(times))
    best = min(descents, key=lambda order: descents[order])
    return best, len(set(descents.values())) > 1


def _year_month_day(line: _WhatsAppLine, order: tuple[str, str]) -> tuple[int, int, int]:
    first, second, third = line.date
    if line.is_year_first:
        return first, second, third
    day, month = (first, second) if order[0] == "day" else (second, first)
    return third if third >= _CENTURY // 2 else _CENTURY + third, month, day


def _whatsapp_messages(lines: Sequence[_WhatsAppLine], order: tuple[str, str]) -> Iterator[ChatMessage]:
    """A message is identified by its time, sender and text, so that a later export with fewer or more messages has the
    same ids."""
    senders = [_SENDER.match(line.text) for line in lines]
    counts = Counter(sender[1] for sender in senders if sender)
    # On an iPhone the first line is the notice of the encryption, in the name of the other person or of the group; if
    # all lines in that name are notices, it is that of a group.
    spoken = zip(lines, senders, strict=True)
    people = {sender[1] for line, sender in spoken if sender and not _is_by_program(line, sender)}
    first = senders[0]
    group = first[1] if first and _is_by_program(lines[0], first) and first[1] not in people else None
    seen = Counter[str]()
    for number, (line, sender) in enumerate(zip(lines, senders, strict=True)):
        # A quoted part with a colon, such as the new name of a group, also looks like a name, but only once.
        if sender is None or sender[1] == group or (counts[sender[1]] == 1 and _QUOTES.search(sender[1])):
            continue
        if number == 0 and _is_by_program(line, sender):
            continue
        time = None
        with suppress(ValueError):
            time = format_time(datetime(*_year_month_day(line, order), *line.time, tzinfo=UTC))
        name, text = clean_line(sender[1]), line.text.replace(_BY_PROGRAM, "")
        key = f"{time}\0{name}\0{sha256(text.encode('utf-8', 'replace')).hexdigest()}"
        seen[key] += 1
        yield ChatMessage(key=f"{key}\0{seen[key]}", role="user", sender=name, text=text[sender.end() :], time=time)


def _is_by_program(line: _WhatsAppLine, sender: re.Match[str]) -> bool:
    """An attachment is a message, although the program writes its name."""
    return line.text.startswith(_BY_PROGRAM, sender.end()) and not line.text.startswith("<", sender.end() + 1)


# -- Telegram ----------------------------------------------------------------------------------------------------------
# Telegram's JSON export, `result.json`: one chat, or all chats of an account.

_CHAT_TYPES = (
    rb'"type"\s*:\s*"(?:personal_chat|bot_chat|saved_messages|(?:private|public)_(?:supergroup|group|channel))"'
)
_TELEGRAM_FIELDS = (re.compile(_CHAT_TYPES), re.compile(rb'"messages"\s*:\s*\['))
_ALL_CHATS = re.compile(rb'"chats"\s*:\s*\{')
# What a message without text contains, by field.
_MEDIA = ("photo", "file", "location_information", "contact_information", "poll", "game_title", "invoice_information")


class TelegramImporter(FileImporter):
    name = "telegram"
    title = "Telegram export (JSON)"
    suffixes = (".json",)
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        has_dates = b'"date_unixtime"' in probe.head or b'"date"' in probe.head
        return 0.9 if has_dates and probe.is_json(*_TELEGRAM_FIELDS) else 0.0

    def read_file(self, file: InputFile) -> Events:
        limits, is_account = file.limits, _ALL_CHATS.search(file.head()) is not None
        with file.open() as opened:
            found = read_member_list(opened, ("chats", "list") if is_account else ("messages",), limits)
            if found is None:
                content = "an object with a list of chats" if is_account else "a chat with a list of messages"
                raise InvalidParams(f"expected {content}")
            if not is_account:
                yield from _conversation(found.header, found.elements, limits)
                return
            for element in found.elements:
                yield from report_failure(f"chat {element.number}", _conversation(element, (), limits))


def _conversation(chat: Fields | JsonElement, messages: Iterable[Any], limits: ImportLimits) -> Events:
    """A chat alone is read as a stream of `messages`; one of an account is decoded as a whole. The number of a chat is
    unique in Telegram. Old exports have none for saved messages."""
    if isinstance(chat, JsonElement):
        chat = element_object(chat, limits)
        messages = chat["messages"] if isinstance(chat.get("messages"), list) else ()
    kind, number = chat.line("type"), chat.get("id")
    key = str(number) if isinstance(number, int) else kind
    if not key:
        raise InvalidParams("id: expected the number of the chat, got nothing")
    title = chat.line("name") or kind.replace("_", " ")
    draft = conversation_draft("telegram", key, title, chat_type=kind)
    yield from conversation_in_order("telegram", draft, _telegram_messages(messages, limits), limits)


def _telegram_messages(messages: Any, limits: ImportLimits) -> Iterator[ChatMessage | MessageReport]:
    for number, entry in enumerate(messages, 1):
        try:
            value = element_object(entry, limits) if isinstance(entry, JsonElement) else entry
            message = Fields.of(value)
            if message.get("type") != "message":
                yield SkippedItem("service message" if isinstance(value, dict) else "entry other than a message")
                continue
            if not isinstance(message.get("id"), int):
                raise InvalidParams(f"id: expected a number, got {repr(message.get('id'))[:60]}")
        except InvalidParams as error:
            yield FailedItem(f"message {number}", error.message)
            continue
        # A text is a string, or a list of strings and of parts with a format, such as links.
        content = message.get("text")
        parts = []
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, dict):
                text, address = text_or_empty(part.get("text")), clean_line(part.get("href"))
                parts.append(f"{text} ({address})" if address else text)
            else:
                parts.append(text_or_empty(part))
        # Says what a message contains other than text.
        media, field = "", next((name for name in _MEDIA if message.get(name)), None)
        if field is not None and isinstance(message.get("poll"), dict):
            media = f"[poll] {message.nested('poll').text('question')}"
        elif field is not None:
            kind = message.line("media_type").replace("_", " ") or field.partition("_")[0]
            name = message.line("file_name", "sticker_emoji")
            media = f"[{kind}: {name}]" if name else f"[{kind}]"
        answered = message.get("reply_to_message_id")
        yield ChatMessage(
            key=str(message["id"]),
            role="user",
            sender=message.line("from", "from_id"),
            text="\n".join(filter(None, ("".join(parts), media))),
            time=message.time("date_unixtime", "date"),
            parent=str(answered) if isinstance(answered, int) else None,
            metadata=compact_metadata(
                forwarded_from=message.line("forwarded_from"),
                edited=message.time("edited_unixtime", "edited"),
                via_bot=message.line("via_bot"),
            ),
        )


# -- Slack -------------------------------------------------------------------------------------------------------------
# Slack's workspace export: a zip or folder with `users.json`, `channels.json` and a folder of days for each channel.
#
# A channel becomes a conversation. Replies in a thread refer to the message that started it.

# The lists of channels by file, and what they contain.
_LISTS = {"channels.json": "channel", "groups.json": "private", "dms.json": "direct", "mpims.json": "group"}
_DAY = re.compile(r"(?P<channel>[^/]{1,200})/\d{4}-\d\d-\d\d\.json")
_SKIPPED_SUBTYPES = frozenset(("channel_join", "channel_leave", "group_join", "group_leave"))
# <@U123>, <@U123|name>, <#C123|general>, <https://…|text>
_MARKUP = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|\n]{1,2000})(?:\|(?P<label>[^<>\n]{0,2000}))?>")


class SlackImporter(FileImporter):
    name = "slack"
    title = "Slack export (zip, or the unpacked folder)"
    suffixes = (".zip",)

    def recognizes(self, probe: FileProbe) -> float:
        names = set(probe.names)
        roots = {name.removesuffix("users.json") for name in names if name.rpartition("/")[2] == "users.json"}
        has_lists = any(f"{root}{name}" in names for root in roots for name in _LISTS)
        # A folder has names of one level only, so that the days of a channel are not among them.
        if probe.is_folder:
            return 0.93 if has_lists and "conversations.json" not in names else 0.0
        has_days = any(_DAY.fullmatch("/".join(name.split("/")[-2:])) for name in names)
        return 0.93 if has_lists and has_days else 0.0

    def read_file(self, file: InputFile) -> Events:
        with file.open_tree() as tree:
            yield from _SlackExport(tree).read()
            yield from self.unused_files(len(tree.unread))


class _SlackExport:
    def __init__(self, tree: FileTree) -> None:
        self._tree = tree
        users = next((name for name in tree.names if name.rpartition("/")[2] == "users.json"), None)
        if users is None:
            raise InvalidParams("export: expected users.json, found no such file")
        self._root = users.removesuffix("users.json")
        self._names: dict[str, str] = {}
        for user in Fields.each(tree.json(users)):
            own = user.line("real_name", "name")
            self._names[user.line("id")] = _profile_name(user.get("profile")) or own

    def read(self) -> Events:
        days: dict[str, list[str]] = {}
        for name in sorted(self._tree.names):
            day = _DAY.fullmatch(name.removeprefix(self._root))
            if day is not None:
                days.setdefault(day["channel"], []).append(name)
        for file, kind in _LISTS.items():
            name = f"{self._root}{file}"
            for channel in Fields.each(self._tree.json(name)) if name in self._tree else ():
                if key := channel.line("id"):
                    # Direct messages are in a folder named after their id.
                    folder = key if kind == "direct" else channel.line("name") or key
                    title = f"#{channel.line('name')}"
                    if kind in ("direct", "group"):
                        members = channel.get("members")
                        people = [clean_line(member) for member in members] if isinstance(members, list) else [kind]
                        title = ", ".join(self._names.get(person) or person for person in people)
                    draft = conversation_draft(
                        "slack",
                        key,
                        title,
                        created=channel.time("created"),
                        channel_type=kind,
                        topic=channel.nested("topic").line("value"),
                        purpose=channel.nested("purpose").line("value"),
                        is_archived=channel.get("is_archived") is True,
                    )
                    messages = self._messages(days.pop(folder, []))
                    yield from conversation_in_order("slack", draft, messages, self._tree.limits)
        for folder, names in days.items():
            # Without a list, neither the id nor the kind of the channel is known.
            yield FailedItem(folder, f"{len(names)} days of a channel that no list names")

    def _messages(self, names: list[str]) -> Iterator[ChatMessage | MessageReport]:
        for name in names:
            try:
                messages = self._tree.json(name)
            except InvalidParams as error:
                yield FailedItem(name, error.message)
                continue
            for message in Fields.each(messages):
                time, thread = message.line("ts"), message.line("thread_ts")
                if message.get("type") != "message" or not time:
                    yield SkippedItem("entry other than a message")
                    continue
                if message.line("subtype") in _SKIPPED_SUBTYPES:
                    yield SkippedItem("message about joining or leaving")
                    continue
                is_bot = bool(message.get("bot_id")) or message.get("subtype") == "bot_message"
                named = _profile_name(message.get("user_profile")) or message.line("username")
                reactions = [f"{one.line('name')} {one.get('count')}" for one in message.objects("reactions")]
                yield ChatMessage(
                    # The time is Slack's own id of a message in its channel.
                    key=time,
                    role="assistant" if is_bot else "user",
                    sender=self._names.get(message.line("user")) or named or "unknown",
                    text="\n".join(filter(None, map(self._plain_text, _texts(message)))),
                    time=stored_time(time),
                    parent=thread if thread != time else None,
                    attachments=tuple({"name": file.line("name")} for file in message.objects("files")),
                    metadata=compact_metadata(reactions=reactions[:50]),
                )

    def _plain_text(self, text: str) -> str:
        """Replaces Slack's markup of people, channels and links by what a reader sees."""
        text = _MARKUP.sub(self._replace_markup, text)
        for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            text = text.replace(entity, char)
        return text

    def _replace_markup(self, markup: re.Match[str]) -> str:
        kind, target, label = markup["kind"], markup["target"], markup["label"]
        if kind == "@":
            return f"@{self._names.get(target) or label or target}"
        if kind:
            return f"{'#' if kind == '#' else '@'}{label or target}"
        return f"{label} ({target})" if label and label != target else target


def _profile_name(value: object) -> str:
    return Fields.of(value).line("display_name", "real_name")


def _texts(message: Fields) -> Iterator[str]:
    """Programs write into attachments, and into blocks, which usually repeat the text; files have a name only."""
    yield message.text("text") or _blocks_text(message)
    for attachment in message.objects("attachments"):
        text = attachment.text("text") or _blocks_text(attachment)
        yield text or attachment.text("fallback")
    for file in message.objects("files"):
        yield f"[file: {file.line('name') or 'unnamed'}]"


def _blocks_text(message: Fields) -> str:
    return "\n".join(filter(None, (_element_text(block) for block in message.objects("blocks"))))


def _element_text(element: Fields) -> str:
    """Returns the text of a block or of a part of it, with links and people in Slack's markup."""
    kind, text = element.get("type"), element.get("text")
    if kind == "link":
        return f"<{element.text('url')}|{text_or_empty(text)}>"
    if kind == "user":
        return f"<@{element.line('user_id')}>"
    if kind == "emoji":
        return f":{element.line('name')}:"
    own = _element_text(Fields(text)) if isinstance(text, dict) else text_or_empty(text)
    parts = [_element_text(part) for name in ("fields", "elements") for part in element.objects(name)]
    # Sentences of rich text consist of parts; everything else has a line of its own.
    separator = "" if kind == "rich_text_section" else "\n"
    return separator.join(filter(None, (own, *parts)))


# -- Discord -----------------------------------------------------------------------------------------------------------
# Discord: channels as DiscordChatExporter saves them (JSON), and the package with your own messages that Discord sends
# you (a zip, or the unpacked folder).

_DISCORD_FIELDS = (
    re.compile(rb'^\s*\{\s*"guild"\s*:\s*\{'),
    re.compile(rb'"channel"\s*:\s*\{'),
    re.compile(rb'"messages"\s*:\s*\['),
)
# The folder of a channel in the package. Its name and that of the folder around it are translated in some packages.
_PACKAGE_MESSAGES = re.compile(r"(?P<channel>(?:.{1,300}/)?c?\d{15,20})/messages\.(?:json|csv)\Z", re.IGNORECASE)
_ACCOUNT = re.compile(r"(?:^|/)user\.json\Z", re.IGNORECASE)
# Messages with a text of their own; the others report that a person joined, pinned a message, and so on.
_MESSAGE_TYPES = frozenset(("Default", "Reply", "ChatInputCommand", "ThreadStarterMessage", "ContextMenuCommand"))


class DiscordImporter(FileImporter):
    name = "discord"
    title = "Discord (DiscordChatExporter JSON, data package)"
    suffixes = (".json", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            # Looks two levels down, because the folder itself only contains folders.
            messages = next((name for name in probe.names if name.lower() == "messages"), None)
            return 0.9 if messages is not None and (probe.path / messages / "index.json").is_file() else 0.0
        if probe.names:
            return 0.9 if any(map(_PACKAGE_MESSAGES.fullmatch, probe.names)) else 0.0
        head = probe.head.removeprefix(b"\xef\xbb\xbf")
        return 0.9 if all(field.search(head) for field in _DISCORD_FIELDS) else 0.0

    def read_file(self, file: InputFile) -> Events:
        if file.is_folder or file.is_zip:
            with file.open_tree() as tree:
                accounts = (_load(tree, name) for name in tree.names if _ACCOUNT.search(name))
                author = next(accounts, Fields()).line("global_name", "username") or "me"
                channels = {
                    found["channel"]: name
                    for name in sorted(tree.names)
                    if (found := _PACKAGE_MESSAGES.fullmatch(name))
                }
                if not channels:
                    raise InvalidParams("package: expected folders with messages.json, found none")
                for folder, name in channels.items():
                    yield from report_failure(name, _read_own_messages(tree, folder, name, author))
                yield from self.unused_files(len(tree.unread))
            return
        limits = file.limits
        with file.open() as opened:
            messages = read_member_list(opened, ("messages",), limits)
            if messages is None:
                raise InvalidParams("expected a channel with a list of messages")
            guild, channel = (messages.header.nested(name) for name in ("guild", "channel"))
            key = channel.line("id")
            if not key:
                raise InvalidParams("channel.id: expected the id of the channel, got nothing")
            draft = conversation_draft(
                "discord",
                key,
                f"#{channel.line('name')}",
                server=guild.line("name"),
                category=channel.line("category"),
                topic=channel.line("topic"),
                channel_type=channel.line("type"),
            )
            yield from conversation_in_order("discord", draft, _discord_messages(messages.elements, limits), limits)


def _discord_messages(elements: Iterator[JsonElement], limits: ImportLimits) -> Iterator[ChatMessage | MessageReport]:
    for element in elements:
        try:
            message = element_object(element, limits)
            key = message.line("id")
            if not key:
                raise InvalidParams("id: expected the id of the message, got nothing")
        except InvalidParams as error:
            yield FailedItem(f"message {element.number}", error.message)
            continue
        if message.line("type") not in _MESSAGE_TYPES:
            yield SkippedItem("service message")
            continue
        author, reference = message.nested("author"), message.nested("reference")
        texts = [message.text("content")]
        for embed in message.objects("embeds"):
            parts = (embed.text(name).strip() for name in ("title", "description", "url"))
            texts.append("\n".join(filter(None, parts)))
        texts += [f"[sticker: {sticker.line('name')}]" for sticker in message.objects("stickers")]
        files = [file.line("fileName") for file in message.objects("attachments")]
        texts += [f"[file: {name or 'unnamed'}]" for name in files]
        yield ChatMessage(
            key=key,
            role="assistant" if author.get("isBot") is True else "user",
            sender=author.line("nickname", "name"),
            text="\n".join(filter(None, texts)),
            time=message.time("timestamp"),
            parent=reference.line("messageId") or None,
            attachments=tuple({"name": name} for name in files),
            metadata=compact_metadata(
                edited=message.time("timestampEdited"), is_pinned=message.get("isPinned") is True or None
            ),
        )


def _read_own_messages(tree: FileTree, folder: str, name: str, author: str) -> Events:
    info = _load(tree, f"{folder}/channel.json") if f"{folder}/channel.json" in tree else Fields()
    # Some packages have a c before the number of the channel.
    key = info.line("id") or folder.rpartition("/")[2].lstrip("c")
    title = info.line("name")
    draft = conversation_draft(
        "discord",
        stable_uuid("discord", "own messages", key),
        f"#{title}" if title else f"Discord {key}",
        server=info.nested("guild").line("name"),
        contains="own messages only",
    )
    rows: list[Fields] = []
    if name.lower().endswith(".json"):
        rows += Fields.each(tree.json(name))
    else:
        data = tree.read(name, tree.limits.line_max_bytes)
        for location, row in table_rows(decode_text(data, tree.limits, name)):
            if isinstance(row, str):
                raise InvalidParams(f"{location}: not a valid row: {row}")
            rows.append(row)
    # Packages list the newest message first.
    rows.sort(key=lambda row: row.time("Timestamp") or "")
    messages: list[ChatMessage | MessageReport] = []
    for row in rows:
        if message_key := str(row.get("ID") or ""):
            files = (f"[file: {url[:300]}]" for url in row.text("Attachments").split())
            text = "\n".join(filter(None, (row.text("Contents"), *files)))
            time = row.time("Timestamp")
            messages.append(ChatMessage(key=message_key, role="user", sender=author, text=text, time=time))
        else:
            messages.append(FailedItem("message", "ID: expected the id of the message, got nothing"))
    yield from conversation_in_order("discord", draft, messages, tree.limits)


def _load(tree: FileTree, name: str) -> Fields:
    with suppress(InvalidParams):
        return Fields.of(tree.json(name))
    return Fields()
