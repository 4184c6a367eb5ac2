"""The services that only HTTP needs: accounts, and the guard of the web pages.

They are not part of the runtime because they import Starlette, which stdio must not load.
"""

from msgspec import Struct

from auth.accounts.passkeys import Passkeys
from auth.accounts.service import Accounts
from auth.browser_sessions import Notices
from auth.openid import OpenIdSignIn
from server.console.browser import BrowserGuard
from server.metrics import Metrics
from server.runtime import Runtime


class HttpServices(Struct, frozen=True, kw_only=True):
    accounts: Accounts
    passkeys: Passkeys
    openid: OpenIdSignIn
    browser: BrowserGuard
    metrics: Metrics


def build_http_services(runtime: Runtime, metrics: Metrics | None = None) -> HttpServices:
    database = runtime.registry.database
    accounts = Accounts(runtime.settings, database, runtime.stores.make_limit)
    notices = Notices(database, runtime.settings)
    return HttpServices(
        accounts=accounts,
        passkeys=Passkeys(runtime.settings, database, runtime.stores.used_tokens),
        openid=OpenIdSignIn(runtime.settings, runtime.registry, runtime.audit),
        browser=BrowserGuard(runtime.settings, runtime.browser_sessions, runtime.audit, accounts, notices),
        metrics=metrics or Metrics(),
    )
