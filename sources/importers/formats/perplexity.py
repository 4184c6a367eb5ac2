"""Perplexity threads: the Markdown that Perplexity exports for a thread, and the JSON of threads with entries, as data
exports and exporters that save the site's own answers write it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from config.errors import InvalidParams
from sources.importers.engine.batches import require_messages
from sources.importers.engine.chat_messages import (
    ChatMessage,
    content_text,
    conversation_draft,
    conversation_in_order,
    link_citations,
    title_of,
)
from sources.importers.engine.export_files import is_json
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import (
    FailedItem,
    file_key,
    file_size,
    is_text,
    modified_at,
    printable_name,
    read_json,
    read_text,
    stable_uuid,
)
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.values import (
    clean_line,
    json_or_none,
    objects,
    stored_time,
    text_or_empty,
    texts,
    valid_uuid,
)

_NAME = "perplexity"
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


class PerplexityImporter(Importer):
    name = _NAME
    title = "Perplexity threads (Markdown, JSON)"
    suffixes = (".json", *_MARKDOWN_SUFFIXES)

    def recognizes(self, probe: FileProbe) -> float:
        if probe.is_folder or not is_text(probe.head):
            return 0.0
        if is_json(probe.head):
            return 0.9 if len(set(_ENTRY_FIELDS.findall(probe.head))) > 1 else 0.0
        is_markdown = probe.path.suffix.lower() in _MARKDOWN_SUFFIXES
        return 0.9 if is_markdown and _LOGO_IN_HEAD.match(probe.head.removeprefix(b"\xef\xbb\xbf")) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        if path.suffix.lower() in _MARKDOWN_SUFFIXES:
            yield from _read_markdown(path, limits)
        else:
            yield from _read_threads(read_json(path, limits), limits)
        progress(file_size(path))


IMPORTER = PerplexityImporter()


def _read_markdown(path: Path, limits: ImportLimits) -> Iterator[ImportEvent]:
    """The file has neither ids nor times: the thread is identified by its location."""
    text = _LOGO.sub("", read_text(path, limits), count=1)
    # Before the text is split into exchanges.
    require_messages(text.count("\n---\n"), limits)
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
    modified = modified_at(path, limits)
    draft = conversation_draft(
        _NAME,
        stable_uuid(_NAME, "conversation", file_key(path, limits)),
        title_of(messages[0].text) or printable_name(path.stem),
        created=modified if isinstance(modified, str) else None,
    )
    yield from conversation_in_order(_NAME, draft, messages, limits)


def _read_threads(value: object, limits: ImportLimits) -> Iterator[ImportEvent]:
    entries = list(_entries(value))
    if not entries:
        raise InvalidParams("expected a thread with entries, found none")
    threads: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        key = clean_line(entry.get("context_uuid")) or clean_line(entry.get("thread_id"))
        # A list of entries may mix those of several threads.
        threads.setdefault(key or clean_line(entry.get("backend_uuid")), []).append(entry)
    for number, (key, thread) in enumerate(threads.items(), 1):
        if key:
            first, last = thread[0], thread[-1]
            draft = conversation_draft(
                _NAME,
                valid_uuid(key) or stable_uuid(_NAME, "conversation", key),
                clean_line(first.get("thread_title")) or title_of(text_or_empty(first.get("query_str"))),
                created=_time(first),
                modified=_time(last),
                slug=clean_line(first.get("thread_url_slug")),
            )
            messages: list[ChatMessage] = []
            for position, entry in enumerate(thread, 1):
                own = clean_line(entry.get("backend_uuid")) or clean_line(entry.get("uuid")) or str(position)
                question, time, (text, citations) = f"{own} question", _time(entry), _answer(entry, limits)
                model = clean_line(entry.get("display_model")) or clean_line(entry.get("model"))
                messages += (
                    ChatMessage(key=question, role="user", text=text_or_empty(entry.get("query_str")), time=time),
                    ChatMessage(
                        key=f"{own} answer",
                        role="assistant",
                        text=text,
                        time=time,
                        model=model,
                        parent=question,
                        citations=citations,
                    ),
                )
            yield from conversation_in_order(_NAME, draft, messages, limits)
        else:
            yield FailedItem(f"thread {number}", "context_uuid: expected the id of the thread, got nothing")


def _entries(value: object) -> Iterator[Mapping[str, Any]]:
    """Yields questions with their answers from an object with `entries`, a list of them, or a list of such threads."""
    if isinstance(value, Mapping) and "query_str" in value:
        yield value
        return
    values = [value[field] for field in _LIST_FIELDS if field in value] if isinstance(value, Mapping) else [value]
    for found in values:
        for item in objects(found):
            yield from _entries(item)


def _answer(entry: Mapping[str, Any], limits: ImportLimits) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """The answer is in the blocks of an entry, or in `text`, a text or the JSON of the steps that led to it."""
    for block in objects(entry.get("blocks")):
        markdown = block.get("markdown_block")
        if isinstance(markdown, Mapping):
            return text_or_empty(markdown.get("answer")) or "".join(texts(markdown.get("chunks"))), _sources(entry)
    answer = entry.get("answer") or entry.get("text")
    steps = json_or_none(answer, limits) if isinstance(answer, str) and answer.startswith(("[", "{")) else None
    final = [step for step in objects(steps) if clean_line(step.get("step_type")).upper() == "FINAL"]
    if final and isinstance(final[-1].get("content"), Mapping):
        answer = final[-1]["content"].get("answer")
        inner = json_or_none(answer, limits)
        if isinstance(inner, Mapping):
            return text_or_empty(inner.get("answer")), link_citations(inner.get("web_results"))
    return content_text(answer), _sources(entry)


def _sources(entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    blocks = (block.get("web_result_block") for block in objects(entry.get("blocks")))
    results = [result for block in blocks if isinstance(block, Mapping) for result in objects(block.get("web_results"))]
    return link_citations([{**result, "title": result.get("name") or result.get("title")} for result in results])


def _time(entry: Mapping[str, Any]) -> str | None:
    return next((time for field in _TIME_FIELDS if (time := stored_time(entry.get(field)))), None)
