"""The page of the message bus: its threads, the messages of one, and a search in this thread or in all of them."""

import re
from collections.abc import Mapping, Sequence
from html import unescape
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError
from server.compat.agentchatbus import routes, schemas
from server.compat.agentkit import conversations
from server.compat.agentkit.schemas import ConversationDetail, ConversationMessage, ReadConversationRequest
from server.console.item_page import ItemSection
from server.console.markdown import TextRange, render_markdown
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import PageForm
from sources.query import Term
from sources.records import is_human_only
from sources.search.arguments import read_query
from sources.search.snippets import Highlighter
from sources.text.chunking import run_text_work

# -- conversation reader -----------------------------------------------------------------------------------------------
# Reads the messages of one conversation for a page: a part of it, with the words of a query marked.

# A browser shows this many at once. Most conversations are shorter.
MESSAGES_MAX = 300
_MATCHES_MAX = 500


async def read_conversation(
    page: LibraryPage, viewer: Viewer, conversation_id: str, *, start: int = 0, message_id: str = "", query: str = ""
) -> Mapping[str, Any]:
    """Returns the values of the template: the part that begins with the message number `start`, or that contains a
    message."""
    request = ReadConversationRequest(
        conversation_id=conversation_id,
        messages_limit=MESSAGES_MAX,
        messages_offset=start,
        message_id=message_id or None,
    )
    conversation: ConversationDetail = await page.run(viewer, conversations.read_conversation, request)
    terms = read_query(query, page.settings).terms if query else ()
    messages = conversation.messages
    sections = await run_text_work(sum(len(one.content) for one in messages), message_sections, messages, terms)
    # Where the other parts of a long conversation begin, by the text of the link.
    offset = conversation.messages_offset or 0
    parts: dict[str, int] = {}
    if offset:
        parts |= {"First messages": 0, "Earlier messages": max(0, offset - MESSAGES_MAX)}
    if conversation.next_messages_offset is not UNSET:
        parts["Later messages"] = conversation.next_messages_offset
        parts["Latest messages"] = max(0, conversation.message_count - MESSAGES_MAX)
    return {
        "conversation": conversation,
        "messages": list(zip(sections, [message.seq for message in messages], strict=True)),
        "parts": parts,
    }


def message_sections(messages: Sequence[ConversationMessage], terms: Sequence[Term]) -> list[ItemSection]:
    highlighter = Highlighter(tuple(terms)) if terms else None
    sections = []
    for message in messages:
        ranges = highlighter.ranges(message.content)[:_MATCHES_MAX] if highlighter is not None else []
        sections.append(
            ItemSection(
                html=render_markdown(message.content, [TextRange(*one) for one in ranges]),
                kind="message",
                fragment=message.id,
                speaker=message.sender or message.role,
                role=message.role,
                time=message.timestamp,
                model=message.model or "",
                tool=message.tool_used or "",
                is_alternate=not message.is_canonical,
                is_human_only=is_human_only(message.metadata),
            )
        )
    return sections


_THREADS_MAX = 100
_MARK = re.compile("(</?mark>)")


class ThreadsForm(PageForm, frozen=True, kw_only=True):
    path: ClassVar[str] = "/threads"
    field_max_chars: ClassVar[int] = 1000

    q: str = ""
    scope: str = ""  # `all` or `thread`
    at: str = ""  # the message that is shown
    archived: str = ""
    before: str = ""  # the cursor of the list of threads
    start: str = ""  # the first message of the part that is shown of a long thread

    @property
    def first_message(self) -> int:
        return int(self.start) if self.start.isdecimal() and len(self.start) <= 9 else 0

    def of_thread(self, thread_id: str, **changes: str) -> str:
        """Returns the address of a thread with the same list and search."""
        _, mark, query = self.address(**{"at": "", "start": "", **changes}).partition("?")
        fragment = f"#{changes['at']}" if changes.get("at") else ""
        return f"{self.path}{'/' if thread_id else ''}{quote(thread_id, safe=':')}{mark}{query}{fragment}"

    def of_part(self, thread_id: str, start: int) -> str:
        return self.of_thread(thread_id, start=str(start))


