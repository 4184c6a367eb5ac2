"""SillyTavern and similar programs: chats, and character cards."""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, structs

from config.errors import InvalidParams, TooLarge
from config.times import format_time, parse_time
from sources.drafts import CharacterDraft, ConversationDraft, MessageDraft
from sources.importers.engine import values
from sources.importers.engine.archives import is_zip, open_archive
from sources.importers.engine.chat_messages import MessageReport, SkipMessage, conversation_draft, conversation_parts
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.events import FailedItem, ImportedCharacter, SkippedItem, stable_uuid
from sources.importers.engine.importer import Events, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.json_stream import decode_line
from sources.importers.engine.markdown_text import split_words
from sources.importers.engine.png_texts import SIGNATURE, is_webp, keywords, read_exif, read_text_chunk
from sources.importers.engine.values import Fields
from sources.importers.formats.agent_sessions import read_lines

# -- chats -------------------------------------------------------------------------------------------------------------
# Chats of SillyTavern: a line about the chat, then one message per line. Swipes that were not chosen become alternate
# branches. Speakers keep their names; the character itself is imported from its card.

# The folder in which the program keeps copies of all chats.
_BACKUPS = "backups"
_BACKUP_AGE = timedelta(milliseconds=1)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# June 19, 2023 2:20pm
_LONG_DATE = re.compile(r"([A-Za-z]{3})[a-z]* (\d{1,2}), (\d{4}) (\d{1,2}):(\d\d) ?([ap])m", re.IGNORECASE)
# 2023-6-19 @14h 20m 30s 123ms, and the form in file names, 2023-06-19@14h20m30s
_COMPACT_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@ ?(\d{1,2})h ?(\d{1,2})m ?(\d{1,2})s ?(?:(\d{1,3})ms)?")


class SillyTavernImporter(FileImporter):
    name = "sillytavern"
    title = "SillyTavern chat"
    suffixes = (".jsonl",)

    def recognizes(self, probe: FileProbe) -> float:
        first_line, *_ = probe.head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)
        if probe.is_folder or not first_line.startswith(b"{"):
            return 0.0
        if b'"user_name"' in first_line and b'"character_name"' in first_line:
            return 0.95
        return 0.85 if b'"mes"' in first_line and b'"is_user"' in first_line else 0.0

    def read_file(self, file: InputFile) -> Events:
        # A chat is identified by its integrity id, which its backups share. In older versions, which have none, the
        # file name is part of the key, because a branched chat has the first line of the original. Old chats start with
        # a message.
        limits = file.limits
        with open_file(file.path) as opened:
            line = next(read_lines(opened, 0, 1, limits), None)
        if line is None or line.problem:
            raise InvalidParams("the first line is missing or too long")
        first = decode_line(line.data, limits)
        character, stem = first.line("character_name"), file.stem
        integrity, main_chat = (first.nested("chat_metadata").line(name) for name in ("integrity", "main_chat"))
        # Some versions copied the id to the branches of a chat, which name their origin.
        key = f"{integrity}\0{main_chat}\0{stem if main_chat else ''}" if integrity else ""
        chat = conversation_draft(
            "sillytavern",
            key or f"{character}\0{first.line('create_date')}\0{stem}",
            # A backup is named after the character and the time of the backup.
            (character if _is_backup(file.path) else "") or values.clean_line(stem),
            created=_parse_time(first.get("create_date")) or _parse_time(first.get("send_date")),
            character_name=character,
            user_name=first.line("user_name"),
            integrity=integrity,
        )
        if integrity:
            # The time of the newest message, so that an older backup does not replace the chat. A backup with the same
            # messages counts as older, too.
            thread = _TavernThread(chat)
            messages = _parse_messages(structs.replace(file, progress=lambda _: None))
            times = [thread.add_chosen(one).created_at for one in messages if isinstance(one, _TavernMessage)]
            newest = max((time for time in times if time is not UNSET), default=UNSET)
            if newest is not UNSET and _is_backup(file.path):
                newest = format_time(parse_time(newest) - _BACKUP_AGE)
            chat = structs.replace(chat, last_modified=newest)
        yield from conversation_parts(chat, _read_messages(file, chat))


class _TavernMessage(Struct, frozen=True):
    """A message with its swipes, of which `choice` is the index of the chosen one."""

    number: int
    line: Fields
    swipes: tuple[str, ...]
    choice: int


