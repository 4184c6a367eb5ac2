"""The account page: password, passkeys, browsers, usage, and the person's own data."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from auth.accounts.throttle import SignInFailed
from auth.browser_sessions import BrowserSession
from config.errors import Conflict, FlorilegiumError, InvalidParams, RateLimited
from server.console.browser import ACCOUNT_PATH, SIGN_IN_PATH, client_address, see_other
from server.console.forms import form_error
from server.console.viewer import PersonalPage, Viewer
from server.http_services import HttpServices
from server.rest.account import Account, NoArguments, account_operations
from server.rest.browser_sessions import BrowserList, BrowserSessionRequest, PasskeyList, browser_session_operations
from server.rest.operation import Operation
from server.rest.own_data import DeletionPreview, DeletionRequest, own_data_operations
from server.rest.usage import UsageRequest, UsageResponse, usage_operation
from server.runtime import Runtime

_DONE = {
    "password": "Your password is changed.",
    "session": "That browser is signed out.",
    "passkey": "The passkey is added. You can sign in with it now.",
    "passkey-removed": "The passkey is removed.",
    "deleted": "Your library is deleted.",
}


class AccountPages(PersonalPage):
    def __init__(self, runtime: Runtime, services: HttpServices) -> None:
        super().__init__(runtime, services.browser)
        self._accounts = services.accounts
        self._passkeys = services.passkeys
        self._usage = usage_operation(runtime)
        self._operations: dict[str, Operation] = {
            operation.id: operation
            for operation in (
                *account_operations(runtime),
                *browser_session_operations(runtime, services.passkeys),
                *own_data_operations(runtime),
            )
        }

    async def show(self, request: Request) -> Response:
        viewer = await self.admit(request, self._operations["get_account"])
        return await self._page(request, viewer, done=_DONE.get(request.query_params.get("done", ""), ""))

    async def change_password(self, request: Request) -> Response:
        session = await self._browser.require_session(request)
        values = await self._browser.check_form(request)
        try:
            await self._change_password(request, session, values)
        except (SignInFailed, RateLimited, InvalidParams) as error:
            if isinstance(error, SignInFailed):
                self._browser.record(request, "password.change_failed", session.user.id)
            viewer = await self.admit(request, self._operations["get_account"])
            return await self._page(request, viewer, error=_problem(error), status=error.status)
        self._browser.record(request, "password.change", session.user.id)
        return await self._browser.sign_in(request, session.user, f"{ACCOUNT_PATH}?done=password", method="password")

    async def end_sessions(self, request: Request) -> Response:
        """Ends the session that the form names, or all if it names none."""
        viewer = await self.admit(request, self._operations["end_browser_sessions"])
        values = await self._browser.check_form(request)
        if "session" not in values:
            await self.run(viewer, self._operations["end_browser_sessions"], NoArguments())
            return await self._browser.sign_out(request)
        sessions: BrowserList = await self.run(viewer, self._operations["list_browser_sessions"], NoArguments())
        if values["session"] in {one.id for one in sessions.sessions}:
            ended = BrowserSessionRequest(id=values["session"])
            await self.run(viewer, self._operations["end_browser_session"], ended)
        return see_other(f"{ACCOUNT_PATH}?done=session")

    async def show_deletion(self, request: Request) -> Response:
        viewer = await self.admit(request, self._operations["prepare_deletion"])
        return await self._deletion_page(request, viewer)

    async def delete(self, request: Request) -> Response:
        """Deletes the library, or the account with it, if the person typed the name of the account."""
        viewer = await self.admit(request, self._operations["prepare_deletion"])
        values = await self._browser.check_form(request)
        account = await self._account(viewer)
        is_account = values.get("what") == "account"
        operation = self._operations["delete_account" if is_account else "delete_data"]
        try:
            if values.get("name", "").strip() != account.name:
                raise InvalidParams(f"name: type {account.name} to confirm")
            await self.run(viewer, operation, DeletionRequest(token=values.get("token", "")))
        except (InvalidParams, Conflict) as error:
            return await self._deletion_page(request, viewer, error=form_error(error), status=error.status)
        if not is_account:
            return see_other(f"{ACCOUNT_PATH}?done=deleted")
        return await self._browser.sign_out(request, f"{SIGN_IN_PATH}?deleted=yes")

    async def _change_password(self, request: Request, session: BrowserSession, values: Any) -> None:
        new_password, address = values.get("new_password", ""), client_address(request)
        if new_password != values.get("repeated"):
            raise InvalidParams("password: the two new passwords differ")
        await self._accounts.change_password(session.user, values.get("password", ""), new_password, address)

    async def _account(self, viewer: Viewer) -> Account:
        account: Account = await self.run(viewer, self._operations["get_account"], NoArguments())
        return account

    async def _page(
        self, request: Request, viewer: Viewer, *, done: str = "", error: str = "", status: int = 200
    ) -> Response:
        settings, session = self._runtime.settings, await self._browser.session_of(request)
        sessions: BrowserList = await self.run(viewer, self._operations["list_browser_sessions"], NoArguments())
        passkeys: PasskeyList = await self.run(viewer, self._operations["list_passkeys"], NoArguments())
        usage: UsageResponse = await self.run(viewer, self._usage, UsageRequest())
        return await self.render(
            request,
            viewer,
            "account.html",
            status=status,
            account=await self._account(viewer),
            usage=usage,
            is_local=session is None,
            sessions=sessions.sessions,
            has_password=settings.password_sign_in and await self._accounts.has_password(viewer.context.user_id),
            min_chars=settings.password_min_chars,
            max_chars=settings.password_max_chars,
            has_passkeys=settings.passkey_sign_in and session is not None,
            passkeys=passkeys.passkeys,
            passkey_domain=self._passkeys.rp_id,
            can_add_passkey=session is not None and self._browser.is_recent(session),
            has_connections=settings.has_oauth_server and session is not None,
            done=done,
            error=error,
            section="account",
        )

    async def _deletion_page(self, request: Request, viewer: Viewer, *, error: str = "", status: int = 200) -> Response:
        preview: DeletionPreview = await self.run(viewer, self._operations["prepare_deletion"], NoArguments())
        return await self.render(
            request,
            viewer,
            "delete-account.html",
            status=status,
            preview=preview,
            account=await self._account(viewer),
            is_local=await self._browser.session_of(request) is None,
            error=error,
            section="account",
        )


def _problem(error: FlorilegiumError) -> str:
    return "The current password is wrong." if isinstance(error, SignInFailed) else form_error(error)
