"""The history page: a sidebar with all conversations, and the open conversation next to it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from config.errors import FlorilegiumError, InvalidParams
from config.times import parse_time
from server.compat.agentkit import conversations, schemas
from server.console.browser import see_other
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import PageForm
from server.console.threads_page import read_conversation
from server.operations.items import ItemsRestore, restore_item
from server.operations.operation import NoArguments
from sources.importers.formats.conversation_archive import ConversationSummary
from sources.items import local_time, uri_of

# -- date groups -------------------------------------------------------------------------------------------------------
# The headings under which a list of conversations is grouped by date: Today, Yesterday, Previous 7 days, October.

T = TypeVar("T")


def date_group(time: datetime, now: datetime) -> str:
    """Returns the heading of a time, by the days of the time zone of `now`."""
    date, today = time.astimezone(now.tzinfo).date(), now.date()
    days = (today - date).days
    if days <= 0:
        return "Today"
    if days == 1:
        return "Yesterday"
    for limit in (7, 30):
        if days <= limit:
            return f"Previous {limit} days"
    return f"{date:%B}" if date.year == today.year else f"{date:%B} {date.year}"


def group_by_date(rows: Iterable[T], time_of: Callable[[T], str], now: datetime) -> list[tuple[str, list[T]]]:
    """Groups rows that are sorted by time."""
    groups = groupby(rows, lambda row: date_group(parse_time(time_of(row)), now))
    return [(heading, list(members)) for heading, members in groups]


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


class HistoryForm(PageForm, frozen=True, kw_only=True):
    path: ClassVar[str] = "/history"
    field_max_chars: ClassVar[int] = 300

    q: str = ""
    namespace: str = ""
    archived: str = ""
    shown: str = ""  # how many rows the sidebar has
    start: str = ""  # the first message of the part that is shown of a long conversation

    @property
    def is_filtered(self) -> bool:
        return bool(self.q or self.namespace)

    @property
    def rows(self) -> int:
        number = int(self.shown) if self.shown.isdecimal() and len(self.shown) <= 6 else _STEP
        return min(max(number, _STEP), _ROWS_MAX)

    @property
    def first_message(self) -> int:
        return int(self.start) if self.start.isdecimal() and len(self.start) <= 9 else 0

    def of_conversation(self, conversation_id: str, **changes: str) -> str:
        """Returns the address of a conversation with the same list next to it."""
        _, mark, query = self.address(**{"offset": self.offset, "start": "", **changes}).partition("?")
        return f"{self.path}/{quote(conversation_id, safe=':')}{mark}{query}"

    def of_part(self, conversation_id: str, start: int) -> str:
        return self.of_conversation(conversation_id, start=str(start))

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
        "rename": "The conversation is renamed.",
        "pin": "The conversation is pinned.",
        "unpin": "The conversation is no longer pinned.",
        "archive": "The conversation is archived.",
        "unarchive": "The conversation is back in the list.",
        "delete": "The conversation is deleted.",
        "restore": "The conversation is restored.",
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
            target = form.of_conversation(current, **more) if current else form.address(**more)
            values |= {
                "pinned": pinned,
                "groups": group_by_date(rows, lambda row: row.updated_at, now),
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
            request,
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
        target = form.of_conversation(current) if current else form.address(offset=form.offset)
        done = urlencode({"done": action, "of": conversation_id})
        return see_other(f"{target}{'&' if '?' in target else '?'}{done}")
