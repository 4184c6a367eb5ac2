"""The exports of assistants that people chat with on the web: Gemini, Grok, DeepSeek and Perplexity."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any

from msgspec import Raw, structs

from config.errors import InvalidParams
from sources.importers.engine import chat_messages, json_stream
from sources.importers.engine.batches import require_messages
from sources.importers.engine.chat_messages import ChatMessage
from sources.importers.engine.confined_files import open_file
from sources.importers.engine.events import FailedItem, SkippedItem
from sources.importers.engine.file_probe import HEAD_BYTES, is_json
from sources.importers.engine.importer import Events, ExportImporter, FileImporter, FileProbe, ImportLimits, InputFile
from sources.importers.engine.input_file import base_name, is_in_unpacked_export, read_export, read_objects
from sources.importers.engine.values import Fields, clean_line, json_or_none, stored_time, texts
from sources.importers.parsers.web_page import html_text

# -- Gemini ------------------------------------------------------------------------------------------------------------
# Gemini's history from Google Takeout: `MyActivity.json`, alone, in its zip or unpacked.
#
# Takeout lists single exchanges, newest first, without saying which of them belong together. Every exchange becomes a
# conversation, except where its address names one.

_KEY_CHARS = 100
_PRODUCTS = frozenset(("gemini apps", "gemini", "bard"))
# The activities of all products have these fields. The name of the product is the same in every language.
_GEMINI_MARKS = (
    re.compile(rb'"(?:header|products)"\s*:\s*(?:\[\s*)?"(?:Gemini Apps|Bard)"'),
    re.compile(rb'"time"\s*:'),
)
_CONVERSATION = re.compile(r"https://(?:gemini|bard)\.google\.com/(?:app|chat)/([0-9a-f]{6,64})")
# What precedes the prompt, in the languages whose Takeout we know; in others it stays part of the prompt.
_PROMPTED = re.compile(
    r"(?:Prompted|Said|Asked|Eingegeben:|Prompt(?:é|e)?(?: :)?|Requête :|Has (?:dicho|preguntado)|Hai chiesto)\s+"
)


class GeminiImporter(FileImporter):
    name = "gemini"
    title = "Gemini (Google Takeout, MyActivity.json)"
    suffixes = (".json", ".zip")

    def recognizes(self, probe: FileProbe) -> float:
        # Takeout writes MyActivity.json for other products, too.
        return 0.9 if is_json(probe.first_bytes(self.is_export_file), *_GEMINI_MARKS) else 0.0

    def is_export_file(self, name: str) -> bool:
        """Folders and file names are translated, except for the name of the product."""
        folders = name.lower().split("/")[:-1]
        is_gemini = any("gemini" in folder or "bard" in folder for folder in folders)
        return base_name(name) == "myactivity.json" if not folders else is_gemini and name.lower().endswith(".json")

    def read_file(self, file: InputFile) -> Events:
        # The messages of each conversation that the export names, by its address. They are held until the end, because
        # the oldest ones come last.
        named: dict[str, list[ChatMessage]] = {}

        def read(data: bytes, _: str) -> Events:
            activity = json_stream.decode_fields(data)
            names = {activity.line("header").lower(), *(name.lower() for name in activity.texts("products"))}
            if not names & _PRODUCTS:
                yield SkippedItem("activity of another product")
                return
            time = activity.time("time")
            pages = (item.text("html") for item in activity.objects("safeHtmlItem"))
            answer = "\n\n".join(html_text(page, file.limits.item_max_chars) for page in pages if page.strip())
            if not time or not answer.strip():
                # Feedback, deleted chats and settings are activities, too.
                yield SkippedItem("activity without an answer")
                return
            address = _CONVERSATION.match(activity.text("titleUrl"))
            prompt = _PROMPTED.sub("", activity.text("title"), count=1)
            files = (*activity.texts("attachedFiles"), *texts([activity.get("imageFile")]))
            attachments = tuple({"name": clean_line(name)} for name in files)
            key = f"{time} {prompt[:_KEY_CHARS]}"
            exchange = (
                ChatMessage(key=key, role="user", text=prompt, time=time, attachments=attachments),
                ChatMessage(key=f"{key}\0answer", role="assistant", text=answer, time=time, parent=key),
            )
            if address:
                named.setdefault(address[0], []).extend(exchange)
            else:
                yield from _conversation(f"{time}\0{prompt}", "", exchange, file.limits)

        yield from read_export(file, self.is_export_file, "activity", read)
        for url, messages in named.items():
            yield from _conversation(url, url, sorted(messages, key=lambda message: message.time or ""), file.limits)

    def reads_from_folder(self, name: str) -> bool:
        return is_in_unpacked_export(name, self.is_export_file)


def _conversation(key: str, url: str, messages: Sequence[ChatMessage], limits: ImportLimits) -> Events:
    first, last = messages[0], messages[-1]
    draft = chat_messages.conversation_draft(
        "gemini", key, chat_messages.title_of(first.text), created=first.time, modified=last.time, url=url
    )
    yield from chat_messages.conversation_in_order("gemini", draft, messages, limits)


# -- Grok --------------------------------------------------------------------------------------------------------------
# Grok's export from accounts.x.ai: `prod-grok-backend.json`, alone or in its zip.

_GROK_MARKS = (
    re.compile(rb'^\s*\{\s*"conversations"\s*:\s*\['),
    re.compile(rb'"conversation"\s*:\s*\{'),
    re.compile(rb'"responses"\s*:'),
)


class GrokImporter(FileImporter):
    name = "grok"
    title = "Grok export"
    suffixes = (".json", ".zip")
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_zip:
            return 0.9 if is_json(probe.first_bytes(_is_grok_export_file)) else 0.0
        head = probe.head.removeprefix(b"\xef\xbb\xbf")
        return 0.9 if all(mark.search(head) for mark in _GROK_MARKS) else 0.0

    def read_file(self, file: InputFile) -> Events:
        if not file.is_zip:
            with file.open() as opened:
                yield from _read_file("", opened, file.limits)
            return
        with file.open_archive() as archive:
            names = [name for name in archive.names if _is_grok_export_file(name)]
            if not names:
                raise InvalidParams("export: expected prod-grok-backend.json, found no such file")
            for name in names:
                with archive.open(name) as opened:
                    yield from _read_file(name, opened, file.limits)


def _is_grok_export_file(name: str) -> bool:
    return base_name(name) == "prod-grok-backend.json"


def _read_file(name: str, file: IO[bytes], limits: ImportLimits) -> Events:
    conversations = json_stream.read_member_list(file, ("conversations",), limits)
    if conversations is None:
        raise InvalidParams("expected an object with a list of conversations")
    objects = ((name, element) for element in conversations.elements)
    yield from read_objects(objects, "conversation", partial(_read_grok_conversation, limits=limits))


def _read_grok_conversation(data: bytes, location: str, limits: ImportLimits) -> Events:
    entry, responses = json_stream.decode_apart(data, "responses")
    fields, messages = entry.nested("conversation"), list[ChatMessage]()
    for number, raw in enumerate(json_stream.decode_list(responses), 1):
        try:
            response = Fields.require(json_stream.decode_fields(raw).get("response"))
        except InvalidParams as error:
            yield FailedItem(f"{location}, response {number}", error.message)
            continue
        role = chat_messages.role_of(response.get("sender"))
        message = ChatMessage(
            key=response.line("_id", "id") or str(number),
            role=role,
            text=response.text("message"),
            time=_grok_time(response.get("create_time")),
            model=response.line("model") if role == "assistant" else "",
            parent=response.line("parent_response_id") or None,
            attachments=tuple({"id": clean_line(key)} for key in response.texts("file_attachments")),
            citations=chat_messages.link_citations(response.get("web_search_results")),
        )
        messages.append(message)
    # After the responses, so that their failures are reported in any case.
    key = fields.line("id")
    if not key:
        raise InvalidParams("id: expected the id of the conversation, got nothing")
    draft = chat_messages.conversation_draft(
        "grok",
        key,
        fields.line("title"),
        created=_grok_time(fields.get("create_time")),
        modified=_grok_time(fields.get("modify_time")),
        is_starred=fields.get("starred") is True,
        system_prompt=fields.line("system_prompt_name"),
    )
    if not any(message.parent for message in messages):
        # Older exports do not name the message that is answered: it is the one before.
        keys = [None, *(message.key for message in messages)]
        messages = [structs.replace(message, parent=key) for message, key in zip(messages, keys, strict=False)]
    yield from chat_messages.conversation_with_branches("grok", draft, messages, limits)


def _grok_time(value: object) -> str | None:
    """Times are ISO 8601, or objects of MongoDB's extended JSON."""
    while isinstance(value, Mapping):
        value = value.get("$date", value.get("$numberLong"))
    return stored_time(value)


