"""Gemini's history from Google Takeout: `MyActivity.json`, alone, in its zip or unpacked.

Takeout lists single exchanges, newest first, without saying which of them belong together. Every exchange becomes a
conversation, except where its address names one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from sources.importers.engine.chat_messages import ChatMessage, conversation_draft, conversation_in_order, title_of
from sources.importers.engine.export_files import base_name, first_bytes, is_in_unpacked_export, is_json, read_export
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import SkippedItem, stable_uuid
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.json_stream import decode_object
from sources.importers.engine.values import clean_line, objects, stored_time, text_or_empty, texts
from sources.importers.parsers.web_page import html_text

_NAME = "gemini"
_KEY_CHARS = 100
_PRODUCTS = frozenset(("gemini apps", "gemini", "bard"))
# The activities of all products have these fields. The name of the product is the same in every language.
_FIELDS = (re.compile(rb'"(?:header|products)"\s*:\s*(?:\[\s*)?"(?:Gemini Apps|Bard)"'), re.compile(rb'"time"\s*:'))
_CONVERSATION = re.compile(r"https://(?:gemini|bard)\.google\.com/(?:app|chat)/([0-9a-f]{6,64})")
# What precedes the prompt, in the languages whose Takeout we know; in others it stays part of the prompt.
_PROMPTED = re.compile(
    r"(?:Prompted|Said|Asked|Eingegeben:|Prompt(?:é|e)?(?: :)?|Requête :|Has (?:dicho|preguntado)|Hai chiesto)\s+"
)


class GeminiImporter(Importer):
    name = _NAME
    title = "Gemini (Google Takeout, MyActivity.json)"
    suffixes = (".json", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder:
            return 0.0
        head = first_bytes(probe, _is_export_file)
        # Takeout writes MyActivity.json for other products, too.
        return 0.9 if is_json(head) and all(field.search(head) for field in _FIELDS) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        # The exchanges of each conversation that the export names. They are held until the end, because the oldest
        # ones come last.
        named: dict[str, list[_GeminiExchange]] = {}

        def read(data: bytes, _: str) -> Iterator[ImportEvent]:
            exchange = _read_activity(decode_object(data, _GeminiActivity), limits)
            if isinstance(exchange, SkippedItem):
                yield exchange
            elif exchange.url:
                named.setdefault(exchange.url, []).append(exchange)
            else:
                yield from _conversation(f"{exchange.time}\0{exchange.prompt}", [exchange], limits)

        yield from read_export(path, limits, progress, _is_export_file, "activity", read)
        for url, exchanges in named.items():
            yield from _conversation(url, sorted(exchanges, key=lambda exchange: exchange.time), limits)

    def reads_from_folder(self, name: str) -> bool:
        return is_in_unpacked_export(name, _is_export_file)


IMPORTER = GeminiImporter()


class _GeminiActivity(Struct, frozen=True):
    header: Any = None
    products: Any = None
    title: Any = None
    titleUrl: Any = None  # noqa: N815 - the format's own name
    time: Any = None
    safeHtmlItem: Any = None  # noqa: N815
    subtitles: Any = None
    attachedFiles: Any = None  # noqa: N815
    imageFile: Any = None  # noqa: N815


class _GeminiExchange(Struct, frozen=True):
    time: str
    prompt: str
    answer: str
    attachments: Sequence[Mapping[str, Any]]
    url: str


def _is_export_file(name: str) -> bool:
    """Folders and file names are translated, except for the name of the product."""
    folders = name.lower().split("/")[:-1]
    is_gemini = any("gemini" in folder or "bard" in folder for folder in folders)
    return base_name(name) == "myactivity.json" if not folders else is_gemini and name.lower().endswith(".json")


def _read_activity(activity: _GeminiActivity, limits: ImportLimits) -> _GeminiExchange | SkippedItem:
    names = {clean_line(activity.header).lower(), *(name.lower() for name in texts(activity.products))}
    if not names & _PRODUCTS:
        return SkippedItem("activity of another product")
    time = stored_time(activity.time)
    pages = (text_or_empty(item.get("html")) for item in objects(activity.safeHtmlItem))
    answer = "\n\n".join(html_text(page, limits.item_max_chars) for page in pages if page.strip())
    if not time or not answer.strip():
        # Feedback, deleted chats and settings are activities, too.
        return SkippedItem("activity without an answer")
    address = _CONVERSATION.match(text_or_empty(activity.titleUrl))
    files = (*texts(activity.attachedFiles), *texts([activity.imageFile]))
    return _GeminiExchange(
        time=time,
        prompt=_PROMPTED.sub("", text_or_empty(activity.title), count=1),
        answer=answer,
        attachments=tuple({"name": clean_line(name)} for name in files),
        url=address[0] if address else "",
    )


def _conversation(key: str, exchanges: Sequence[_GeminiExchange], limits: ImportLimits) -> Iterator[ImportEvent]:
    first = exchanges[0]
    draft = conversation_draft(
        _NAME,
        stable_uuid(_NAME, "conversation", key),
        title_of(first.prompt),
        created=first.time,
        modified=exchanges[-1].time,
        url=first.url,
    )
    messages: list[ChatMessage] = []
    for exchange in exchanges:
        time, key = exchange.time, f"{exchange.time} {exchange.prompt[:_KEY_CHARS]}"
        messages += (
            ChatMessage(key=key, role="user", text=exchange.prompt, time=time, attachments=exchange.attachments),
            ChatMessage(key=f"{key}\0answer", role="assistant", text=exchange.answer, time=time, parent=key),
        )
    yield from conversation_in_order(_NAME, draft, messages, limits)