class ThreadsPage(LibraryPage):
    async def show(self, request: Request) -> Response:
        form, current = ThreadsForm.of(request), request.path_params.get("id", "")
        if not current or form.scope not in ("all", "thread"):
            form = replace(form, scope="thread" if current and not form.q else "all")
        viewer = await self.admit(request, routes.list_threads)
        values: dict[str, Any] = {"threads": (), "more": "", "results": [], "notes": [], "index": 0, "links": {}}
        values |= {"conversation": None, "messages": [], "parts": {}, "reader_error": "", "search_error": ""}
        listed = schemas.ListThreadsRequest(
            status="archived" if form.archived else None, limit=_THREADS_MAX, before=form.before or None
        )
        page: schemas.ThreadList = await self.run(viewer, routes.list_threads, listed)
        values |= {"threads": page.threads, "total": page.total}
        if page.next_cursor:
            values["more"] = form.of_thread(current, before=page.next_cursor)
        status = 200
        try:
            if form.q:
                values |= await self._results(viewer, form, current)
        except FlorilegiumError as error:
            values["search_error"], status = error.message, error.status
        try:
            if current:
                values |= await read_conversation(
                    self, viewer, current, start=form.first_message, message_id=form.at, query=form.q
                )
        except FlorilegiumError as error:
            values["reader_error"], status = error.message, error.status
        return await self.render(
            request, viewer, "threads.html", status=status, form=form, current=current, section="threads", **values
        )

    async def _results(self, viewer: Viewer, form: ThreadsForm, current: str) -> Mapping[str, Any]:
        in_thread = form.scope == "thread"
        limit = self._runtime.settings.message_page_max
        request = schemas.BusSearchRequest(q=form.q, thread_id=current if in_thread else None, limit=limit)
        found: schemas.BusSearchResults = await self.run(viewer, routes.search_bus, request)
        results = [_result(match, form) for match in found.results]
        addresses = [result["address"] for result in results]
        index = next((n for n, match in enumerate(found.results, 1) if match.message_id == form.at), 0)
        notes = [f"Read as: {found.read_as}"] if found.read_as is not UNSET else []
        notes += [f"{found.note[:1].upper()}{found.note[1:]}."] if found.note is not UNSET else []
        if len(results) == limit:
            notes.append(f"Only the best {limit} messages are shown.")
        links, count = {}, len(addresses)
        if addresses:
            # The results before and after the current one. After the last comes the first.
            previous = (index - 2) % count if index else count - 1
            links = {"previous": addresses[previous], "next": addresses[index % count]}
        return {"results": results, "notes": notes, "index": index, "links": links}


def _result(match: schemas.FullMessageMatch, form: ThreadsForm) -> Mapping[str, Any]:
    metadata = msgspec.json.decode(match.metadata, type=dict[str, Any]) if match.metadata else {}
    return {
        "id": match.message_id,
        "topic": match.thread_topic,
        "author": match.author,
        "seq": match.seq,
        "time": match.created_at,
        "snippet": snippet_parts(match.snippet),
        "is_human_only": is_human_only(metadata),
        "is_current": match.message_id == form.at,
        "address": form.of_thread(match.thread_id, at=match.message_id),
    }


def snippet_parts(snippet: str) -> list[tuple[str, bool]]:
    """Splits the HTML of a snippet into texts, and says of each whether it is marked. The template escapes them
    again."""
    parts, is_marked = [], False
    for piece in _MARK.split(snippet):
        if piece in ("<mark>", "</mark>"):
            is_marked = piece == "<mark>"
        elif piece:
            parts.append((unescape(piece), is_marked))
    return parts
