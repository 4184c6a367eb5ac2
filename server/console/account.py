"""The account page: password, passkeys, browsers, usage, and the person's own data."""

from typing import ClassVar

from starlette.requests import Request
from starlette.responses import Response

from auth.accounts.service import PASSWORD_MAX_CHARS, AccountLink, Accounts, LinkKind, SignInFailed
from auth.authenticator import local_principal
from auth.context import build_context
from config.errors import Conflict, FlorilegiumError, InvalidParams, RateLimited
from config.logging import current_request_id
from server.console.browser import ACCOUNT_PATH, HOME_PATH, SIGN_IN_PATH, BrowserGuard, client_address, see_other
from server.console.page_handler import PersonalPage, Viewer
from server.console.pages import N_, _
from server.http_services import HttpServices
from server.operations import account, own_data
from server.operations.operation import NoArguments, is_recent
from server.operations.users import UserRequest, adopt_local, find_adoptable
from server.runtime import Runtime


class AccountPages(PersonalPage):
    done_sentences: ClassVar = {
        "password": N_("Your password is changed."),
        "session": N_("That browser is signed out."),
        "passkey": N_("The passkey is added. You can sign in with it now."),
        "passkey-removed": N_("The passkey is removed."),
        "deleted": N_("Your library is deleted."),
    }

    def __init__(self, runtime: Runtime, services: HttpServices) -> None:
        super().__init__(runtime, services.browser)
        self._accounts = services.accounts
        self._passkeys = services.passkeys

    async def show(self, request: Request) -> Response:
        return await self._page(request, await self.admit(request, account.get_account))

    async def change_password(self, request: Request) -> Response:
        session = await self._browser.require_session(request)
        values = await self._browser.check_form(request)
        try:
            new_password, address = values.get("new_password", ""), client_address(request)
            if new_password != values.get("repeated"):
                raise InvalidParams("password: the two new passwords differ")
            await self._accounts.change_password(session.user, values.get("password", ""), new_password, address)
        except (SignInFailed, RateLimited, InvalidParams) as error:
            if isinstance(error, SignInFailed):
                # Whoever stole a session may be guessing the password.
                self._browser.record(request, "password.change_failed", session.user.id)
                error = SignInFailed("the current password is wrong")
            return await self._page(request, await self.admit(request, account.get_account), error)
        self._browser.record(request, "password.change", session.user.id)
        # Changing the password ended all sessions, this one included.
        return await self._browser.sign_in(request, session.user, f"{ACCOUNT_PATH}?done=password", method="password")

    async def end_sessions(self, request: Request) -> Response:
        """Ends the session that the form names, or all if it names none."""
        viewer, values = await self.admit_form(request, account.end_browser_sessions)
        if "session" not in values:
            await self.run(viewer, account.end_browser_sessions, NoArguments())
            return await self._browser.sign_out(request)
        sessions: account.BrowserList = await self.run(viewer, account.list_browser_sessions, NoArguments())
        # It may have ended since the page was loaded, which is what the person wanted.
        if values["session"] in {one.id for one in sessions.sessions}:
            ended = account.BrowserSessionRequest(id=values["session"])
            await self.run(viewer, account.end_browser_session, ended)
        return see_other(f"{ACCOUNT_PATH}?done=session")

    async def show_deletion(self, request: Request) -> Response:
        return await self._deletion_page(request, await self.admit(request, own_data.prepare_deletion))

    async def delete(self, request: Request) -> Response:
        """Deletes the library, or the account with it, if the person typed the name of the account."""
        viewer, values = await self.admit_form(request, own_data.prepare_deletion)
        own = await self._account(viewer)
        is_account = values.get("what") == "account"
        operation = own_data.delete_account if is_account else own_data.delete_data
        try:
            if values.get("name", "").strip() != own.name:
                raise InvalidParams(f"name: type {own.name} to confirm")
            confirmation = own_data.AccountDeletionRequest(
                token=values.get("token", ""), delete_groups=values.get("delete_groups") == "on"
            )
            await self.run(viewer, operation, confirmation)
        except (InvalidParams, Conflict) as error:
            return await self._deletion_page(request, viewer, error)
        if not is_account:
            return see_other(f"{ACCOUNT_PATH}?done=deleted")
        return await self._browser.sign_out(request, f"{SIGN_IN_PATH}?deleted=yes")

    async def _account(self, viewer: Viewer) -> account.Account:
        own: account.Account = await self.run(viewer, account.get_account, NoArguments())
        return own

    async def _page(self, request: Request, viewer: Viewer, error: FlorilegiumError | str = "") -> Response:
        settings, session = self._runtime.settings, await self._browser.session_of(request)
        sessions: account.BrowserList = await self.run(viewer, account.list_browser_sessions, NoArguments())
        passkeys: account.PasskeyList = await self.run(viewer, account.list_passkeys, NoArguments())
        usage: account.UsageResponse = await self.run(viewer, account.get_usage, NoArguments())
        return await self.render(
            request,
            viewer,
            "account.html",
            error=error,
            account=await self._account(viewer),
            usage=usage,
            is_local=session is None,
            sessions=sessions.sessions,
            has_password=settings.password_sign_in and await self._accounts.has_password(viewer.context.user_id),
            min_chars=settings.password_min_chars,
            max_chars=PASSWORD_MAX_CHARS,
            has_passkeys=settings.passkey_sign_in and session is not None,
            passkeys=passkeys.passkeys,
            passkey_domain=self._passkeys.rp_id,
            can_add_passkey=session is not None and is_recent(session.created_at),
            has_connections=settings.has_oauth_server and session is not None,
            section="account",
        )

    async def _deletion_page(self, request: Request, viewer: Viewer, error: FlorilegiumError | str = "") -> Response:
        preview: own_data.DeletionPreview = await self.run(viewer, own_data.prepare_deletion, NoArguments())
        return await self.render(
            request,
            viewer,
            "delete-account.html",
            error=error,
            preview=preview,
            account=await self._account(viewer),
            is_local=await self._browser.session_of(request) is None,
            section="account",
        )


