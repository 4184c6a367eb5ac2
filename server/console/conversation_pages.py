"""The history page, a sidebar with all conversations and the open conversation next to it, and the page of the message
bus: its threads, the messages of one, and a search in this thread or in all of them."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import unescape
from itertools import groupby
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, structs
from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError, InvalidParams
from config.times import parse_time
from server.compat.agentchatbus import routes as bus
from server.compat.agentchatbus import schemas as bus_schemas
from server.compat.agentkit import conversations, schemas
from server.console.browser import see_other
from server.console.item_page import ItemSection
from server.console.markdown import TextRange, render_markdown
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import N_, PageForm, _, ngettext
from server.operations.items import ItemsRestore, restore_item
from server.operations.operation import NoArguments
from sources.importers.formats.conversation_archive import ConversationSummary
from sources.items import local_time, uri_of
from sources.query import Term
from sources.records import is_human_only
from sources.search.arguments import read_query
from sources.search.snippets import Highlighter
from sources.text.chunking import run_text_work

# A browser shows this many at once. Most conversations are shorter.
MESSAGES_MAX = 300
_MATCHES_MAX = 500


async def read_conversation(
    page: LibraryPage, viewer: Viewer, conversation_id: str, *, start: int = 0, message_id: str = "", query: str = ""
) -> Mapping[str, Any]:
    """Returns the values of the template: the part that begins with the message number `start`, or that contains a
    message."""
    request = schemas.ReadConversationRequest(
        conversation_id=conversation_id,
        messages_limit=MESSAGES_MAX,
        messages_offset=start,
        message_id=message_id or None,
    )
    conversation: schemas.ConversationDetail = await page.run(viewer, conversations.read_conversation, request)
    terms = read_query(query, page.settings).terms if query else ()
    messages = conversation.messages
    sections = await run_text_work(sum(len(one.content) for one in messages), message_sections, messages, terms)
    # Where the other parts of a long conversation begin, by the text of the link.
    offset = conversation.messages_offset or 0
    parts: dict[str, int] = {}
    if offset:
        parts |= {_("First messages"): 0, _("Earlier messages"): max(0, offset - MESSAGES_MAX)}
    if conversation.next_messages_offset is not UNSET:
        parts[_("Later messages")] = conversation.next_messages_offset
        parts[_("Latest messages")] = max(0, conversation.message_count - MESSAGES_MAX)
    return {
        "conversation": conversation,
        "messages": list(zip(sections, [message.seq for message in messages], strict=True)),
        "parts": parts,
    }


def message_sections(messages: Sequence[schemas.ConversationMessage], terms: Sequence[Term]) -> list[ItemSection]:
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


class ConversationsForm(PageForm, frozen=True, kw_only=True):
    q: str = ""
    archived: str = ""
    at: str = ""  # the message that is shown
    start: str = ""  # the first message of the part that is shown of a long conversation

    @property
    def first_message(self) -> int:
        return int(self.start) if self.start.isdecimal() and len(self.start) <= 9 else 0

    def address_of(self, conversation_id: str, **changes: str) -> str:
        """Returns the address of a conversation with the same list and search."""
        _, mark, query = self.address(**{"offset": self.offset, "at": "", "start": "", **changes}).partition("?")
        fragment = f"#{changes['at']}" if changes.get("at") else ""
        return f"{self.path}{'/' if conversation_id else ''}{quote(conversation_id, safe=':')}{mark}{query}{fragment}"

    def of_part(self, conversation_id: str, start: int) -> str:
        return self.address_of(conversation_id, start=str(start))


# -- date groups -------------------------------------------------------------------------------------------------------
# The headings under which a list of conversations is grouped by date: Today, Yesterday, Previous 7 days, October.

_MONTHS = (
    *(N_("January"), N_("February"), N_("March"), N_("April"), N_("May"), N_("June")),
    *(N_("July"), N_("August"), N_("September"), N_("October"), N_("November"), N_("December")),
)


def date_group(time: datetime, now: datetime) -> str:
    """Returns the heading of a time, by the days of the time zone of `now`."""
    date, today = time.astimezone(now.tzinfo).date(), now.date()
    days = (today - date).days
    if days <= 0:
        return _("Today")
    if days == 1:
        return _("Yesterday")
    for limit in (7, 30):
        if days <= limit:
            return ngettext("Previous %(num)s day", "Previous %(num)s days", limit)
    month = _(_MONTHS[date.month - 1])
    return month if date.year == today.year else _("%(month)s %(year)s", month=month, year=date.year)


# The sidebar grows by this many rows, up to the maximum. Then it is continued on another page.
_STEP = 100
_ROWS_MAX = 1_000
# What undoes an action.
_UNDO = {"archive": "unarchive", "delete": "restore"}
_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "pin": {"pinned": True},
    "unpin": {"pinned": False},
    "archive": {"archived": True},
    "unarchive": {"archived": False},
}


class HistoryForm(ConversationsForm, frozen=True, kw_only=True):
    path: ClassVar[str] = "/history"
    field_max_chars: ClassVar[int] = 300

    namespace: str = ""
    shown: str = ""  # how many rows the sidebar has

    @property
    def is_filtered(self) -> bool:
        return bool(self.q or self.namespace)

    @property
    def rows(self) -> int:
        number = int(self.shown) if self.shown.isdecimal() and len(self.shown) <= 6 else _STEP
        return min(max(number, _STEP), _ROWS_MAX)

    def more_rows(self, total: int) -> dict[str, str]:
        """Returns the choices that show further rows, or none if all are shown."""
        end = self.position + self.rows
        if end >= total:
            return {}
        if self.rows < _ROWS_MAX:
            return {"shown": str(self.rows + _STEP), "offset": self.offset}
        return {"offset": str(end)}


class HistoryPage(LibraryPage):
    done_sentences: ClassVar = {
        "rename": N_("The conversation is renamed."),
        "pin": N_("The conversation is pinned."),
        "unpin": N_("The conversation is no longer pinned."),
        "archive": N_("The conversation is archived."),
        "unarchive": N_("The conversation is back in the list."),
        "delete": N_("The conversation is deleted."),
        "restore": N_("The conversation is restored."),
    }

    async def show(self, request: Request) -> Response:
        form, current = HistoryForm.of(request), request.path_params.get("id", "")
        viewer = await self.admit(request, conversations.list_conversations)
        values: dict[str, Any] = {"groups": [], "pinned": [], "total": 0, "more": "", "namespaces": ()}
        values |= {"conversation": None, "messages": [], "parts": {}, "list_error": "", "reader_error": ""}
        status = 200
        try:
            # Pinned conversations come first, on the first page only.
            is_first = form.position == 0
            pinned, pinned_total = await self._rows(viewer, form, is_pinned=True) if is_first else ((), 0)
            rows, total = await self._rows(viewer, form, is_pinned=False)
            more = form.more_rows(total)
            namespaces: schemas.NamespaceList = await self.run(viewer, conversations.list_namespaces, NoArguments())
            now = local_time(viewer.context, self._runtime.settings)
            target = form.address_of(current, **more) if current else form.address(**more)
            groups = groupby(rows, lambda row: date_group(parse_time(row.updated_at), now))
            values |= {
                "pinned": pinned,
                "groups": [(heading, list(members)) for heading, members in groups],
                "total": total + pinned_total,
                "more": target if more else "",
                "namespaces": namespaces.namespaces,
            }
        except FlorilegiumError as error:
            values["list_error"], status = error.message, error.status
        # Separately: a conversation that is gone does not hide the list, and a bad search not the conversation.
        try:
            if current:
                values |= await read_conversation(self, viewer, current, start=form.first_message)
        except FlorilegiumError as error:
            values["reader_error"], status = error.message, error.status
        return await self.render(
            viewer,
            "history.html",
            status=status,
            form=form,
            current=current,
            confirms_deletion=request.query_params.get("confirm") == "delete",
            section="history",
            undo=_UNDO.get(request.query_params.get("done", ""), ""),
            changed=request.query_params.get("of", "")[:200],
            **values,
        )

    async def _rows(
        self, viewer: Viewer, form: HistoryForm, *, is_pinned: bool
    ) -> tuple[Sequence[ConversationSummary], int]:
        """Reads as many pages of the list as the rows need."""
        rows: list[ConversationSummary] = []
        while True:
            page: schemas.ConversationList = await self.run(
                viewer,
                conversations.list_conversations,
                schemas.ListConversationsRequest(
                    limit=form.rows - len(rows),
                    offset=form.position + len(rows),
                    namespace=form.namespace or None,
                    search=form.q or None,
                    pinned=is_pinned,
                    archived=bool(form.archived),
                ),
            )
            rows += page.conversations
            if not page.conversations or len(rows) >= min(form.rows, page.total - form.position):
                return rows, page.total

    async def change(self, request: Request) -> Response:
        """Renames, pins, archives, deletes or restores a conversation, and leads back to the list as it was. A
        conversation that was open stays open, unless it leaves the list."""
        viewer, values = await self.admit_form(request, conversations.update_conversation)
        form, conversation_id = HistoryForm.of(request), request.path_params["id"]
        action, current = values.get("action", ""), values.get("current", "")
        if action in _CHANGES or action == "rename":
            change = _CHANGES.get(action) or {"title": values.get("title", "").strip()}
            changed = schemas.UpdateConversationRequest(conversation_id=conversation_id, **change)
            await self.run(viewer, conversations.update_conversation, changed)
        elif action == "delete":
            deleted = schemas.DeleteConversationRequest(conversation_id=conversation_id)
            await self.run(viewer, conversations.delete_conversation, deleted)
        elif action == "restore":
            await self.run(viewer, restore_item, ItemsRestore(uri=uri_of("chats", conversation_id)))
        else:
            raise InvalidParams(f"action: expected an action of the page, got {action[:40]!r}")
        if current == conversation_id and action in ("archive", "unarchive", "delete"):
            current = ""
        if action in ("restore", "rename"):
            current = current or conversation_id
        target = form.address_of(current) if current else form.address(offset=form.offset)
        done = urlencode({"done": action, "of": conversation_id})
        return see_other(f"{target}{'&' if '?' in target else '?'}{done}")


_THREADS_MAX = 100
_MARK = re.compile("(</?mark>)")


class ThreadsForm(ConversationsForm, frozen=True, kw_only=True):
    path: ClassVar[str] = "/threads"
    field_max_chars: ClassVar[int] = 1000

    scope: str = ""  # `all` or `thread`
    before: str = ""  # the cursor of the list of threads


class ThreadsPage(LibraryPage):
    async def show(self, request: Request) -> Response:
        form, current = ThreadsForm.of(request), request.path_params.get("id", "")
        if not current or form.scope not in ("all", "thread"):
            form = structs.replace(form, scope="thread" if current and not form.q else "all")
        viewer = await self.admit(request, bus.list_threads)
        values: dict[str, Any] = {"threads": (), "more": "", "results": [], "notes": [], "index": 0, "links": {}}
        values |= {"conversation": None, "messages": [], "parts": {}, "reader_error": "", "search_error": ""}
        listed = bus_schemas.ListThreadsRequest(
            status="archived" if form.archived else None, limit=_THREADS_MAX, before=form.before or None
        )
        page: bus_schemas.ThreadList = await self.run(viewer, bus.list_threads, listed)
        values |= {"threads": page.threads, "total": page.total}
        if page.next_cursor:
            values["more"] = form.address_of(current, before=page.next_cursor)
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
            viewer, "threads.html", status=status, form=form, current=current, section="threads", **values
        )

    async def _results(self, viewer: Viewer, form: ThreadsForm, current: str) -> Mapping[str, Any]:
        in_thread = form.scope == "thread"
        limit = self._runtime.settings.message_page_max
        request = bus_schemas.BusSearchRequest(q=form.q, thread_id=current if in_thread else None, limit=limit)
        found: bus_schemas.BusSearchResults = await self.run(viewer, bus.search_bus, request)
        results = [_result(match, form) for match in found.results]
        addresses = [result["address"] for result in results]
        index = next((n for n, match in enumerate(found.results, 1) if match.message_id == form.at), 0)
        notes = [_("Read as: %(query)s", query=found.read_as)] if found.read_as is not UNSET else []
        notes += [f"{found.note[:1].upper()}{found.note[1:]}."] if found.note is not UNSET else []
        if len(results) == limit:
            notes.append(_("Only the best %(count)s messages are shown.", count=limit))
        links, count = {}, len(addresses)
        if addresses:
            # The results before and after the current one. After the last comes the first.
            previous = (index - 2) % count if index else count - 1
            links = {"previous": addresses[previous], "next": addresses[index % count]}
        return {"results": results, "notes": notes, "index": index, "links": links}


def _result(match: bus_schemas.FullMessageMatch, form: ThreadsForm) -> Mapping[str, Any]:
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
        "address": form.address_of(match.thread_id, at=match.message_id),
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