# -- DeepSeek ----------------------------------------------------------------------------------------------------------
# DeepSeek's export: `conversations.json`, alone or in its zip. Its tree resembles ChatGPT's, but not its messages.

# The kinds of fragments, and the role and content type of the message that each becomes.
_FRAGMENTS = {
    "REQUEST": ("user", ""),
    "RESPONSE": ("assistant", ""),
    "THINK": ("assistant", "thinking"),
    "SEARCH": ("tool", "search"),
}


class DeepSeekImporter(ExportImporter):
    name = "deepseek"
    title = "DeepSeek export"
    noun = "chat"
    output_version = 1

    def recognizes(self, probe: FileProbe) -> float:
        head = probe.first_bytes(self.is_export_file)
        if probe.is_folder:
            # An unpacked export has the same file names as ChatGPT's.
            name = next(filter(self.is_export_file, probe.names), "")
            with suppress(OSError), open_file(probe.path / name) as file:
                head = file.read(HEAD_BYTES)
        # More certain than ChatGPT's importer, which also knows `mapping` and `user.json`.
        return 0.97 if is_json(head, b'"mapping"', b'"inserted_at"') else 0.0

    def is_export_file(self, name: str) -> bool:
        return base_name(name) == "conversations.json"

    def read_object(self, data: bytes, location: str, limits: ImportLimits) -> Events:
        conversation, mapping = json_stream.decode_apart(data, "mapping")
        messages: list[ChatMessage] = []
        # The last fragment of each node, which the next node answers.
        last: dict[str, str] = {}
        turns = 0
        for key, raw in json_stream.decode_object(mapping, dict[str, Raw]).items():
            try:
                node = json_stream.decode_fields(raw)
                answer = None if node.get("message") is None else Fields.require(node["message"])
            except InvalidParams as error:
                yield FailedItem(f"{location}, node {key[:40]}", error.message)
                continue
            parent = node.line("parent")
            if answer is not None:
                for message in _fragments(key, answer, last.get(parent, parent) or None, turns):
                    messages.append(message)
                    last[key] = message.key
                turns += 1
            # A node without messages passes on those that follow it to its own parent.
            last.setdefault(key, last.get(parent, parent))
        draft = chat_messages.conversation_draft(
            "deepseek",
            conversation.line("id", "inserted_at"),
            conversation.line("title"),
            created=conversation.time("inserted_at"),
            modified=conversation.time("updated_at"),
        )
        yield from chat_messages.conversation_with_branches("deepseek", draft, messages, limits)


