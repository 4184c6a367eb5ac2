"""The page of a link that creates an account or sets a password."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from auth.accounts.links import AccountLink, LinkKind
from auth.accounts.service import Accounts
from config.errors import Conflict, InvalidParams
from config.settings import Settings
from server.console.browser import HOME_PATH, BrowserGuard
from server.console.forms import form_error


class _Texts(NamedTuple):
    title: str
    introduction: str
    button: str


_TEXTS: dict[LinkKind, _Texts] = {
    "setup": _Texts("Set up this server", "Create the first account. It can manage this server.", "Create account"),
    "invitation": _Texts("Create your account", "You are invited to use this server.", "Create account"),
    "reset": _Texts("Set a new password", "Afterwards you are signed out in all other browsers.", "Set password"),
}


_ACTIONS: dict[LinkKind, str] = {"setup": "user.add", "invitation": "user.add", "reset": "password.change"}


class LinkPage:
    def __init__(self, settings: Settings, browser: BrowserGuard, accounts: Accounts, kind: LinkKind) -> None:
        self._settings = settings
        self._browser = browser
        self._accounts = accounts
        self._kind: LinkKind = kind

    async def show(self, request: Request) -> Response:
        """Shows the form. Opening a link does not use it: mail scanners and previews open links too."""
        link = await self._accounts.links.find(self._kind, request.path_params["secret"])
        return await self._page(request, link)

    async def use(self, request: Request) -> Response:
        values = await self._browser.check_form(request)
        secret, name, password = request.path_params["secret"], values.get("name", ""), values.get("password", "")
        link = await self._accounts.links.find(self._kind, secret)
        try:
            if password != values.get("repeated"):
                raise InvalidParams("password: the two passwords differ")
            user = await self._accounts.redeem_link(self._kind, secret, name, password)
        except (InvalidParams, Conflict) as error:
            return await self._page(request, link, name=name, error=form_error(error), status=error.status)
        self._browser.record(request, _ACTIONS[self._kind], user.id, target=user.id, detail=user.role)
        return await self._browser.sign_in(request, user, HOME_PATH, method=f"{self._kind} link", is_by_password=True)

    async def _page(
        self, request: Request, link: AccountLink, *, name: str = "", error: str = "", status: int = 200
    ) -> Response:
        return await self._browser.render(
            request,
            "new-password.html",
            status=status,
            name=link.name or name[:128],
            error=error,
            is_name_fixed=bool(link.name),
            min_chars=self._settings.password_min_chars,
            max_chars=self._settings.password_max_chars,
            **_TEXTS[self._kind]._asdict(),
        )
