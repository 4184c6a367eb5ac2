"""Passkeys on the sign-in and account pages. Their script, `passkeys.js`, asks the device and sends ordinary forms."""

from starlette.requests import Request
from starlette.responses import Response

from auth.accounts.passkeys import Passkeys
from auth.accounts.throttle import SignInFailed
from auth.browser_sessions import BrowserSession
from config.errors import Conflict
from server.console.browser import ACCOUNT_PATH, BrowserGuard, safe_path, see_other, sign_in_required

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
        partial = await self._browser.partial_session_of(request)
        if partial is not None and partial.user.id != user.id:
            raise SignInFailed("this passkey belongs to another account than the password", user.id)
        return await self._browser.sign_in(request, user, safe_path(values.get("next", "")), method="passkey")

    async def show_second_factor(self, request: Request) -> Response:
        """The page for someone who has entered a password where a passkey is required, too."""
        target = safe_path(request.query_params.get("next", ""))
        partial = await self._browser.partial_session_of(request)
        if partial is None:
            return see_other(target)
        return await self._browser.render(
            request,
            "second-factor.html",
            name=partial.user.name,
            has_passkey=bool(await self._passkeys.list(partial.user.id)),
            passkey_domain=self._passkeys.rp_id,
            next=target,
            error="",
        )

    async def first_passkey_options(self, request: Request) -> Response:
        partial = await self._require_first_passkey(request)
        await self._browser.check_form(request)
        return _json(await self._passkeys.registration_options(partial.user, self._browser.form_secret(request)))

    async def add_first_passkey(self, request: Request) -> Response:
        """Adds the first passkey of someone who has only a password, and signs them in."""
        partial = await self._require_first_passkey(request)
        values = await self._browser.check_form(request)
        user, name = partial.user, values.get("name", "").strip() or "Passkey"
        secret, origin = self._browser.form_secret(request), self._browser.own_origin(request)
        await self._passkeys.register(user, secret, origin, values.get("credential", ""), name, is_first=True)
        self._browser.record(request, "passkey.add", user.id, target=name)
        return await self._browser.sign_in(request, user, safe_path(values.get("next", "")), method="first passkey")

    async def _require_first_passkey(self, request: Request) -> BrowserSession:
        """A password must not be enough to add a passkey to an account that has one."""
        partial = await self._browser.partial_session_of(request)
        if partial is None:
            raise sign_in_required(request)
        self._browser.require_recent(partial)
        if await self._passkeys.list(partial.user.id):
            raise Conflict("this account has a passkey; use it to sign in")
        return partial

    async def registration_options(self, request: Request) -> Response:
        session = await self._browser.require_recent_session(request)
        await self._browser.check_form(request)
        return _json(await self._passkeys.registration_options(session.user, session.csrf_token))

    async def register(self, request: Request) -> Response:
        session = await self._browser.require_recent_session(request)
        values = await self._browser.check_form(request)
        name = values.get("name", "").strip() or "Passkey"
        origin = self._browser.own_origin(request)
        await self._passkeys.register(session.user, session.csrf_token, origin, values.get("credential", ""), name)
        self._browser.record(request, "passkey.add", session.user.id, target=name)
        return see_other(f"{ACCOUNT_PATH}?done=passkey")

    async def remove(self, request: Request) -> Response:
        session = await self._browser.require_recent_session(request)
        values = await self._browser.check_form(request)
        await self._passkeys.remove(session.user.id, values.get("passkey", ""))
        self._browser.record(request, "passkey.remove", session.user.id)
        return see_other(f"{ACCOUNT_PATH}?done=passkey-removed")


def _json(text: str) -> Response:
    return Response(text, 200, _JSON_HEADERS, "application/json")