def _read_messages(file: InputFile, chat: ConversationDraft) -> Iterator[MessageDraft | MessageReport]:
    """Reads the file twice, first the chosen swipes and then the others, so that only one line is held in memory."""
    thread = _TavernThread(chat)
    for message in _parse_messages(file):
        yield thread.add_chosen(message) if isinstance(message, _TavernMessage) else message
    thread = _TavernThread(chat)
    for message in _parse_messages(file):
        if isinstance(message, _TavernMessage):
            yield from thread.other_swipes(message, file.limits)
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
                values.require_storable(text, limits)
                yield self._message_draft(message, swipe, is_canonical=False)
            except InvalidParams as error:
                yield FailedItem(f"line {message.number}, swipe {swipe + 1}", error.message)

    def _message_draft(self, message: _TavernMessage, swipe: int, *, is_canonical: bool) -> MessageDraft:
        line = message.line
        infos = line["swipe_info"] if isinstance(line.get("swipe_info"), list) else []
        info = Fields.of(infos[swipe]) if swipe < len(infos) else Fields()
        role = "user" if line.get("is_user") is True else "assistant"
        model = info.nested("extra").line("model")
        if not model and is_canonical:
            model = line.nested("extra").line("model")
        return MessageDraft(
            uuid=stable_uuid("sillytavern", "message", f"{self._chat.uuid}\0{message.number}\0{swipe}"),
            role=role,
            sender=line.line("name") or role,
            content=message.swipes[swipe],
            model=model or None,
            metadata={"is_hidden": True} if line.get("is_system") is True else {},
            parent_id=self._parent,
            is_canonical=is_canonical,
            created_at=_parse_time(info.get("send_date")) or _parse_time(line.get("send_date")) or self._time,
        )


def _is_backup(path: Path) -> bool:
    return path.resolve().parent.name.lower() == _BACKUPS


def _parse_messages(file: InputFile) -> Iterator[_TavernMessage | MessageReport]:
    with open_file(file.path) as opened:
        for session_line in read_lines(opened, 0, 1, file.limits):
            file.progress(session_line.end)
            location = f"line {session_line.number}"
            if session_line.problem:
                yield FailedItem(location, session_line.problem)
                continue
            try:
                line = decode_line(session_line.data, file.limits)
                if "mes" not in line:
                    if session_line.number > 1:
                        raise InvalidParams("not a message (no field mes)")
                    continue
                # Chub writes an object that contains the text.
                text = line.text("mes") or line.nested("mes").text("message")
                if line.get("is_system") is True and line.get("name") == "SillyTavern System":
                    raise SkipMessage("system message")
                if not text.strip():
                    raise SkipMessage("empty message")
                values.require_storable(text, file.limits)
                swipes = (
                    [values.text_or_empty(one) for one in line["swipes"]]
                    if isinstance(line.get("swipes"), list)
                    else []
                )
                swipe_id = line.get("swipe_id")
                choice = swipe_id if type(swipe_id) is int and 0 <= swipe_id < len(swipes) else 0
                # The message may have been edited since it was chosen, so it replaces its swipe.
                texts = (*swipes[:choice], text, *swipes[choice + 1 :])
                yield _TavernMessage(session_line.number, line, texts, choice)
            except SkipMessage as skip:
                yield SkippedItem(skip.reason)
            except InvalidParams as error:
                yield FailedItem(location, error.message)


def _parse_time(value: Any) -> str | None:
    """Parses the forms that versions of SillyTavern write. They have no time zone; UTC is assumed."""
    text = values.clean_line(value)
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
    return values.stored_time(value)


# -- character cards ---------------------------------------------------------------------------------------------------
# Character cards of versions 1, 2 and 3: as JSON, in the text chunks of a PNG, in a WebP, or in a charx archive.
#
# Every field of a card is kept: known ones as fields of the character, all others unchanged in `card`. Images, sounds
# and other assets are not read.

# A PNG may contain both; the newer version has more fields.
_PNG_KEYWORDS = ("ccv3", "chara")
_CARD_IN_CHARX = "card.json"
_HEAD_BYTES = 16
_UTF16_COMMENT = b"UNICODE\0"
_PROBE_MAX_BYTES = 4 << 20
_SPEC = re.compile(rb'"spec"\s*:\s*"chara_card_v\d+"')
# The text fields of a character, and their names in cards.
_TEXT_FIELDS = {
    "description": "description",
    "personality": "personality",
    "scenario": "scenario",
    "first_message": "first_mes",
    "message_example": "mes_example",
    "system_prompt": "system_prompt",
    "post_history_instructions": "post_history_instructions",
    "creator_notes": "creator_notes",
    "creator": "creator",
    "character_version": "character_version",
    "nickname": "nickname",
}
_SHORT_FIELDS = ("creator", "character_version", "nickname")