# -- link page ---------------------------------------------------------------------------------------------------------
# The page of a link that creates an account or sets a password.


# The title of each page, what it says, and its button.
_TEXTS: dict[LinkKind, tuple[str, str, str]] = {
    "setup": (
        N_("Set up this server"),
        N_("Create the first account. It can manage this server."),
        N_("Create account"),
    ),
    "invitation": (N_("Create your account"), N_("You are invited to use this server."), N_("Create account")),
    "reset": (N_("Set a new password"), N_("Afterwards you are signed out in all other browsers."), N_("Set password")),
}


class LinkPage:
    def __init__(self, runtime: Runtime, browser: BrowserGuard, accounts: Accounts, kind: LinkKind) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
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
            return await self._page(request, link, name, error)
        action = "password.change" if self._kind == "reset" else "user.add"
        self._browser.record(request, action, user.id, target=user.id, detail=user.role)
        if values.get("adopt_local") and self._kind == "setup":
            context = build_context(local_principal(user), self._runtime.data_root, current_request_id())
            try:
                await adopt_local.handler(context, self._runtime, UserRequest(name=user.name))
            except FlorilegiumError as error:
                retry = f"sign in, and run `florilegium user adopt-local {user.name}`"
                problem = f"the account was created, but it did not get the library ({error.message})"
                raise Conflict(f"{problem}; {retry}") from error
        return await self._browser.sign_in(request, user, HOME_PATH, method=f"{self._kind} link", is_by_password=True)

    async def _page(
        self, request: Request, link: AccountLink, name: str = "", error: FlorilegiumError | str = ""
    ) -> Response:
        title, introduction, button = _TEXTS[self._kind]
        # The first account can take over what the server had before there were accounts.
        adoptable = await find_adoptable(self._runtime) if self._kind == "setup" else None
        return await self._browser.render(
            request,
            "new-password.html",
            adoptable=adoptable.name if adoptable is not None and not self._settings.storage_url else "",
            error=error,
            name=link.name or name[:128],
            is_name_fixed=bool(link.name),
            min_chars=self._settings.password_min_chars,
            max_chars=PASSWORD_MAX_CHARS,
            title=_(title),
            introduction=_(introduction),
            button=_(button),
        )
