"""The pages to sign in and out."""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from auth.accounts.passkeys import relying_party_id
from auth.accounts.service import Accounts
from auth.accounts.throttle import SignInFailed
from config.errors import NotFound, RateLimited
from config.openid import OpenIdProvider
from config.settings import Settings
from server.console.browser import SIGN_IN_PATH, BrowserGuard, client_address, safe_path, second_factor_path, see_other
from server.console.forms import form_error
from server.error_responses import error_headers

_NAME_MAX_CHARS = 128


class SignInPages:
    def __init__(self, settings: Settings, browser: BrowserGuard, accounts: Accounts) -> None:
        self._settings = settings
        self._browser = browser
        self._accounts = accounts

    async def show(self, request: Request) -> Response:
        target = safe_path(request.query_params.get("next", ""))
        session, is_again = await self._browser.session_of(request), "again" in request.query_params
        if session is not None and not is_again:
            return see_other(target)
        if await self._browser.partial_session_of(request) is not None:
            return see_other(second_factor_path(target))
        if (provider := self._only_provider()) and "next" in request.query_params:
            # Nothing to choose. After signing out, the page is shown: there is no `next` then.
            return see_other(_start_path(provider, target))
        is_deleted = "deleted" in request.query_params
        done = "Your account is deleted." if is_deleted else "Please sign in again." if is_again else ""
        response = await self._page(request, target, done=done)
        if session is None:
            return response
        # A passkey is bound to the secret of the browser before sign-in, which a browser with a session may not have.
        return self._browser.with_form_secret(request, response, self._browser.form_secret(request))

    async def sign_in(self, request: Request) -> Response:
        values = await self._browser.check_form(request)
        if not self._settings.password_sign_in:
            raise NotFound("page", SIGN_IN_PATH)
        target, name = safe_path(values.get("next", "")), values.get("name", "")
        address, known_secret = client_address(request), self._browser.known_secret(request)
        try:
            user = await self._accounts.sign_in(name, values.get("password", ""), address, known_secret)
        except (SignInFailed, RateLimited) as error:
            if isinstance(error, SignInFailed):
                self._browser.record(request, "sign_in.failed", error.user_id, detail="password")
            response = await self._page(request, target, name=name, error=form_error(error), status=error.status)
            response.headers.update(error_headers(self._settings, error))
            return response
        return await self._browser.sign_in(request, user, target, method="password", is_by_password=True)

    async def sign_out(self, request: Request) -> Response:
        await self._browser.check_form(request)
        return await self._browser.sign_out(request)

    def _only_provider(self) -> OpenIdProvider | None:
        providers = self._settings.openid_providers
        return providers[0] if len(providers) == 1 and not self._settings.password_sign_in else None

    async def _page(
        self, request: Request, target: str, *, name: str = "", done: str = "", error: str = "", status: int = 200
    ) -> Response:
        return await self._browser.render(
            request,
            "sign-in.html",
            status=status,
            next=target,
            name=name[:_NAME_MAX_CHARS],
            done=done,
            error=error,
            has_passwords=self._settings.password_sign_in,
            has_passkeys=self._settings.passkey_sign_in,
            passkey_domain=relying_party_id(self._settings),
            providers=[(p.title, _start_path(p, target)) for p in self._settings.openid_providers],
        )


def _start_path(provider: OpenIdProvider, target: str) -> str:
    return f"{SIGN_IN_PATH}/openid/{provider.id}?next={quote(target, safe='/')}"
