"""Slack's workspace export: a zip or folder with `users.json`, `channels.json` and a folder of days for each channel.

A channel becomes a conversation. Replies in a thread refer to the message that started it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.importers.engine.chat_messages import ChatMessage, MessageReport, conversation_draft, conversation_in_order
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.file_trees import FileTree, open_tree
from sources.importers.engine.files import FailedItem, SkippedItem, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import compact_metadata
from sources.importers.engine.values import clean_line, object_or_empty, objects, parse_json, stored_time, text_or_empty

_NAME = "slack"
# The lists of channels by file, and what they contain.
_LISTS = {"channels.json": "channel", "groups.json": "private", "dms.json": "direct", "mpims.json": "group"}
_DAY = re.compile(r"(?P<channel>[^/]{1,200})/\d{4}-\d\d-\d\d\.json")
_SKIPPED_SUBTYPES = frozenset(("channel_join", "channel_leave", "group_join", "group_leave"))
# <@U123>, <@U123|name>, <#C123|general>, <https://…|text>
_MARKUP = re.compile(r"<(?P<kind>[@#!]?)(?P<target>[^<>|\n]{1,2000})(?:\|(?P<label>[^<>\n]{0,2000}))?>")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


class SlackImporter(Importer):
    name = _NAME
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

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_tree(path, limits, progress) as tree:
            yield from _SlackExport(tree, limits).read()


IMPORTER = SlackImporter()


class _SlackExport:
    def __init__(self, tree: FileTree, limits: ImportLimits) -> None:
        self._tree = tree
        self._limits = limits
        users = next((name for name in tree.names if name.rpartition("/")[2] == "users.json"), None)
        if users is None:
            raise InvalidParams("export: expected users.json, found no such file")
        self._root = users.removesuffix("users.json")
        self._names: dict[str, str] = {}
        for user in objects(self._load(users)):
            own = clean_line(user.get("real_name")) or clean_line(user.get("name"))
            self._names[clean_line(user.get("id"))] = _profile_name(user.get("profile")) or own

    def read(self) -> Iterator[ImportEvent]:
        days: dict[str, list[str]] = {}
        for name in sorted(self._tree.names):
            day = _DAY.fullmatch(name.removeprefix(self._root))
            if day is not None:
                days.setdefault(day["channel"], []).append(name)
        for file, kind in _LISTS.items():
            name = f"{self._root}{file}"
            for channel in objects(self._load(name)) if name in self._tree else ():
                if key := clean_line(channel.get("id")):
                    # Direct messages are in a folder named after their id.
                    folder = key if kind == "direct" else clean_line(channel.get("name")) or key
                    yield from self._read_channel(key, kind, channel, days.pop(folder, []))
        for folder, names in days.items():
            # Without a list, neither the id nor the kind of the channel is known.
            yield FailedItem(folder, f"{len(names)} days of a channel that no list names")

    def _read_channel(self, key: str, kind: str, channel: Mapping[str, Any], days: list[str]) -> Iterator[ImportEvent]:
        members = channel.get("members")
        title = f"#{clean_line(channel.get('name'))}"
        if kind in ("direct", "group"):
            people = [clean_line(member) for member in members] if isinstance(members, list) else [kind]
            title = ", ".join(self._names.get(person) or person for person in people)
        draft = conversation_draft(
            _NAME,
            stable_uuid(_NAME, "conversation", key),
            title,
            created=stored_time(channel.get("created")),
            channel_type=kind,
            topic=clean_line(object_or_empty(channel.get("topic")).get("value")),
            purpose=clean_line(object_or_empty(channel.get("purpose")).get("value")),
            is_archived=channel.get("is_archived") is True,
        )
        yield from conversation_in_order(_NAME, draft, self._messages(days), self._limits)

    def _load(self, name: str) -> Any:
        return parse_json(self._tree.read(name, self._limits.line_max_bytes), self._limits)

    def _messages(self, names: list[str]) -> Iterator[ChatMessage | MessageReport]:
        for name in names:
            try:
                messages = self._load(name)
            except InvalidParams as error:
                yield FailedItem(name, error.message)
                continue
            yield from (self._message(message) for message in objects(messages))

    def _message(self, message: Mapping[str, Any]) -> ChatMessage | SkippedItem:
        time = clean_line(message.get("ts"))
        if message.get("type") != "message" or not time:
            return SkippedItem("entry other than a message")
        if clean_line(message.get("subtype")) in _SKIPPED_SUBTYPES:
            return SkippedItem("message about joining or leaving")
        thread = clean_line(message.get("thread_ts"))
        is_bot = bool(message.get("bot_id")) or message.get("subtype") == "bot_message"
        named = _profile_name(message.get("user_profile")) or clean_line(message.get("username"))
        reactions = [f"{clean_line(one.get('name'))} {one.get('count')}" for one in objects(message.get("reactions"))]
        return ChatMessage(
            # The time is Slack's own id of a message in its channel.
            key=time,
            role="assistant" if is_bot else "user",
            sender=self._names.get(clean_line(message.get("user"))) or named or "unknown",
            text="\n".join(filter(None, map(self._plain_text, _texts(message)))),
            time=stored_time(time),
            parent=thread if thread != time else None,
            attachments=tuple({"name": clean_line(file.get("name"))} for file in objects(message.get("files"))),
            metadata=compact_metadata(reactions=reactions[:50]),
        )

    def _plain_text(self, text: str) -> str:
        """Replaces Slack's markup of people, channels and links by what a reader sees."""
        text = _MARKUP.sub(self._replace_markup, text)
        for entity, char in _ENTITIES:
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
    profile = object_or_empty(value)
    return clean_line(profile.get("display_name")) or clean_line(profile.get("real_name"))


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Programs write into attachments, and into blocks, which usually repeat the text; files have a name only."""
    yield text_or_empty(message.get("text")) or _blocks_text(message)
    for attachment in objects(message.get("attachments")):
        text = text_or_empty(attachment.get("text")) or _blocks_text(attachment)
        yield text or text_or_empty(attachment.get("fallback"))
    for file in objects(message.get("files")):
        yield f"[file: {clean_line(file.get('name')) or 'unnamed'}]"


def _blocks_text(message: Mapping[str, Any]) -> str:
    return "\n".join(filter(None, (_element_text(block) for block in objects(message.get("blocks")))))


def _element_text(element: Mapping[str, Any]) -> str:
    """Returns the text of a block or of a part of it, with links and people in Slack's markup."""
    kind, text = element.get("type"), element.get("text")
    if kind == "link":
        return f"<{text_or_empty(element.get('url'))}|{text_or_empty(text)}>"
    if kind == "user":
        return f"<@{clean_line(element.get('user_id'))}>"
    if kind == "emoji":
        return f":{clean_line(element.get('name'))}:"
    own = _element_text(text) if isinstance(text, Mapping) else text_or_empty(text)
    parts = [_element_text(part) for name in ("fields", "elements") for part in objects(element.get(name))]
    # Sentences of rich text consist of parts; everything else has a line of its own.
    separator = "" if kind == "rich_text_section" else "\n"
    return separator.join(filter(None, (own, *parts)))