class CharacterCardsImporter(FileImporter):
    name = "character_cards"
    title = "Character cards (JSON, PNG, WebP, charx)"
    suffixes = (".json", ".png", ".apng", ".webp", ".charx")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.head.startswith(SIGNATURE):
            return 1.0 if any(keyword in _PNG_KEYWORDS for keyword in keywords(probe.path)) else 0.0
        if is_webp(probe.head):
            with suppress(InvalidParams, TooLarge, OSError):
                return 1.0 if b'"name"' in _read_webp_card(probe.path, _PROBE_MAX_BYTES) else 0.0
            return 0.0
        if probe.is_zip:
            # An archive without a readable directory is a damaged card if its suffix says so, and is reported as one.
            is_damaged = not probe.names and probe.suffix == ".charx"
            return 0.9 if _CARD_IN_CHARX in probe.names or is_damaged else 0.0
        if not probe.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            return 0.0
        if _SPEC.search(probe.head):
            return 1.0
        return 0.7 if b'"first_mes"' in probe.head and b'"name"' in probe.head else 0.0

    def read_file(self, file: InputFile) -> Events:
        card = Fields.require(
            values.parse_json(_read_card(file), file.limits), "character card: expected a JSON object"
        )
        data = card.nested("data") if isinstance(card.get("data"), dict) else card
        name = data.get("name")
        if not isinstance(name, str) or not name.strip():
            raise InvalidParams(f"name: expected the name of the character, got {repr(name)[:60]}")
        fields = {ours: data[theirs] for ours, theirs in _TEXT_FIELDS.items() if isinstance(data.get(theirs), str)}
        fields |= {field: values.short_title(fields[field]) for field in _SHORT_FIELDS if field in fields}
        # What the character's own fields do not hold unchanged: unknown fields, and known ones that were shortened.
        # Version 2 cards often repeat the fields of version 1 next to `data`; these repetitions are dropped.
        remaining = {field: value for field, value in data.items() if not _is_kept_unchanged(field, value)}
        if data is not card:
            remaining |= {field: value for field, value in card.items() if field != "data" and data.get(field) != value}
        draft = CharacterDraft(
            name=values.short_title(name),
            **fields,
            alternate_greetings=_strings(data.get("alternate_greetings")),
            group_only_greetings=_strings(data.get("group_only_greetings")),
            tags=values.clean_tags(split_words(data.get("tags"))),
            card=remaining,
            uuid=stable_uuid("character_cards", "characters", file.key),
            created_at=data.time("creation_date") or UNSET,
        )
        yield ImportedCharacter(draft)


def _read_card(file: InputFile) -> bytes:
    """Returns the JSON of a card."""
    head, max_bytes = file.head(_HEAD_BYTES), file.limits.line_max_bytes
    if head.startswith(SIGNATURE):
        for keyword in _PNG_KEYWORDS:
            text = read_text_chunk(file.path, keyword, max_bytes)
            if text is not None:
                # Decodes base64, which the specifications require but some programs omit.
                if text.lstrip().startswith(b"{"):
                    return text
                try:
                    return b64decode(text, validate=False)
                except Base64Error as error:
                    raise InvalidParams("the character card in the PNG is not valid base64") from error
        raise InvalidParams("PNG contains no character card (no text chunk named chara or ccv3)")
    if is_webp(head):
        return _read_webp_card(file.path, max_bytes)
    if is_zip(head):
        with open_archive(file.path, file.limits) as archive:
            return archive.read(_CARD_IN_CHARX, max_bytes)
    return file.content()


def _read_webp_card(path: Path, max_bytes: int) -> bytes:
    """Returns the JSON that TavernAI writes into the user comment of the image. It is found by its braces, because
    versions of TavernAI encode that field differently."""
    exif = read_exif(path, max_bytes) or b""
    marker = exif.find(_UTF16_COMMENT)
    if marker >= 0:
        exif = exif[marker + len(_UTF16_COMMENT) :].replace(b"\0", b"")
    # The outermost braces of the text.
    start, end = exif.find(b"{"), exif.rfind(b"}")
    if start < 0 or end < start:
        raise InvalidParams("WebP contains no character card")
    return exif[start : end + 1]


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(part for part in value if isinstance(part, str)) if isinstance(value, list) else ()


def _is_kept_unchanged(field: str, value: Any) -> bool:
    if field in ("alternate_greetings", "group_only_greetings"):
        return isinstance(value, list) and _strings(value) == tuple(value)
    if field == "tags":
        return isinstance(value, list) and values.clean_tags(split_words(value)) == tuple(value)
    if field in ("name", *(_TEXT_FIELDS[name] for name in _SHORT_FIELDS)):
        return isinstance(value, str) and values.short_title(value) == value
    return field in _TEXT_FIELDS.values() and isinstance(value, str)
