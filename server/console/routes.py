"""The routes of the web pages."""

# About this package: `routes.py` lists every page with its functions; read it first, then `page_handler.py`: a page is
# admitted and runs the operations of REST, so that it can do nothing that REST cannot. `browser.py` protects forms and
# starts sessions, and `pages.py` renders the templates.

from typing import get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from auth.accounts.service import LinkKind
from server.console.about_pages import ABOUT_PATH, AboutPages
from server.console.account import AccountPages, LinkPage, SignInPages
from server.console.admin_pages import USERS_PATH, AdminPages
from server.console.ask_page import ASK_MODEL_PATH, ASK_PATH, AskModelPage, AskPage
from server.console.browser import ACCOUNT_PATH, SECOND_FACTOR_PATH, SIGN_IN_PATH
from server.console.connect_page import CONNECT_PATH, ConnectPages
from server.console.conversation_pages import HistoryPage, ThreadsPage
from server.console.edit_page import REVIEW_PATH, SHARE_PATH, EditPages, ShareHandler
from server.console.import_page import FOLLOWS_PATH, IMPORT_PATH, ImportPage
from server.console.item_page import NOTE_IMAGE, PDF_PAGE, PERMALINK, ItemPage
from server.console.manage_pages import ManagePages
from server.console.page_handler import FormPages, PageFunction, PageHandler
from server.console.pages import ASSET_PATH, FAVICON_PATH, MANIFEST_PATH, OFFLINE_PATH, SERVICE_WORKER_PATH, Assets
from server.console.palette import Palette
from server.console.search_page import LibraryBrowser, SearchPage
from server.console.sharing_page import ACTIONS, JOIN_PATH, SHARING_PATH, SharingPages
from server.http_services import HttpServices
from server.runtime import Runtime
from server.version import VERSION


def console_routes(runtime: Runtime, services: HttpServices) -> list[BaseRoute]:
    settings, browser, accounts = runtime.settings, services.browser, services.accounts
    account, admin = AccountPages(runtime, services), AdminPages(runtime, services)

    def page(path: str, get: PageFunction | None = None, post: PageFunction | None = None) -> Route:
        return Route(path, PageHandler(settings, browser, get=get, post=post))

    routes: list[BaseRoute] = [
        page(ACCOUNT_PATH, account.show),
        page("/account/delete", account.show_deletion, account.delete),
        page("/admin", admin.overview),
        page(USERS_PATH, admin.users, admin.add_user),
        page(USERS_PATH + "/{name}", admin.user, admin.change_user),
        page("/admin/invitations", post=admin.invite),
        page("/admin/invitations/revoke", post=admin.revoke_invitation),
        page("/admin/usage", admin.usage),
        page("/admin/audit", admin.audit),
        *(page(path, show, run) for path, (show, run) in FormPages(runtime, browser).pages().items()),
    ]
    if not settings.is_auth_configured:
        # A server for one user has no pages to sign in.
        return routes
    sign_in = SignInPages(settings, services)
    routes += [
        page("/account/password", post=account.change_password),
        page("/account/sessions", post=account.end_sessions),
        page("/account/notices", post=browser.dismiss_notices),
        page(SIGN_IN_PATH, sign_in.show, sign_in.sign_in),
        page("/sign-in/openid/{provider}", sign_in.start_openid),
        page("/sign-in/openid/{provider}/callback", sign_in.complete_openid),
        page("/sign-out", post=sign_in.sign_out),
    ]
    if settings.passkey_sign_in:
        routes += [
            page("/sign-in/passkey", post=sign_in.sign_in_with_passkey),
            page("/sign-in/passkey/options", post=sign_in.passkey_options),
            page(SECOND_FACTOR_PATH, sign_in.show_second_factor, sign_in.add_first_passkey),
            page(f"{SECOND_FACTOR_PATH}/options", post=sign_in.first_passkey_options),
            page("/account/passkeys", post=sign_in.add_passkey),
            page("/account/passkeys/options", post=sign_in.new_passkey_options),
            page("/account/passkeys/remove", post=sign_in.remove_passkey),
        ]
    if settings.password_sign_in:
        links = {kind: LinkPage(runtime, browser, accounts, kind) for kind in get_args(LinkKind)}
        routes += [page(f"/{kind}/{{secret}}", link.show, link.use) for kind, link in links.items()]
    return routes


# -- library routes ----------------------------------------------------------------------------------------------------
# The routes of the pages that show a library, and of the files that pages load.

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
    manage = ManagePages(runtime, browser)
    imports, connect = ImportPage(runtime, browser), ConnectPages(runtime, browser)
    history, threads = HistoryPage(runtime, browser), ThreadsPage(runtime, browser)
    browse = LibraryBrowser(runtime, browser)
    items, search, ask = ItemPage(runtime, browser), SearchPage(runtime, browser), AskPage(runtime, browser)
    ask_model, sharing = AskModelPage(runtime, browser), SharingPages(runtime, browser)

    def page(path: str, get: PageFunction | None = None, post: PageFunction | None = None) -> Route:
        return Route(path, PageHandler(runtime.settings, browser, get=get, post=post))

    # The search page for browsers, and addresses of this server for programs.
    async def show_index(request: Request) -> Response:
        if request.scope["path"] != "/":  # a route also matches its path followed by a line break
            raise HTTPException(404)
        wants_html = "text/html" in request.headers.get("accept", "").lower()
        response = await search.show(request) if wants_html else JSONResponse(_INDEX)
        response.headers["Vary"] = "Accept"
        return response

    return [
        Route(ASSET_PATH, assets.file),
        Route(FAVICON_PATH, assets.favicon),
        Route(MANIFEST_PATH, assets.manifest),
        Route(SERVICE_WORKER_PATH, assets.service_worker),
        page(OFFLINE_PATH, assets.offline),
        page(ABOUT_PATH, AboutPages(runtime.data_root).show),
        page("/", show_index),
        page("/palette", Palette(runtime, browser).find),
        page("/preferences", post=browser.set_preferences),
        page("/searches", post=search.save),
        page("/searches/delete", post=search.delete_saved),
        page("/library", browse.show),
        page("/library/timeline", browse.timeline),
        page(ASK_PATH, ask.show, ask.ask),
        page(ASK_MODEL_PATH, ask_model.show, ask_model.change),
        page("/library/bulk", post=manage.bulk),
        page("/tags", manage.show_tags),
        page("/tags/rename", manage.show_tags, manage.rename_tag),
        page("/tags/delete", post=manage.delete_tag),
        page("/duplicates", manage.show_duplicates, manage.find_duplicates),
        page("/duplicates/merge", post=manage.merge),
        page("/pin", post=manage.pin),
        page("/changes/undo", post=manage.undo),
        page(SHARING_PATH, sharing.show),
        *(page(f"{SHARING_PATH}/{action}", post=sharing.act(action)) for action in ACTIONS),
        page(JOIN_PATH, sharing.join),
        page("/history", history.show),
        page("/history/{id}", history.show, history.change),
        page("/threads", threads.show),
        page("/threads/{id}", threads.show),
        page("/new", edit.show_new, edit.create),
        Route(SHARE_PATH, ShareHandler(runtime.settings, browser, get=edit.show_shared, post=edit.receive_shared)),
        page(REVIEW_PATH, post=edit.review_shared),
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
        page(f"{FOLLOWS_PATH}/change", post=imports.change_follow),
        page(NOTE_IMAGE, items.show_image),
        page(PDF_PAGE, items.show_pdf_page),
        Route(PERMALINK, items),
    ]