def _fragments(key: str, message: Fields, parent: str | None, turn: int) -> Iterator[ChatMessage]:
    """Yields the fragments of a node as messages that follow each other. Older exports have one text and a separate
    one with the reasoning, and questions and answers take turns."""
    fragments, reasoning = list(message.objects("fragments")), message.get("reasoning_content")
    if not fragments:
        role = message.line("role").lower()
        is_answer = role == "assistant" or (not role and (bool(reasoning) or turn % 2 == 1))
        fragments = [Fields(type="THINK", content=reasoning)] if reasoning else []
        fragments.append(Fields(type="RESPONSE" if is_answer else "REQUEST", content=message.get("content")))
    files = (clean_line(file.get("file_name") or file.get("name")) for file in message.objects("files"))
    attachments = tuple({"name": name} for name in files if name)
    for index, fragment in enumerate(fragments):
        role, kind = _FRAGMENTS.get(fragment.line("type").upper(), ("assistant", ""))
        results = chat_messages.link_citations(fragment.get("results"))
        found = "\n".join(f"{citation['title']} {citation['url']}".strip() for citation in results)
        text = fragment.text("content") or found
        fragment_key = key if index == len(fragments) - 1 else f"{key}\0{index}"
        yield ChatMessage(
            key=fragment_key,
            role=role,
            text=text,
            time=message.time("inserted_at"),
            model=message.line("model") if role == "assistant" else "",
            tool="search" if role == "tool" else "",
            parent=parent,
            attachments=attachments if role == "user" else (),
            citations=chat_messages.link_citations(message.get("search_results"))
            if role == "assistant" and not kind
            else (),
            metadata={"content_type": kind} if kind else {},
        )
        if text.strip():
            parent = fragment_key


