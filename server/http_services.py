"""The services that only HTTP needs: the API of AgentKit, and accounts and the guard of the web pages.

They are not part of the runtime because they import Starlette, which stdio must not load.
"""

from msgspec import Struct

from auth.accounts.passkeys import Passkeys
from auth.accounts.service import Accounts
from auth.browser_sessions import Notices
from auth.openid import OpenIdSignIn
from server.compat.agentkit.conversations import AgentKit
from server.console.browser import BrowserGuard
from server.metrics import Metrics
from server.runtime import Runtime


class HttpServices(Struct, frozen=True, kw_only=True):
    agentkit: AgentKit
    accounts: Accounts
    passkeys: Passkeys
    openid: OpenIdSignIn
    browser: BrowserGuard
    metrics: Metrics


def build_http_services(runtime: Runtime, metrics: Metrics | None = None) -> HttpServices:
    knowledge, database = runtime.knowledge, runtime.registry.database
    accounts = Accounts(runtime.settings, database, runtime.stores.make_limit)
    notices = Notices(database, runtime.settings)
    return HttpServices(
        agentkit=AgentKit(
            runtime.settings, runtime.libraries, knowledge.aggregator, knowledge.retriever, runtime.open_streams
        ),
        accounts=accounts,
        passkeys=Passkeys(runtime.settings, database, runtime.stores.used_tokens),
        openid=OpenIdSignIn(runtime.settings, runtime.registry),
        browser=BrowserGuard(runtime.settings, runtime.browser_sessions, runtime.audit, accounts, notices),
        metrics=metrics or Metrics(),
    )
