"""The routes of the pages to sign in, of the account, and of administration."""

from typing import get_args

from starlette.routing import BaseRoute, Route

from auth.accounts.links import LinkKind
from server.console.account import AccountPages
from server.console.admin_pages import USERS_PATH, AdminPages
from server.console.browser import ACCOUNT_PATH, SECOND_FACTOR_PATH, SIGN_IN_PATH
from server.console.link_page import LinkPage
from server.console.openid_pages import OpenIdPages
from server.console.page_handler import PageFunction, PageHandler
from server.console.passkey_pages import PasskeyPages
from server.console.sign_in import SignInPages
from server.http_services import HttpServices
from server.runtime import Runtime


def console_routes(runtime: Runtime, services: HttpServices) -> list[BaseRoute]:
    """A server for one user has no pages to sign in."""
    has_accounts = runtime.settings.is_auth_configured
    return [*(_sign_in_routes(runtime, services) if has_accounts else ()), *_account_routes(runtime, services)]


def _account_routes(runtime: Runtime, services: HttpServices) -> list[BaseRoute]:
    account, admin = AccountPages(runtime, services), AdminPages(runtime, services)

    def page(path: str, get: PageFunction | None = None, post: PageFunction | None = None) -> Route:
        return Route(path, PageHandler(runtime.settings, services.browser, get=get, post=post))

    sign_in_forms = [
        page("/account/password", post=account.change_password),
        page("/account/sessions", post=account.end_sessions),
        page("/account/notices", post=services.browser.dismiss_notices),
    ]
    return [
        page(ACCOUNT_PATH, account.show),
        *(sign_in_forms if runtime.settings.is_auth_configured else ()),
        page("/account/delete", account.show_deletion, account.delete),
        page("/admin", admin.overview),
        page(USERS_PATH, admin.users, admin.add_user),
        page(USERS_PATH + "/{name}", admin.user, admin.change_user),
        page("/admin/invitations", post=admin.invite),
        page("/admin/invitations/revoke", post=admin.revoke_invitation),
        page("/admin/audit", admin.audit),
    ]


def _sign_in_routes(runtime: Runtime, services: HttpServices) -> list[BaseRoute]:
    settings, browser, accounts = runtime.settings, services.browser, services.accounts
    sign_in, openid = SignInPages(settings, browser, accounts), OpenIdPages(browser, services.openid)
    passkeys = PasskeyPages(browser, services.passkeys)
    links = {kind: LinkPage(settings, browser, accounts, kind) for kind in get_args(LinkKind)}

    def page(path: str, get: PageFunction | None = None, post: PageFunction | None = None) -> Route:
        return Route(path, PageHandler(settings, browser, get=get, post=post))

    link_routes = [page(f"/{kind}/{{secret}}", link.show, link.use) for kind, link in links.items()]
    passkey_routes = [
        page("/sign-in/passkey", post=passkeys.sign_in),
        page("/sign-in/passkey/options", post=passkeys.sign_in_options),
        page(SECOND_FACTOR_PATH, passkeys.show_second_factor, passkeys.add_first_passkey),
        page(f"{SECOND_FACTOR_PATH}/options", post=passkeys.first_passkey_options),
        page("/account/passkeys", post=passkeys.register),
        page("/account/passkeys/options", post=passkeys.registration_options),
        page("/account/passkeys/remove", post=passkeys.remove),
    ]
    return [
        page(SIGN_IN_PATH, sign_in.show, sign_in.sign_in),
        page("/sign-in/openid/{provider}", openid.start),
        page("/sign-in/openid/{provider}/callback", openid.complete),
        page("/sign-out", post=sign_in.sign_out),
        *(passkey_routes if settings.passkey_sign_in else ()),
        *(link_routes if settings.password_sign_in else ()),
    ]