# -- Perplexity --------------------------------------------------------------------------------------------------------
# Perplexity threads: the Markdown that Perplexity exports for a thread, and the JSON of threads with entries, as data
# exports and exporters that save the site's own answers write it.

_MARKDOWN_SUFFIXES = (".md", ".markdown")
_LOGO = re.compile(r"<img src=\"https://[\w.]{1,80}perplexity\.ai/[^\"]{1,200}\"[^>\n]{0,200}/?>")
_LOGO_IN_HEAD = re.compile(rb"^\s*<img src=\"https://[\w.]{1,80}perplexity\.ai/")
_QUESTION = re.compile(r"^# (.+)$", re.MULTILINE)
_END_OF_ANSWER = re.compile(r"<div (?:style=\"text-align: center\"|align=\"center\")>⁂</div>")
_SOURCE = re.compile(r"^\[\^[\w-]{1,20}\]: (\S{1,2000})$", re.MULTILINE)
_ENTRY_FIELDS = re.compile(rb'"(?:query_str|context_uuid|backend_uuid)"\s*:')
_TIME_FIELDS = (
    *("entry_created_datetime", "created_datetime", "created_at", "timestamp"),
    *("entry_updated_datetime", "updated_datetime"),
)
_LIST_FIELDS = ("threads", "conversations", "entries", "messages")


class PerplexityImporter(FileImporter):
    name = "perplexity"
    title = "Perplexity threads (Markdown, JSON)"
    suffixes = (".json", *_MARKDOWN_SUFFIXES)

    def recognizes(self, probe: FileProbe) -> float:
        if not probe.is_text:
            return 0.0
        if probe.is_json():
            return 0.9 if len(set(_ENTRY_FIELDS.findall(probe.head))) > 1 else 0.0
        is_markdown = probe.suffix in _MARKDOWN_SUFFIXES
        return 0.9 if is_markdown and _LOGO_IN_HEAD.match(probe.head.removeprefix(b"\xef\xbb\xbf")) else 0.0

    def read_file(self, file: InputFile) -> Events:
        if file.suffix in _MARKDOWN_SUFFIXES:
            return _read_markdown(file)
        return _read_threads(file.json(), file.limits)


def _read_markdown(file: InputFile) -> Events:
    """The file has neither ids nor times: the thread is identified by its location."""
    text = _LOGO.sub("", file.text(), count=1)
    # Before the text is split into exchanges.
    require_messages(text.count("\n---\n"), file.limits)
    exchanges = [part for part in re.split(r"^---$", text, flags=re.MULTILINE) if part.strip()]
    messages: list[ChatMessage] = []
    for number, part in enumerate(exchanges, 1):
        # A question is a heading; its answer ends with the list of sources.
        exchange, key = part.strip(), f"{number} question"
        question = _QUESTION.match(exchange)
        if question is None:
            messages.append(ChatMessage(key=f"{number} answer", role="assistant", text=exchange))
            continue
        answer = _END_OF_ANSWER.split(exchange[question.end() :], maxsplit=1)[0].strip()
        citations = [{"title": "", "url": url} for url in dict.fromkeys(_SOURCE.findall(exchange))]
        messages += (
            ChatMessage(key=key, role="user", text=question[1].strip()),
            ChatMessage(key=f"{number} answer", role="assistant", text=answer, parent=key, citations=citations),
        )
    if not messages:
        raise InvalidParams("expected questions as headings, found none")
    title, modified = chat_messages.title_of(messages[0].text) or file.stem, file.modified_at
    draft = chat_messages.conversation_draft("perplexity", file.key, title, created=modified or None)
    yield from chat_messages.conversation_in_order("perplexity", draft, messages, file.limits)


