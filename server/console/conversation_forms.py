"""The forms of the history page: rename, pin, archive, delete and restore a conversation."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from config.errors import InvalidParams
from server.compat.agentkit.routes import agentkit_operations
from server.compat.agentkit.schemas import DeleteConversationRequest, UpdateConversationRequest
from server.console.browser import see_other
from server.console.history_page import HistoryForm
from server.console.viewer import LibraryPage, Viewer
from server.http_services import HttpServices
from server.rest.items import ItemOperations
from server.runtime import Runtime
from server.tools.items import ItemsRestore
from server.tools.writing import LibraryWriter
from sources.items import uri_of

_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "pin": {"pinned": True},
    "unpin": {"pinned": False},
    "archive": {"archived": True},
    "unarchive": {"archived": False},
}


class ConversationForms(LibraryPage):
    def __init__(self, runtime: Runtime, services: HttpServices) -> None:
        super().__init__(runtime, services.browser)
        operations = {one.id: one for one in agentkit_operations(services.agentkit, runtime.settings)}
        writer = LibraryWriter(runtime.libraries, runtime.dispatcher.catalog.changes, runtime.settings)
        self._update = operations["update_conversation"]
        self._delete = operations["delete_conversation"]
        self._restore = ItemOperations(writer).restore()

    async def change(self, request: Request) -> Response:
        """Leads back to the list as it was. A conversation that was open stays open, unless it leaves the list."""
        viewer = await self.admit(request, self._update)
        values = await self._browser.check_form(request)
        form, conversation_id = HistoryForm.of(request), request.path_params["id"]
        action, current = values.get("action", ""), values.get("current", "")
        await self._run_action(viewer, conversation_id, action, values.get("title", ""))
        if current == conversation_id and action in ("archive", "unarchive", "delete"):
            current = ""
        if action in ("restore", "rename"):
            current = current or conversation_id
        target = form.of_conversation(current) if current else form.address(offset=form.offset)
        done = urlencode({"done": action, "of": conversation_id})
        return see_other(f"{target}{'&' if '?' in target else '?'}{done}")

    async def _run_action(self, viewer: Viewer, conversation_id: str, action: str, title: str) -> None:
        if action in _CHANGES:
            change = UpdateConversationRequest(conversation_id=conversation_id, **_CHANGES[action])
            await self.run(viewer, self._update, change)
        elif action == "rename":
            change = UpdateConversationRequest(conversation_id=conversation_id, title=title.strip())
            await self.run(viewer, self._update, change)
        elif action == "delete":
            await self.run(viewer, self._delete, DeleteConversationRequest(conversation_id=conversation_id))
        elif action == "restore":
            await self.run(viewer, self._restore, ItemsRestore(uri=uri_of("chats", conversation_id)))
        else:
            raise InvalidParams(f"action: expected an action of the page, got {action[:40]!r}")
