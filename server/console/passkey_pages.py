"""Passkeys on the sign-in and account pages. Their script, `passkeys.js`, asks the device and sends ordinary forms."""

from starlette.requests import Request
from starlette.responses import Response

from auth.accounts.passkeys import Passkeys
from auth.accounts.throttle import SignInFailed
from auth.browser_sessions import BrowserSession
from server.console.browser import ACCOUNT_PATH, BrowserGuard, safe_path, see_other
from server.rest.operation import SignInNeeded

_JSON_HEADERS = {"Cache-Control": "no-store"}


class PasskeyPages:
    def __init__(self, browser: BrowserGuard, passkeys: Passkeys) -> None:
        self._browser = browser
        self._passkeys = passkeys

    async def sign_in_options(self, request: Request) -> Response:
        await self._browser.check_form(request)
        return _json(await self._passkeys.sign_in_options(self._browser.form_secret(request)))

    async def sign_in(self, request: Request) -> Response:
        values = await self._browser.check_form(request)
        secret, origin = self._browser.form_secret(request), self._browser.own_origin(request)
        try:
            user = await self._passkeys.sign_in(secret, origin, values.get("credential", ""))
        except SignInFailed as error:
            if error.user_id:  # not for passkeys that do not exist, which anyone can make up
                self._browser.record(request, "sign_in.failed", error.user_id, detail="passkey")
            raise
        return await self._browser.sign_in(request, user, safe_path(values.get("next", "")), method="passkey")

    async def registration_options(self, request: Request) -> Response:
        session = await self._require_recent(request)
        await self._browser.check_form(request)
        return _json(await self._passkeys.registration_options(session.user, session.csrf_token))

    async def register(self, request: Request) -> Response:
        session = await self._require_recent(request)
        values = await self._browser.check_form(request)
        name = values.get("name", "").strip() or "Passkey"
        origin = self._browser.own_origin(request)
        await self._passkeys.register(session.user, session.csrf_token, origin, values.get("credential", ""), name)
        self._browser.record(request, "passkey.add", session.user.id, target=name)
        return see_other(f"{ACCOUNT_PATH}?done=passkey")

    async def remove(self, request: Request) -> Response:
        session = await self._require_recent(request)
        values = await self._browser.check_form(request)
        await self._passkeys.remove(session.user.id, values.get("passkey", ""))
        self._browser.record(request, "passkey.remove", session.user.id)
        return see_other(f"{ACCOUNT_PATH}?done=passkey-removed")

    async def _require_recent(self, request: Request) -> BrowserSession:
        session = await self._browser.require_session(request)
        if not self._passkeys.can_register(session):
            raise SignInNeeded("sign out and sign in again")
        return session


def _json(text: str) -> Response:
    return Response(text, 200, _JSON_HEADERS, "application/json")