def _read_threads(value: object, limits: ImportLimits) -> Events:
    entries = list(_entries(value))
    if not entries:
        raise InvalidParams("expected a thread with entries, found none")
    threads: dict[str, list[Fields]] = {}
    for entry in entries:
        # A list of entries may mix those of several threads.
        threads.setdefault(entry.line("context_uuid", "thread_id", "backend_uuid"), []).append(entry)
    for number, (key, thread) in enumerate(threads.items(), 1):
        if not key:
            yield FailedItem(f"thread {number}", "context_uuid: expected the id of the thread, got nothing")
            continue
        first = thread[0]
        draft = chat_messages.conversation_draft(
            "perplexity",
            key,
            first.line("thread_title") or chat_messages.title_of(first.text("query_str")),
            created=first.time(*_TIME_FIELDS),
            modified=thread[-1].time(*_TIME_FIELDS),
            slug=first.line("thread_url_slug"),
        )
        messages: list[ChatMessage] = []
        for position, entry in enumerate(thread, 1):
            own, time = entry.line("backend_uuid", "uuid") or str(position), entry.time(*_TIME_FIELDS)
            question = ChatMessage(key=f"{own} question", role="user", text=entry.text("query_str"), time=time)
            text, citations = _answer(entry, limits)
            answer = ChatMessage(
                key=f"{own} answer",
                role="assistant",
                text=text,
                time=time,
                model=entry.line("display_model", "model"),
                parent=question.key,
                citations=citations,
            )
            messages += (question, answer)
        yield from chat_messages.conversation_in_order("perplexity", draft, messages, limits)


def _entries(value: object) -> Iterator[Fields]:
    """Yields questions with their answers from an object with `entries`, a list of them, or a list of such threads."""
    if isinstance(value, dict) and "query_str" in value:
        yield Fields(value)
        return
    values = [value[field] for field in _LIST_FIELDS if field in value] if isinstance(value, dict) else [value]
    for found in values:
        for item in Fields.each(found):
            yield from _entries(item)


def _answer(entry: Fields, limits: ImportLimits) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """The answer is in the blocks of an entry, or in `text`, a text or the JSON of the steps that led to it."""
    for block in entry.objects("blocks"):
        if isinstance(block.get("markdown_block"), dict):
            markdown = block.nested("markdown_block")
            return markdown.text("answer") or "".join(markdown.texts("chunks")), _sources(entry)
    answer = entry.get("answer") or entry.get("text")
    steps = json_or_none(answer, limits) if isinstance(answer, str) and answer.startswith(("[", "{")) else None
    final = [step for step in Fields.each(steps) if step.line("step_type").upper() == "FINAL"]
    if final and isinstance(final[-1].get("content"), dict):
        answer = final[-1]["content"].get("answer")
        if isinstance(inner := json_or_none(answer, limits), dict):
            return Fields(inner).text("answer"), chat_messages.link_citations(inner.get("web_results"))
    return chat_messages.content_text(answer), _sources(entry)


def _sources(entry: Fields) -> Sequence[Mapping[str, Any]]:
    blocks = (block.nested("web_result_block") for block in entry.objects("blocks"))
    results = (result for block in blocks for result in block.objects("web_results"))
    return chat_messages.link_citations(
        [{**result, "title": result.get("name") or result.get("title")} for result in results]
    )
