"""The page on which people see the applications that have access to their library, and disconnect them."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from auth.oauth.grants import GrantRecord
from auth.oauth.metadata import CONNECTIONS_PATH
from auth.principal import SCOPES
from server.console.browser import BrowserGuard, see_other
from server.oauth.consent import SCOPE_WORDS
from server.oauth.services import OAuthServices


class ConnectionsPage:
    def __init__(self, services: OAuthServices, browser: BrowserGuard) -> None:
        self._services = services
        self._browser = browser

    async def show(self, request: Request) -> Response:
        session = await self._browser.require_session(request)
        grants = await self._services.grants.list(session.user.id)
        connections = [_connection(grant) for grant in grants]
        return await self._browser.render(
            request, "connections.html", action=CONNECTIONS_PATH, connections=connections, session=session
        )

    async def revoke(self, request: Request) -> Response:
        form = await self._browser.check_form(request)
        session = await self._browser.require_session(request)
        grant = await self._services.grants.revoke(session.user.id, form.get("connection", ""))
        self._services.record("connection.revoke", grant, request)
        return see_other(CONNECTIONS_PATH)


def _connection(grant: GrantRecord) -> dict[str, object]:
    return {
        "id": grant.id,
        "name": grant.client_name,
        "client_id": grant.client_id,
        "scopes": [SCOPE_WORDS[scope] for scope in SCOPES if scope in grant.scopes],
        "sources": "all sources" if grant.sources is None else ", ".join(sorted(grant.sources)),
        "profile": grant.profile,
        "created": _time(grant.created_at),
        "last_used": f"last used {_time(grant.last_used_at)}" if grant.last_used_at is not None else "never used",
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
