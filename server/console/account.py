"""The account page: password and sessions of the person who is signed in."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from auth.accounts.passkeys import Passkey, Passkeys
from auth.accounts.service import Accounts
from auth.accounts.throttle import SignInFailed
from auth.browser_sessions import BrowserSession, BrowserSessions
from config.errors import FlorilegiumError, InvalidParams, RateLimited
from config.settings import Settings
from config.times import format_time_seconds
from server.console.browser import ACCOUNT_PATH, BrowserGuard, client_address, see_other
from server.console.forms import form_error

_DONE = {
    "password": "Your password is changed.",
    "session": "That browser is signed out.",
    "passkey": "The passkey is added. You can sign in with it now.",
    "passkey-removed": "The passkey is removed.",
}
# In this order: Edge and Opera also name Chrome, and Chrome names Safari.
_BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "Firefox": "Firefox",
    "FxiOS": "Firefox",
    "Chrome": "Chrome",
    "CriOS": "Chrome",
    "Safari": "Safari",
}
_SYSTEMS = {"Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Windows": "Windows", "Mac": "Mac"}


class AccountPages:
    def __init__(
        self,
        settings: Settings,
        browser: BrowserGuard,
        sessions: BrowserSessions,
        accounts: Accounts,
        passkeys: Passkeys,
    ) -> None:
        self._settings = settings
        self._browser = browser
        self._sessions = sessions
        self._accounts = accounts
        self._passkeys = passkeys

    async def show(self, request: Request) -> Response:
        session = await self._browser.require_session(request)
        return await self._page(request, session, done=_DONE.get(request.query_params.get("done", ""), ""))

    async def change_password(self, request: Request) -> Response:
        session = await self._browser.require_session(request)
        values = await self._browser.check_form(request)
        new_password, address = values.get("new_password", ""), client_address(request)
        try:
            if new_password != values.get("repeated"):
                raise InvalidParams("password: the two new passwords differ")
            await self._accounts.change_password(session.user, values.get("password", ""), new_password, address)
        except (SignInFailed, RateLimited, InvalidParams) as error:
            if isinstance(error, SignInFailed):
                self._browser.record(request, "password.change_failed", session.user.id)
            return await self._page(request, session, error=_problem(error), status=error.status)
        known_secret = await self._accounts.remember_browser(session.user, self._browser.known_secret(request))
        self._browser.record(request, "password.change", session.user.id)
        return await self._browser.sign_in(
            request, session.user, f"{ACCOUNT_PATH}?done=password", method="password", known_secret=known_secret
        )

    async def end_sessions(self, request: Request) -> Response:
        """Ends the session that the form names, or all if it names none."""
        session = await self._browser.require_session(request)
        values = await self._browser.check_form(request)
        if "session" in values:
            await self._sessions.revoke(session.user.id, values["session"])
            self._browser.record(request, "sign_out", session.user.id, detail="another browser")
            return see_other(f"{ACCOUNT_PATH}?done=session")
        await self._sessions.revoke_all(session.user.id)
        self._browser.record(request, "sign_out", session.user.id, detail="everywhere")
        return await self._browser.sign_out(request)

    async def _page(
        self, request: Request, session: BrowserSession, *, done: str = "", error: str = "", status: int = 200
    ) -> Response:
        sessions = await self._sessions.list(session.user.id)
        return await self._browser.render(
            request,
            "account.html",
            status=status,
            session=session,
            sessions=[_session_row(row, session) for row in sessions],
            has_password=self._settings.password_sign_in and await self._accounts.has_password(session.user.id),
            min_chars=self._settings.password_min_chars,
            max_chars=self._settings.password_max_chars,
            has_passkeys=self._settings.passkey_sign_in,
            passkeys=[_passkey_row(row) for row in await self._passkeys.list(session.user.id)],
            passkey_domain=self._passkeys.rp_id,
            can_add_passkey=self._passkeys.can_register(session),
            has_connections=self._settings.has_oauth_server,
            done=done,
            error=error,
        )


def browser_name(agent: str) -> str:
    """Returns "Firefox on Windows" for a User-Agent header, or the header if it names no browser."""
    names = [name for token, name in _BROWSERS.items() if re.search(rf"{token}[A-Za-z]{{0,20}}/", agent)]
    systems = [name for token, name in _SYSTEMS.items() if token in agent] or (["Linux"] if "Linux" in agent else [])
    if not names:
        return agent or "Unknown browser"
    return f"{names[0]} on {systems[0]}" if systems else names[0]


def _session_row(row: BrowserSession, current: BrowserSession) -> dict[str, Any]:
    return {
        "id": row.id,
        "is_current": row.id == current.id,
        "agent": browser_name(row.agent),
        "address": row.address,
        "created_at": format_time_seconds(row.created_at)[:10],
        "used_at": format_time_seconds(row.used_at)[:10],
    }


def _passkey_row(row: Passkey) -> dict[str, Any]:
    used = format_time_seconds(row.last_used_at)[:10] if row.last_used_at else "never"
    return {"id": row.id, "name": row.name, "created_at": format_time_seconds(row.created_at)[:10], "used_at": used}


def _problem(error: FlorilegiumError) -> str:
    return "The current password is wrong." if isinstance(error, SignInFailed) else form_error(error)
