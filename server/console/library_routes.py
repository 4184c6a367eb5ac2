"""The routes of the pages that show a library, and of the files that pages load."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from server.console.assets import ASSET_PATH, FAVICON_PATH, Assets
from server.console.connect_page import CONNECT_PATH, ConnectPages
from server.console.conversation_forms import ConversationForms
from server.console.edit_page import EditPages
from server.console.follow_forms import FOLLOWS_PATH
from server.console.history_page import HistoryPage
from server.console.import_page import IMPORT_PATH, ImportPage
from server.console.item_page import NOTE_IMAGE, PERMALINK, ItemPage
from server.console.library_page import LibraryBrowser
from server.console.page_handler import PageFunction, PageHandler
from server.console.search_page import SearchPage
from server.console.threads_page import ThreadsPage
from server.http_services import HttpServices
from server.runtime import Runtime
from server.version import VERSION

_INDEX = {
    "name": "florilegium",
    "version": VERSION,
    "mcp": "/mcp",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "health": "/healthz",
}


def library_page_routes(runtime: Runtime, services: HttpServices) -> list[BaseRoute]:
    browser = services.browser
    assets, edit = Assets(runtime.admission), EditPages(runtime, browser)
    imports, connect = ImportPage(runtime, browser), ConnectPages(runtime, browser)
    history, threads = HistoryPage(runtime, services), ThreadsPage(runtime, services)
    changes, items = ConversationForms(runtime, services), ItemPage(runtime, browser)

    def page(path: str, get: PageFunction | None = None, post: PageFunction | None = None) -> Route:
        return Route(path, PageHandler(runtime.settings, browser, get=get, post=post))

    return [
        Route(ASSET_PATH, assets.file),
        Route(FAVICON_PATH, assets.favicon),
        page("/", IndexPage(SearchPage(runtime, browser)).show),
        page("/library", LibraryBrowser(runtime, browser).show),
        page("/library/bulk", post=edit.bulk),
        page("/history", history.show),
        page("/history/{id}", history.show, changes.change),
        page("/threads", threads.show),
        page("/threads/{id}", threads.show),
        page("/new", edit.show_new, edit.create),
        page("/edit/{source}/{id:path}", edit.show_edit, edit.edit),
        page("/tag/{source}/{id:path}", post=edit.tag),
        page("/delete/{source}/{id:path}", post=edit.delete),
        page("/restore", post=edit.restore),
        page(CONNECT_PATH, connect.show),
        page(f"{CONNECT_PATH}/keys", post=connect.create_key),
        page(f"{CONNECT_PATH}/keys/revoke", post=connect.revoke_key),
        page(f"{CONNECT_PATH}/applications", post=connect.disconnect),
        page(f"{CONNECT_PATH}/test", post=connect.test),
        page(IMPORT_PATH, imports.show, imports.upload),
        page(f"{IMPORT_PATH}/cancel", post=imports.cancel),
        page(FOLLOWS_PATH, post=imports.follow),
        page(f"{FOLLOWS_PATH}/change", post=imports.follows.change),
        page(NOTE_IMAGE, items.show_image),
        Route(PERMALINK, items),
    ]


class IndexPage:
    """The search page for browsers, and addresses of this server for programs."""

    def __init__(self, search: SearchPage) -> None:
        self._search = search

    async def show(self, request: Request) -> Response:
        if request.scope["path"] != "/":  # a route also matches its path followed by a line break
            raise HTTPException(404)
        wants_html = "text/html" in request.headers.get("accept", "").lower()
        response = await self._search.show(request) if wants_html else JSONResponse(_INDEX)
        response.headers["Vary"] = "Accept"
        return response
